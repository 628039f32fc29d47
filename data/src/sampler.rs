//! The order of samples, as a pure function.
//!
//! [`Permutation::at`] computes the position of a sample without a table and without the positions
//! before it, so a run resumes in the middle of an epoch of any size at once, and the order depends
//! on nothing but its arguments: not on workers, not on the number of devices or processes.
//!
//! Method: a balanced Feistel network is a bijection of the numbers of an even number of bits,
//! whatever its round function (Luby and Rackoff 1988). Where the network leaves `0..len`, it is
//! applied again until it comes back ("cycle walking", Black and Rogaway 2002, "Ciphers with
//! arbitrary finite domains"), which keeps it a bijection of `0..len`. There are fewer than
//! `4 * len` numbers in the network's domain, so that takes fewer than four applications on
//! average.

/// One shuffled order of the numbers below `len`.
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// Number of rounds. Four make a pseudo-random permutation; there are more because the halves of
/// small domains have only a few bits.
const ROUNDS: usize = 8;

impl Permutation {
    /// The order of epoch `epoch` under `seed`. Checkpoints depend on it, so it never changes
    /// between versions.
    pub fn new(len: usize, seed: u64, epoch: u64) -> Self {
        let len = len as u64;
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let start = mix(mix(seed) ^ epoch.wrapping_mul(GOLDEN));
        let keys = std::array::from_fn(|round| {
            mix(start.wrapping_add((round as u64 + 1).wrapping_mul(GOLDEN)))
        });
        Self {
            len,
            half_bits: bits.div_ceil(2).max(1),
            keys,
        }
    }

    /// Index of the sample at `position`.
    ///
    /// # Panics
    /// If `position` is not below `len`.
    pub fn at(&self, position: usize) -> usize {
        let mut value = position as u64;
        assert!(
            value < self.len,
            "position {position} in an order of {}",
            self.len
        );
        loop {
            value = self.network(value);
            if value < self.len {
                return value as usize;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) >> 32 & mask));
        }
        left << self.half_bits | right
    }
}

/// Index below `len` of the draw `place` in `epoch`, of `per_epoch` draws an epoch: each index
/// comes once before any comes again, over the bounds of epochs.
pub(crate) fn without_repetition(
    len: usize,
    per_epoch: usize,
    seed: u64,
    epoch: u64,
    place: usize,
) -> usize {
    let draw = u128::from(epoch) * per_epoch as u128 + place as u128;
    let (pass, at) = (draw / len as u128, draw % len as u128);
    Permutation::new(len, seed, pass as u64).at(at as usize)
}

/// 2^64 divided by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014; constants by Stafford).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(GOLDEN);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
