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
        let (last, outer) = self.dims.split_last().expect("passes have dimensions");
        let features = self.source_features;
        let origin = |dim: usize| {
            let first = item.first * self.dims[0].source_step;
            self.origin[dim] + if dim == 0 { first as isize } else { 0 }
        };
        // A line is the last dimension.
        let extent = self.extent[outer.len()];
        let start = origin(outer.len());
        let end = (start + extent as isize).clamp(0, last.source as isize) as usize;
        let from = start.clamp(0, end as isize) as usize;
        let before = (from as isize - start).clamp(0, extent as isize) as usize * features;
        let lines = buffer.chunks_exact_mut((extent * features).max(1));
        for (number, line) in lines.enumerate() {
            let (mut rest, mut inner, mut position) = (number, 1, Some(0));
            for (dim, windows) in outer.iter().enumerate().rev() {
                let at = origin(dim) + (rest % self.extent[dim]) as isize;
                let at = usize::try_from(at).ok().filter(|&at| at < windows.source);
                position = position.zip(at).map(|(all, at)| all + at * inner);
                rest /= self.extent[dim];
                inner *= windows.source;
            }
            let Some(position) = position else {
                line.fill(0.0);
                continue;
            };
            let row = (item.image + rest) * inner + position;
            let source =
                &source[(row * last.source + from) * features..][..(end - from) * features];
            let (low, line) = line.split_at_mut(before);
            let (line, high) = line.split_at_mut(source.len());
            low.fill(0.0);
            T::widen(source, line);
            high.fill(0.0);
        }
    }
}
