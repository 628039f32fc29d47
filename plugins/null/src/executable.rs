//! Programs that return zeros.

use std::sync::Arc;

use halite_core::{
    AlignedBytes, Arg, Buffer, DeviceId, Error, Executable, Launch, Launched, Result, Signature,
    TensorType,
};

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
    pub(crate) fn new(
        all: &Arc<[NullDevice]>,
        name: &Arc<str>,
        signature: &Signature,
        devices: &[DeviceId],
    ) -> Self {
        let zeros = |ty: &TensorType| Arc::new(AlignedBytes::zeroed(ty.bytes()));
        Zeros {
            all: all.clone(),
            devices: devices.to_vec(),
            name: name.clone(),
            signature: signature.clone(),
            results: signature.outputs.iter().map(zeros).collect(),
        }
    }

    fn check(&self, row: &[Arg<'_, Memory>], device: DeviceId) -> Result<()> {
        let Signature {
            inputs, donated, ..
        } = &self.signature;
        let refuse = |message: String| {
            Err(Error::invalid(
                "launch",
                format!("`{}`: {message}", self.name),
            ))
        };
        if row.len() != inputs.len() {
            return refuse(format!(
                "{} arguments given, expected {}",
                row.len(),
                inputs.len()
            ));
        }
        for (index, (arg, ty)) in row.iter().zip(inputs).enumerate() {
            let (given, place) = (arg.buffer().tensor_type(), arg.buffer().placement());
            if given != ty || place.device != device {
                return refuse(format!(
                    "argument {index} is {given} on device {}, expected {ty} on {}",
                    place.device.0, device.0
                ));
            }
            if matches!(arg, Arg::Donate(_)) && !donated.contains(&index) {
                return refuse(format!(
                    "argument {index} cannot be donated; the program donates only {donated:?}"
                ));
            }
        }
        Ok(())
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
        if launch.args.len() != self.devices.len() {
            let message = format!(
                "`{}`: arguments for {} devices given, expected {}",
                self.name,
                launch.args.len(),
                self.devices.len()
            );
            return Err(Error::invalid("launch", message));
        }
        let mut outputs = Vec::with_capacity(self.devices.len());
        for (row, &id) in launch.args.iter().zip(&self.devices) {
            self.check(row, id)?;
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
