//! The kernels: loops in `f64`, which holds every `f32`, `i32` and `i1`. Replace them by yours.

use std::iter::zip;

use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, DotAttributes,
    ElementType::{self, Bool, F32, S32},
    Function, OpKind, Operation, RankedType, UnaryOp, ValueId,
};

/// A kernel for operands of known shapes.
#[derive(Debug)]
pub(crate) enum Kernel {
    /// A constant, whose elements are at these positions.
    Constant(Vec<f64>, View),
    /// The positions themselves.
    Iota(View),
    /// The operand in the result's element type.
    Convert,
    /// The operand's elements at these positions.
    Move(View),
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
    Select,
    /// Combines each element with the element of the result at its position.
    Reduce {
        into: View,
        size: usize,
        combine: fn(f64, f64) -> f64,
    },
    Dot {
        lhs: Side,
        rhs: Side,
    },
}

/// An operand of a contraction: positions over its batch, free and contracted dimensions.
#[derive(Debug)]
pub(crate) struct Side {
    batch: Vec<usize>,
    free: Vec<usize>,
    contracted: Vec<usize>,
}

/// Positions in memory, in the row-major order of a tensor of dimensions `dims`.
#[derive(Debug)]
pub(crate) struct View {
    dims: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    fn positions(&self) -> impl Iterator<Item = usize> {
        (0..self.dims.iter().product()).map(|mut index| {
            let mut position = 0;
            for (size, stride) in zip(&self.dims, &self.strides).rev() {
                position += index % size * stride;
                index /= size;
            }
            position
        })
    }

    /// A view whose dimension `of[i]` has the stride `strides[i]`; the others have 0.
    fn along(dims: &[usize], of: &[usize], strides: &[usize]) -> Self {
        let mut view = View {
            dims: dims.to_vec(),
            strides: vec![0; dims.len()],
        };
        zip(of, strides).for_each(|(&dim, &stride)| view.strides[dim] = stride);
        view
    }
}

impl Kernel {
    /// The kernel of an operation; `None` if the accelerator has none.
    pub(crate) fn new(function: &Function, operation: &Operation) -> Option<Self> {
        let tensor = |id: &ValueId| function.ty(*id).as_tensor();
        let operands: Vec<_> = operation
            .operands
            .iter()
            .map(tensor)
            .collect::<Option<_>>()?;
        let result = tensor(operation.results.first()?)?;
        let dims = &result.dims;
        Some(match (&operation.kind, &operands[..]) {
            (OpKind::Constant(value), _) => {
                let strides = match value.is_splat() {
                    true => vec![0; dims.len()],
                    false => result.strides(),
                };
                let view = View {
                    dims: dims.clone(),
                    strides,
                };
                Kernel::Constant(decode(value.ty.element, &value.bytes), view)
            }
            (OpKind::Iota { dim }, _) => Kernel::Iota(View::along(dims, &[*dim], &[1])),
            (OpKind::Convert | OpKind::Reshape, _) => Kernel::Convert,
            (OpKind::BroadcastInDim { mapping }, [x]) => {
                let mut strides = x.strides();
                // A dimension of size 1 is repeated.
                zip(&mut strides, &x.dims).for_each(|(it, &size)| *it *= usize::from(size != 1));
                Kernel::Move(View::along(dims, mapping, &strides))
            }
            (OpKind::Transpose { permutation }, [x]) => {
                let strides = x.strides();
                let strides = permutation.iter().map(|&dim| strides[dim]).collect();
                Kernel::Move(View {
                    dims: dims.clone(),
                    strides,
                })
            }
            (OpKind::Unary(op), [x]) => Kernel::Unary(unary(*op, x.element)?),
            (OpKind::Binary(op), [x, _]) => Kernel::Binary(binary(*op, x.element)?),
            (
                OpKind::Compare {
                    order: Some(ComparisonOrder::TotalOrder),
                    ..
                },
                _,
            ) => return None,
            (OpKind::Compare { direction, .. }, _) => Kernel::Binary(compare(*direction)),
            (OpKind::Select, _) => Kernel::Select,
            (OpKind::Reduce { dims: reduced }, [x, _]) => {
                let left: Vec<_> = (0..x.rank()).filter(|dim| !reduced.contains(dim)).collect();
                let into = View::along(&x.dims, &left, &result.strides());
                let combine = binary(operation.reduction()?, x.element)?;
                Kernel::Reduce {
                    into,
                    size: dims.iter().product(),
                    combine,
                }
            }
            (OpKind::DotGeneral(dot), [x, y]) if [x.element, y.element] == [F32; 2] => {
                let DotAttributes {
                    lhs_batching,
                    rhs_batching,
                    ..
                } = &**dot;
                Kernel::Dot {
                    lhs: Side::new(x, lhs_batching, &dot.lhs_contracting),
                    rhs: Side::new(y, rhs_batching, &dot.rhs_contracting),
                }
            }
            _ => return None,
        })
    }

    /// Computes the elements of the result.
    pub(crate) fn run(&self, operands: &[Vec<f64>]) -> Vec<f64> {
        match (self, operands) {
            (Kernel::Constant(x, view), _) => view.positions().map(|at| x[at]).collect(),
            (Kernel::Iota(view), _) => view.positions().map(|at| at as f64).collect(),
            (Kernel::Convert, [x]) => x.clone(),
            (Kernel::Move(view), [x]) => view.positions().map(|at| x[at]).collect(),
            (Kernel::Unary(compute), [x]) => x.iter().map(|&x| compute(x)).collect(),
            (Kernel::Binary(compute), [x, y]) => zip(x, y).map(|(&x, &y)| compute(x, y)).collect(),
            (Kernel::Select, [predicate, x, y]) => {
                // One predicate may be for all elements.
                let choices = zip(predicate.iter().cycle(), zip(x, y));
                choices
                    .map(|(&p, (&x, &y))| if p == 0.0 { y } else { x })
                    .collect()
            }
            (
                Kernel::Reduce {
                    into,
                    size,
                    combine,
                },
                [x, initial],
            ) => {
                let mut result = vec![initial[0]; *size];
                zip(x, into.positions()).for_each(|(&x, at)| result[at] = combine(result[at], x));
                result
            }
            (Kernel::Dot { lhs, rhs }, [x, y]) => dot(lhs, rhs, x, y),
            _ => unreachable!(
                "the program is verified: {self:?} of {} operands",
                operands.len()
            ),
        }
    }
}

impl Side {
    fn new(ty: &RankedType, batch: &[usize], contracted: &[usize]) -> Self {
        let strides = ty.strides();
        let positions = |dims: &[usize]| {
            let sizes = dims.iter().map(|&dim| ty.dims[dim]).collect();
            let strides = dims.iter().map(|&dim| strides[dim]).collect();
            View {
                dims: sizes,
                strides,
            }
            .positions()
            .collect()
        };
        let is_free = |dim: &usize| !batch.contains(dim) && !contracted.contains(dim);
        let free: Vec<_> = (0..ty.rank()).filter(is_free).collect();
        let [batch, free, contracted] = [batch, &free, contracted].map(positions);
        Side {
            batch,
            free,
            contracted,
        }
    }
}

fn dot(lhs: &Side, rhs: &Side, x: &[f64], y: &[f64]) -> Vec<f64> {
    let mut result = Vec::new();
    for (left, right) in zip(&lhs.batch, &rhs.batch) {
        for row in &lhs.free {
            for column in &rhs.free {
                let (left, right) = (left + row, right + column);
                let pairs = zip(&lhs.contracted, &rhs.contracted);
                result.push(pairs.map(|(i, j)| x[left + i] * y[right + j]).sum());
            }
        }
    }
    result
}

fn unary(op: UnaryOp, element: ElementType) -> Option<fn(f64) -> f64> {
    Some(match (op, element) {
        (UnaryOp::Abs, F32) => f64::abs,
        (UnaryOp::Exponential, F32) => f64::exp,
        (UnaryOp::IsFinite, F32) => |x| x.is_finite().into(),
        (UnaryOp::Log, F32) => f64::ln,
        (UnaryOp::LogPlusOne, F32) => f64::ln_1p,
        (UnaryOp::Logistic, F32) => |x| 1.0 / (1.0 + (-x).exp()),
        (UnaryOp::Negate, F32) => |x| -x,
        (UnaryOp::Not, Bool) => |x| 1.0 - x,
        (UnaryOp::Rsqrt, F32) => |x| 1.0 / x.sqrt(),
        (UnaryOp::Sign, F32) => |x| {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        },
        (UnaryOp::Sqrt, F32) => f64::sqrt,
        (UnaryOp::Tanh, F32) => f64::tanh,
        _ => return None,
    })
}

fn binary(op: BinaryOp, element: ElementType) -> Option<fn(f64, f64) -> f64> {
    Some(match (op, element) {
        (BinaryOp::Add, F32) => |x, y| x + y,
        (BinaryOp::Add, S32) => |x, y| (x as i32).wrapping_add(y as i32).into(),
        (BinaryOp::Subtract, F32) => |x, y| x - y,
        (BinaryOp::Subtract, S32) => |x, y| (x as i32).wrapping_sub(y as i32).into(),
        (BinaryOp::Multiply, F32) => |x, y| x * y,
        (BinaryOp::Multiply, S32) => |x, y| (x as i32).wrapping_mul(y as i32).into(),
        (BinaryOp::Divide, F32) => |x, y| x / y,
        // A NaN of either operand is the result.
        (BinaryOp::Maximum, _) => |x, y| if x > y || x.is_nan() { x } else { y },
        (BinaryOp::Minimum, _) => |x, y| if x < y || x.is_nan() { x } else { y },
        (BinaryOp::Power, F32) => f64::powf,
        (BinaryOp::And | BinaryOp::Multiply, Bool) => |x, y| x * y,
        (BinaryOp::Or | BinaryOp::Add, Bool) => f64::max,
        _ => return None,
    })
}

fn compare(direction: ComparisonDirection) -> fn(f64, f64) -> f64 {
    match direction {
        ComparisonDirection::Eq => |x, y| (x == y).into(),
        ComparisonDirection::Ne => |x, y| (x != y).into(),
        ComparisonDirection::Ge => |x, y| (x >= y).into(),
        ComparisonDirection::Gt => |x, y| (x > y).into(),
        ComparisonDirection::Le => |x, y| (x <= y).into(),
        ComparisonDirection::Lt => |x, y| (x < y).into(),
    }
}

/// Loads elements.
pub(crate) fn decode(element: ElementType, bytes: &[u8]) -> Vec<f64> {
    let words = bytes.as_chunks().0.iter();
    match element {
        F32 => words.map(|&word| f32::from_le_bytes(word).into()).collect(),
        S32 => words.map(|&word| i32::from_le_bytes(word).into()).collect(),
        _ => bytes.iter().map(|&byte| f64::from(byte != 0)).collect(),
    }
}

/// Stores elements: floats are rounded, integers truncated.
pub(crate) fn encode(element: ElementType, values: &[f64]) -> Vec<u8> {
    match element {
        F32 => values
            .iter()
            .flat_map(|&x| (x as f32).to_le_bytes())
            .collect(),
        S32 => values
            .iter()
            .flat_map(|&x| (x as i32).to_le_bytes())
            .collect(),
        _ => values.iter().map(|&x| u8::from(x != 0.0)).collect(),
    }
}
