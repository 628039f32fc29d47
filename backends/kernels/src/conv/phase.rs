//! Windows of convolutions along one dimension.

use std::collections::BTreeMap;

use super::ConvDim;

/// Windows along one dimension whose targets are equally far apart and have the same taps.
///
/// Window `j` sums over the taps: element `first_source + j * source_step + tap.offset` of the
/// source times element `tap.kernel` of the kernel. Its target is `first_target + j * target_step`.
/// Both steps are those of [`Windows`].
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) first_target: usize,
    pub(super) first_source: isize,
    pub(super) count: usize,
    /// In order of the source.
    pub(super) taps: Vec<Tap>,
}

/// An element of the kernel, and its position from the first one of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    pub(super) kernel: usize,
    pub(super) offset: usize,
}

/// All windows along one dimension.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    pub(super) source: usize,
    pub(super) target: usize,
    pub(super) kernel: usize,
    pub(super) source_step: usize,
    pub(super) target_step: usize,
    /// Those with targets and taps.
    pub(super) phases: Vec<Phase>,
}

impl Windows {
    /// Windows of the result. Result `r` has term `k` of input `i` where
    /// `r * stride + k * dilation = i * input_dilation + low`: there is one phase for each remainder of
    /// the left side by the dilation of the input.
    pub(super) fn forward(dim: &ConvDim) -> Self {
        let taps =
            (0..dim.kernel).map(|kernel| (kernel, (kernel * dim.dilation) as isize - dim.low));
        Self::of(
            dim,
            [dim.input, dim.output()],
            [dim.input_dilation, dim.stride],
            taps.collect(),
        )
    }

    /// Windows of the input gradient, by the same equation: one phase for each remainder of input
    /// positions by the stride.
    pub(super) fn backward(dim: &ConvDim) -> Self {
        let taps = (0..dim.kernel).rev();
        let taps = taps.map(|kernel| (kernel, dim.low - (kernel * dim.dilation) as isize));
        Self::of(
            dim,
            [dim.output(), dim.input],
            [dim.stride, dim.input_dilation],
            taps.collect(),
        )
    }

    /// Windows of targets `t` that read sources `s` where `s * source_scale = t * target_scale +
    /// shift`, for each tap of the kernel with its shift, in ascending order of the shifts.
    fn of(dim: &ConvDim, sizes: [usize; 2], scales: [usize; 2], taps: Vec<(usize, isize)>) -> Self {
        let [source_scale, target_scale] = scales;
        let [source, target] = sizes;
        let divisor = greatest_common_divisor(source_scale, target_scale);
        let target_step = source_scale / divisor;
        let scale = source_scale as isize;
        // By remainders, because a kernel may have far fewer taps than there are phases.
        let mut by_remainder: BTreeMap<isize, Vec<(usize, isize)>> = BTreeMap::new();
        for (kernel, shift) in taps {
            let taps = by_remainder.entry((-shift).rem_euclid(scale)).or_default();
            taps.push((kernel, shift));
        }
        let phase = |(remainder, taps): (isize, Vec<(usize, isize)>)| {
            let first_target = solution(target_scale, remainder as usize, source_scale)?;
            let position = |shift: isize| (first_target * target_scale) as isize + shift;
            let first_source = position(taps[0].1).div_euclid(scale);
            let tap = |(kernel, shift)| Tap {
                kernel,
                offset: (position(shift).div_euclid(scale) - first_source) as usize,
            };
            Some(Phase {
                first_target,
                first_source,
                count: target.saturating_sub(first_target).div_ceil(target_step),
                taps: taps.into_iter().map(tap).collect(),
            })
        };
        Windows {
            source,
            target,
            kernel: dim.kernel,
            source_step: target_scale / divisor,
            target_step,
            phases: by_remainder.into_iter().filter_map(phase).collect(),
        }
        .without_empty_phases()
    }

    fn without_empty_phases(mut self) -> Self {
        self.phases
            .retain(|phase| phase.count > 0 && !phase.taps.is_empty());
        self
    }

    /// Number of windows of the longest phase.
    pub(super) fn count(&self) -> usize {
        self.target.div_ceil(self.target_step)
    }

    /// First element of the source that a window of index 0 reads.
    pub(super) fn origin(&self) -> isize {
        let firsts = self.phases.iter().map(|phase| phase.first_source);
        firsts.min().unwrap_or(0)
    }

    /// Number of elements of the source that the first `count` windows of all phases read.
    pub(super) fn extent(&self, count: usize) -> usize {
        let end = |phase: &Phase| {
            let windows = phase.count.min(count).saturating_sub(1) * self.source_step;
            let taps = phase.taps.iter().map(|tap| tap.offset).max().unwrap_or(0);
            phase.first_source + (windows + taps) as isize + 1
        };
        let end = self.phases.iter().map(end).max().unwrap_or(0);
        (end - self.origin()) as usize
    }

    /// Returns whether no window reads beyond the source.
    pub(super) fn is_inside(&self) -> bool {
        let end = self.origin() + self.extent(self.count()) as isize;
        self.origin() >= 0 && end <= self.source as isize
    }
}

/// The least `x` with `factor * x = remainder` modulo `modulus`; `None` if there is none.
fn solution(factor: usize, remainder: usize, modulus: usize) -> Option<usize> {
    let (divisor, inverse) = bezout(factor as i128, modulus as i128);
    let (divisor, rest) = (divisor as usize, modulus / divisor as usize);
    let first = (remainder / divisor) as i128 * inverse;
    remainder
        .is_multiple_of(divisor)
        .then(|| first.rem_euclid(rest as i128) as usize)
}

/// The greatest common divisor of two numbers, and the factor of the first that gives it modulo the
/// second.
fn bezout(a: i128, b: i128) -> (i128, i128) {
    let (mut last, mut next) = ((a, 1), (b, 0));
    while next.0 != 0 {
        let quotient = last.0 / next.0;
        (last, next) = (
            next,
            (last.0 - quotient * next.0, last.1 - quotient * next.1),
        );
    }
    last
}

pub(super) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 {
        return a;
    }
    greatest_common_divisor(b, a % b)
}
