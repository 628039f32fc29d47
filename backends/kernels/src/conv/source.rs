//! Elements that the windows of an item read.

use super::pass::{Item, Pass};
use crate::{Element, Threads};

impl Pass {
    /// Calls `work` with the source of an item, and the position of its first element there.
    pub(super) fn with_source<T: Element>(
        &self,
        threads: &Threads,
        item: Item,
        source: &[T],
        work: impl FnOnce(&[f32], usize),
    ) {
        if self.products.is_empty() {
            return work(&[], 0);
        }
        if !self.is_inside {
            let extents = self.extent.iter().product::<usize>() * self.source_features;
            return threads.with_scratch(item.images * extents, |buffer| {
                self.fill_box(item, source, buffer);
                work(buffer, 0);
            });
        }
        let strides = self.source_strides();
        let origin = self.origin.iter().zip(&strides[1..]);
        let first = item.image * strides[0]
            + item.first * self.dims[0].source_step * strides[1]
            + origin
                .map(|(&at, stride)| at as usize * stride)
                .sum::<usize>();
        if T::IS_F32 {
            return T::with_f32(threads, source, |source| work(source, first));
        }
        let end = (first + item.images * strides[0]).min(source.len());
        T::with_f32(threads, &source[first..end], |source| work(source, 0));
    }

    /// Copies the elements of an item, and zeros around them.
    fn fill_box<T: Element>(&self, item: Item, source: &[T], buffer: &mut [f32]) {
        let features = self.source_features;
        let length = self.extent[self.extent.len() - 1] * features;
        let lines = buffer.chunks_exact_mut(length.max(1));
        for (line, buffer) in self.lines(item).zip(lines) {
            let source = &source[line.first * features..][..line.count * features];
            let (low, buffer) = buffer.split_at_mut(line.before * features);
            let (inside, high) = buffer.split_at_mut(source.len());
            low.fill(0.0);
            T::widen(source, inside);
            high.fill(0.0);
        }
    }

    /// The lines of the box of an item.
    pub(super) fn lines(&self, item: Item) -> impl Iterator<Item = Line> {
        let (last, outer) = self.dims.split_last().expect("passes have dimensions");
        let origin = move |dim: usize| {
            let first = item.first * self.dims[0].source_step;
            self.origin[dim] + if dim == 0 { first as isize } else { 0 }
        };
        let extent = self.extent[outer.len()];
        let start = origin(outer.len());
        let end = (start + extent as isize).clamp(0, last.source as isize) as usize;
        let from = start.clamp(0, end as isize) as usize;
        let before = (from as isize - start).clamp(0, extent as isize) as usize;
        let outer_count: usize = self.extent[..outer.len()].iter().product();
        (0..item.images * outer_count).map(move |number| {
            let (mut rest, mut inner, mut position) = (number, 1, Some(0));
            for (dim, windows) in outer.iter().enumerate().rev() {
                let at = origin(dim) + (rest % self.extent[dim]) as isize;
                let at = usize::try_from(at).ok().filter(|&at| at < windows.source);
                position = position.zip(at).map(|(all, at)| all + at * inner);
                rest /= self.extent[dim];
                inner *= windows.source;
            }
            match position {
                Some(position) => Line {
                    first: ((item.image + rest) * inner + position) * last.source + from,
                    before,
                    count: end - from,
                },
                None => Line::default(),
            }
        })
    }
}

/// Positions of the source along its last dimension, in the box of an item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// Position of the first in the source.
    pub(super) first: usize,
    /// Positions of the box before it, which are zeros as those after the last are.
    pub(super) before: usize,
    pub(super) count: usize,
}
