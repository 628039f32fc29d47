//! Random bits: Philox-4x32-10 and Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as
//! easy as 1, 2, 3", 2011), as XLA arranges them.

use halite_core::Result;
use halite_stablehlo::RngAlgorithm;

use super::{Call, Direct};

/// Counters that are encrypted at a time.
const LANES: usize = 16;

type Words = [u32; LANES];

/// The next state, and random bits. The operand is the state: words of 64 bits, which are a key, a
/// counter, and maybe the higher word of the counter.
#[derive(Debug)]
pub(in super::super) struct RandomBits {
    pub(in super::super) algorithm: RngAlgorithm,
}

impl Direct for RandomBits {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (mut state, mut bits) = (call.take(0)?, call.take(1)?);
        let words = call.operand(0)?.as_chunks::<8>().0;
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let key = word(0);
        // Same as XLA: without a higher word, the key is it, too.
        let high = if words.len() > 2 { word(2) } else { key };
        let counter = u128::from(word(1)) | u128::from(high) << 64;
        let ty = call.result_ty(1);
        let used = match self.algorithm {
            RngAlgorithm::ThreeFry => {
                let size = ty.element.size();
                threefry_bits(key, counter as u64, &ty.dims, size, bits.bytes_mut())
            }
            RngAlgorithm::Philox | RngAlgorithm::Default => {
                philox_bits(key, counter, ty.element.size(), bits.bytes_mut())
            }
        };
        let next = counter.wrapping_add(used.into());
        let next = [key, next as u64, (next >> 64) as u64];
        let of_state = state.bytes_mut().as_chunks_mut::<8>().0;
        of_state
            .iter_mut()
            .zip(next)
            .for_each(|(word, next)| *word = next.to_le_bytes());
        call.set(0, state);
        call.set(1, bits);
        Ok(())
    }
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Fills elements of `size` bytes, and returns the number of counters used. Elements of fewer than
/// 32 bits have the low bits of a word of 32 each.
fn philox_bits(key: u64, counter: u128, size: usize, out: &mut [u8]) -> u64 {
    let of_block = if size == 8 { 2 } else { 4 };
    let elements = out.len() / size;
    let blocks = elements.div_ceil(of_block);
    for start in (0..blocks).step_by(LANES) {
        let mut x = [[0; LANES]; 4];
        for lane in 0..LANES {
            let counter = counter.wrapping_add((start + lane) as u128);
            let words = [halves(counter as u64), halves((counter >> 64) as u64)];
            let words = [words[0][0], words[0][1], words[1][0], words[1][1]];
            x.iter_mut().zip(words).for_each(|(x, word)| x[lane] = word);
        }
        philox(&mut x, halves(key));
        let first = start * of_block * size;
        let last = out.len().min(first + LANES * of_block * size);
        let elements = out[first..last].chunks_exact_mut(size);
        for (number, element) in elements.enumerate() {
            if size == 8 {
                let (lane, pair) = (number / 2, number % 2 * 2);
                element[..4].copy_from_slice(&x[pair][lane].to_le_bytes());
                element[4..].copy_from_slice(&x[pair + 1][lane].to_le_bytes());
            } else {
                let word = x[number % 4][number / 4];
                element.copy_from_slice(&word.to_le_bytes()[..size]);
            }
        }
    }
    blocks as u64
}

fn philox(x: &mut [Words; 4], mut key: [u32; 2]) {
    for _ in 0..10 {
        let [a, b, c, d] = &mut *x;
        for ((a, b), (c, d)) in a.iter_mut().zip(b).zip(c.iter_mut().zip(d)) {
            let [low0, high0] = halves(u64::from(*a) * 0xd251_1f53);
            let [low1, high1] = halves(u64::from(*c) * 0xcd9e_8d57);
            *a = high1 ^ *b ^ key[0];
            *b = low1;
            *c = high0 ^ *d ^ key[1];
            *d = low0;
        }
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
    }
}

/// As [`philox_bits`]. A counter gives two words of 32 bits, for elements that are neighbors along
/// the first even dimension, else the largest.
fn threefry_bits(key: u64, counter: u64, dims: &[usize], size: usize, out: &mut [u8]) -> u64 {
    let key = halves(key);
    let elements = out.len() / size;
    if size == 8 {
        let mut elements = out.as_chunks_mut::<8>().0.iter_mut();
        threefry_blocks(key, counter, elements.len(), |[low, high]| {
            if let Some(element) = elements.next() {
                *element = (u64::from(low) | u64::from(high) << 32).to_le_bytes();
            }
        });
        return elements_used(dims);
    }
    let even = dims.iter().position(|dim| dim % 2 == 0);
    let largest = (0..dims.len()).max_by_key(|&dim| (dims[dim], usize::MAX - dim));
    let (outer, split, inner) = match even.or(largest) {
        Some(dim) => {
            let outer: usize = dims[..dim].iter().product();
            (outer, dims[dim], dims[dim + 1..].iter().product())
        }
        None => (1, 1, 1),
    };
    let half = split.div_ceil(2);
    if elements == 0 {
        return 0;
    }
    let mut put = |at: usize, word: u32| {
        out[at * size..][..size].copy_from_slice(&word.to_le_bytes()[..size]);
    };
    let (mut pair, mut rest, mut first) = (0, 0, 0);
    threefry_blocks(key, counter, outer * half * inner, |[even, odd]| {
        let at = first + 2 * pair * inner + rest;
        put(at, even);
        if 2 * pair + 1 < split {
            put(at + inner, odd);
        }
        rest += 1;
        if rest == inner {
            (rest, pair) = (0, pair + 1);
        }
        if pair == half {
            (pair, first) = (0, first + split * inner);
        }
    });
    (outer * half * inner) as u64
}

/// Counters for elements of 64 bits: one each.
fn elements_used(dims: &[usize]) -> u64 {
    dims.iter().product::<usize>() as u64
}

/// Calls `each` with the words of `count` counters.
fn threefry_blocks(key: [u32; 2], counter: u64, count: usize, mut each: impl FnMut([u32; 2])) {
    for start in (0..count).step_by(LANES) {
        let mut x = [[0; LANES]; 2];
        for lane in 0..LANES {
            let words = halves(counter.wrapping_add((start + lane) as u64));
            x.iter_mut().zip(words).for_each(|(x, word)| x[lane] = word);
        }
        threefry(&mut x, key);
        let [even, odd] = x;
        let pairs = even.into_iter().zip(odd).take(count - start);
        pairs.for_each(|(even, odd)| each([even, odd]));
    }
}

fn threefry(x: &mut [Words; 2], key: [u32; 2]) {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd1_1bda];
    let [left, right] = x;
    let add = |words: &mut Words, by: u32| {
        words
            .iter_mut()
            .for_each(|word| *word = word.wrapping_add(by));
    };
    add(left, keys[0]);
    add(right, keys[1]);
    for group in 0..5 {
        for rotation in ROTATIONS[group % 2] {
            for (left, right) in left.iter_mut().zip(right.iter_mut()) {
                *left = left.wrapping_add(*right);
                *right = right.rotate_left(rotation) ^ *left;
            }
        }
        add(left, keys[(group + 1) % 3]);
        add(right, keys[(group + 2) % 3].wrapping_add(group as u32 + 1));
    }
}
