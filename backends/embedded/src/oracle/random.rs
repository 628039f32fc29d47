//! Random bits and numbers. `rng_bit_generator` has the bits of XLA's generators: Philox-4x32-10
//! and Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

use halite_core::Result;
use halite_stablehlo::{ElementClass, RankedType, RngAlgorithm, RngDistribution};

use super::{
    tensor::{Tensor, Wide, allocate, collect, rounded, unexpected},
    unary::push_bits,
};

/// The next state, and bits of type `ty`. The state has words of 64 bits: key, counter, and for
/// Philox maybe the higher word of the counter.
pub(super) fn bit_generator(
    state: &Tensor,
    algorithm: RngAlgorithm,
    types: [&RankedType; 2],
) -> Result<[Tensor; 2]> {
    let [state_type, ty] = types;
    let mut words = words_of(state)?;
    let (key, counter) = match words[..] {
        // Same as XLA: the key is the higher word of the counter, too.
        [key, low] => (key, u128::from(low) | u128::from(key) << 64),
        [key, low, high] => (key, u128::from(low) | u128::from(high) << 64),
        _ => {
            return Err(unexpected("a state of 2 or 3 words", &state.ty.to_string()));
        }
    };
    let (bits, used) = match algorithm {
        RngAlgorithm::ThreeFry => threefry_bits(key, counter as u64, ty)?,
        RngAlgorithm::Philox | RngAlgorithm::Default => philox_bits(key, counter, ty)?,
    };
    let next = counter.wrapping_add(used.into());
    words[1] = next as u64;
    if let Some(high) = words.get_mut(2) {
        *high = (next >> 64) as u64;
    }
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mask = (1 << ty.element.bits()) - 1;
    let mut random = allocate(ty.bytes())?;
    bits.iter()
        .take(ty.elements())
        .for_each(|&bits| push_bits(ty.element, u128::from(bits) & mask, &mut random));
    Ok([
        Tensor::new(state_type.clone(), bytes),
        Tensor::new(ty.clone(), random),
    ])
}

fn words_of(state: &Tensor) -> Result<Vec<u64>> {
    let words = state.bytes.chunks_exact(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    collect(words.len(), words.map(word))
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn joined(words: [u32; 2]) -> u64 {
    let [low, high] = words;
    u64::from(low) | u64::from(high) << 32
}

/// Words for the elements of `ty`, and the number of counters used. Elements of fewer than 32 bits
/// have the low bits of a word of 32 each.
fn philox_bits(key: u64, counter: u128, ty: &RankedType) -> Result<(Vec<u64>, u64)> {
    let wide = ty.element.size() == 8;
    let blocks = ty.elements().div_ceil(if wide { 2 } else { 4 }) as u64;
    let mut words = allocate(if wide { 2 } else { 4 } * blocks as usize)?;
    for block in 0..blocks {
        let counter = counter.wrapping_add(block.into());
        let [a, b] = halves(counter as u64);
        let [c, d] = halves((counter >> 64) as u64);
        let [a, b, c, d] = philox([a, b, c, d], halves(key));
        if wide {
            words.extend([joined([a, b]), joined([c, d])]);
        } else {
            words.extend([a, b, c, d].map(u64::from));
        }
    }
    Ok((words, blocks))
}

fn philox(mut x: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [low0, high0] = halves(u64::from(x[0]) * 0xd251_1f53);
        let [low1, high1] = halves(u64::from(x[2]) * 0xcd9e_8d57);
        x = [high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0];
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
    }
    x
}

/// As [`philox_bits`]. A counter gives two words of 32 bits, for elements that are neighbors along
/// the first even dimension, else the largest.
fn threefry_bits(key: u64, counter: u64, ty: &RankedType) -> Result<(Vec<u64>, u64)> {
    let block = |number: usize| threefry(halves(counter.wrapping_add(number as u64)), halves(key));
    let elements = ty.elements();
    if ty.element.size() == 8 {
        let words = (0..elements).map(|number| joined(block(number)));
        return Ok((collect(elements, words)?, elements as u64));
    }
    let even = ty.dims.iter().position(|dim| dim % 2 == 0);
    let largest = (0..ty.rank()).max_by_key(|&dim| (ty.dims[dim], usize::MAX - dim));
    let Some(split) = even.or(largest) else {
        return Ok((vec![block(0)[0].into()], 1));
    };
    let inner: usize = ty.dims[split + 1..].iter().product();
    let (size, half) = (ty.dims[split], ty.dims[split].div_ceil(2));
    let word = |position: usize| {
        let (outer, at, rest) = (
            position / inner / size,
            position / inner % size,
            position % inner,
        );
        u64::from(block((outer * half + at / 2) * inner + rest)[at % 2])
    };
    let used = elements.checked_div(size).unwrap_or(0) * half;
    Ok((collect(elements, (0..elements).map(word))?, used as u64))
}

fn threefry(x: [u32; 2], key: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let mut x = [x[0].wrapping_add(keys[0]), x[1].wrapping_add(keys[1])];
    for group in 0..5 {
        for rotation in ROTATIONS[group % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(rotation) ^ x[0];
        }
        x[0] = x[0].wrapping_add(keys[(group + 1) % 3]);
        x[1] = x[1]
            .wrapping_add(keys[(group + 2) % 3])
            .wrapping_add(group as u32 + 1);
    }
    x
}

/// Number of draws of a uniform float that round to the excluded end of their interval.
const MOST_DRAWS: u32 = 64;

/// Random numbers of type `ty`, uniform in `[a, b)` or normal of mean `a` and deviation `b`. They
/// depend on `seed` alone.
pub(super) fn rng(
    distribution: RngDistribution,
    a: &Tensor,
    b: &Tensor,
    seed: [u64; 2],
    ty: &RankedType,
) -> Result<Tensor> {
    let [key, number] = seed;
    let block = |at: usize, draw: u32| {
        let [c0, c1] = halves(at as u64);
        let [w0, w1, w2, w3] = philox([c0, c1, number as u32, draw], halves(key));
        [joined([w0, w1]), joined([w2, w3])]
    };
    let count = ty.elements();
    if ty.element.class() != ElementClass::Float {
        let (low, high) = (a.int()?, b.int()?);
        let range = (high - low).max(1);
        let value = |at| low + i128::from(block(at, 0)[0]) % range;
        return Tensor::encode(ty, Wide::Int(collect(count, (0..count).map(value))?));
    }
    let (a, b) = (a.floats()?[0], b.floats()?[0]);
    // 53 bits in [0, 1).
    let unit = |word: u64| (word >> 11) as f64 / (1u64 << 53) as f64;
    let value = |at: usize| match distribution {
        // What rounds to the excluded end is drawn again.
        RngDistribution::Uniform => (0..MOST_DRAWS)
            .map(|draw| rounded(ty.element, a + (b - a) * unit(block(at, draw)[0])))
            .find(|&value| value < b)
            .unwrap_or(a),
        // Box and Muller's transform.
        RngDistribution::Normal => {
            let [u, v] = block(at, 0).map(unit);
            let radius = (-2.0 * (1.0 - u).ln()).sqrt();
            a + b * radius * (std::f64::consts::TAU * v).cos()
        }
    };
    Tensor::encode(ty, Wide::Float(collect(count, (0..count).map(value))?))
}

#[cfg(test)]
mod tests {
    use halite_stablehlo::ElementType;

    use super::*;

    /// Compares with what JAX 0.10.2 on XLA's CPU plugin returns.
    fn check(
        algorithm: RngAlgorithm,
        state: [u64; 2],
        element: ElementType,
        dims: &[usize],
        next: u64,
        bits: &[u64],
    ) {
        let state_type = RankedType::new(ElementType::U64, [2]);
        let bytes = state.iter().flat_map(|word| word.to_le_bytes()).collect();
        let before = Tensor::new(state_type.clone(), bytes);
        let ty = RankedType::new(element, dims);
        let [after, random] = bit_generator(&before, algorithm, [&state_type, &ty]).unwrap();
        assert_eq!(after.ints().unwrap(), [state[0].into(), i128::from(next)]);
        let wanted: Vec<_> = bits.iter().map(|&bits| i128::from(bits)).collect();
        assert_eq!(random.ints().unwrap()[..wanted.len()], wanted);
    }

    #[test]
    fn philox_has_the_bits_of_xla() {
        let check = |ty, dims: &[usize], next, bits: &[u64]| {
            check(RngAlgorithm::Default, [1, 2], ty, dims, next, bits);
        };
        let words = [0x7d34a749, 0xa9b8bbe8, 0x7ba423d7, 0x2fb324d9, 0x6cf923fe];
        check(ElementType::U32, &[5], 4, &words);
        check(ElementType::U32, &[], 3, &words[..1]);
        check(
            ElementType::U64,
            &[5],
            5,
            &[0xa9b8bbe87d34a749, 0x2fb324d97ba423d7],
        );
        check(ElementType::U8, &[3, 4], 5, &[0x49, 0xe8, 0xd7, 0xd9]);
    }

    #[test]
    fn threefry_has_the_bits_of_xla() {
        let state = [1u64 | 2 << 32, 3 | 4 << 32];
        let check = |ty, dims: &[usize], next: u64, bits: &[u64]| {
            check(
                RngAlgorithm::ThreeFry,
                state,
                ty,
                dims,
                next | 4u64 << 32,
                bits,
            );
        };
        let words = [0x5df433ec, 0x8617198e, 0x2c24a8a8, 0x9094fa5e, 0x91386643];
        check(ElementType::U32, &[5], 6, &words);
        check(ElementType::U32, &[], 4, &words[..1]);
        check(
            ElementType::U64,
            &[3, 4],
            15,
            &[0x8617198e5df433ec, 0x9094fa5e2c24a8a8],
        );
        let odd = [
            words[0], words[1], words[2], words[3], words[4], 0x4f97fb5b, 0x86b875a7,
        ];
        check(ElementType::U32, &[3, 5], 12, &odd);
        let even = [
            words[0], words[1], words[2], words[3], words[4], 0x59491919, 0x4f97fb5b,
        ];
        check(ElementType::U32, &[3, 4], 9, &even);
        check(ElementType::U16, &[3, 4], 9, &[0x33ec, 0x198e, 0xa8a8]);
    }
}
