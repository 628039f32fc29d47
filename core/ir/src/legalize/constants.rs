//! Constants, which share the bytes of their literals.

use std::sync::Arc;

use half::{bf16, f16};
use halite_core::{DType, TensorType};
use halite_stablehlo::{Dense, ElementType, OpKind, RankedType, ValueId};

use super::{Builder, dtype};
use crate::{Literal, Reduction};

/// Number of booleans above which a constant of them is made of bytes: the form of `i1` as a block
/// of digits is not the same in all versions of MLIR.
const LISTED: usize = 16;

impl Builder<'_> {
    pub(super) fn constant(&mut self, literal: &Literal) -> ValueId {
        let ty = RankedType::from(literal.ty());
        let elements = ty.elements();
        if elements == 0 {
            return self.dense(ty, Arc::from([]));
        }
        if ty.element != ElementType::Bool {
            return self.dense(ty, little_endian(literal));
        }
        if literal.as_splat().is_none() && (elements > LISTED || ty.rank() > 1) {
            let ty = RankedType::new(ElementType::U8, ty.dims);
            let bytes = self.dense(ty, literal.bytes.clone());
            return self.convert(bytes, ElementType::Bool);
        }
        let bytes = literal.bytes.iter().map(|&byte| u8::from(byte != 0));
        self.dense(ty, bytes.collect())
    }

    fn dense(&mut self, ty: RankedType, bytes: Arc<[u8]>) -> ValueId {
        let dense = Dense {
            ty: ty.clone(),
            bytes,
        };
        self.one(OpKind::Constant(dense), &[], ty)
    }

    /// The identity element of a reduction, a scalar.
    pub(super) fn identity(&mut self, kind: Reduction, element: ElementType) -> ValueId {
        let dtype = dtype(element);
        self.scalar(dtype, &identity(kind, dtype)[..dtype.size()])
    }

    /// A scalar of `s32`.
    pub(super) fn count(&mut self, number: usize) -> ValueId {
        let number = i32::try_from(number).expect("infer limits counts to s32");
        self.scalar(DType::S32, &number.to_ne_bytes())
    }

    fn scalar(&mut self, dtype: DType, bytes: &[u8]) -> ValueId {
        self.constant(&Literal {
            ty: TensorType::scalar(dtype),
            bytes: bytes.into(),
        })
    }
}

/// The bytes of a literal as a [`Dense`] has them.
fn little_endian(literal: &Literal) -> Arc<[u8]> {
    let size = literal.ty().dtype().size();
    if cfg!(target_endian = "little") || size == 1 {
        return literal.bytes.clone();
    }
    let elements = literal.bytes.chunks_exact(size);
    elements
        .flat_map(|element| element.iter().rev().copied())
        .collect()
}

/// Bytes of the identity element of a reduction.
pub(crate) fn identity(kind: Reduction, dtype: DType) -> [u8; 8] {
    let mut bytes = [0; 8];
    macro_rules! write {
        ($($dtype:ident: $rust:ty, $min:expr, $max:expr, $one:expr, $ones:expr;)*) => {
            match dtype {
                $(DType::$dtype => {
                    let value: $rust = match kind {
                        Reduction::Sum | Reduction::Or => Default::default(),
                        Reduction::Product => $one,
                        Reduction::Min => $max,
                        Reduction::Max => $min,
                        Reduction::And => $ones,
                    };
                    let value = bytemuck::bytes_of(&value);
                    bytes[..value.len()].copy_from_slice(value);
                })*
                // Not in a valid graph.
                _ => {}
            }
        };
    }
    write! {
        Bool: u8, 0, 1, 1, 1;
        S8: i8, i8::MIN, i8::MAX, 1, -1;
        S16: i16, i16::MIN, i16::MAX, 1, -1;
        S32: i32, i32::MIN, i32::MAX, 1, -1;
        S64: i64, i64::MIN, i64::MAX, 1, -1;
        U8: u8, u8::MIN, u8::MAX, 1, u8::MAX;
        U16: u16, u16::MIN, u16::MAX, 1, u16::MAX;
        U32: u32, u32::MIN, u32::MAX, 1, u32::MAX;
        U64: u64, u64::MIN, u64::MAX, 1, u64::MAX;
        F16: f16, f16::NEG_INFINITY, f16::INFINITY, f16::ONE, f16::NAN;
        Bf16: bf16, bf16::NEG_INFINITY, bf16::INFINITY, bf16::ONE, bf16::NAN;
        F32: f32, f32::NEG_INFINITY, f32::INFINITY, 1.0, f32::NAN;
        F64: f64, f64::NEG_INFINITY, f64::INFINITY, 1.0, f64::NAN;
    }
    bytes
}
