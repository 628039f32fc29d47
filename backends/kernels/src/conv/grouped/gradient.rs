//! The gradient of the kernel of a [`Grouped`] convolution.

use bytemuck::cast_slice_mut;
use pulp::{Arch, Simd, WithSimd};

use super::{Grouped, Lanes, load, with_vectors};
use crate::{
    Element, Threads,
    conv::{
        kernel_gradient::{Part, in_parts},
        pass::{Item, Product},
    },
};

/// Most taps along the last dimension that are summed at a time.
const TAPS: usize = 8;

impl Grouped {
    /// Computes the gradient of the kernel in `f32`. The pass is that of the result.
    pub(in crate::conv) fn kernel_gradient<T: Element>(
        &self,
        threads: &Threads,
        x: &[T],
        g: &[T],
        out: &mut [f32],
    ) {
        let lanes = Arch::new().dispatch(Lanes);
        let vectors = self.pass.target_features.div_ceil(lanes);
        let sums_len = self.terms() * vectors * lanes;
        let (copies_len, windows) = (self.positions() * lanes, self.pass.most_windows() * lanes);
        in_parts(&self.pass, threads, out, None, |serial, part| {
            with_vectors(serial, sums_len + copies_len + windows, |scratch| {
                let (sums, scratch) = scratch.split_at_mut(sums_len);
                let (copies, gradient) = scratch.split_at_mut(copies_len);
                sums.fill(0.0);
                for &(item, start) in part.items {
                    let g = &g[start..][..self.pass.target_len(item)];
                    self.with_source(serial, item, x, |source, first| {
                        T::with_f32(serial, g, |g| {
                            Arch::new().dispatch(Gradient {
                                grouped: self,
                                item,
                                source,
                                first,
                                g,
                                copies,
                                gradient,
                                sums,
                            });
                        });
                    });
                }
                self.unpack(sums, lanes, part);
            });
        });
    }

    /// Writes sums, in the order of the packed kernel, to their positions.
    fn unpack(&self, sums: &[f32], lanes: usize, part: Part<'_>) {
        let columns = &self.pass.columns;
        // No window has taps that no product has.
        part.out.fill(0.0);
        let mut sums = sums.chunks_exact(lanes);
        for first in (0..columns.len()).step_by(lanes) {
            let width = lanes.min(columns.len() - first);
            for product in &self.pass.products {
                for (term, sums) in (0..product.terms.len()).zip(&mut sums) {
                    let at = product.kernel_terms.at(term);
                    for (lane, &sum) in sums[..width].iter().enumerate() {
                        part.out[at + columns.at(first + lane)] = sum;
                    }
                }
            }
        }
    }
}

/// Sums over the windows of an item, which are added to `sums`.
struct Gradient<'a> {
    grouped: &'a Grouped,
    item: Item,
    source: &'a [f32],
    first: usize,
    g: &'a [f32],
    copies: &'a mut [f32],
    gradient: &'a mut [f32],
    sums: &'a mut [f32],
}

impl WithSimd for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Gradient {
            grouped,
            item,
            source,
            first,
            g,
            copies,
            gradient,
            sums,
        } = self;
        let pass = &grouped.pass;
        let copies: &mut [S::f32s] = cast_slice_mut(copies);
        let gradient: &mut [S::f32s] = cast_slice_mut(gradient);
        let mut sums: &mut [S::f32s] = cast_slice_mut(sums);
        for target in (0..pass.target_features).step_by(S::F32_LANES) {
            grouped.fill(simd, item, (source, first), target, copies);
            let width = S::F32_LANES.min(pass.target_features - target);
            for product in &pass.products {
                let (own, rest) = std::mem::take(&mut sums).split_at_mut(product.terms.len());
                sums = rest;
                let count = product.rows_of(item);
                for (&at, vector) in product.targets[..count].iter().zip(&mut *gradient) {
                    let g = &g[at + target..];
                    *vector = match width == S::F32_LANES {
                        true => load::<S>(g),
                        false => simd.partial_load_f32s(&g[..width]),
                    };
                }
                let line = product.line_of(item, pass.dims.len());
                let terms = Terms {
                    product,
                    copies,
                    gradient: &gradient[..count],
                    line,
                    step: pass.dims.last().map_or(1, |dim| dim.source_step),
                    count: grouped.group.source,
                };
                if line > 0 {
                    terms.add(simd, own);
                }
            }
        }
    }
}

/// Terms of a product with a vector of the gradient of the result for each window.
struct Terms<'a, V> {
    product: &'a Product,
    copies: &'a [V],
    gradient: &'a [V],
    /// Windows along the last dimension, and their distance.
    line: usize,
    step: usize,
    /// Number of copies.
    count: usize,
}

impl<V: Copy> Terms<'_, V> {
    /// Adds the sums over all windows to `sums`, by taps along the last dimension.
    #[inline(always)]
    fn add<S: Simd<f32s = V>>(&self, simd: S, sums: &mut [V]) {
        let taps = self.product.line_taps;
        let most = taps.div_ceil(taps.div_ceil(TAPS));
        // Lines of taps: of all other dimensions and copies.
        let lines = self.product.terms.len() / taps;
        let first_term = |line: usize| line / self.count * taps * self.count + line % self.count;
        for first_tap in (0..taps).step_by(most) {
            let taps = most.min(taps - first_tap);
            let term = |line: usize| first_term(line) + first_tap * self.count;
            let mut line = 0;
            while line < lines {
                let together = match (taps, lines - line) {
                    (1 | 2, 4..) => 4,
                    (3, 3..) => 3,
                    (4, 2..) => 2,
                    _ => 1,
                };
                match (together, taps) {
                    (4, 1) => self.add_lines::<S, 4, 1>(simd, term, line, sums),
                    (4, _) => self.add_lines::<S, 4, 2>(simd, term, line, sums),
                    (3, _) => self.add_lines::<S, 3, 3>(simd, term, line, sums),
                    (2, _) => self.add_lines::<S, 2, 4>(simd, term, line, sums),
                    (_, 1) => self.add_lines::<S, 1, 1>(simd, term, line, sums),
                    (_, 2) => self.add_lines::<S, 1, 2>(simd, term, line, sums),
                    (_, 3) => self.add_lines::<S, 1, 3>(simd, term, line, sums),
                    (_, 4) => self.add_lines::<S, 1, 4>(simd, term, line, sums),
                    (_, 5) => self.add_lines::<S, 1, 5>(simd, term, line, sums),
                    (_, 6) => self.add_lines::<S, 1, 6>(simd, term, line, sums),
                    (_, 7) => self.add_lines::<S, 1, 7>(simd, term, line, sums),
                    _ => self.add_lines::<S, 1, 8>(simd, term, line, sums),
                }
                line += together;
            }
        }
    }

    /// Adds the sums of `N` taps of each of `R` lines of taps.
    #[inline(always)]
    fn add_lines<S: Simd<f32s = V>, const R: usize, const N: usize>(
        &self,
        simd: S,
        term: impl Fn(usize) -> usize,
        first_line: usize,
        sums: &mut [V],
    ) {
        let (mut terms, mut offsets) = ([0; R], [0; R]);
        for (line, (of_line, offset)) in terms.iter_mut().zip(&mut offsets).enumerate() {
            *of_line = term(first_line + line);
            *offset = self.product.terms.at(*of_line);
        }
        let found = match self.product.tap_step {
            1 => self.sum::<S, R, N>(simd, offsets, 1),
            step => self.sum::<S, R, N>(simd, offsets, step),
        };
        for (term, found) in terms.into_iter().zip(found) {
            for (tap, found) in found.into_iter().enumerate() {
                let sum = &mut sums[term + tap * self.count];
                *sum = simd.add_f32s(*sum, found);
            }
        }
    }

    #[inline(always)]
    fn sum<S: Simd<f32s = V>, const R: usize, const N: usize>(
        &self,
        simd: S,
        offsets: [usize; R],
        tap_step: usize,
    ) -> [[V; N]; R] {
        let mut sums = [[simd.splat_f32s(0.0); N]; R];
        for (number, gradient) in self.gradient.chunks_exact(self.line).enumerate() {
            let first = self.product.offset + self.product.rows.at(number * self.line);
            for (window, &g) in gradient.iter().enumerate() {
                let at = first + window * self.step;
                for (sums, offset) in sums.iter_mut().zip(offsets) {
                    let values = &self.copies[at + offset..][..(N - 1) * tap_step + 1];
                    for (tap, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.mul_add_e_f32s(values[tap * tap_step], g, *sum);
                    }
                }
            }
        }
        sums
    }
}
