//! Passes of windows over a tensor, one cache-sized part of the windows at a time.

use super::{
    ConvGeometry, GeometryError,
    geometry::{MOST_ELEMENTS, MOST_POSITIONS, elements},
    narrow,
    phase::{Phase, Windows, greatest_common_divisor},
    positions::{axis, positions, spread, strides},
    right::{Packing, Right},
};
use crate::{
    Axis, Element, Operand, Threads,
    gemm::{Panels, Rows},
};

/// Most windows of each phase of an item: enough rows of a product to use a packed panel many
/// times.
pub(super) const ITEM_WINDOWS: usize = 384;
/// Least number of windows of an item.
const LEAST_WINDOWS: usize = 32;
/// Number of items that share the work of threads evenly.
const ITEMS: usize = 16;
/// Most elements of a vector.
pub(super) const MOST_LANES: usize = 16;
/// Most elements of the source of an item of several images: one megabyte.
const ITEM_SOURCE: usize = 1 << 18;

/// Sums over windows of a source `[batch, spatial.., features]`, each with a kernel, into a target
/// `[batch, spatial.., columns]`: the result of a convolution or its input gradient.
///
/// Windows are computed in items: some whole images, or some windows along the first dimension of
/// one. An item reads the source where it is, or, if windows reach beyond it or the elements are
/// not `f32`, a copy in a box of the size that its windows read.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Elements of a position of the source; 1 where that is a vector of [`Grouped`](super::grouped).
    pub(super) source_features: usize,
    pub(super) target_features: usize,
    pub(super) dims: Vec<Windows>,
    /// Position in the source of the box of an item whose first window is 0, and size of the box.
    pub(super) origin: Vec<isize>,
    pub(super) extent: Vec<usize>,
    /// Whether no window reads beyond the source.
    pub(super) is_inside: bool,
    /// Images and windows along the first dimension of an item.
    images: usize,
    windows: usize,
    pub(super) products: Vec<Product>,
    /// Columns of the kernel.
    pub(super) columns: Axis,
    /// Positions of the features of the target.
    pub(super) target_columns: Axis,
}

/// A phase along each dimension. The same positions serve all items, the last of which have fewer.
#[derive(Debug)]
pub(super) struct Product {
    /// Windows along the first dimension of an image, windows for each of these, and windows along the
    /// last dimension.
    count: usize,
    inner_count: usize,
    pub(super) line: usize,
    /// Taps along the last dimension, and the distance of the first two. In a pass of the result it
    /// is that of all.
    pub(super) line_taps: usize,
    pub(super) tap_step: usize,
    /// First element of the first window, in the source of an item.
    pub(super) offset: usize,
    /// Windows, and elements from the first of a window.
    pub(super) rows: Axis,
    pub(super) terms: Axis,
    /// Positions of the terms in the kernel.
    pub(super) kernel_terms: Axis,
    /// Positions of the rows in the target of an item.
    pub(super) targets: Vec<usize>,
    /// The same as rows of a matrix; empty if they are too far apart for one.
    pub(super) target_rows: Axis,
}

/// Windows `first..end` along the first dimension, of some images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) image: usize,
    pub(super) images: usize,
    pub(super) first: usize,
    end: usize,
}

/// Which elements of the kernel a pass reads: positions of its taps, of the features of a tap that
/// are summed, and of the columns.
pub(super) struct KernelPositions {
    pub(super) tap: usize,
    pub(super) terms: Vec<usize>,
    pub(super) columns: Vec<usize>,
    /// Whether each of the features that are summed is in a copy of its own, of vectors: for
    /// [`Grouped`](super::grouped).
    pub(super) is_grouped: bool,
}

impl Pass {
    pub(super) fn new(
        geometry: &ConvGeometry,
        dims: Vec<Windows>,
        kernel: KernelPositions,
        most_windows: usize,
    ) -> Result<Self, GeometryError> {
        let too_large = || GeometryError::too_large(geometry);
        let groups = geometry.groups;
        let copies = if kernel.is_grouped {
            kernel.terms.len()
        } else {
            1
        };
        let source_features = match kernel.is_grouped {
            true => 1,
            false => kernel.terms.len() * groups,
        };
        let counts: Vec<usize> = dims.iter().map(Windows::count).collect();
        let inner = product(&counts[1..]);
        let image = inner.saturating_mul(counts[0]);
        // Whole groups of rows of a product, where a part of an image can have them.
        let step = 8 / greatest_common_divisor(inner, 8);
        let windows = match image.div_ceil(most_windows) {
            0 | 1 => counts[0],
            parts => counts[0]
                .div_ceil(parts)
                .next_multiple_of(step)
                .min(counts[0]),
        };
        let sizes = dims.iter().enumerate().map(|(number, dim)| match number {
            0 => dim.extent(windows),
            _ => dim.extent(dim.count()),
        });
        let extent: Vec<usize> = sizes.collect();
        let vector = if kernel.is_grouped { MOST_LANES } else { 1 };
        let box_size = product(&[product(&extent), source_features, copies, vector]);
        let images = match image {
            0 => 1,
            _ if windows < counts[0] => 1,
            _ => (most_windows / image).min(ITEM_SOURCE / box_size.max(1)),
        };
        let mut pass = Pass {
            batch: geometry.batch,
            groups,
            source_features,
            target_features: kernel.columns.len(),
            origin: dims.iter().map(Windows::origin).collect(),
            extent,
            is_inside: !kernel.is_grouped && dims.iter().all(Windows::is_inside),
            images: images.clamp(1, geometry.batch.max(1)),
            windows: windows.max(1),
            products: Vec::new(),
            columns: axis(std::slice::from_ref(&kernel.columns)).ok_or_else(too_large)?,
            target_columns: axis(&[spread(kernel.columns.len(), 1)]).ok_or_else(too_large)?,
            dims,
        };
        let phases = elements(pass.dims.iter().map(|dim| dim.phases.len()));
        let taps = elements(pass.dims.iter().map(|dim| dim.kernel));
        let strides = pass.source_strides();
        let is_small = product(&[phases, pass.images, pass.windows, inner]) <= MOST_POSITIONS
            && product(&[phases, kernel.terms.len()]) <= MOST_POSITIONS
            && product(&[taps, kernel.terms.len()]) <= MOST_POSITIONS
            && product(&[pass.images, strides[0], copies, vector]) <= MOST_ELEMENTS;
        if !is_small {
            return Err(too_large());
        }
        // Phases of all dimensions.
        let combinations = pass.dims.iter().fold(vec![Vec::new()], |outer, dim| {
            let with = |dims: Vec<Phase>| {
                let next = |phase: &Phase| [&dims[..], std::slice::from_ref(phase)].concat();
                dim.phases.iter().map(next).collect::<Vec<_>>()
            };
            outer.into_iter().flat_map(with).collect()
        });
        let products = combinations
            .iter()
            .map(|phases| pass.product(phases, &kernel));
        let products: Option<Vec<_>> = products.collect();
        pass.products = products.ok_or_else(too_large)?;
        pass.products.retain(|product| !product.terms.is_empty());
        Ok(pass)
    }

    /// Strides of the batch and the spatial dimensions of a source of an item, for elements that
    /// are read where they are or for a box.
    pub(super) fn source_strides(&self) -> Vec<usize> {
        let sizes: Vec<usize> = if self.is_inside {
            self.dims.iter().map(|dim| dim.source).collect()
        } else {
            self.extent.clone()
        };
        strides(&sizes, self.source_features)
    }

    /// Positions of a copy of the source of an item.
    pub(super) fn copy_len(&self) -> usize {
        product(&[self.images, self.source_strides()[0]])
    }

    fn product(&self, phases: &[Phase], kernel: &KernelPositions) -> Option<Product> {
        let source = self.source_strides();
        let sizes: Vec<usize> = self.dims.iter().map(|dim| dim.target).collect();
        let target = strides(&sizes, self.target_features);
        let mut offset = 0;
        let mut rows = vec![spread(self.images, source[0])];
        let mut targets = vec![spread(self.images, target[0])];
        let (mut terms, mut kernel_terms) = (Vec::new(), Vec::new());
        let mut tap_stride = kernel.tap;
        for (number, (phase, dim)) in phases.iter().zip(&self.dims).enumerate() {
            let (source, target) = (source[number + 1], target[number + 1]);
            let count = match number {
                0 => phase.count.min(self.windows),
                _ => phase.count,
            };
            offset += (phase.first_source - self.origin[number]) as usize * source;
            rows.push(spread(count, dim.source_step.checked_mul(source)?));
            let first = phase.first_target * target;
            let step = dim.target_step.checked_mul(target)?;
            targets.push((0..count).map(|index| first + index * step).collect());
            let taps = phase.taps.iter();
            terms.push(taps.map(|tap| tap.offset * source).collect());
        }
        for (phase, dim) in phases.iter().zip(&self.dims).rev() {
            let taps = phase.taps.iter();
            kernel_terms.push(taps.map(|tap| tap.kernel * tap_stride).collect());
            tap_stride *= dim.kernel;
        }
        kernel_terms.reverse();
        let term_step = if kernel.is_grouped {
            self.copy_len()
        } else {
            1
        };
        terms.push(spread(kernel.terms.len(), term_step));
        kernel_terms.push(kernel.terms.clone());
        let last = phases.last()?;
        let tap_step = last.taps.get(1).map_or(1, |tap| tap.offset);
        Some(Product {
            line: last.count,
            line_taps: last.taps.len(),
            tap_step,
            count: phases[0].count,
            inner_count: phases[1..].iter().map(|phase| phase.count).product(),
            offset,
            rows: axis(&rows)?,
            terms: axis(&terms)?,
            kernel_terms: axis(&kernel_terms)?,
            targets: positions(&targets)?,
            target_rows: axis(&targets).unwrap_or_default(),
        })
    }
}

impl Pass {
    /// All items, in the order of their targets.
    pub(super) fn items(&self) -> Vec<Item> {
        let windows = self.dims[0].count();
        let batch = if windows == 0 { 0 } else { self.batch };
        let images = (0..batch).step_by(self.images);
        let of_images = |image: usize| {
            let firsts = (0..windows).step_by(self.windows);
            firsts.map(move |first| Item {
                image,
                images: self.images.min(self.batch - image),
                first,
                end: (first + self.windows).min(windows),
            })
        };
        images.flat_map(of_images).collect()
    }

    /// Number of elements of the target of an item.
    pub(super) fn target_len(&self, item: Item) -> usize {
        let Windows {
            target,
            target_step,
            ..
        } = self.dims[0];
        let inner = self.dims[1..].iter().map(|dim| dim.target);
        let outer = (item.end * target_step).min(target) - item.first * target_step;
        item.images * outer * inner.product::<usize>() * self.target_features
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
        let products: Vec<_> = self.products.iter().collect();
        let panels = products
            .iter()
            .map(|product| self.packing(product.terms.len()));
        let panels: Vec<_> = panels.collect();
        let packed_len = panels.iter().map(Packing::len).sum();
        T::with_f32(threads, kernel, |kernel| {
            threads.with_scratch(packed_len, |packed| {
                let mut packed = &mut packed[..];
                let mut steps = Vec::with_capacity(products.len());
                for (&product, panels) in products.iter().zip(panels) {
                    let kernel = Operand {
                        data: kernel,
                        offset: 0,
                        rows: &product.kernel_terms,
                        columns: &self.columns,
                    };
                    let (right, rest) = Right::pack(threads, kernel, panels, packed);
                    packed = rest;
                    steps.push((product, right));
                }
                self.for_each_item(threads, out, |serial, item, out| {
                    self.with_source(serial, item, source, |source, first| {
                        self.run_item(serial, item, &steps, (source, first), out);
                    });
                });
            });
        });
    }

    /// Most windows of an item.
    pub(super) fn most_windows(&self) -> usize {
        let windows = self.products.iter().map(|product| product.targets.len());
        windows.max().unwrap_or(0)
    }

    /// Calls `work` with one thread, each item and its target, which is set to zeros if no window
    /// writes to some of it.
    pub(super) fn for_each_item<O: Element>(
        &self,
        threads: &Threads,
        out: &mut [O],
        work: impl Fn(&Threads, Item, &mut [f32]) + Send + Sync,
    ) {
        let serial = threads.serial();
        let is_covered = self.is_covered();
        let mut rest = out;
        let items = self.items().into_iter().map(|item| {
            let (out, next) = std::mem::take(&mut rest).split_at_mut(self.target_len(item));
            rest = next;
            (item, out)
        });
        threads.for_each(self.nanoseconds(), items, |(item, out)| {
            O::with_f32_mut(&serial, out, |out| {
                if !is_covered {
                    out.fill(0.0);
                }
                work(&serial, item, out);
            });
        });
    }

    /// Returns whether windows write to all of the target.
    fn is_covered(&self) -> bool {
        let targets = self.dims.iter().map(|dim| dim.target).product();
        let counts = self.products.iter().map(|it| it.count * it.inner_count);
        counts.sum::<usize>() == targets
    }

    /// How kernels of `terms` rows are packed.
    fn packing(&self, terms: usize) -> Packing {
        match self.is_narrow() {
            true => Packing::Narrow([terms, self.source_features, self.target_features]),
            false => Packing::Panels(self.panels(terms)),
        }
    }

    /// Returns whether products have few columns, and many terms for each tap.
    pub(super) fn is_narrow(&self) -> bool {
        self.groups == 1 && narrow::is_narrow(self.source_features, self.target_features)
    }

    /// Panels of each group for right matrices of `terms` rows and the columns of the target.
    pub(super) fn panels(&self, terms: usize) -> Vec<Panels> {
        let width = self.target_features / self.groups;
        let columns = (0..self.groups).map(|group| group * width..(group + 1) * width);
        columns.map(|columns| Panels::new(terms, columns)).collect()
    }

    /// An estimate of the time of all items.
    pub(super) fn nanoseconds(&self) -> usize {
        let terms = self.products.iter().map(|product| {
            let windows = product.count.saturating_mul(product.inner_count);
            windows.saturating_mul(product.terms.len())
        });
        let terms = terms.fold(0, usize::saturating_add);
        let columns = self.batch.saturating_mul(self.target_features);
        terms.saturating_mul(columns) / 64
    }

    fn run_item(
        &self,
        threads: &Threads,
        item: Item,
        steps: &[(&Product, Right<'_>)],
        from: (&[f32], usize),
        out: &mut [f32],
    ) {
        let (source, first) = from;
        let length = self.target_features;
        let is_whole = self.products.len() == 1 && self.is_covered();
        for (product, right) in steps {
            let patches = Operand {
                data: source,
                offset: first + product.offset,
                rows: &product.rows,
                columns: &product.terms,
            };
            let group_step = self.source_features / self.groups;
            if is_whole {
                right.multiply(threads, patches, group_step, Rows::all(out, length));
                continue;
            }
            let count = product.rows_of(item);
            threads.with_scratch(count * length, |result| {
                right.multiply(threads, patches, group_step, Rows::all(result, length));
                for (row, &target) in result.chunks_exact(length).zip(&product.targets) {
                    out[target..][..length].copy_from_slice(row);
                }
            });
        }
    }
}

impl Product {
    /// Number of windows of an item.
    pub(super) fn rows_of(&self, item: Item) -> usize {
        let windows = self.count.min(item.end).saturating_sub(item.first);
        item.images * windows * self.inner_count
    }
}

/// Most windows of an item for a number of windows of all images.
pub(super) fn item_windows(windows: usize) -> usize {
    let share = windows.div_ceil(ITEMS).next_multiple_of(8);
    share.clamp(LEAST_WINDOWS, ITEM_WINDOWS)
}

fn product(sizes: &[usize]) -> usize {
    elements(sizes.iter().copied())
}
