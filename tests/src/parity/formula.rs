//! Weights and batches as functions of names and indices, the same as in `parity.py`.

use std::collections::BTreeMap;

use halite::weights::HostTensors;
use halite_core::{DType, HostArray, Result};

/// SplitMix64 from the FNV-1a hash of the name.
fn bits(name: &str) -> impl Iterator<Item = u64> {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (1u64..).map(move |index| {
        let mut z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// Uniform numbers in [-1, 1).
fn unit(name: &str, dims: &[usize]) -> Vec<f64> {
    let count = dims.iter().product();
    let value = |bits: u64| (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    bits(name).map(value).take(count).collect()
}

/// A batch of floats.
pub fn floats(name: &str, dims: &[usize], dtype: DType) -> Result<HostArray> {
    array(&unit(name, dims), dims, dtype)
}

/// A batch of integers below `high`, as `s32`.
pub fn integers(name: &str, high: u64, dims: &[usize]) -> Result<HostArray> {
    let values: Vec<i32> = bits(name)
        .map(|bits| (bits % high) as i32)
        .take(dims.iter().product())
        .collect();
    HostArray::from_slice(&values, dims)
}

/// Initial values of the tensors of a state dict.
pub fn weights(tensors: &BTreeMap<String, Vec<usize>>, dtype: DType) -> Result<HostTensors> {
    let values = |(name, dims): (&String, &Vec<usize>)| {
        let values = array(&initial(name, dims), dims, dtype)?;
        Ok((name.clone(), values))
    };
    tensors.iter().map(values).collect()
}

fn initial(name: &str, dims: &[usize]) -> Vec<f64> {
    let values = unit(name, dims);
    if dims.len() > 1 {
        let root = (dims[1..].iter().product::<usize>() as f64).sqrt();
        return values.into_iter().map(|value| value / root).collect();
    }
    let is_scale = name.ends_with("var") || name.ends_with("weight");
    let center = f64::from(u8::from(is_scale));
    values
        .into_iter()
        .map(|value| value * 0.1 + center)
        .collect()
}

/// An array of `f64`, or else of `f32`.
pub(super) fn array(values: &[f64], dims: &[usize], dtype: DType) -> Result<HostArray> {
    match dtype {
        DType::F64 => HostArray::from_slice(values, dims),
        _ => {
            let narrow: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            HostArray::from_slice(&narrow, dims)
        }
    }
}
