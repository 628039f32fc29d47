//! Programs that return zeros.

use std::sync::Arc;

use halite_core::{
    AlignedBytes, DeviceId, Executable, Launch, Launched, Result, Signature, TensorType,
};
use halite_plugin::check;

use crate::{Memory, Null, NullDevice};

/// A program of [`Null`](crate::Null).
#[derive(Debug)]
pub struct Zeros {
    all: Arc<[NullDevice]>,
    devices: Vec<DeviceId>,
    name: Arc<str>,
    signature: Signature,
    /// The results, which all launches share.
    results: Vec<Arc<AlignedBytes>>,
}

/// The start of a serialized program.
const MAGIC: &[u8] = b"null program\n";

impl Zeros {
    /// # Errors
    /// If the host has too little memory for the results.
    pub(crate) fn new(
        all: &Arc<[NullDevice]>,
        name: &Arc<str>,
        signature: &Signature,
        devices: &[DeviceId],
    ) -> Result<Self> {
        let zeros = |ty: &TensorType| AlignedBytes::try_zeroed(ty.checked_bytes()?).map(Arc::new);
        Ok(Zeros {
            all: all.clone(),
            devices: devices.to_vec(),
            name: name.clone(),
            signature: signature.clone(),
            results: signature.outputs.iter().map(zeros).collect::<Result<_>>()?,
        })
    }
}

/// The devices of a serialized program of this signature.
pub(crate) fn saved_devices(serialized: &[u8], signature: &Signature) -> Option<Vec<DeviceId>> {
    let rest = serialized.strip_prefix(MAGIC)?;
    let ids = rest.strip_suffix(format!("{signature:?}").as_bytes())?;
    let (ids, []) = ids.as_chunks::<4>() else {
        return None;
    };
    let id = |bytes: &[u8; 4]| DeviceId(u32::from_le_bytes(*bytes));
    Some(ids.iter().map(id).collect())
}

impl Executable<Null> for Zeros {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    fn launch(&self, launch: Launch<'_, Memory>) -> Result<Launched<Memory>> {
        let is_own = |buffer: &Memory| buffer.is_on(&self.all);
        check::launch(&self.name, &self.signature, &self.devices, &launch, is_own)?;
        let mut outputs = Vec::with_capacity(self.devices.len());
        for &id in &self.devices {
            let index = self.all.iter().position(|device| device.id == id);
            let index = index.expect("compile checks that the devices exist");
            let result = |(ty, zeros): (&TensorType, &Arc<AlignedBytes>)| {
                Memory::new(&self.all, index, ty.clone(), zeros.clone())
            };
            outputs.push(
                self.signature
                    .outputs
                    .iter()
                    .zip(&self.results)
                    .map(result)
                    .collect(),
            );
        }
        Ok(Launched { outputs })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        for id in &self.devices {
            bytes.extend(id.0.to_le_bytes());
        }
        bytes.extend(format!("{:?}", self.signature).bytes());
        Ok(bytes)
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        Ok(vec![("flops".to_owned(), 0.0)])
    }
}

#[cfg(test)]
mod tests {
    use halite_core::{DType, ErrorKind};
    use halite_plugin::Options;

    use super::*;

    #[test]
    fn results_without_memory_are_an_error() {
        let null = Null::open(&mut Options::default()).unwrap();
        let signature = Signature {
            outputs: vec![TensorType::new(DType::U8, [1 << 60])],
            ..Signature::default()
        };
        let zeros = Zeros::new(&null.devices, &"huge".into(), &signature, &[DeviceId(0)]);
        assert_eq!(zeros.unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
