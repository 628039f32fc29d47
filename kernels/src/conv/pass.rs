//! Passes of windows over a tensor, one cache-sized part of the windows at a time.

use super::{
    ConvGeometry, GeometryError,
    geometry::MOST_POSITIONS,
    phase::{Phase, Windows},
};
use crate::{
    Axis, Element, Operand, Threads,
    gemm::{Panels, Rows},
};

/// Windows of each phase of an item: enough rows of a product to use a packed panel many times.
const ITEM_WINDOWS: usize = 384;
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
    groups: usize,
    source_features: usize,
    pub(super) target_features: usize,
    dims: Vec<Windows>,
    /// Position in the source of the box of an item whose first window is 0, and size of the box.
    origin: Vec<isize>,
    extent: Vec<usize>,
    /// Whether no window reads beyond the source.
    is_inside: bool,
    /// Images and windows along the first dimension of an item.
    images: usize,
    windows: usize,
    pub(super) products: Vec<Product>,
    /// Columns of the kernel.
    columns: Axis,
}

/// A phase along each dimension. The same positions serve all items, the last of which have fewer.
#[derive(Debug)]
pub(super) struct Product {
    /// Windows along the first dimension of an image, and windows for each of these.
    count: usize,
    inner_count: usize,
    /// First element of the first window, in the source of an item.
    pub(super) offset: usize,
    /// Windows, and elements from the first of a window.
    pub(super) rows: Axis,
    pub(super) terms: Axis,
    /// Positions of the terms in the kernel.
    kernel_terms: Axis,
    /// Positions of the rows in the target of an item.
    targets: Vec<usize>,
}

/// Windows `first..end` along the first dimension, of some images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    image: usize,
    images: usize,
    first: usize,
    end: usize,
}

/// Which elements of the kernel a pass reads: positions of its taps, of the features of a tap that
/// are summed, and of the columns.
pub(super) struct KernelPositions {
    pub(super) tap: usize,
    pub(super) terms: Vec<usize>,
    pub(super) columns: Vec<usize>,
}

impl Pass {
    pub(super) fn new(
        geometry: &ConvGeometry,
        dims: Vec<Windows>,
        kernel: KernelPositions,
    ) -> Result<Self, GeometryError> {
        let too_large = || GeometryError::too_large(geometry);
        let groups = geometry.groups;
        let (source_features, target_features) =
            (kernel.terms.len() * groups, kernel.columns.len());
        let counts: Vec<usize> = dims.iter().map(Windows::count).collect();
        let inner = product(&counts[1..]);
        let image = inner.saturating_mul(counts[0]);
        let windows = match image {
            0..=ITEM_WINDOWS => counts[0],
            _ => counts[0].div_ceil(image.div_ceil(ITEM_WINDOWS)),
        };
        let sizes = dims.iter().enumerate().map(|(number, dim)| match number {
            0 => dim.extent(windows),
            _ => dim.extent(dim.count()),
        });
        let extent: Vec<usize> = sizes.collect();
        let box_size = product(&extent).saturating_mul(source_features);
        let images = match image {
            0 => 1,
            _ if windows < counts[0] => 1,
            _ => (ITEM_WINDOWS / image).min(ITEM_SOURCE / box_size.max(1)),
        };
        let mut pass = Pass {
            batch: geometry.batch,
            groups,
            source_features,
            target_features,
            origin: dims.iter().map(Windows::origin).collect(),
            extent,
            is_inside: dims.iter().all(Windows::is_inside),
            images: images.clamp(1, geometry.batch.max(1)),
            windows: windows.max(1),
            products: Vec::new(),
            columns: axis(&[kernel.columns.clone()]).ok_or_else(too_large)?,
            dims,
        };
        let combinations = pass.dims.iter().fold(vec![Vec::new()], |outer, dim| {
            let with = |dims: Vec<Phase>| {
                let next = |phase: &Phase| [&dims[..], &[phase.clone()]].concat();
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
    fn source_strides(&self) -> Vec<usize> {
        let sizes: Vec<usize> = if self.is_inside {
            self.dims.iter().map(|dim| dim.source).collect()
        } else {
            self.extent.clone()
        };
        strides(&sizes, self.source_features)
    }

    fn product(&self, phases: &[Phase], kernel: &KernelPositions) -> Option<Product> {
        let strides_of = |sizes: Vec<usize>, inner: usize| strides(&sizes, inner);
        let source = self.source_strides();
        let target = strides_of(
            self.dims.iter().map(|dim| dim.target).collect(),
            self.target_features,
        );
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
        terms.push(spread(kernel.terms.len(), 1));
        kernel_terms.push(kernel.terms.clone());
        Some(Product {
            count: phases[0].count,
            inner_count: phases[1..].iter().map(|phase| phase.count).product(),
            offset,
            rows: axis(&rows)?,
            terms: axis(&terms)?,
            kernel_terms: axis(&kernel_terms)?,
            targets: positions(&targets)?,
        })
    }
}

impl Pass {
    /// All items, in the order of their targets.
    pub(super) fn items(&self) -> Vec<Item> {
        let windows = self.dims[0].count();
        let images = (0..self.batch).step_by(self.images);
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

    /// Computes the target.
    pub(super) fn run<T: Element>(
        &self,
        threads: &Threads,
        source: &[T],
        kernel: &[T],
        out: &mut [T],
    ) {
        if out.is_empty() {
            return;
        }
        let products = self
            .products
            .iter()
            .flat_map(|product| (0..self.groups).map(move |group| (product, group)));
        let products: Vec<_> = products
            .map(|(product, group)| {
                let width = self.target_features / self.groups;
                let columns = group * width..(group + 1) * width;
                (product, group, Panels::new(product.terms.len(), columns))
            })
            .collect();
        let packed_len = products.iter().map(|(.., panels)| panels.len()).sum();
        let flops: usize = products
            .iter()
            .map(|(product, _, panels)| {
                product.count * product.inner_count * panels.terms.len() * panels.columns.len()
            })
            .fold(0, usize::saturating_add);
        T::with_f32(threads, kernel, |kernel| {
            threads.with_scratch(packed_len, |packed| {
                let mut rest = &mut packed[..];
                for (product, _, panels) in &products {
                    let (packed, next) = rest.split_at_mut(panels.len());
                    rest = next;
                    let kernel = Operand {
                        data: kernel,
                        offset: 0,
                        rows: &product.kernel_terms,
                        columns: &self.columns,
                    };
                    panels.pack(threads, kernel, packed);
                }
                let (serial, packed) = (threads.serial(), &packed[..]);
                let mut rest = out;
                let items = self.items().into_iter().map(|item| {
                    let (out, next) = std::mem::take(&mut rest).split_at_mut(self.target_len(item));
                    rest = next;
                    (item, out)
                });
                let cost = flops.saturating_mul(self.batch) / 64;
                threads.for_each(cost, items, |(item, out)| {
                    T::with_f32_mut(&serial, out, |out| {
                        self.with_source(&serial, item, source, |source, first| {
                            self.run_item(&serial, item, &products, (source, first), packed, out);
                        });
                    });
                });
            });
        });
    }

    fn run_item(
        &self,
        threads: &Threads,
        item: Item,
        products: &[(&Product, usize, Panels)],
        (source, first): (&[f32], usize),
        packed: &[f32],
        out: &mut [f32],
    ) {
        let length = self.target_features;
        let targets: usize = self.dims.iter().map(|dim| dim.target).product();
        let computed: usize = self
            .products
            .iter()
            .map(|product| product.count * product.inner_count)
            .sum();
        if computed != targets {
            out.fill(0.0);
        }
        let is_whole = self.products.len() == 1 && computed == targets;
        let mut rest = packed;
        for (product, group, panels) in products {
            let (packed, next) = rest.split_at(panels.len());
            rest = next;
            let a = Operand {
                data: source,
                offset: first + product.offset + group * (self.source_features / self.groups),
                rows: &product.rows,
                columns: &product.terms,
            };
            if is_whole {
                panels.multiply(threads, a, packed, Rows::all(out, length));
                continue;
            }
            let count = product.rows_of(item);
            threads.with_scratch(count * length, |result| {
                panels.multiply(threads, a, packed, Rows::all(result, length));
                let columns = &panels.columns;
                for (row, &target) in result.chunks_exact(length).zip(&product.targets) {
                    out[target..][columns.clone()].copy_from_slice(&row[columns.clone()]);
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

/// The product of sizes, `usize::MAX` if it is larger.
fn product(sizes: &[usize]) -> usize {
    sizes.iter().copied().fold(1, usize::saturating_mul)
}

/// Strides of all dimensions but the innermost, which has `inner` elements.
fn strides(sizes: &[usize], inner: usize) -> Vec<usize> {
    let mut strides = vec![inner];
    for &size in sizes.iter().rev() {
        strides.push(strides[strides.len() - 1].saturating_mul(size));
    }
    strides.reverse();
    strides
}

/// Positions of `count` elements.
pub(super) fn spread(count: usize, stride: usize) -> Vec<usize> {
    (0..count).map(|index| index * stride).collect()
}

/// Positions of all indices of some dimensions, row-major, given those of each. `None` if there are
/// too many.
fn positions(dims: &[Vec<usize>]) -> Option<Vec<usize>> {
    let sizes: Vec<usize> = dims.iter().map(Vec::len).collect();
    if product(&sizes) > MOST_POSITIONS {
        return None;
    }
    let all = dims.iter().fold(vec![0], |outer, inner| {
        let next = |&at: &usize| inner.iter().map(move |position| at + position);
        outer.iter().flat_map(next).collect()
    });
    Some(all)
}

/// [`positions`] as an axis.
pub(super) fn axis(dims: &[Vec<usize>]) -> Option<Axis> {
    let all = positions(dims)?;
    let narrow = all.into_iter().map(|at| u32::try_from(at).ok());
    Some(Axis::new(narrow.collect::<Option<_>>()?))
}
