//! How much of a long test runs: a part in `.ci/run`, all of it in `.ci/full`.

/// `true` where `HALITE_TEST_LONG` is set, as `.ci/full` does.
pub fn is_long() -> bool {
    std::env::var_os("HALITE_TEST_LONG").is_some()
}

/// All of these in a long test, else those at `few`.
pub fn part<'a, T>(all: &'a [T], few: &'a [usize]) -> impl Iterator<Item = &'a T> + Clone {
    let is_long = is_long();
    (all.iter().enumerate())
        .filter(move |(index, _)| is_long || few.contains(index))
        .map(|(_, one)| one)
}

/// The number of cases of a campaign.
pub fn count(few: u64, many: u64) -> u64 {
    if is_long() { many } else { few }
}
