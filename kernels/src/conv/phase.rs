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
    /// Windows of the result: one phase.
    pub(super) fn forward(dim: &ConvDim) -> Self {
        let tap = |kernel| Tap {
            kernel,
            offset: kernel * dim.dilation,
        };
        let target = dim.output();
        let phase = Phase {
            first_target: 0,
            first_source: -dim.low,
            count: target,
            taps: (0..dim.kernel).map(tap).collect(),
        };
        Windows {
            source: dim.input,
            target,
            kernel: dim.kernel,
            source_step: dim.stride,
            target_step: 1,
            phases: vec![phase],
        }
        .without_empty_phases()
    }

    /// Windows of the input gradient: one phase for each remainder of input positions by the
    /// stride.
    ///
    /// Input `i` has term `k` in result `r` where `i + low = r * stride + k * dilation`.
    pub(super) fn backward(dim: &ConvDim) -> Self {
        let ConvDim {
            input,
            kernel,
            stride,
            dilation,
            low,
            ..
        } = *dim;
        // By remainders of the kernel's positions.
        let mut kernels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for kernel in (0..kernel).rev() {
            let remainder = kernel * dilation % stride;
            kernels.entry(remainder).or_default().push(kernel);
        }
        let phase = |(remainder, kernels): (usize, Vec<usize>)| {
            let first_target = (remainder as isize - low).rem_euclid(stride as isize);
            let result = (first_target + low).div_euclid(stride as isize);
            let back = |kernel: usize| kernel * dilation / stride;
            let most_back = back(kernels[0]);
            let tap = |kernel| Tap {
                kernel,
                offset: most_back - back(kernel),
            };
            Phase {
                first_target: first_target as usize,
                first_source: result - most_back as isize,
                count: input.saturating_sub(first_target as usize).div_ceil(stride),
                taps: kernels.into_iter().map(tap).collect(),
            }
        };
        Windows {
            source: dim.output(),
            target: input,
            kernel,
            source_step: 1,
            target_step: stride,
            phases: kernels.into_iter().map(phase).collect(),
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
