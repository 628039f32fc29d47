//! Tile assignments: the form in which XLA writes shardings.

use super::HloSharding;

impl HloSharding {
    /// Sharding that XLA writes as `{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}`:
    /// `dims` has the number of parts of each of `rank` dimensions, and then those of the devices
    /// that have the same part. `devices` has the device of each tile, row-major.
    ///
    /// `None` if the devices are not the numbers below their count, or not as many as tiles.
    ///
    /// ```
    /// use halite_core::HloSharding;
    ///
    /// let sharding = HloSharding::from_tiles(1, &[2, 2], &[0, 2, 1, 3]).unwrap();
    /// assert_eq!(sharding.parts, [2]);
    /// assert_eq!(*sharding.of_device, [0, 1, 0, 1]);
    /// ```
    pub fn from_tiles(rank: usize, dims: &[usize], devices: &[usize]) -> Option<Self> {
        let (parts, copies) = dims.split_at_checked(rank)?;
        if product(dims)? != devices.len() {
            return None;
        }
        let copies: usize = copies.iter().product();
        let mut of_device = vec![None; devices.len()];
        for (tile, &device) in devices.iter().enumerate() {
            *of_device.get_mut(device)? = Some(tile / copies);
        }
        Some(HloSharding {
            parts: parts.to_vec(),
            of_device: of_device.into_iter().collect::<Option<_>>()?,
        })
    }

    /// Devices of tiles that XLA writes as `<=[4,2]T(1,0)`: the numbers below `count` as an array
    /// of `dims`, transposed by `permutation`. `None` if they do not fit each other.
    ///
    /// ```
    /// let devices = halite_core::HloSharding::iota_devices(4, &[2, 2], &[1, 0]).unwrap();
    /// assert_eq!(devices, [0, 2, 1, 3]);
    /// ```
    pub fn iota_devices(count: usize, dims: &[usize], permutation: &[usize]) -> Option<Vec<usize>> {
        if product(dims)? != count || permutation.len() != dims.len() {
            return None;
        }
        let mut strides = vec![1; dims.len()];
        for dim in (1..dims.len()).rev() {
            strides[dim - 1] = strides[dim] * dims[dim];
        }
        // Sizes of 1 are left out, so that the work does not grow with their number.
        let mut axes = Vec::new();
        for &dim in permutation.iter().rev() {
            let size = *dims.get(dim)?;
            axes.extend((size > 1).then_some((size, strides[dim])));
        }
        let device = |place: usize| {
            let step = |(rest, device): (usize, usize), &(size, stride): &(usize, usize)| {
                (rest / size, device + rest % size * stride)
            };
            axes.iter().fold((place, 0), step).1
        };
        Some((0..count).map(device).collect())
    }
}

/// Product of sizes; `None` if it overflows, or a size is 0.
fn product(dims: &[usize]) -> Option<usize> {
    let product = dims
        .iter()
        .try_fold(1usize, |count, &dim| count.checked_mul(dim));
    product.filter(|&product| product > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_that_do_not_fit_are_none() {
        for (rank, dims, devices) in [
            (2, &[2][..], &[0, 1][..]),
            (1, &[2], &[0, 0]),
            (1, &[2], &[0, 2]),
            (1, &[2], &[0]),
            (1, &[usize::MAX, 2], &[0, 1]),
            (1, &[0, usize::MAX, usize::MAX], &[]),
        ] {
            assert_eq!(
                HloSharding::from_tiles(rank, dims, devices),
                None,
                "{dims:?}"
            );
        }
        for (dims, permutation) in [
            (&[2, 2][..], &[0][..]),
            (&[2, 3], &[0, 1]),
            (&[2, 2], &[0, 2]),
            (&[usize::MAX, 2], &[0, 1]),
        ] {
            assert_eq!(
                HloSharding::iota_devices(4, dims, permutation),
                None,
                "{dims:?}"
            );
        }
    }
}
