//! The random key of a read, and random numbers from it.

mod beta;

use crate::sampler::{GOLDEN, mix};

/// Key of one read: random choices of a dataset, such as those of an augmentation, are a pure
/// function of it. The loader sets it; [`SampleMut::key`](crate::SampleMut::key) returns it.
///
/// Reads with equal keys make equal choices, so a run that resumes in the middle of an epoch
/// continues bit for bit, whatever the number of workers, processes and devices. The same sample
/// has another key in each epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// The seed of the loader's [order](crate::Order); 0 if it is sequential.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The index in the dataset of the loader. Adapters read another index of the dataset that they
    /// wrap, and pass the key on unchanged: a sample that is drawn twice in an epoch has two keys.
    pub index: usize,
}

impl Key {
    /// Starts a sequence of random numbers that depends on the key and on `purpose` alone. Different
    /// purposes, such as `"crop"` and `"flip"`, have independent sequences.
    ///
    /// The sequences do not change between versions or platforms.
    ///
    /// ```
    /// use halite_data::Key;
    ///
    /// let key = Key { seed: 42, epoch: 3, index: 17 };
    /// let mut random = key.random("crop");
    /// let (top, left) = (random.below(33), random.below(33));
    /// assert!(top < 33 && left < 33);
    /// assert_eq!(key.random("crop").below(33), top);
    /// ```
    pub fn random(&self, purpose: &str) -> Random {
        let absorb = |state: u64, word: u64| mix(state ^ word.wrapping_mul(GOLDEN));
        let words = [self.seed, self.epoch, self.index as u64];
        let state = words.into_iter().fold(0, absorb);
        let state = purpose.bytes().map(u64::from).fold(state, absorb);
        Random {
            state: absorb(state, purpose.len() as u64),
        }
    }
}

/// Sequence of random numbers of a [`Key`]: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The next 64 random bits.
    pub fn u64(&mut self) -> u64 {
        let bits = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        bits
    }

    /// A multiple of 2^-53, uniform in `0.0..1.0`.
    pub fn f64(&mut self) -> f64 {
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number between `low` and `high`, uniform. Equal bounds give `low`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.f64()
    }

    /// An integer below `n`, uniform up to a relative bias of `n / 2^64`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.u64()) * n as u128) >> 64) as usize
    }

    /// Returns true with probability `p`: never for 0, always for 1.
    pub fn chance(&mut self, p: f64) -> bool {
        self.f64() < p
    }

    /// A number of the standard normal distribution (Marsaglia's polar method).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (self.uniform(-1.0, 1.0), self.uniform(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }
}

/// Natural logarithm of a normal positive number, from operations that IEEE 754 rounds correctly:
/// that of the platform's library differs in the last bit between platforms.
fn ln(value: f64) -> f64 {
    let bits = value.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh s; s is at most 0.172, so terms of higher order are below 2^-60.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..12)
        .rev()
        .fold(0.0, |sum, term| sum * s * s + 2.0 / f64::from(2 * term + 1));
    exponent as f64 * std::f64::consts::LN_2 + s * series
}

#[cfg(test)]
mod tests {
    use super::ln;

    #[test]
    fn ln_is_close_to_that_of_the_platform() {
        for value in [
            1e-300, 1e-30, 0.1, 0.5, 0.7072, 0.999_999, 1.0, 1.414_3, 2.0,
        ] {
            let (ours, platform) = (ln(value), f64::ln(value));
            assert!(
                (ours - platform).abs() <= 4e-16 * platform.abs(),
                "{value}: {ours} {platform}"
            );
        }
    }
}
