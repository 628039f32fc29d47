//! Parts of host arrays: the shards of a global array.

use std::{ops::Range, sync::Arc};

use crate::{HostArray, Result, TensorType};

/// Returns whether `ranges` cover a tensor of type `ty`.
pub(super) fn is_whole(ranges: &[Range<usize>], ty: &TensorType) -> bool {
    ranges
        .iter()
        .zip(ty.dims())
        .all(|(range, &size)| range.len() == size)
}

/// Host memory of a shard, for an upload.
pub(super) type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The part of `host` in `ranges`: its own memory if the part is contiguous, such as the rows of a
/// device, and a copy otherwise.
pub(super) fn share(host: &Arc<HostArray>, ranges: &[Range<usize>]) -> Result<SharedBytes> {
    if is_whole(ranges, host.ty()) {
        return Ok(host.clone());
    }
    let (mut first, mut runs) = (0..0, 0);
    for_each_run(host.ty(), ranges, |run| {
        first = run;
        runs += 1;
    });
    match runs {
        1 => Ok(Arc::new(Slice {
            host: host.clone(),
            bytes: first,
        })),
        _ => Ok(Arc::new(cut(host, ranges)?)),
    }
}

/// Contiguous bytes of an array.
struct Slice {
    host: Arc<HostArray>,
    bytes: Range<usize>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.host.bytes()[self.bytes.clone()]
    }
}

/// Copies the part of `host` in `ranges`.
pub(super) fn cut(host: &HostArray, ranges: &[Range<usize>]) -> Result<HostArray> {
    let dims: Vec<usize> = ranges.iter().map(Range::len).collect();
    let mut part = HostArray::try_zeros(host.ty().with_dims(dims))?;
    let into = part.bytes_mut();
    let mut at = 0;
    for_each_run(host.ty(), ranges, |run| {
        into[at..at + run.len()].copy_from_slice(&host.bytes()[run.clone()]);
        at += run.len();
    });
    Ok(part)
}

/// Writes `part` to the elements of `host` in `ranges`.
pub(super) fn paste(host: &mut HostArray, ranges: &[Range<usize>], part: &[u8]) {
    let ty = host.ty().clone();
    let into = host.bytes_mut();
    let mut at = 0;
    for_each_run(&ty, ranges, |run| {
        into[run.clone()].copy_from_slice(&part[at..at + run.len()]);
        at += run.len();
    });
}

/// Calls `visit` with each contiguous run of bytes that `ranges` cover in a row-major tensor of
/// type `ty`.
fn for_each_run(ty: &TensorType, ranges: &[Range<usize>], mut visit: impl FnMut(Range<usize>)) {
    let dims = ty.dims();
    if ranges.iter().any(Range::is_empty) {
        return;
    }
    // The innermost dimensions that are whole, and the one outside of them, are contiguous.
    let split = (0..dims.len())
        .rev()
        .find(|&dim| ranges[dim].len() != dims[dim])
        .unwrap_or(0);
    let stride: usize = dims.iter().skip(split + 1).product::<usize>() * ty.dtype().size();
    let mut index: Vec<usize> = ranges[..split.min(dims.len())]
        .iter()
        .map(|range| range.start)
        .collect();
    loop {
        let row = index
            .iter()
            .zip(dims)
            .fold(0, |row, (&i, &size)| row * size + i);
        let run = ranges.get(split).cloned().unwrap_or(0..1);
        let base = row * dims.get(split).copied().unwrap_or(1);
        visit((base + run.start) * stride..(base + run.end) * stride);
        let Some(dim) = (0..index.len())
            .rev()
            .find(|&dim| index[dim] + 1 < ranges[dim].end)
        else {
            return;
        };
        index[dim] += 1;
        for later in dim + 1..index.len() {
            index[later] = ranges[later].start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn cut_parts_paste_to_the_whole() {
        let values: Vec<i32> = (0..4 * 6 * 5).collect();
        let host = HostArray::from_slice(&values, [4, 6, 5]).unwrap();
        for split in [
            [1, 1, 1],
            [2, 1, 1],
            [1, 3, 1],
            [1, 1, 5],
            [4, 2, 5],
            [2, 3, 1],
        ] {
            let mut whole = HostArray::zeros(TensorType::new(DType::S32, [4, 6, 5]));
            for part in 0..split.iter().product() {
                let (a, b, c) = (
                    part / (split[1] * split[2]),
                    part / split[2] % split[1],
                    part % split[2],
                );
                let size = [4 / split[0], 6 / split[1], 5 / split[2]];
                let ranges = [a, b, c].map(|_| 0..0);
                let ranges: Vec<_> = (ranges.iter().zip([a, b, c]).zip(size))
                    .map(|((_, at), size)| at * size..(at + 1) * size)
                    .collect();
                let cut = cut(&host, &ranges).unwrap();
                let first = cut.as_slice::<i32>().unwrap()[0];
                assert_eq!(
                    first as usize,
                    (ranges[0].start * 6 + ranges[1].start) * 5 + ranges[2].start
                );
                paste(&mut whole, &ranges, cut.bytes());
            }
            assert_eq!(whole, host, "{split:?}");
        }
    }

    #[test]
    fn contiguous_parts_share_the_memory() {
        let values: Vec<i32> = (0..4 * 6 * 5).collect();
        let host = Arc::new(HostArray::from_slice(&values, [4, 6, 5]).unwrap());
        for (ranges, start) in [
            ([0..4, 0..6, 0..5], Some(0)),
            ([1..3, 0..6, 0..5], Some(30)),
            ([2..3, 2..4, 0..5], Some(70)),
            ([3..4, 5..6, 1..3], Some(116)),
            ([0..4, 2..4, 0..5], None),
            ([0..1, 0..6, 1..2], None),
        ] {
            let part = share(&host, &ranges).unwrap();
            let cut = cut(&host, &ranges).unwrap();
            assert_eq!((*part).as_ref(), cut.bytes(), "{ranges:?}");
            let shared = (*part).as_ref().as_ptr().addr();
            let offset = shared.wrapping_sub(host.bytes().as_ptr().addr()) / 4;
            assert_eq!(
                (offset < values.len()).then_some(offset),
                start,
                "{ranges:?}"
            );
        }
    }

    #[test]
    fn scalar_is_one_contiguous_run() {
        let host = HostArray::scalar(7.0f32);
        assert_eq!(cut(&host, &[]).unwrap(), host);
    }
}
