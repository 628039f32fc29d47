//! Quantized blocks of GGUF files, unpacked to `f32` while they are read. Layouts and rounding are
//! those of ggml (`ggml-quants.c`).

use std::ops::Range;

use half::f16;
use halite_core::Result;

/// Bytes of blocks that are read at once.
const PIECE: usize = 1 << 20;

/// A kind of blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Quantization {
    Q4_0,
    Q4_1,
    Q8_0,
    Q4K,
    Q6K,
}

impl Quantization {
    /// Elements of a block.
    pub(crate) fn elements(self) -> usize {
        match self {
            Quantization::Q4_0 | Quantization::Q4_1 | Quantization::Q8_0 => 32,
            Quantization::Q4K | Quantization::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Quantization::Q4_0 => 2 + 16,
            Quantization::Q4_1 => 4 + 16,
            Quantization::Q8_0 => 2 + 32,
            Quantization::Q4K => 4 + 12 + 128,
            Quantization::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Unpacks elements of a tensor to the floats `into`; `read` reads bytes at an offset in the
    /// tensor.
    pub(crate) fn read(
        self,
        elements: Range<usize>,
        into: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let (per_block, size) = (self.elements(), self.bytes());
        let blocks = elements.start / per_block..elements.end.div_ceil(per_block);
        let at_once = (PIECE / size).min(blocks.len());
        let mut packed = vec![0; at_once * size];
        let mut block = [0.0f32; 256];
        let mut into = into.chunks_exact_mut(4);
        for first in blocks.clone().step_by(at_once.max(1)) {
            let count = at_once.min(blocks.end - first);
            let packed = &mut packed[..count * size];
            read((first * size) as u64, packed)?;
            for (number, packed) in (first..).zip(packed.chunks_exact(size)) {
                let block = &mut block[..per_block];
                self.unpack(packed, block);
                // The first and the last block may be wanted in part.
                let start = number * per_block;
                let wanted =
                    elements.start.max(start) - start..elements.end.min(start + per_block) - start;
                for (value, into) in block[wanted].iter().zip(&mut into) {
                    into.copy_from_slice(&value.to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    /// Unpacks a block.
    fn unpack(self, packed: &[u8], into: &mut [f32]) {
        let half = |at: usize| f16::from_le_bytes([packed[at], packed[at + 1]]).to_f32();
        match self {
            Quantization::Q4_0 => {
                let scale = half(0);
                let (low, high) = into.split_at_mut(16);
                for (i, &byte) in packed[2..].iter().enumerate() {
                    low[i] = (i32::from(byte & 15) - 8) as f32 * scale;
                    high[i] = (i32::from(byte >> 4) - 8) as f32 * scale;
                }
            }
            Quantization::Q4_1 => {
                let (scale, least) = (half(0), half(2));
                let (low, high) = into.split_at_mut(16);
                for (i, &byte) in packed[4..].iter().enumerate() {
                    low[i] = f32::from(byte & 15) * scale + least;
                    high[i] = f32::from(byte >> 4) * scale + least;
                }
            }
            Quantization::Q8_0 => {
                let scale = half(0);
                for (into, &byte) in into.iter_mut().zip(&packed[2..]) {
                    *into = f32::from(byte as i8) * scale;
                }
            }
            Quantization::Q4K => unpack_q4_k(half(0), half(2), &packed[4..16], &packed[16..], into),
            Quantization::Q6K => unpack_q6_k(half(208), packed, into),
        }
    }
}

/// 256 elements of 4 bits, in eight groups with a scale and a minimum of 6 bits.
fn unpack_q4_k(scale: f32, least: f32, factors: &[u8], bits: &[u8], into: &mut [f32]) {
    let of_group = |group: usize| {
        if group < 4 {
            (factors[group] & 63, factors[group + 4] & 63)
        } else {
            let (low, low_before, before) =
                (factors[group + 4], factors[group - 4], factors[group]);
            (
                (low & 15) | (low_before >> 6) << 4,
                (low >> 4) | (before >> 6) << 4,
            )
        }
    };
    for (pair, (into, bits)) in into
        .chunks_exact_mut(64)
        .zip(bits.chunks_exact(32))
        .enumerate()
    {
        let (low, high) = into.split_at_mut(32);
        for (into, group, shift) in [(low, 2 * pair, 0), (high, 2 * pair + 1, 4)] {
            let (factor, minimum) = of_group(group);
            let (scale, least) = (scale * f32::from(factor), least * f32::from(minimum));
            for (into, &byte) in into.iter_mut().zip(bits) {
                *into = scale * f32::from(byte >> shift & 15) - least;
            }
        }
    }
}

/// 256 elements of 6 bits, in sixteen groups with a scale of 8 bits.
fn unpack_q6_k(scale: f32, packed: &[u8], into: &mut [f32]) {
    let (low, rest) = packed.split_at(128);
    let (high, rest) = rest.split_at(64);
    let factors = &rest[..16];
    for (half, into) in into.chunks_exact_mut(128).enumerate() {
        let (low, high) = (&low[64 * half..], &high[32 * half..]);
        for (i, into) in into.iter_mut().enumerate() {
            let (quarter, at) = (i / 32, i % 32);
            let four = low[at + 32 * (quarter % 2)] >> (4 * (quarter / 2)) & 15;
            let two = high[at] >> (2 * quarter) & 3;
            let value = i32::from(four | two << 4) - 32;
            let factor = factors[8 * half + i / 16] as i8;
            *into = scale * f32::from(factor) * value as f32;
        }
    }
}
