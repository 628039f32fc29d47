//! Products of a few rows with a matrix that is read once: steps of text generation.

use std::{collections::HashMap, mem, panic::Location};

use halite_core::{DType, Kernels, TensorType};

use super::{dead_code, map_regions};
use crate::{Attribute, CustomCall, Graph, Node, Op, Value};

/// Target of a product of a few rows.
const TARGET: &str = "halite_few_rows";
/// Most rows.
const MOST_ROWS: usize = 4;
/// Least number of elements of the matrix, an estimate: for fewer, calling takes longer than it
/// saves.
const LEAST_ELEMENTS: usize = 1 << 15;
/// The same for a matrix of `f32`, which the compiler reads without a conversion. Programs that
/// become one function have smaller ones.
const LEAST_WIDE_ELEMENTS: usize = 1 << 16;

/// A product of a few rows with a large matrix.
struct Product {
    rows: usize,
    terms: usize,
    columns: usize,
    /// The matrix is `[columns, terms]`.
    is_transposed: bool,
}

impl Product {
    /// The product that a node is; `None` if no kernel computes it. `types` are those of its
    /// operands.
    fn of(op: &Op, [left, right]: [&TensorType; 2], kernels: Kernels) -> Option<Self> {
        let Op::Dot(dot, result) = op else {
            return None;
        };
        let is_known = |dtype: DType| [DType::F32, DType::Bf16].contains(&dtype);
        let ([lhs_contracting], [rhs_contracting]) =
            (&dot.lhs_contracting[..], &dot.rhs_contracting[..])
        else {
            return None;
        };
        let dtypes = [left.dtype(), right.dtype(), *result];
        if (left.rank(), right.rank()) != (2, 2) || !dtypes.into_iter().all(is_known) {
            return None;
        }
        let product = Product {
            rows: left.dims()[1 - lhs_contracting],
            terms: left.dims()[*lhs_contracting],
            columns: right.dims()[1 - rhs_contracting],
            is_transposed: *rhs_contracting == 1,
        };
        let least = match kernels {
            Kernels::All => 1,
            Kernels::Off | Kernels::On => LEAST_ELEMENTS,
        };
        // Rows that are columns of memory are not read in place.
        let is_in_order = *lhs_contracting == 1 || product.rows == 1;
        let is_few = (1..=MOST_ROWS).contains(&product.rows) && product.columns > 1;
        let elements = product.terms.saturating_mul(product.columns);
        (is_in_order && is_few && elements >= least).then_some(product)
    }
}

/// Moves the conversion of matrices from `bf16` to `f32` into the scans whose products of few rows
/// read them, and behind gathers. Weights that are stored in `bf16` are converted at the beginning
/// of a program, which writes all of them in `f32` for each launch.
pub(super) fn narrow_matrices(mut graph: Graph, kernels: Kernels) -> Graph {
    let mut narrow: HashMap<Value, Value> = HashMap::new();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for mut node in mem::take(&mut graph.nodes) {
        match &mut node.op {
            Op::Convert(DType::F32) if graph.ty(node.operands[0]).dtype() == DType::Bf16 => {
                narrow.insert(node.results[0], node.operands[0]);
            }
            Op::Gather(_) if narrow.contains_key(&node.operands[0]) => {
                let wide = node.results[0];
                let ty = TensorType::new(DType::Bf16, graph.ty(wide).dims());
                let result = graph.value(ty);
                node.operands[0] = narrow[&node.operands[0]];
                node.results[0] = result;
                let convert = widening(result, wide, node.origin);
                nodes.extend([node, convert]);
                continue;
            }
            Op::Scan { carried, body, .. } => {
                for at in *carried..node.operands.len() {
                    let input = body.inputs[at];
                    if let Some(&source) = narrow.get(&node.operands[at])
                        && is_matrix(body, input, kernels)
                    {
                        node.operands[at] = source;
                        let ty = TensorType::new(DType::Bf16, body.ty(input).dims());
                        body.inputs[at] = body.value(ty);
                        let convert = widening(body.inputs[at], input, node.origin);
                        body.nodes.insert(0, convert);
                    }
                }
            }
            _ => {}
        }
        map_regions(&mut node.op, |body| narrow_matrices(body, kernels));
        nodes.push(node);
    }
    graph.nodes = nodes;
    graph
}

/// The conversion of a narrow value to the `f32` value `wide`.
fn widening(narrow: Value, wide: Value, origin: Option<&'static Location<'static>>) -> Node {
    Node {
        op: Op::Convert(DType::F32),
        operands: vec![narrow],
        results: vec![wide],
        origin,
    }
}

/// Returns whether a value is read by products of few rows, as their matrix, and by gathers alone.
fn is_matrix(body: &Graph, value: Value, kernels: Kernels) -> bool {
    let reads = |node: &Node, at: usize| match &node.op {
        Op::Dot(..) => {
            let types = [0, 1].map(|operand| body.ty(node.operands[operand]));
            at == 1 && Product::of(&node.op, types, kernels).is_some()
        }
        Op::Reshape { .. } => is_matrix(body, node.results[0], kernels),
        // Behind a transposition there is nothing but the product.
        Op::Transpose { permutation } => {
            let result = node.results[0];
            let is_dot =
                |other: &Node| !other.operands.contains(&result) || matches!(other.op, Op::Dot(..));
            permutation[..] == [1, 0]
                && body.nodes.iter().all(is_dot)
                && is_matrix(body, result, kernels)
        }
        Op::Gather(_) => at == 0,
        Op::Scan { carried, body, .. } => {
            at >= *carried && is_matrix(body, body.inputs[at], kernels)
        }
        _ => false,
    };
    let uses = body.nodes.iter().flat_map(|node| {
        let operands = node.operands.iter().enumerate();
        let of_value = operands.filter(|&(_, &operand)| operand == value);
        of_value.map(move |(at, _)| (node, at))
    });
    let mut uses = uses.peekable();
    uses.peek().is_some()
        && uses.all(|(node, at)| reads(node, at))
        && !body.outputs.contains(&value)
}

/// Makes a product of few rows with a large matrix a call. The operands are values of `graph`.
pub(super) fn call(graph: &Graph, node: &mut Node, kernels: Kernels) {
    let [left, right] = node.operands[..] else {
        return;
    };
    let types = [left, right].map(|operand| graph.ty(operand));
    let Some(mut product) = Product::of(&node.op, types, kernels) else {
        return;
    };
    let (matrix, is_transposed) = source(graph, right);
    let is_wide = graph.ty(matrix).dtype() == DType::F32;
    let is_small = product.terms * product.columns < LEAST_WIDE_ELEMENTS;
    if is_wide && is_small && kernels != Kernels::All {
        return;
    }
    product.is_transposed ^= is_transposed;
    let sizes = [
        ("rows", product.rows),
        ("terms", product.terms),
        ("columns", product.columns),
    ];
    let sizes = sizes.map(|(name, size)| (name.to_owned(), Attribute::Int(size as i64)));
    let transposed = Attribute::Bool(product.is_transposed);
    let attributes = sizes
        .into_iter()
        .chain([("transposed".to_owned(), transposed)]);
    let Op::Dot(_, result) = node.op else {
        return;
    };
    node.operands[1] = matrix;
    node.op = Op::CustomCall(CustomCall {
        target: TARGET.to_owned(),
        attributes: attributes.collect(),
        results: vec![TensorType::new(result, [product.rows, product.columns])],
        ..CustomCall::default()
    });
}

/// The value that has the elements of a matrix in its order, and whether it is the transposed
/// matrix. It is what conversions from `bf16`, reshapes and transpositions are made from.
fn source(graph: &Graph, matrix: Value) -> (Value, bool) {
    let (mut value, mut is_transposed, mut is_reshaped) = (matrix, false, false);
    while graph.ty(value).dtype() != DType::Bf16 {
        let maker = (graph.nodes.iter().rev()).find(|node| node.results.contains(&value));
        let Some(maker) = maker else {
            break;
        };
        match &maker.op {
            Op::Transpose { permutation } if permutation[..] == [1, 0] && !is_reshaped => {
                is_transposed = !is_transposed;
            }
            Op::Reshape { .. } => is_reshaped = true,
            Op::Convert(_) if graph.ty(maker.operands[0]).dtype() == DType::Bf16 => {}
            _ => break,
        }
        value = maker.operands[0];
    }
    (value, is_transposed)
}

/// Passes to the calls in a scan the whole stack of matrices and an index, if the scan slices it
/// for them alone: the compiler would copy each slice.
pub(super) fn pass_stacks(graph: &mut Graph, node: &mut Node) {
    let Op::Scan {
        scanned,
        length,
        body,
        ..
    } = &mut node.op
    else {
        return;
    };
    // Conversions that calls do not need.
    **body = dead_code(mem::take(body));
    let first = node.operands.len() - *scanned;
    let is_stack = |at: &usize| is_for_calls(body, body.inputs[*at]);
    let stacks: Vec<usize> = (first..node.operands.len()).filter(is_stack).collect();
    if stacks.is_empty() {
        return;
    }
    // In the body: the index, after all slices, and the stacks, before them.
    let counter = TensorType::new(DType::S32, [*length]);
    let index = body.input(TensorType::new(DType::S32, []));
    let mut matrices = Vec::new();
    for &at in &stacks {
        let slice = body.inputs[at];
        let stack = body.input(graph.ty(node.operands[at]).clone());
        body.inputs.pop();
        pass_stack(body, slice, stack, index);
        matrices.push(stack);
    }
    let mut moved = Vec::new();
    for &at in stacks.iter().rev() {
        body.inputs.remove(at);
        moved.insert(0, node.operands.remove(at));
    }
    body.inputs.splice(first..first, matrices);
    node.operands.splice(first..first, moved);
    *scanned = *scanned - stacks.len() + 1;
    let iota = Op::Iota {
        ty: counter.clone(),
        dim: 0,
    };
    let counter = graph.push_typed(iota, vec![], vec![counter], node.origin)[0];
    node.operands.push(counter);
}

/// Returns whether calls read a value as their matrix, and nothing else does.
fn is_for_calls(body: &Graph, value: Value) -> bool {
    let mut is_read = false;
    for node in &body.nodes {
        for (at, _) in (node.operands.iter().enumerate()).filter(|&(_, &operand)| operand == value)
        {
            let is_matrix = match &node.op {
                Op::CustomCall(call) => {
                    call.target == TARGET && at == 1 && node.operands.len() == 2
                }
                Op::Reshape { .. } => is_for_calls(body, node.results[0]),
                _ => false,
            };
            if !is_matrix {
                return false;
            }
            is_read = true;
        }
    }
    is_read && !body.outputs.contains(&value)
}

/// Replaces a slice by the stack and the index in all calls.
fn pass_stack(body: &mut Graph, slice: Value, stack: Value, index: Value) {
    let mut slices = vec![slice];
    for node in &mut body.nodes {
        let of_slice = |operand: &Value| slices.contains(operand);
        match &node.op {
            Op::Reshape { .. } if of_slice(&node.operands[0]) => slices.push(node.results[0]),
            Op::CustomCall(_) if node.operands.get(1).is_some_and(of_slice) => {
                node.operands[1] = stack;
                node.operands.push(index);
            }
            _ => {}
        }
    }
}
