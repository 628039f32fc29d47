//! Arrays from data on the host, cut into one part for each device.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{
    Array,
    parts::{SharedBytes, cut, is_whole, share},
};
use crate::{
    Client, DType, DeviceBuffers, Element, Error, ErrorKind, HostArray, HostBytes, Result,
    Sharding, TensorType,
};

impl Array {
    /// Queues copies of `host` to the devices of `sharding`, to each only its own shard.
    ///
    /// # Errors
    /// If a dimension is not divisible by its number of shards, or an upload fails.
    #[track_caller]
    pub fn upload(client: &Client, host: &HostArray, sharding: &Arc<Sharding>) -> Result<Self> {
        Self::upload_parts(client, host.ty(), sharding, &mut |ranges| {
            let part = if is_whole(ranges, host.ty()) {
                None
            } else {
                Some(cut(host, ranges)?)
            };
            Ok(part.map_or(Source::Host(host.bytes()), |part| {
                Source::Part(Arc::new(part))
            }))
        })
    }

    /// Queues a copy of `values`, row-major with dimensions `dims`, to the client's first device.
    ///
    /// ```
    /// use halite_core::{Array, Client, Null};
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// let client = Client::new(Null::new(1)); // stores nothing, and reads back zeros
    /// let array = Array::from_slice(&client, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(array.to_vec::<i32>()?, [0; 6]);
    /// assert_eq!(array.to_string(), "[[0, 0, 0],\n [0, 0, 0]] s32[2, 3] on device 0");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the number of values is not the product of `dims`; as [`upload`](Self::upload).
    #[track_caller]
    pub fn from_slice<T: Element>(
        client: &Client,
        values: &[T],
        dims: impl AsRef<[usize]>,
    ) -> Result<Self> {
        Self::on_first_device(client, &HostArray::from_slice(values, dims)?)
    }

    /// Queues a copy of one number to the client's first device, for an input that changes from
    /// call to call, such as a sampling temperature.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    #[track_caller]
    pub fn scalar<T: Element>(client: &Client, value: T) -> Result<Self> {
        Self::on_first_device(client, &HostArray::scalar(value))
    }

    #[track_caller]
    fn on_first_device(client: &Client, host: &HostArray) -> Result<Self> {
        let devices = client.local_devices();
        let device = *devices.first().ok_or_else(|| {
            let message = format!("{client:?} has no local device");
            Error::new(ErrorKind::Unavailable, "upload", message)
        })?;
        Self::upload(client, host, &Sharding::single(device))
    }

    /// Like [`upload`](Self::upload), but the device may use the host's memory in place, and keeps
    /// it alive while it does.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    #[track_caller]
    pub fn upload_shared(
        client: &Client,
        host: &Arc<HostArray>,
        sharding: &Arc<Sharding>,
    ) -> Result<Self> {
        Self::upload_parts(client, host.ty(), sharding, &mut |ranges| {
            Ok(Source::Part(share(host, ranges)?))
        })
    }

    /// Creates an array of type `ty` shard by shard, so that the host never holds the global array.
    /// `part` is called once per distinct shard, with its range in each dimension; devices with the
    /// same shard share it.
    ///
    /// ```
    /// use halite_core::{Array, Client, DType, HostArray, Mesh, Null, PartitionSpec, Sharding, TensorType};
    /// use std::sync::Arc;
    ///
    /// let client = Client::new(Null::new(4));
    /// let mesh = Arc::new(Mesh::new([("rows", 4)], client.local_devices()).unwrap());
    /// let rows = Sharding::new(&mesh, PartitionSpec::first("rows")).unwrap();
    /// let counted = Array::from_parts(&client, &TensorType::new(DType::S32, [8]), &rows, |ranges| {
    ///     let values: Vec<i32> = ranges[0].clone().map(|i| i as i32).collect();
    ///     HostArray::from_slice(&values, [2])
    /// });
    /// assert_eq!(counted.unwrap().ty().dims(), [8]);
    /// ```
    ///
    /// # Errors
    /// The error of `part`; if a part has another type than its shard; and as
    /// [`upload`](Self::upload).
    pub fn from_parts(
        client: &Client,
        ty: &TensorType,
        sharding: &Arc<Sharding>,
        mut part: impl FnMut(&[Range<usize>]) -> Result<HostArray>,
    ) -> Result<Self> {
        let wanted = sharding.shard_type(ty)?;
        Self::upload_parts(client, ty, sharding, &mut |ranges| {
            let part = part(ranges)?;
            if *part.ty() != wanted {
                let message = format!(
                    "the part {ranges:?} of {ty} by {sharding} is {}, expected {wanted}",
                    part.ty()
                );
                return Err(Error::invalid("array", message));
            }
            Ok(Source::Part(Arc::new(part)))
        })
    }

    /// Creates an array of type `ty` over devices of several processes, each of which has a part of
    /// it: the smallest range that has all shards of its devices, such as its rows of a batch. As
    /// `jax.make_array_from_process_local_data`.
    ///
    /// # Errors
    /// If `local` is neither that part nor the whole; as [`upload`](Self::upload).
    #[track_caller]
    pub fn from_process_local(
        client: &Client,
        local: &Arc<HostArray>,
        ty: &TensorType,
        sharding: &Arc<Sharding>,
    ) -> Result<Self> {
        if local.ty() == ty {
            return Self::upload_shared(client, local, sharding);
        }
        let part = client.addressable_part(ty, sharding)?;
        let dims: Vec<usize> = part.iter().map(Range::len).collect();
        if *local.ty() != ty.with_dims(dims.as_slice()) {
            let message = format!(
                "{} given, the part of this process of {ty} by {sharding} is {dims:?}",
                local.ty()
            );
            return Err(Error::invalid("array", message));
        }
        Self::upload_parts(client, ty, sharding, &mut |ranges| {
            let within = ranges.iter().zip(&part);
            let within: Vec<_> = within
                .map(|(range, part)| range.start - part.start..range.end - part.start)
                .collect();
            Ok(Source::Part(share(local, &within)?))
        })
    }

    /// Uploads as [`upload_shared`](Self::upload_shared) does, and stores floats on the devices in
    /// the type `stored`, rounded to nearest. The array has the type of `host`, also when it is
    /// read.
    ///
    /// # Errors
    /// As [`upload`](Self::upload); if `stored` is another type than that of `host`, and one of
    /// them is not a float type.
    #[track_caller]
    pub fn upload_as(
        client: &Client,
        host: &Arc<HostArray>,
        sharding: &Arc<Sharding>,
        stored: DType,
    ) -> Result<Self> {
        if host.ty().dtype() == stored {
            return Self::upload_shared(client, host, sharding);
        }
        let narrow = Self::upload_shared(client, &Arc::new(host.to_float(stored)?), sharding)?;
        Ok(Array {
            ty: host.ty().clone(),
            ..narrow
        })
    }

    #[track_caller]
    fn upload_parts<'h>(
        client: &Client,
        ty: &TensorType,
        sharding: &Arc<Sharding>,
        source: &mut dyn FnMut(&[Range<usize>]) -> Result<Source<'h>>,
    ) -> Result<Self> {
        let shard_type = sharding.shard_type(ty)?;
        let devices = sharding.mesh().devices();
        // Devices with the same shard share one copy of its host bytes.
        let mut parts: Vec<(Vec<Range<usize>>, Vec<usize>)> = Vec::new();
        let mut known: HashMap<Vec<Range<usize>>, usize> = HashMap::new();
        let own = (0..devices.len()).filter(|&index| client.addresses(&[devices[index]]));
        for index in own {
            let ranges = sharding.shard_ranges(ty, index)?;
            let part = *known.entry(ranges).or_insert_with_key(|ranges| {
                parts.push((ranges.clone(), Vec::new()));
                parts.len() - 1
            });
            parts[part].1.push(index);
        }
        if parts.is_empty() {
            let message = format!("none of the devices of {sharding} belongs to this process");
            return Err(Error::invalid("upload", message));
        }
        let mut shards: Vec<Option<DeviceBuffers>> = devices.iter().map(|_| None).collect();
        for (ranges, holders) in parts {
            let source = source(&ranges)?;
            for holder in holders {
                let bytes = match &source {
                    Source::Host(bytes) => HostBytes::Borrowed(bytes),
                    Source::Part(part) => HostBytes::Shared(part.clone()),
                };
                shards[holder] = Some(client.upload(bytes, &shard_type, devices[holder].into())?);
            }
        }
        // Those of other processes have none.
        let shards = shards.into_iter().flatten();
        Ok(Array {
            ty: ty.clone(),
            stored: ty.dtype(),
            sharding: sharding.clone(),
            shards: DeviceBuffers::join(shards)?,
        })
    }
}

enum Source<'h> {
    Host(&'h [u8]),
    Part(SharedBytes),
}
