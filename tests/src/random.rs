//! Seeded pseudo-random numbers for tests with drawn cases: a case is a function of the seed and
//! its number.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of case `index` under `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        let mut random = Random(seed);
        random.0 = random.next_u64() ^ index.wrapping_mul(0xd134_2543_de82_ef95);
        random.next_u64();
        random
    }

    /// Any 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which must be positive.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "`end` must be positive");
        (self.next_u64() % end as u64) as usize
    }

    /// `true` with a probability of `percent` / 100.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the items.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_differ_by_seed_or_number() {
        let first = |seed, index| Random::new(seed, index).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        let all = std::collections::HashSet::from([
            first(1, 2),
            first(2, 1),
            first(1, 3),
            first(0, 0),
            first(3, 3),
        ]);
        assert_eq!(all.len(), 5);
    }
}
