//! Constants, bit-exact.

use half::{bf16, f16};
use std::fmt;

use halite_core::{DType, TensorType};

use super::{
    Printer,
    writer::{Name, Origin, Writer},
};
use crate::Literal;

/// Number of elements above which they are written as one block of hexadecimal digits.
const LISTED: usize = 16;

impl Printer<'_> {
    /// Writes the constant and returns its number.
    pub(super) fn literal(&mut self, literal: &Literal, origin: Origin) -> u32 {
        let ty = literal.ty();
        let elements = ty.elements();
        let listed = elements == 0 || elements <= LISTED && ty.rank() <= 1;
        // The packing of `i1` in a block of digits is not the same in all versions of MLIR, so it
        // is bytes there.
        if literal.as_splat().is_none() && !listed && ty.dtype() == DType::Bool {
            let bytes = self.literal(
                &Literal {
                    ty: ty.with_dtype(DType::U8),
                    bytes: literal.bytes.clone(),
                },
                origin,
            );
            let number = self.w.fresh();
            self.w
                .line()
                .results(number, 1)
                .text("stablehlo.convert ")
                .name(Name::Single(bytes))
                .text(" : (");
            self.w.ty(&ty.with_dtype(DType::U8)).text(") -> ").ty(ty);
            self.w.location(origin);
            return number;
        }
        let number = self.w.fresh();
        self.w
            .line()
            .results(number, 1)
            .text("stablehlo.constant dense<");
        let size = ty.dtype().size();
        match literal.as_splat() {
            _ if elements == 0 => {}
            Some(element) => self.element(ty.dtype(), element),
            None if listed => {
                self.w.text("[");
                for (i, element) in literal.bytes.chunks_exact(size).enumerate() {
                    self.w.comma(i);
                    self.element(ty.dtype(), element);
                }
                self.w.text("]");
            }
            None if cfg!(target_endian = "little") || size == 1 => {
                self.w.hex(&literal.bytes);
            }
            None => {
                let little: Vec<u8> = literal
                    .bytes
                    .chunks_exact(size)
                    .flat_map(|element| element.iter().rev().copied())
                    .collect();
                self.w.hex(&little);
            }
        }
        self.w.text("> : ").ty(ty);
        self.w.location(origin);
        number
    }

    /// Writes a scalar constant and returns its name.
    pub(super) fn scalar(&mut self, dtype: DType, bytes: &[u8], origin: Origin) -> Name {
        let literal = Literal {
            ty: TensorType::scalar(dtype),
            bytes: bytes.into(),
        };
        Name::Single(self.literal(&literal, origin))
    }

    fn element(&mut self, dtype: DType, bytes: &[u8]) {
        match dtype {
            DType::Bool => self.w.text(if bytes[0] == 0 { "false" } else { "true" }),
            DType::S8 => self.w.display(bytemuck::pod_read_unaligned::<i8>(bytes)),
            DType::S16 => self.w.display(bytemuck::pod_read_unaligned::<i16>(bytes)),
            DType::S32 => self.w.display(bytemuck::pod_read_unaligned::<i32>(bytes)),
            DType::S64 => self.w.display(bytemuck::pod_read_unaligned::<i64>(bytes)),
            DType::U8 => self.w.display(bytes[0]),
            DType::U16 => self.w.display(bytemuck::pod_read_unaligned::<u16>(bytes)),
            DType::U32 => self.w.display(bytemuck::pod_read_unaligned::<u32>(bytes)),
            DType::U64 => self.w.display(bytemuck::pod_read_unaligned::<u64>(bytes)),
            DType::F16 => {
                let value = bytemuck::pod_read_unaligned::<f16>(bytes);
                let same = |read| f16::from_f64(read).to_bits() == value.to_bits();
                self.float(
                    format_args!("{:?}", value.to_f32()),
                    format_args!("0x{:04X}", value.to_bits()),
                    same,
                )
            }
            DType::Bf16 => {
                let value = bytemuck::pod_read_unaligned::<bf16>(bytes);
                let same = |read| bf16::from_f64(read).to_bits() == value.to_bits();
                self.float(
                    format_args!("{:?}", value.to_f32()),
                    format_args!("0x{:04X}", value.to_bits()),
                    same,
                )
            }
            DType::F32 => {
                let value = bytemuck::pod_read_unaligned::<f32>(bytes);
                let same = |read| (read as f32).to_bits() == value.to_bits();
                self.float(
                    format_args!("{value:?}"),
                    format_args!("0x{:08X}", value.to_bits()),
                    same,
                )
            }
            DType::F64 => self.double(bytemuck::pod_read_unaligned(bytes)),
            // Not in a valid graph.
            _ => self.w.hex(bytes),
        };
    }

    pub(super) fn double(&mut self, value: f64) -> &mut Writer {
        let same = |read: f64| read.to_bits() == value.to_bits();
        self.float(
            format_args!("{value:?}"),
            format_args!("0x{:016X}", value.to_bits()),
            same,
        )
    }

    /// Writes a float in decimal if that parses (as `f64`, as MLIR does for all floats) to the same
    /// bits, else as its bits.
    fn float(
        &mut self,
        decimal: fmt::Arguments<'_>,
        bits: fmt::Arguments<'_>,
        same: impl Fn(f64) -> bool,
    ) -> &mut Writer {
        let decimal = decimal.to_string();
        match decimal.parse() {
            Ok(read) if f64::is_finite(read) && same(read) => match decimal.split_once('e') {
                // MLIR wants a point: `1.0e-7`.
                Some((mantissa, exponent)) if !mantissa.contains('.') => {
                    self.w.text(mantissa).text(".0e").text(exponent)
                }
                _ => self.w.text(&decimal),
            },
            _ => self.w.display(bits),
        }
    }
}
