//! Convolutions without negative padding. XLA's CPU compiler reads outside of the input where the
//! padding before is negative and that after is positive.

use crate::{ConvolutionAttributes, Graph, Literal, Node, Op, passes::faults::rewritten};

/// Slices the input of each convolution with negative padding, so that none is left.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        slice_input(graph, node);
        None
    })
}

/// Makes the operand of a convolution a slice of its input instead of cutting it by padding.
fn slice_input(graph: &mut Graph, node: &mut Node) {
    let Op::Convolution(conv, ..) = &mut node.op else {
        return;
    };
    if (conv.padding.iter()).all(|&(low, high)| low >= 0 && high >= 0) {
        return;
    }
    let ty = graph.ty(node.operands[0]);
    let (mut starts, mut limits) = (vec![0; ty.rank()], ty.dims().to_vec());
    let mut is_padding = false;
    for (i, &dim) in conv.input.spatial.iter().enumerate() {
        let kept = Kept::of(ty.dims()[dim], conv, i);
        (starts[dim], limits[dim]) = (kept.start, kept.limit);
        conv.padding[i] = kept.padding;
        if kept.is_padding {
            is_padding = true;
            conv.input_dilation[i] = 1;
        }
    }
    let sizes: Vec<usize> = (starts.iter().zip(&limits))
        .map(|(start, limit)| limit - start)
        .collect();
    let ty = ty.with_dims(sizes);
    let (op, operands) = if is_padding {
        (Op::Constant(Literal::zero(&ty)), vec![])
    } else {
        let strides = vec![1; ty.rank()];
        let slice = Op::Slice {
            starts,
            limits,
            strides,
        };
        (slice, vec![node.operands[0]])
    };
    node.operands[0] = graph.push_typed(op, operands, vec![ty], node.origin)[0];
}

/// The part of a spatial dimension that negative padding leaves.
struct Kept {
    start: usize,
    limit: usize,
    /// Padding of that part, not negative.
    padding: (i64, i64),
    /// Nothing is left of the input: the part is one of zeros, and of the size that the padded
    /// input has.
    is_padding: bool,
}

impl Kept {
    /// Returns what is kept of dimension `i` of an input with `size` elements there. A dilated
    /// input is cut between its elements too, which leaves zeros of the dilation as padding.
    fn of(size: usize, conv: &ConvolutionAttributes, i: usize) -> Self {
        let (dilation, (low, high)) = (conv.input_dilation[i] as i128, conv.padding[i]);
        let cut = |padding: i64| {
            let elements = i128::from(padding)
                .min(0)
                .unsigned_abs()
                .div_ceil(dilation as u128);
            (elements, elements as i128 * dilation + i128::from(padding))
        };
        let ((first, low), (last, high)) = (cut(low), cut(high));
        if first + last < size as u128 {
            return Kept {
                start: first as usize,
                limit: size - last as usize,
                padding: (low as i64, high as i64),
                is_padding: false,
            };
        }
        let dilated = (size as i128 - 1) * dilation + 1;
        let padding = conv.padding[i];
        let whole = dilated.max(0) + i128::from(padding.0) + i128::from(padding.1);
        Kept {
            start: 0,
            limit: whole as usize,
            padding: (0, 0),
            is_padding: true,
        }
    }
}
