//! Inputs of the long campaign: values at the edges, and any bits.

use halite_core::{DType, HostArray, TensorType};

use crate::edge_values::{job::golden, table::Form};

/// Sizes of drawn inputs: beyond the lanes and the tiles of kernels, too.
const DRAWN: [usize; 9] = [0, 1, 2, 13, 17, 33, 67, 129, 257];

/// A generator of bits (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Values between -4 and 4, or below 10.
    pub(crate) fn ordinary(&mut self, ty: TensorType) -> HostArray {
        let (dtype, size) = (ty.dtype(), ty.dtype().size());
        let mut host = HostArray::zeros(ty);
        for bytes in host.bytes_mut().chunks_exact_mut(size) {
            bytes.copy_from_slice(&ordinary(dtype, self.next())[..size]);
        }
        host
    }

    /// Inputs of a form, and the size of [`Form::Rows`].
    pub(crate) fn inputs(&mut self, form: Form, dtype: DType) -> (Vec<HostArray>, usize) {
        let size = DRAWN[self.below(DRAWN.len())];
        let of = |dims: &[usize]| TensorType::new(dtype, dims);
        let inputs = match form {
            Form::Each => vec![self.values(of(&[size]), 2)],
            Form::Pairs => vec![self.values(of(&[size]), 2), self.values(of(&[size]), 2)],
            Form::Rows => vec![self.values(of(&[4, size]), 16)],
            Form::Cubes => vec![self.small(of(&[4, 6, 8]))],
            Form::Indices | Form::Labels => {
                let place = form.place(dtype, 0);
                let second = golden()[&format!("in/{place}/1")].clone();
                let first = golden()[&format!("in/{place}/0")].ty().clone();
                vec![self.values(first, 2), second]
            }
        };
        (inputs, size)
    }

    /// Quarters between -2 and 2, or integers below 10.
    fn small(&mut self, ty: TensorType) -> HostArray {
        let (dtype, size) = (ty.dtype(), ty.dtype().size());
        let mut host = HostArray::zeros(ty);
        for bytes in host.bytes_mut().chunks_exact_mut(size) {
            // A quarter of 250 thousandths.
            let drawn = if dtype.is_float() {
                2000 + 250 * (self.next() % 17)
            } else {
                self.next()
            };
            bytes.copy_from_slice(&ordinary(dtype, drawn)[..size]);
        }
        host
    }

    /// Values of which one of `rare` is at an edge, and one of `rare` has any bits; the others are
    /// between -4 and 4, or below 10.
    fn values(&mut self, ty: TensorType, rare: usize) -> HostArray {
        let (dtype, size) = (ty.dtype(), ty.dtype().size());
        let edges = golden()[&format!("in/each/{dtype}/0")].clone();
        let mut host = HostArray::zeros(ty);
        for bytes in host.bytes_mut().chunks_exact_mut(size) {
            let (kind, drawn) = (self.below(rare), self.next());
            let any = drawn.to_le_bytes();
            match kind {
                0 => {
                    let edge = self.below(edges.ty().elements()) * size;
                    bytes.copy_from_slice(&edges.bytes()[edge..edge + size]);
                }
                1 if dtype != DType::Bool => bytes.copy_from_slice(&any[..size]),
                _ => bytes.copy_from_slice(&ordinary(dtype, drawn)[..size]),
            }
        }
        host
    }
}

fn ordinary(dtype: DType, bits: u64) -> [u8; 8] {
    use half::{bf16, f16};
    let float = (bits % 8001) as f64 / 1000.0 - 4.0;
    let word = match dtype {
        DType::Bool => bits & 1,
        DType::F16 => f16::from_f64(float).to_bits().into(),
        DType::Bf16 => bf16::from_f64(float).to_bits().into(),
        DType::F32 => (float as f32).to_bits().into(),
        DType::F64 => float.to_bits(),
        _ => bits % 10,
    };
    word.to_le_bytes()
}
