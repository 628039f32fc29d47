//! Copies between row-major tensors whose axes are in different orders: the part of a file's tensor
//! that a device holds, transposed, in pieces of bounded size.

use std::ops::Range;

use halite_core::{AlignedBytes, DType, Result};

use crate::convert::convert;

/// Bytes that are read at once, unless they go straight to their place.
const PIECE: usize = 4 << 20;

/// Contiguous bytes from which a part is read by itself instead of with what is around it.
const WORTH_A_READ: usize = 32 << 10;

/// An axis of a copy: its length, and the distance between neighbors in both tensors, in elements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Axis {
    pub(crate) len: usize,
    pub(crate) from: usize,
    pub(crate) into: usize,
}

/// Axes of the same copy with the largest distances in the source first, without those of one
/// element, and with axes that follow each other in both tensors as one. `None` if nothing is
/// copied.
fn merged(axes: &[Axis]) -> Option<Vec<Axis>> {
    if axes.iter().any(|axis| axis.len == 0) {
        return None;
    }
    let mut sorted: Vec<Axis> = axes.iter().copied().filter(|axis| axis.len > 1).collect();
    sorted.sort_by_key(|axis| std::cmp::Reverse(axis.from));
    let mut merged: Vec<Axis> = Vec::with_capacity(sorted.len());
    for axis in sorted {
        match merged.last_mut() {
            Some(outer)
                if outer.from == axis.from * axis.len && outer.into == axis.into * axis.len =>
            {
                let len = outer.len * axis.len;
                *outer = Axis { len, ..axis };
            }
            _ => merged.push(axis),
        }
    }
    Some(merged)
}

/// Number of elements from the first to the last of a block with these axes in the source.
fn span(axes: &[Axis]) -> usize {
    axes.iter()
        .map(|axis| (axis.len - 1) * axis.from)
        .sum::<usize>()
        + 1
}

/// Calls `f` with both offsets of each position along `axes`.
fn visit(axes: &[Axis], f: &mut dyn FnMut(usize, usize) -> Result<()>) -> Result<()> {
    let mut index = vec![0; axes.len()];
    let (mut from, mut into) = (0, 0);
    loop {
        f(from, into)?;
        let mut at = axes.len();
        loop {
            if at == 0 {
                return Ok(());
            }
            at -= 1;
            let axis = axes[at];
            index[at] += 1;
            (from, into) = (from + axis.from, into + axis.into);
            if index[at] < axis.len {
                break;
            }
            from -= axis.len * axis.from;
            into -= axis.len * axis.into;
            index[at] = 0;
        }
    }
}

/// A function that reads elements in a range to bytes.
pub(crate) type Read<'a> = dyn Fn(Range<usize>, &mut [u8]) -> Result<()> + 'a;

/// Elements of a tensor that are read when they are asked for.
pub(crate) struct Elements<'a> {
    pub(crate) dtype: DType,
    /// Reads a run of elements, counted row-major.
    pub(crate) read: &'a Read<'a>,
}

/// Reads elements of a tensor from element `base` on along `axes`, and writes them to `into` as
/// `dtype`, from element `start` on. The host memory it takes does not depend on the size of the
/// tensor.
pub(crate) fn gather(
    elements: &Elements<'_>,
    base: usize,
    axes: &[Axis],
    dtype: DType,
    into: &mut [u8],
    start: usize,
) -> Result<()> {
    let Some(axes) = merged(axes) else {
        return Ok(());
    };
    let stored = elements.dtype;
    let (size, target) = (stored.size(), dtype.size());
    // Straight to its place, where that is one run of the same elements.
    let run = match axes.last() {
        None => Some(1),
        Some(last) => (last.from == 1 && last.into == 1).then_some(last.len),
    };
    if let Some(run) = run
        && stored == dtype
        && (axes.len() < 2 || run * size >= WORTH_A_READ)
    {
        return visit(&axes[..axes.len().saturating_sub(1)], &mut |from, at| {
            let (from, at) = (base + from, start + at);
            let part = &mut into[at * size..(at + run) * size];
            (elements.read)(from..from + run, part)
        });
    }
    let (outer, rest) = axes.split_at(rows_at(&axes, size));
    let row = rest.first().copied().unwrap_or(Axis {
        len: 1,
        from: 1,
        into: 1,
    });
    let width = span(rest.get(1..).unwrap_or(&[]));
    let rows = (1 + (PIECE / size).saturating_sub(width) / row.from).min(row.len);
    let room = (rows - 1) * row.from + width;
    let mut piece = AlignedBytes::try_zeroed(room * size)?;
    let mut converted = AlignedBytes::try_zeroed(if stored == dtype { 0 } else { room * target })?;
    visit(outer, &mut |from, at| {
        for first in (0..row.len).step_by(rows) {
            let count = rows.min(row.len - first);
            let from = base + from + first * row.from;
            let len = (count - 1) * row.from + width;
            let read = &mut piece.as_mut()[..len * size];
            (elements.read)(from..from + len, read)?;
            let piece = if stored == dtype {
                &*read
            } else {
                let converted = &mut converted.as_mut()[..len * target];
                convert(read, stored, dtype, converted)?;
                &*converted
            };
            let mut block = rest.to_vec();
            if let Some(row) = block.first_mut() {
                row.len = count;
            }
            scatter(
                target,
                piece,
                0,
                &block,
                into,
                start + at + first * row.into,
            );
        }
        Ok(())
    })
}

/// The axis that is cut into rows: those behind it are within a piece, and each position along
/// those before it is read by itself.
fn rows_at(axes: &[Axis], size: usize) -> usize {
    let mut at = (0..axes.len())
        .find(|&at| span(&axes[at + 1..]) * size <= PIECE)
        .unwrap_or(0);
    // Where most of what lies between two rows is not wanted, rows are read one by one.
    let is_sparse = |at: usize| {
        let rest = &axes[at + 1..];
        let wanted: usize = rest.iter().map(|axis| axis.len).product();
        axes[at].from > 2 * span(rest) && wanted * size >= WORTH_A_READ
    };
    while at + 1 < axes.len() && is_sparse(at) {
        at += 1;
    }
    at
}

/// Copies elements of `size` bytes along `axes`, from element `base` of `from` to element `start`
/// of `into` on.
pub(crate) fn scatter(
    size: usize,
    from: &[u8],
    base: usize,
    axes: &[Axis],
    into: &mut [u8],
    start: usize,
) {
    let copy = match size {
        1 => scatter_sized::<1>,
        2 => scatter_sized::<2>,
        4 => scatter_sized::<4>,
        8 => scatter_sized::<8>,
        16 => scatter_sized::<16>,
        _ => unreachable!("elements have 1, 2, 4, 8 or 16 bytes"),
    };
    copy(from, base, axes, into, start);
}

fn scatter_sized<const N: usize>(
    from: &[u8],
    base: usize,
    axes: &[Axis],
    into: &mut [u8],
    start: usize,
) {
    /// Side of the squares in which a matrix is transposed. Each is a copy of its own: rows of a
    /// power of two bytes would displace each other from the cache.
    const TILE: usize = 32;
    let Some(mut outer) = merged(axes) else {
        return;
    };
    let from = from.as_chunks::<N>().0;
    let into = into.as_chunks_mut::<N>().0;
    let one = Axis {
        len: 1,
        from: 1,
        into: 1,
    };
    let along = outer.pop().unwrap_or(one);
    // The axis whose elements are neighbors in the target, if it is another one.
    let nearest = (0..outer.len()).min_by_key(|&index| outer[index].into);
    let nearest = nearest.filter(|&index| outer[index].into < along.into);
    let across = nearest.map(|index| outer.remove(index)).unwrap_or(one);
    let mut tile = [[[0; N]; TILE]; TILE];
    let done = visit(&outer, &mut |at_from, at_into| {
        let (at_from, at_into) = (base + at_from, start + at_into);
        if along.from == 1 && along.into == 1 && across.len == 1 {
            into[at_into..at_into + along.len].copy_from_slice(&from[at_from..at_from + along.len]);
            return Ok(());
        }
        for l0 in (0..along.len).step_by(TILE) {
            for a0 in (0..across.len).step_by(TILE) {
                let (height, width) = (TILE.min(along.len - l0), TILE.min(across.len - a0));
                let corner = at_from + l0 * along.from + a0 * across.from;
                for a in 0..width {
                    for l in 0..height {
                        tile[l][a] = from[corner + l * along.from + a * across.from];
                    }
                }
                let corner = at_into + l0 * along.into + a0 * across.into;
                for (l, tile) in tile[..height].iter().enumerate() {
                    for (a, value) in tile[..width].iter().enumerate() {
                        into[corner + l * along.into + a * across.into] = *value;
                    }
                }
            }
        }
        Ok(())
    });
    done.expect("a copy in memory does not fail");
}

#[cfg(test)]
mod tests {
    use halite_core::{HostArray, TensorType};

    use super::*;

    /// The axes of `ranges` of a tensor of `dims`, written in the order `order`, and their base.
    fn axes(dims: &[usize], ranges: &[Range<usize>], order: &[usize]) -> (usize, Vec<Axis>) {
        let mut axes = vec![
            Axis {
                len: 0,
                from: 1,
                into: 1
            };
            dims.len()
        ];
        let mut stride = 1;
        for axis in (0..dims.len()).rev() {
            (axes[axis].len, axes[axis].from) = (ranges[axis].len(), stride);
            stride *= dims[axis];
        }
        let mut stride = 1;
        for &axis in order.iter().rev() {
            axes[axis].into = stride;
            stride *= axes[axis].len;
        }
        let base = axes
            .iter()
            .zip(ranges)
            .map(|(axis, range)| range.start * axis.from);
        (base.sum(), axes)
    }

    #[test]
    fn parts_in_any_order_of_axes_are_copied() {
        let dims = [3, 40, 37, 2];
        let values: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
        let array = HostArray::from_slice(&values, dims).unwrap();
        let read = |range: Range<usize>, into: &mut [u8]| {
            into.copy_from_slice(&array.bytes()[range.start * 4..range.end * 4]);
            Ok(())
        };
        let dtype = array.ty().dtype();
        let source = Elements { dtype, read: &read };
        for ranges in [
            [0..3, 0..40, 0..37, 0..2],
            [1..3, 5..38, 0..37, 1..2],
            [2..2, 0..1, 0..1, 0..1],
        ] {
            for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [0, 2, 3, 1]] {
                let lens: Vec<usize> = order.iter().map(|&axis| ranges[axis].len()).collect();
                let mut part = HostArray::zeros(TensorType::new(DType::S32, &lens));
                let (base, axes) = axes(&dims, &ranges, &order);
                gather(&source, base, &axes, DType::S32, part.bytes_mut(), 0).unwrap();
                let mut expected = Vec::new();
                for flat in 0..lens.iter().product::<usize>() {
                    let (mut rest, mut index) = (flat, [0; 4]);
                    for at in (0..4).rev() {
                        index[order[at]] = ranges[order[at]].start + rest % lens[at];
                        rest /= lens[at];
                    }
                    let value = index
                        .iter()
                        .zip(dims)
                        .fold(0, |value, (i, dim)| value * dim + i);
                    expected.push(value as i32);
                }
                assert_eq!(
                    part.as_slice::<i32>().unwrap(),
                    expected,
                    "{ranges:?} {order:?}"
                );
            }
        }
    }

    #[test]
    fn large_parts_are_read_in_pieces() {
        let (rows, columns) = (1500, 2000);
        let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let array = HostArray::from_slice(&values, [rows, columns]).unwrap();
        let read = |range: Range<usize>, into: &mut [u8]| {
            into.copy_from_slice(&array.bytes()[range.start * 4..range.end * 4]);
            Ok(())
        };
        let dtype = array.ty().dtype();
        let source = Elements { dtype, read: &read };
        for ranges in [
            [0..rows, 0..columns],
            [0..rows, 1000..1100],
            [700..1500, 3..1999],
        ] {
            let lens = [ranges[1].len(), ranges[0].len()];
            let mut part = HostArray::zeros(TensorType::new(DType::F64, lens));
            let (base, axes) = axes(&[rows, columns], &ranges, &[1, 0]);
            gather(&source, base, &axes, DType::F64, part.bytes_mut(), 0).unwrap();
            let part = part.as_slice::<f64>().unwrap();
            let at = |row: usize, column: usize| {
                values[(row + ranges[0].start) * columns + column + ranges[1].start]
            };
            let correct =
                (0..part.len()).all(|i| part[i] == f64::from(at(i % lens[1], i / lens[1])));
            assert!(correct, "{ranges:?}");
        }
    }
}
