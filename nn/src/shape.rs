//! Operations that move elements: reshape, transpose, broadcast, slice, pad, concatenate.

mod at;
mod part;

use std::panic::Location;

use halite_core::{DType, TensorType};
use halite_ir::Op;

pub use self::at::{IntoSlice, Slice};
use crate::{
    Tensor, Trace,
    check::check,
    dim::{Dim, Dims, no_dimension, place, written},
    tensor::holds,
};

impl<'t> Tensor<'t> {
    /// The same elements, row-major, in other dimensions.
    #[track_caller]
    pub fn reshape(self, dims: impl AsRef<[usize]>) -> Tensor<'t> {
        if self.ty().dims() == dims.as_ref() {
            return self;
        }
        if self.is_error() {
            return self.trace.error_like(Some(self.ty().with_dims(dims)));
        }
        self.trace().push_one(
            Op::Reshape {
                dims: dims.as_ref().to_vec(),
            },
            &[self],
        )
    }

    /// All elements in one dimension.
    #[track_caller]
    pub fn flatten(self) -> Tensor<'t> {
        // A type that is too large is a mistake of the reshape.
        self.reshape([self
            .dims()
            .iter()
            .fold(1, |count: usize, &size| count.saturating_mul(size))])
    }

    /// The dimensions from `dim` on become one: `[a, b, c]` from 1 is `[a, b * c]`. `dim` may be
    /// the rank: `[a, b, c, 1]`.
    #[track_caller]
    pub fn flatten_from(self, dim: impl Dim) -> Tensor<'t> {
        let (ty, number) = (self.ty(), dim.number());
        let dim = match place(number, ty.rank()) {
            None if number == Some(ty.rank() as i64) => ty.rank(),
            None => {
                return self.mistake("flatten", || {
                    let number = written(number);
                    format!("from dimension {number} of {ty}, which has {}", ty.rank())
                });
            }
            Some(dim) => dim,
        };
        let mut dims = ty.dims()[..dim].to_vec();
        dims.push(
            ty.dims()[dim..]
                .iter()
                .fold(1, |all, &size| size.saturating_mul(all)),
        );
        self.reshape(dims)
    }

    /// Dimension `i` of the result is dimension `permutation[i]` of this.
    #[track_caller]
    pub fn transpose(self, permutation: impl Dims) -> Tensor<'t> {
        let permutation = &check!(self.known_dims("transpose", permutation));
        if permutation.len() == self.rank()
            && permutation.iter().enumerate().all(|(to, &from)| to == from)
        {
            return self;
        }
        self.trace().push_one(
            Op::Transpose {
                permutation: permutation.to_vec(),
            },
            &[self],
        )
    }

    /// Dimensions `a` and `b` exchanged.
    #[track_caller]
    pub fn swap_dims(self, a: impl Dim, b: impl Dim) -> Tensor<'t> {
        let a = check!(self.known_dim("swap dimensions", a));
        let b = check!(self.known_dim("swap dimensions", b));
        let mut permutation: Vec<usize> = (0..self.rank()).collect();
        permutation.swap(a, b);
        self.transpose(permutation)
    }

    /// The matrix transposed: `[.., m, n]` to `[.., n, m]`.
    #[track_caller]
    pub fn t(self) -> Tensor<'t> {
        let rank = self.rank();
        if rank < 2 {
            return self.mistake("transpose", || format!("{} is not a matrix", self.ty()));
        }
        self.swap_dims(rank - 2, rank - 1)
    }

    /// Dimension `from` moved to where it is dimension `to` of the result; the others keep their
    /// order.
    #[track_caller]
    pub fn move_dim(self, from: impl Dim, to: impl Dim) -> Tensor<'t> {
        let from = check!(self.known_dim("move dimension", from));
        let to = check!(self.known_dim("move dimension", to));
        let mut permutation: Vec<usize> = (0..self.rank()).collect();
        let moved = permutation.remove(from);
        permutation.insert(to, moved);
        self.transpose(permutation)
    }

    /// A new dimension of size 1, which is dimension `dim` of the result; -1 is a new last one.
    #[track_caller]
    pub fn unsqueeze(self, dim: impl Dim) -> Tensor<'t> {
        let dim = check!(self.known_place("unsqueeze", dim));
        let ty = self.ty();
        let mut dims = ty.dims().to_vec();
        dims.insert(dim, 1);
        self.reshape(dims)
    }

    /// Without dimension `dim`, whose size is 1.
    #[track_caller]
    pub fn squeeze(self, dim: impl Dim) -> Tensor<'t> {
        let dim = check!(self.known_dim("squeeze", dim));
        let ty = self.ty();
        let mut dims = ty.dims().to_vec();
        if dims.remove(dim) != 1 {
            return self.mistake_like(
                "squeeze",
                || format!("dimension {dim} of {ty} is not 1"),
                ty.with_dims(dims),
            );
        }
        self.reshape(dims)
    }

    /// Repeats dimensions of size 1, and new ones in front, so that the dimensions are `dims`.
    #[track_caller]
    pub fn broadcast_to(self, dims: impl AsRef<[usize]>) -> Tensor<'t> {
        let (ty, dims) = (self.ty(), dims.as_ref());
        if ty.dims() == dims {
            return self;
        }
        if self.is_error() {
            return self.trace.error_like(Some(ty.with_dims(dims)));
        }
        if ty.rank() > dims.len() {
            let message = || format!("{ty} has more dimensions than {dims:?}");
            return self.mistake_like("broadcast", message, ty.with_dims(dims));
        }
        let mapping = (dims.len() - ty.rank()..dims.len()).collect::<Vec<_>>();
        self.broadcast_in_dim(dims, mapping)
    }

    /// To `dims`, where dimension `i` of this is dimension `mapping[i]` of the result, repeated if
    /// its size is 1.
    #[track_caller]
    pub fn broadcast_in_dim(
        self,
        dims: impl AsRef<[usize]>,
        mapping: impl AsRef<[usize]>,
    ) -> Tensor<'t> {
        self.trace.push_one(
            Op::Broadcast {
                dims: dims.as_ref().to_vec(),
                mapping: mapping.as_ref().to_vec(),
            },
            &[self],
        )
    }

    /// Reverses the order of elements along `dims`.
    #[track_caller]
    pub fn reverse(self, dims: impl Dims) -> Tensor<'t> {
        let mut dims = check!(self.known_dims("reverse", dims));
        dims.sort_unstable();
        if dims.is_empty() {
            self
        } else {
            self.trace.push_one(Op::Reverse { dims }, &[self])
        }
    }

    /// The elements on and below the diagonal that is `diagonal` above the main one; zero
    /// elsewhere. `[.., m, n]`.
    #[track_caller]
    pub fn tril(self, diagonal: i64) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_matrix("tril"));
        let dims = self.dims();
        let kept = self
            .trace
            .lower_triangle(dims[dims.len() - 2], dims[dims.len() - 1], diagonal);
        kept.broadcast_to(&dims).select(self, self.zeros_like())
    }

    /// The elements on and above the diagonal that is `diagonal` above the main one; zero
    /// elsewhere. `[.., m, n]`.
    #[track_caller]
    pub fn triu(self, diagonal: i64) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_matrix("triu"));
        let dims = self.dims();
        let dropped = self.trace.lower_triangle(
            dims[dims.len() - 2],
            dims[dims.len() - 1],
            diagonal.saturating_sub(1),
        );
        dropped.broadcast_to(&dims).select(self.zeros_like(), self)
    }

    /// Zeros of this type.
    #[track_caller]
    pub fn zeros_like(self) -> Tensor<'t> {
        self.trace.full(0.0, &self.ty())
    }

    /// Ones of this type.
    #[track_caller]
    pub fn ones_like(self) -> Tensor<'t> {
        self.trace.full(1.0, &self.ty())
    }

    #[track_caller]
    fn check_matrix(self, op: &str) -> Result<(), Tensor<'t>> {
        if self.is_error() {
            Err(self)
        } else if self.rank() < 2 {
            Err(self.mistake(op, || format!("{} is not a matrix", self.ty())))
        } else {
            Ok(())
        }
    }
}

impl Trace {
    /// `parts` one behind the other along dimension `dim`.
    #[track_caller]
    pub fn concat<'t>(&'t self, parts: &[Tensor<'t>], dim: impl Dim) -> Tensor<'t> {
        match parts {
            [] => self.fail("concatenate", "no tensors given", None),
            [first, ..] => {
                let dim = check!(first.known_dim("concatenate", dim));
                match parts {
                    [only] => *only,
                    parts => self.push_one(Op::Concatenate { dim }, parts),
                }
            }
        }
    }

    /// `parts`, all of one type, along a new dimension, which is dimension `dim` of the result.
    #[track_caller]
    pub fn stack<'t>(&'t self, parts: &[Tensor<'t>], dim: impl Dim) -> Tensor<'t> {
        let Some(first) = parts.first() else {
            return self.fail("stack", "no tensors given", None);
        };
        let dim = check!(first.known_place("stack", dim));
        let mut raised = Vec::with_capacity(parts.len());
        for part in parts {
            raised.push(part.unsqueeze(dim));
        }
        self.concat(&raised, dim)
    }

    /// Element `[.., i, ..]` is `i`, along dimension `dim`. An integer type must hold the last.
    #[track_caller]
    pub fn iota(&self, ty: &TensorType, dim: impl Dim) -> Tensor<'_> {
        let number = dim.number();
        let Some(dim) = place(number, ty.rank()) else {
            return self.fail("iota", no_dimension(number, ty), Some(ty.clone()));
        };
        let (dtype, size) = (ty.dtype(), ty.dims()[dim]);
        if dtype.is_integer() && size > 0 && !holds(dtype, (size - 1) as f64) {
            let message = format!(
                "{ty} counts to {} along dimension {dim}, which {dtype} cannot represent; count in \
                 s32 and convert",
                size - 1
            );
            return self.fail("iota", message, Some(ty.clone()));
        }
        self.push_one(
            Op::Iota {
                ty: ty.clone(),
                dim,
            },
            &[],
        )
    }

    /// `0, 1, .., count - 1`: `[count]`.
    #[track_caller]
    pub fn arange(&self, count: usize, dtype: DType) -> Tensor<'_> {
        self.iota(&TensorType::new(dtype, [count]), 0)
    }

    /// 1 on the diagonal, 0 elsewhere: `[size, size]`.
    #[track_caller]
    pub fn eye(&self, size: usize, dtype: DType) -> Tensor<'_> {
        let index = TensorType::new(DType::S32, [size, size]);
        self.iota(&index, 0).eq(self.iota(&index, 1)).convert(dtype)
    }

    /// Where `column <= row + diagonal`, as `bool`: `[rows, columns]`. A causal mask is
    /// `lower_triangle(time, time, 0)`.
    #[track_caller]
    pub fn lower_triangle(&self, rows: usize, columns: usize, diagonal: i64) -> Tensor<'_> {
        let index = TensorType::new(DType::S64, [rows, columns]);
        let row = self.iota(&index, 0);
        // Not a number operand: those are `f64`, which not every `i64` is.
        let shift = self.literal(halite_ir::Literal::splat(diagonal, []));
        self.iota(&index, 1).le(row + shift)
    }
}
