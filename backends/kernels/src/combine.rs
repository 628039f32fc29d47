//! Elementwise combinations of any number of arrays, rounded once.

use pulp::Arch;

use crate::Threads;

/// Elements that are combined in the first-level cache.
const BLOCK: usize = 1024;

/// Elements of one item of work.
const ITEM: usize = 1 << 14;

/// Combines the elements at each position of all `sources`, from the first to the last one, as
/// wide numbers.
///
/// # Panics
/// If there are no sources, or they do not have the length of `out`.
#[inline]
pub fn combine<T: Copy + Send + Sync, W: Copy + Default>(
    threads: &Threads,
    sources: &[&[T]],
    out: &mut [T],
    widen: impl Fn(T) -> W + Sync,
    op: impl Fn(W, W) -> W + Sync,
    narrow: impl Fn(W) -> T + Sync,
) {
    let Some((first, rest)) = sources.split_first() else {
        panic!("a combination has sources");
    };
    let length = out.len();
    let has_length = |source: &&[T]| source.len() == length;
    assert!(
        sources.iter().all(has_length),
        "sources have the length of the result"
    );
    let arch = Arch::new();
    let cost = length * sources.len() / 4;
    let items = out.chunks_mut(ITEM).enumerate();
    threads.for_each(cost, items, |(number, out)| {
        arch.dispatch(
            #[inline(always)]
            || {
                let mut wide = [W::default(); BLOCK];
                for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                    let from = number * ITEM + block * BLOCK;
                    let range = from..from + out.len();
                    let wide = &mut wide[..out.len()];
                    for (wide, &x) in wide.iter_mut().zip(&first[range.clone()]) {
                        *wide = widen(x);
                    }
                    for source in rest {
                        for (wide, &x) in wide.iter_mut().zip(&source[range.clone()]) {
                            *wide = op(*wide, widen(x));
                        }
                    }
                    for (out, &wide) in out.iter_mut().zip(&*wide) {
                        *out = narrow(wide);
                    }
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_round_once() {
        let threads = Threads::new(2).expect("threads start");
        for length in [0, 1, 3, BLOCK + 1, 3 * ITEM + 7] {
            let sources = [
                vec![16_777_216f32; length],
                vec![1.0; length],
                vec![1.0; length],
            ];
            let sources: Vec<&[f32]> = sources.iter().map(|source| &source[..]).collect();
            let mut out = vec![0.0; length];
            let add = |x: f64, y: f64| x + y;
            combine(&threads, &sources, &mut out, f64::from, add, |x| x as f32);
            assert_eq!(out, vec![16_777_218.0; length]);
        }
    }
}
