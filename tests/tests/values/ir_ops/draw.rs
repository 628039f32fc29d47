//! Random operations. A seed of a found bug stays valid only as long as the draws keep their order.

use halite_core::{DType, TensorType};
use halite_ir::{
    BinaryOp, ComparisonDirection, ConvolutionAttributes, ConvolutionDims, DotAttributes, Extreme,
    GatherAttributes, Graph, Literal, Op, Reduction, ScatterAttributes, UnaryOp, Value,
    WindowAttributes,
};

/// Draws small numbers from one large one.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        // A step of a multiplicative generator: each draw depends on all bits.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    fn bool(&mut self) -> bool {
        self.below(2) == 0
    }

    fn list(&mut self, length: usize, below: usize) -> Vec<usize> {
        (0..length).map(|_| self.below(below)).collect()
    }

    fn positive(&mut self, length: usize, up_to: usize) -> Vec<usize> {
        (0..length).map(|_| 1 + self.below(up_to)).collect()
    }

    fn signed(&mut self, length: usize) -> Vec<i64> {
        (0..length).map(|_| self.below(5) as i64 - 2).collect()
    }

    /// Each of the numbers below `rank` with probability 1/2.
    fn some_dims(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.bool()).collect()
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn reduction(&mut self) -> Reduction {
        self.of(&[
            Reduction::Sum,
            Reduction::Product,
            Reduction::Min,
            Reduction::Max,
            Reduction::And,
            Reduction::Or,
        ])
    }

    fn window(&mut self, rank: usize) -> WindowAttributes {
        WindowAttributes {
            sizes: self.positive(rank, 3),
            strides: self.positive(rank, 2),
            base_dilations: self.positive(rank, 2),
            window_dilations: self.positive(rank, 2),
            padding: (0..rank)
                .map(|_| (self.below(2) as i64, self.below(2) as i64))
                .collect(),
        }
    }

    fn conv_dims(&mut self) -> ConvolutionDims {
        let feature = 1 + self.below(2);
        ConvolutionDims {
            batch: 0,
            feature,
            spatial: vec![3 - feature],
        }
    }
}

/// An operation on some values of the graph, that may or may not be valid.
pub(crate) fn draw_op(
    draw: &mut Draw,
    graph: &Graph,
    values: &[Value],
    dtypes: &[DType],
) -> (Op, Vec<Value>) {
    let candidates = Candidates::draw(draw, graph, values);
    let Candidates { x, any, .. } = candidates;
    match draw.below(31) {
        kind @ 0..10 => candidates.elementwise(kind, draw, dtypes),
        kind @ 10..16 => candidates.rearrangement(kind, draw),
        kind @ 16..20 => candidates.slice(kind, draw, values),
        20 => (Op::Gather(candidates.gather(draw)), vec![x, any]),
        21 => candidates.scatter(draw),
        22 | 23 => (
            Op::Dot(candidates.dot(draw), candidates.ty.dtype()),
            vec![x, candidates.related],
        ),
        24 => (
            Op::Convolution(candidates.convolution(draw), candidates.ty.dtype()),
            vec![x, candidates.related],
        ),
        kind @ 25..29 => candidates.reduction(kind, draw),
        29 => (Op::OptimizationBarrier, vec![x, any]),
        _ => (Op::Constant(candidates.constant(draw)), vec![]),
    }
}

/// Values that an operation may take.
struct Candidates<'a> {
    graph: &'a Graph,
    x: Value,
    ty: TensorType,
    /// Of the type of `x`.
    y: Value,
    /// Of the type of `x`.
    z: Value,
    /// Of the element type of `x`.
    related: Value,
    any: Value,
    same_dims: Vec<Value>,
    same_dtype: Vec<Value>,
}

impl<'a> Candidates<'a> {
    fn draw(draw: &mut Draw, graph: &'a Graph, values: &[Value]) -> Self {
        let x = draw.of(values);
        let ty = graph.ty(x).clone();
        let those = |condition: &dyn Fn(&TensorType) -> bool| -> Vec<Value> {
            let values = values.iter().copied();
            values.filter(|&value| condition(graph.ty(value))).collect()
        };
        let same_type = those(&|other| *other == ty);
        let same_dims = those(&|other| other.dims() == ty.dims());
        let same_dtype = those(&|other| other.dtype() == ty.dtype());
        let (y, z) = (draw.of(&same_type), draw.of(&same_type));
        let any = draw.of(values);
        let related = draw.of(&same_dtype);
        Candidates {
            graph,
            x,
            ty,
            y,
            z,
            related,
            any,
            same_dims,
            same_dtype,
        }
    }

    fn rank(&self) -> usize {
        self.ty.rank()
    }

    fn elementwise(&self, kind: usize, draw: &mut Draw, dtypes: &[DType]) -> (Op, Vec<Value>) {
        use {BinaryOp as B, ComparisonDirection as C, UnaryOp as U};
        let &Candidates { x, y, z, .. } = self;
        let signs = [U::Abs, U::Negate, U::Sign, U::Not, U::Popcnt];
        let of_floats = [U::Tanh, U::Erf, U::IsFinite, U::Floor, U::CountLeadingZeros];
        let commutative = [B::Add, B::Multiply, B::Maximum, B::Minimum];
        let bits = [B::Subtract, B::And, B::Or, B::Xor];
        let shifts = [B::ShiftLeft, B::ShiftRightLogical, B::ShiftRightArithmetic];
        match kind {
            0 => (Op::Unary(draw.of(&signs)), vec![x]),
            1 => (Op::Unary(draw.of(&of_floats)), vec![x]),
            2 => (Op::Binary(draw.of(&commutative)), vec![x, y]),
            3 => (Op::Binary(draw.of(&bits)), vec![x, y]),
            4 => (Op::Binary(draw.of(&shifts)), vec![x, y]),
            5 => (
                Op::Compare(draw.of(&[C::Lt, C::Eq, C::Ge, C::Ne])),
                vec![x, y],
            ),
            6 => (Op::Select, vec![draw.of(&self.same_dims), x, y]),
            7 => (Op::Clamp, vec![y, x, z]),
            8 => (Op::Convert(draw.of(dtypes)), vec![x]),
            _ => (Op::BitcastConvert(draw.of(dtypes)), vec![x]),
        }
    }

    /// Other dimensions, or another order.
    fn rearrangement(&self, kind: usize, draw: &mut Draw) -> (Op, Vec<Value>) {
        let rank = self.rank();
        let mut dims = self.ty.dims().to_vec();
        let op = match kind {
            10 => Op::Broadcast {
                dims: draw.positive(rank + 1, 3),
                mapping: draw.list(rank, rank + 1),
            },
            11 => {
                let at = draw.below(rank + 1);
                dims.insert(at, 1 + draw.below(3));
                let mapping = (0..rank).map(|dim| dim + usize::from(dim >= at)).collect();
                Op::Broadcast { dims, mapping }
            }
            12 => {
                dims.rotate_left(usize::from(rank > 0));
                if draw.bool() {
                    dims.push(1);
                }
                Op::Reshape { dims }
            }
            13 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.rotate_left(draw.below(rank + 1).min(rank));
                Op::Transpose { permutation }
            }
            14 => Op::Reverse {
                dims: draw.some_dims(rank),
            },
            _ => {
                let dim = draw.below(rank + 1);
                let operands = vec![self.x, self.y, self.related];
                return (Op::Concatenate { dim }, operands);
            }
        };
        (op, vec![self.x])
    }

    /// A part of a value, or a value as a part of another.
    fn slice(&self, kind: usize, draw: &mut Draw, values: &[Value]) -> (Op, Vec<Value>) {
        let (x, rank, sizes) = (self.x, self.rank(), self.ty.dims());
        match kind {
            16 => {
                let starts: Vec<usize> = sizes.iter().map(|&size| draw.below(size + 1)).collect();
                let limit =
                    |(&size, &start): (&usize, &usize)| start + draw.below(size - start + 1);
                let slice = Op::Slice {
                    limits: sizes.iter().zip(&starts).map(limit).collect(),
                    starts,
                    strides: draw.positive(rank, 3),
                };
                (slice, vec![x])
            }
            17 => {
                let index = draw.of(values);
                let sizes = sizes.iter().map(|&size| draw.below(size + 1)).collect();
                let operands = [vec![x], vec![index; rank]].concat();
                (Op::DynamicSlice { sizes }, operands)
            }
            18 => {
                let operands = [vec![x, self.related], vec![self.any; rank]].concat();
                (Op::DynamicUpdateSlice, operands)
            }
            _ => {
                let value = draw.of(&self.same_dtype);
                let pad = Op::Pad {
                    low: draw.signed(rank),
                    high: draw.signed(rank),
                    interior: draw.list(rank, 3),
                };
                (pad, vec![x, value])
            }
        }
    }

    /// Slices that lack one dimension, somewhere between the dimensions of the indices.
    fn gather(&self, draw: &mut Draw) -> GatherAttributes {
        let rank = self.rank();
        let dropped = draw.below(rank.max(1));
        let batch = self.graph.ty(self.any).rank();
        let first = draw.below(batch + 1);
        let mut slice_sizes = self.ty.dims().to_vec();
        if let Some(size) = slice_sizes.get_mut(dropped) {
            *size = 1;
        }
        GatherAttributes {
            offset_dims: (first..first + rank.saturating_sub(1)).collect(),
            collapsed_slice_dims: vec![dropped],
            operand_batching_dims: vec![],
            start_indices_batching_dims: vec![],
            start_index_map: vec![draw.below(rank.max(1))],
            index_vector_dim: batch,
            slice_sizes,
            indices_are_sorted: false,
        }
    }

    /// Single elements: the updates have the dimensions of the indices.
    fn scatter(&self, draw: &mut Draw) -> (Op, Vec<Value>) {
        let rank = self.rank();
        let indices = self.graph.ty(self.any).dims();
        let mut same_dtype = self.same_dtype.iter().copied();
        let updates = same_dtype.find(|&value| self.graph.ty(value).dims() == indices);
        let combine = (draw.below(3) != 0).then(|| draw.reduction());
        let scatter = ScatterAttributes {
            inserted_window_dims: (0..rank).collect(),
            scatter_dims_to_operand_dims: vec![draw.below(rank.max(1))],
            index_vector_dim: indices.len(),
            ..ScatterAttributes::default()
        };
        let operands = vec![self.x, self.any, updates.unwrap_or(self.x)];
        (Op::Scatter(scatter, combine), operands)
    }

    /// A contraction over one dimension, or an outer product where no sizes agree.
    fn dot(&self, draw: &mut Draw) -> DotAttributes {
        let rank = self.rank();
        let contract = draw.below(rank + 1).min(rank.saturating_sub(1));
        let others = self.graph.ty(self.related).dims();
        let size = self.ty.dims().get(contract);
        let fitting = size.and_then(|size| others.iter().position(|other| other == size));
        DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: fitting.map(|_| contract).into_iter().collect(),
            rhs_contracting: fitting.into_iter().collect(),
            ..DotAttributes::default()
        }
    }

    fn convolution(&self, draw: &mut Draw) -> ConvolutionAttributes {
        ConvolutionAttributes {
            input: draw.conv_dims(),
            kernel: draw.conv_dims(),
            output: draw.conv_dims(),
            strides: draw.positive(1, 2),
            padding: vec![(draw.below(4) as i64 - 1, draw.below(4) as i64 - 1)],
            input_dilation: draw.positive(1, 2),
            kernel_dilation: draw.positive(1, 2),
            reversal: vec![draw.bool()],
            feature_groups: 1 + draw.below(2),
            batch_groups: 1,
            precision: Vec::new(),
        }
    }

    fn reduction(&self, kind: usize, draw: &mut Draw) -> (Op, Vec<Value>) {
        let rank = self.rank();
        let op = match kind {
            25 => Op::Reduce {
                kind: draw.reduction(),
                dims: draw.some_dims(rank),
            },
            26 => Op::ArgReduce {
                kind: draw.of(&[Extreme::Min, Extreme::Max]),
                dim: draw.below(rank + 1),
            },
            27 => Op::ReduceWindow {
                kind: draw.reduction(),
                window: draw.window(rank),
            },
            _ => {
                let sort = Op::Sort {
                    dim: draw.below(rank + 1),
                    descending: draw.bool(),
                    by_bits: draw.bool(),
                };
                return (sort, vec![self.x, draw.of(&self.same_dims)]);
            }
        };
        (op, vec![self.x])
    }

    /// A number that the passes know special rules for.
    fn constant(&self, draw: &mut Draw) -> Literal {
        let number = draw.below(2) as u8;
        let dims = self.ty.dims();
        match self.ty.dtype() {
            DType::Bool => Literal::splat(number == 1, dims),
            DType::S32 => Literal::splat(i32::from(number), dims),
            DType::U8 => Literal::splat(number, dims),
            DType::F32 => Literal::splat(f32::from(number), dims),
            _ => Literal::splat(i32::from(number), [2]),
        }
    }
}
