//! Host memory of a caller that is registered for direct transfers, by `PJRT_Client_DmaMap`.
//! Nothing here reads or writes it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use halite_pjrt_sys::transfer::{PJRT_Client_DmaMap_Args, PJRT_Client_DmaUnmap_Args};

use super::Client;
use crate::{
    HostMemory,
    abi::{Function, Given},
    handle::find,
    status::{Outcome, Status},
};

/// The registered host memory of a client.
#[derive(Debug, Default)]
pub(crate) struct HostMaps {
    /// `None` for a backend without it.
    driver: Option<Arc<dyn HostMemory>>,
    /// Bytes by the address of the first.
    mapped: Mutex<BTreeMap<usize, usize>>,
}

impl HostMaps {
    pub(crate) fn new(driver: Option<Arc<dyn HostMemory>>) -> Self {
        HostMaps {
            driver,
            mapped: Mutex::default(),
        }
    }

    fn driver(&self) -> Outcome<&dyn HostMemory> {
        let missing = || Status::unimplemented("not implemented by this plugin");
        self.driver.as_deref().ok_or_else(missing)
    }

    fn map(&self, address: usize, bytes: usize) -> Outcome {
        let driver = self.driver()?;
        let end = address
            .checked_add(bytes)
            .filter(|_| address > 0 && bytes > 0);
        let end = end.ok_or_else(|| {
            Status::invalid(format!(
                "{bytes} bytes at {address:#x} are no memory to map"
            ))
        })?;
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let before = mapped.range(..end).next_back();
        if let Some((start, length)) = before.filter(|(start, length)| *start + *length > address) {
            return Err(Status::invalid(format!(
                "{bytes} bytes at {address:#x} overlap {length} bytes at {start:#x}, which are mapped; \
                 unmap these first"
            )));
        }
        driver.map(address, bytes)?;
        mapped.insert(address, bytes);
        Ok(())
    }

    fn unmap(&self, address: usize) -> Outcome {
        let driver = self.driver()?;
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = *mapped.get(&address).ok_or_else(|| {
            Status::invalid(format!(
                "{address:#x} is not the start of mapped memory: it was never mapped, or was unmapped"
            ))
        })?;
        driver.unmap(address, bytes)?;
        mapped.remove(&address);
        Ok(())
    }
}

impl Drop for HostMaps {
    /// Unmaps what the caller has left.
    fn drop(&mut self) {
        let mapped = self.mapped.get_mut();
        let mapped = mapped.unwrap_or_else(PoisonError::into_inner);
        for (&address, &bytes) in &*mapped {
            if let Some(driver) = &self.driver
                && let Err(error) = driver.unmap(address, bytes)
            {
                halite_core::warning!("{bytes} bytes at {address:#x} are not unmapped: {error}");
            }
        }
    }
}

impl Function for PJRT_Client_DmaMap_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        client.host_maps.map(args.data.addr(), args.size)
    }
}

impl Function for PJRT_Client_DmaUnmap_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        client.host_maps.unmap(args.data.addr())
    }
}
