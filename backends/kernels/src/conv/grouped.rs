//! Convolutions in groups of few features, vectorized over the features of all groups.
//!
//! A group of few outputs fills no vector. So a vector has outputs of several groups, and copy `k`
//! of the source has, for each of them, feature `k` of its group. A convolution is then a sum over
//! taps and copies of elementwise products; a depthwise one has one copy, which is the source.
//! Copies are made for one vector of outputs at a time, with the padding, so that they stay in the
//! nearest caches.

mod gradient;

use bytemuck::{cast_slice, cast_slice_mut};
use pulp::{Arch, Simd, WithSimd};

use super::{
    pass::{Item, MOST_LANES, Pass, Product},
    source::Line,
};
use crate::{Element, Threads};

/// Most outputs of a group: more fill vectors of their own.
const MOST_OUTPUTS: usize = 15;
/// Most copies, so that those of an item fit the second-level cache; and most where the outputs of
/// a group are more than these, so that a product of matrices is faster (measured).
const MOST_COPIES: usize = 32;
const FEW: usize = 4;
/// Most windows of the innermost kernel.
const WINDOWS: usize = 8;

/// Returns whether a [`Grouped`] computes a convolution of these groups.
pub(super) fn is_grouped(groups: usize, group: Group) -> bool {
    let most = if group.target <= FEW {
        MOST_COPIES
    } else {
        FEW
    };
    groups > 1 && group.target <= MOST_OUTPUTS && group.source <= most
}

/// Number of features of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) source: usize,
    pub(super) target: usize,
}

/// A pass whose positions of the source are those of vectors.
#[derive(Debug)]
pub(super) struct Grouped {
    pub(super) pass: Pass,
    pub(super) group: Group,
}

impl Grouped {
    /// Features of the source.
    fn source_features(&self) -> usize {
        self.pass.groups * self.group.source
    }

    /// Terms of all products.
    fn terms(&self) -> usize {
        self.pass.products.iter().map(|it| it.terms.len()).sum()
    }

    /// Positions of all copies of an item.
    fn positions(&self) -> usize {
        self.pass.copy_len() * self.group.source
    }

    /// Computes the target.
    pub(super) fn run<T: Element, O: Element>(
        &self,
        threads: &Threads,
        source: &[T],
        kernel: &[T],
        out: &mut [O],
    ) {
        if out.is_empty() {
            return;
        }
        let lanes = Arch::new().dispatch(Lanes);
        let vectors = self.pass.target_features.div_ceil(lanes);
        T::with_f32(threads, kernel, |kernel| {
            with_vectors(threads, self.terms() * vectors * lanes, |packed| {
                self.pack(kernel, lanes, packed);
                let packed = &*packed;
                self.pass.for_each_item(threads, out, |serial, item, out| {
                    self.with_source(serial, item, source, |source, first| {
                        with_vectors(serial, self.positions() * lanes, |copies| {
                            Arch::new().dispatch(Sums {
                                grouped: self,
                                item,
                                source,
                                first,
                                packed,
                                copies,
                                out,
                            });
                        });
                    });
                });
            });
        });
    }

    /// Copies the kernel: for each vector of targets, the factors of the terms of each product.
    fn pack(&self, kernel: &[f32], lanes: usize, packed: &mut [f32]) {
        let columns = &self.pass.columns;
        let mut packed = packed.chunks_exact_mut(lanes);
        for first in (0..columns.len()).step_by(lanes) {
            let width = lanes.min(columns.len() - first);
            for product in &self.pass.products {
                for (term, packed) in (0..product.terms.len()).zip(&mut packed) {
                    let at = product.kernel_terms.at(term);
                    let (own, unused) = packed.split_at_mut(width);
                    for (lane, factor) in own.iter_mut().enumerate() {
                        *factor = kernel[at + columns.at(first + lane)];
                    }
                    unused.fill(0.0);
                }
            }
        }
    }

    /// Calls `work` with the source of an item, and the number of positions before its first one.
    fn with_source<T: Element>(
        &self,
        threads: &Threads,
        item: Item,
        source: &[T],
        work: impl FnOnce(&[f32], usize),
    ) {
        if T::IS_F32 {
            return T::with_f32(threads, source, |source| work(source, 0));
        }
        let lines = self.pass.lines(item).filter(|line| line.count > 0);
        let ranges = lines.map(|line| (line.first, line.first + line.count));
        let range = ranges.reduce(|all, line| (all.0.min(line.0), all.1.max(line.1)));
        let (first, end) = range.unwrap_or_default();
        let features = self.source_features();
        T::with_f32(
            threads,
            &source[first * features..end * features],
            |source| {
                work(source, first);
            },
        );
    }

    /// Makes the copies of an item for the vector of targets from `target` on.
    #[inline(always)]
    fn fill<S: Simd>(
        &self,
        simd: S,
        item: Item,
        from: (&[f32], usize),
        target: usize,
        copies: &mut [S::f32s],
    ) {
        let (source, first) = from;
        let features = self.source_features();
        let width = S::F32_LANES.min(self.pass.target_features - target);
        let extent = *self.pass.extent.last().expect("passes have dimensions");
        for (copy, positions) in copies
            .chunks_exact_mut(self.pass.copy_len().max(1))
            .enumerate()
        {
            let mut channels = [0; MOST_LANES];
            for (lane, channel) in channels[..width].iter_mut().enumerate() {
                *channel = (target + lane) / self.group.target * self.group.source + copy;
            }
            // Lanes without a target have any value.
            let lines = positions.chunks_exact_mut(extent.max(1));
            for (line, out) in self.pass.lines(item).zip(lines) {
                let Line { before, count, .. } = line;
                let (low, out) = out.split_at_mut(before);
                let (out, high) = out.split_at_mut(count);
                low.fill(simd.splat_f32s(0.0));
                high.fill(simd.splat_f32s(0.0));
                if count == 0 {
                    continue;
                }
                let source = &source[(line.first - first) * features..][..count * features];
                let pixels = source.chunks_exact(features).zip(out);
                if self.group.source != 1 || self.group.target != 1 {
                    let channels = &channels[..S::F32_LANES];
                    match self.group.target {
                        2 => spread::<S, 2>(pixels, channels),
                        4 => spread::<S, 4>(pixels, channels),
                        8 => spread::<S, 8>(pixels, channels),
                        _ => spread::<S, 1>(pixels, channels),
                    }
                } else if width == S::F32_LANES {
                    pixels.for_each(|(pixel, out)| *out = load::<S>(&pixel[target..]));
                } else {
                    let load = |pixel: &[f32]| simd.partial_load_f32s(&pixel[target..][..width]);
                    pixels.for_each(|(pixel, out)| *out = load(pixel));
                }
            }
        }
    }
}

impl Product {
    /// Windows of an item along the last dimension.
    fn line_of(&self, item: Item, dims: usize) -> usize {
        match dims {
            1 => self.rows_of(item) / item.images.max(1),
            _ => self.line,
        }
    }
}

/// Calls `work` with scratch memory that begins with a cache line, so that no vector has parts of
/// two.
fn with_vectors<T>(threads: &Threads, length: usize, work: impl FnOnce(&mut [f32]) -> T) -> T {
    threads.with_scratch(length + MOST_LANES, |scratch| {
        let first = scratch
            .as_ptr()
            .align_offset(size_of::<[f32; MOST_LANES]>());
        work(&mut scratch[first.min(MOST_LANES)..][..length])
    })
}

/// Number of elements of a vector.
pub(super) struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// The first elements of a slice as a vector.
#[inline(always)]
fn load<S: Simd>(from: &[f32]) -> S::f32s {
    let vectors: &[S::f32s] = cast_slice(&from[..S::F32_LANES]);
    vectors[0]
}

/// Fills vectors with channels of pixels. Each `N` lanes have the same channel.
#[inline(always)]
fn spread<'p, S: Simd, const N: usize>(
    pixels: impl Iterator<Item = (&'p [f32], &'p mut S::f32s)>,
    channels: &[usize],
) {
    let mut firsts = [0; MOST_LANES];
    for (first, channels) in firsts.iter_mut().zip(channels.chunks(N)) {
        *first = channels[0];
    }
    for (pixel, out) in pixels {
        let lanes: &mut [f32] = cast_slice_mut(std::slice::from_mut(out));
        for (lanes, &channel) in lanes.chunks_mut(N).zip(&firsts) {
            lanes.fill(pixel[channel]);
        }
    }
}

/// The target of an item.
struct Sums<'a> {
    grouped: &'a Grouped,
    item: Item,
    source: &'a [f32],
    first: usize,
    packed: &'a [f32],
    copies: &'a mut [f32],
    out: &'a mut [f32],
}

impl WithSimd for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Sums {
            grouped,
            item,
            source,
            first,
            packed,
            copies,
            out,
        } = self;
        let pass = &grouped.pass;
        let copies: &mut [S::f32s] = cast_slice_mut(copies);
        let mut packed: &[S::f32s] = cast_slice(packed);
        let step = pass.dims.last().map_or(1, |dim| dim.source_step);
        for target in (0..pass.target_features).step_by(S::F32_LANES) {
            grouped.fill(simd, item, (source, first), target, copies);
            for product in &pass.products {
                let (factors, rest) = packed.split_at(product.terms.len());
                packed = rest;
                let line = product.line_of(item, pass.dims.len());
                if line == 0 {
                    continue;
                }
                let windows = line.div_ceil(line.div_ceil(WINDOWS));
                for row in (0..product.rows_of(item)).step_by(line) {
                    for start in (0..line).step_by(windows) {
                        // The last windows overlap those before them, and are written twice.
                        let row = row + start.min(line - windows);
                        let sums = LineSums {
                            product,
                            copies,
                            factors,
                            position: product.offset + product.rows.at(row),
                            targets: &product.targets[row..][..windows],
                            target,
                            width: S::F32_LANES.min(pass.target_features - target),
                        };
                        match windows {
                            1 => sums.run::<1>(simd, step, out),
                            2 => sums.run::<2>(simd, step, out),
                            3 => sums.run::<3>(simd, step, out),
                            4 => sums.run::<4>(simd, step, out),
                            5 => sums.run::<5>(simd, step, out),
                            6 => sums.run::<6>(simd, step, out),
                            7 => sums.run::<7>(simd, step, out),
                            _ => sums.run::<8>(simd, step, out),
                        }
                    }
                }
            }
        }
    }
}

/// Vectors of neighboring windows.
struct LineSums<'a, V> {
    product: &'a Product,
    copies: &'a [V],
    factors: &'a [V],
    /// Position of the first window.
    position: usize,
    /// Positions of the windows in the target, and of the vector from there.
    targets: &'a [usize],
    target: usize,
    width: usize,
}

impl<V> LineSums<'_, V> {
    #[inline(always)]
    fn run<const N: usize>(self, simd: impl Simd<f32s = V>, step: usize, out: &mut [f32])
    where
        V: bytemuck::Pod,
    {
        match step {
            1 => self.store::<_, N>(simd, self.sums::<_, N>(simd, 1), out),
            2 => self.store::<_, N>(simd, self.sums::<_, N>(simd, 2), out),
            _ => self.store::<_, N>(simd, self.sums::<_, N>(simd, step), out),
        }
    }

    #[inline(always)]
    fn sums<S: Simd<f32s = V>, const N: usize>(&self, simd: S, step: usize) -> [V; N]
    where
        V: Copy,
    {
        let mut sums = [simd.splat_f32s(0.0); N];
        for (term, &factor) in self.factors.iter().enumerate() {
            let at = self.position + self.product.terms.at(term);
            let values = &self.copies[at..][..(N - 1) * step + 1];
            for (window, sum) in sums.iter_mut().enumerate() {
                *sum = simd.mul_add_e_f32s(values[window * step], factor, *sum);
            }
        }
        sums
    }

    #[inline(always)]
    fn store<S: Simd<f32s = V>, const N: usize>(&self, simd: S, sums: [V; N], out: &mut [f32])
    where
        V: bytemuck::Pod,
    {
        for (&at, sum) in self.targets.iter().zip(sums) {
            let out = &mut out[at + self.target..][..self.width];
            if self.width == S::F32_LANES {
                let out: &mut [V] = cast_slice_mut(out);
                out[0] = sum;
            } else {
                simd.partial_store_f32s(out, sum);
            }
        }
    }
}
