//! Logical tensors sharded over a mesh of devices.

mod fetch;
mod parts;
mod upload;

use std::{collections::HashMap, fmt, ops::Range, sync::Arc, time::Duration};

use self::parts::{is_whole, paste};
use crate::{
    AlignedBytes, Client, DType, DeviceBuffer, DeviceBuffers, DeviceEvent, Element, Error,
    ErrorKind, HostArray, Result, Sharding, TensorType, wait::default_limit,
};

/// A global tensor sharded over a mesh: one buffer per device.
///
/// The mesh may span several processes. Each process then has an array of the same type and
/// sharding that holds the buffers of its own devices: uploads copy to these only, and a read fails
/// unless they cover the whole tensor, as of a replicated array.
///
/// It is not `Clone`: moving it into a launch donates its memory, and using it afterwards does not
/// compile. [`copy`](Self::copy) makes an explicit copy.
///
/// ```
/// use halite_core::{Array, Client, Null};
///
/// let client = Client::new(Null::new(1));
/// let array = Array::from_slice(&client, &[1.0f32, 2.0], [2]).unwrap();
/// assert_eq!(array.ty().dims(), [2]);
/// ```
#[derive(Debug)]
pub struct Array {
    ty: TensorType,
    /// Element type on the devices: that of `ty`, or another float type, which uploads and reads
    /// convert.
    stored: DType,
    sharding: Arc<Sharding>,
    shards: DeviceBuffers,
}

impl Array {
    /// Creates an array of buffers on the devices of `sharding`, in the order of its mesh.
    ///
    /// # Errors
    /// If the number of shards, or the type or device of one, is not that of `ty` under `sharding`.
    pub fn from_shards(
        ty: TensorType,
        sharding: &Arc<Sharding>,
        shards: DeviceBuffers,
    ) -> Result<Self> {
        let stored = ty.dtype();
        Self::from_shards_as(ty, sharding, shards, stored)
    }

    /// Creates an array of buffers as [`from_shards`](Self::from_shards) does, whose elements have
    /// the type `stored` on the devices.
    ///
    /// # Errors
    /// As [`from_shards`](Self::from_shards); if `stored` is another type than that of `ty`, and
    /// one of them is not a float type.
    pub fn from_shards_as(
        ty: TensorType,
        sharding: &Arc<Sharding>,
        shards: DeviceBuffers,
        stored: DType,
    ) -> Result<Self> {
        if stored != ty.dtype() && !(stored.is_float() && ty.dtype().is_float()) {
            return Err(Error::invalid(
                "array",
                format!("{ty} stored as {stored}: both must be floats"),
            ));
        }
        let (devices, shard_type) = (
            sharding.mesh().devices(),
            sharding.shard_type(&ty)?.with_dtype(stored),
        );
        let session = &shards.session;
        let devices = devices.iter().filter(|id| session.is_local(**id));
        let count = devices.clone().count();
        if shards.len() != count {
            return Err(Error::invalid(
                "array",
                format!(
                    "{} shards given, {sharding} has {count} devices",
                    shards.len()
                ),
            ));
        }
        for (shard, device) in shards.iter().zip(devices) {
            if shard.tensor_type() != &shard_type || shard.placement().device != *device {
                let message = format!(
                    "a shard of {ty} by {sharding} is {shard:?}, expected {shard_type} on device {}",
                    device.0
                );
                return Err(Error::invalid("array", message));
            }
        }
        Ok(Array {
            ty,
            stored,
            sharding: sharding.clone(),
            shards,
        })
    }

    /// The element type on the devices: that of [`ty`](Self::ty), unless a
    /// [`DTypePolicy`](crate::DTypePolicy) stores parameters in a narrower float type.
    pub fn stored(&self) -> DType {
        self.stored
    }

    /// Global element type and dimensions.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The sharding over devices.
    pub fn sharding(&self) -> &Arc<Sharding> {
        &self.sharding
    }

    /// The buffers, one for each device of this process, in the order of the mesh.
    pub fn shards(&self) -> &DeviceBuffers {
        &self.shards
    }

    /// The buffers of this process, each with its ranges in the global array.
    ///
    /// # Errors
    /// Currently never fails.
    pub fn addressable_shards(&self) -> Result<Vec<Shard<'_>>> {
        let placed = self.placed().map(|(index, shard)| {
            let ranges = self.sharding.shard_ranges(&self.ty, index)?;
            Ok((ranges, shard))
        });
        placed.collect()
    }

    /// Whether all devices of the mesh belong to this process.
    pub fn is_fully_addressable(&self) -> bool {
        self.shards.len() == self.sharding.mesh().size()
    }

    /// Each buffer with its place in the mesh.
    fn placed(&self) -> impl Iterator<Item = (usize, DeviceBuffer<'_>)> {
        let mut devices = self.sharding.mesh().devices().iter().enumerate();
        self.shards.iter().filter_map(move |shard| {
            let device = shard.placement().device;
            let (index, _) = devices.find(|(_, id)| **id == device)?;
            Some((index, shard))
        })
    }

    /// Converts the array into its buffers.
    pub fn into_shards(self) -> DeviceBuffers {
        self.shards
    }

    /// Blocks until the contents are computed on every device. Logs long waits.
    ///
    /// # Errors
    /// The error of the computation; [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) after
    /// [`wait::default_limit`](crate::wait::default_limit).
    pub fn wait(&self) -> Result<()> {
        self.wait_for(default_limit())
    }

    /// Blocks until the contents are computed on every device, for at most `limit` on each.
    ///
    /// # Errors
    /// The error of the computation; [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) after
    /// `limit`.
    pub fn wait_for(&self, limit: Duration) -> Result<()> {
        self.shards
            .iter()
            .try_for_each(|shard| self.wait_for_shard("array", shard, &shard.ready()?, limit))
    }

    fn wait_for_shard(
        &self,
        name: &'static str,
        shard: DeviceBuffer<'_>,
        ready: &DeviceEvent,
        limit: Duration,
    ) -> Result<()> {
        if ready.is_ready() {
            return ready.wait();
        }
        let late = |error: Error| {
            if error.kind() != ErrorKind::DeadlineExceeded {
                return error;
            }
            let device = shard.placement().device.0;
            let error = error.with_note(&format!("waited for {} on device {device}", self.ty));
            match ready.unfinished() {
                unfinished if unfinished.is_empty() => error,
                unfinished => error.with_note(&unfinished),
            }
        };
        ready.pending(name).wait_for(limit).map_err(late)
    }

    /// Reads the global array; blocks until it is on the host. Counted as a blocking read.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`ErrorKind::OutOfMemory`] if the host does not have enough memory.
    #[track_caller]
    pub fn read(&self) -> Result<HostArray> {
        let mut host = HostArray::try_zeros(self.ty.with_dtype(self.stored))?;
        for (ranges, shard) in self.distinct_shards()? {
            // A copy into borrowed memory cannot be cancelled, so it starts only once the contents
            // are computed. Their error is that of the copy.
            let ready = shard.ready()?;
            if let Err(error) = self.wait_for_shard("read", shard, &ready, default_limit())
                && error.kind() == ErrorKind::DeadlineExceeded
            {
                return Err(error);
            }
            if is_whole(&ranges, &self.ty) {
                shard.read(host.bytes_mut())?;
            } else {
                let mut part = AlignedBytes::try_zeroed(shard.tensor_type().bytes())?;
                shard.read(part.as_mut())?;
                paste(&mut host, &ranges, part.as_ref());
            }
        }
        if self.stored == self.ty.dtype() {
            Ok(host)
        } else {
            host.to_float(self.ty.dtype())
        }
    }

    /// Blocks until the global array is on the host, and copies its elements, row-major, to a
    /// `Vec`. Counted as a blocking read.
    ///
    /// # Errors
    /// As [`read`](Self::read); if `T` is not the element type.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.read()?.as_slice()?.to_vec())
    }

    /// Blocks until the only element is on the host. Counted as a blocking read.
    ///
    /// # Errors
    /// As [`read`](Self::read); if it has another number of elements, or another element type.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        self.read()?.item()
    }

    /// Copies the array to another sharding, on devices of this or another client.
    ///
    /// If a device of the client has each new shard already, shards are copied from device to
    /// device without blocking. Otherwise the global array is read and uploaded; on one mesh,
    /// `halite_nn::ArrayCollectives::reshard` is faster.
    ///
    /// # Errors
    /// If a dimension does not divide into its new shards, or a device does not have enough memory.
    pub fn reshard(&self, client: &Client, sharding: &Arc<Sharding>) -> Result<Self> {
        sharding.shard_type(&self.ty)?;
        let mut have: HashMap<Vec<Range<usize>>, Vec<DeviceBuffer<'_>>> = HashMap::new();
        if self.shards.client_id() == client.id() {
            for (index, shard) in self.placed() {
                have.entry(self.sharding.shard_ranges(&self.ty, index)?)
                    .or_default()
                    .push(shard);
            }
        }
        let mut shards = Vec::with_capacity(sharding.mesh().size());
        let devices = sharding.mesh().devices().iter().enumerate();
        for (index, &device) in devices.filter(|(_, id)| client.addresses(&[**id])) {
            let Some(holders) = have.get(&sharding.shard_ranges(&self.ty, index)?) else {
                return Self::upload_as(client, &Arc::new(self.read()?), sharding, self.stored);
            };
            // Prefers the device's own shard.
            let own = holders
                .iter()
                .find(|holder| holder.placement().device == device);
            shards.push(own.unwrap_or(&holders[0]).copy_to(device.into())?);
        }
        Ok(Array {
            ty: self.ty.clone(),
            stored: self.stored,
            sharding: sharding.clone(),
            shards: DeviceBuffers::join(shards)?,
        })
    }

    /// Queues a copy on the same devices.
    ///
    /// # Errors
    /// If the devices do not have enough memory.
    pub fn copy(&self) -> Result<Self> {
        let copies = self.shards.iter();
        let copies: Result<Vec<_>> = copies
            .map(|shard| shard.copy_to(shard.placement()))
            .collect();
        Ok(Array {
            ty: self.ty.clone(),
            stored: self.stored,
            sharding: self.sharding.clone(),
            shards: DeviceBuffers::join(copies?)?,
        })
    }

    /// The distinct shards with their ranges in the global array, each from one device.
    ///
    /// # Errors
    /// If this process does not have all of them.
    fn distinct_shards(&self) -> Result<Vec<Shard<'_>>> {
        let mut parts: Vec<Shard<'_>> = Vec::new();
        for (index, shard) in self.placed() {
            let ranges = self.sharding.shard_ranges(&self.ty, index)?;
            if parts.iter().all(|(known, _)| *known != ranges) {
                parts.push((ranges, shard));
            }
            if self.sharding.spec().is_replicated() {
                break;
            }
        }
        let all = (0..self.ty.rank()).map(|dim| self.sharding.parts(dim));
        let all: usize = all.product();
        if parts.len() < all && !self.is_fully_addressable() {
            let message = format!(
                "this process has {} of the {all} shards of {} by {}; the others are on devices of \
                 other processes: read its own (`addressable_shards`), or replicate it by a program \
                 first (`ArrayCollectives::reshard`)",
                parts.len(),
                self.ty,
                self.sharding
            );
            return Err(Error::new(ErrorKind::Unavailable, "read", message));
        }
        Ok(parts)
    }
}

/// The values, shortened like NumPy's, with type and devices. Blocks until they are on the host,
/// which is counted as a blocking read; `{:?}` prints the type without reading.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.read() {
            Ok(host) => write!(f, "{host} {}", self.ty)?,
            Err(error) => write!(f, "{} (cannot be read: {error})", self.ty)?,
        }
        match self.sharding.mesh().devices() {
            [device] => write!(f, " on device {}", device.0),
            _ => write!(f, " on {}", self.sharding),
        }
    }
}

/// A shard with its ranges in the global array.
type Shard<'a> = (Vec<Range<usize>>, DeviceBuffer<'a>);

#[cfg(test)]
mod tests;
