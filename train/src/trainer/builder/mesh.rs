//! The devices of a trainer as a mesh, in one process or in several, and the default strategy on it.

use std::collections::BTreeSet;

use halite_core::{DeviceId, Error, ErrorKind, Mesh, MeshShape, Result};
use halite_nn::PROCESS_AXIS;

use super::TrainerBuilder;
use crate::Strategy;

impl TrainerBuilder {
    /// Arranges the devices as a mesh.
    pub(super) fn on_devices(&self) -> Result<Mesh> {
        let mut devices = self.chosen_devices()?;
        if let Some(shape) = self.local_axes()? {
            // The first devices are the default; devices that were chosen are all used.
            if self.devices.is_none() {
                devices.truncate(shape.size());
            }
            return Mesh::new(shape, devices);
        }
        if let [device] = devices[..] {
            return Ok(Mesh::single(device));
        }
        let strategy = self.strategy.clone().unwrap_or_default();
        let axis = strategy.axis_of_all().ok_or_else(|| {
            let model = devices.len() / 2;
            let message = format!(
                "`{strategy}` on {} devices needs a mesh, such as `.mesh([(\"data\", 2), (\"model\", \
                 {model})])`, --mesh data=2,model={model}",
                devices.len()
            );
            Error::invalid("trainer", message)
        })?;
        Mesh::new([(axis, devices.len())], devices)
    }

    /// The strategy on the devices of this process, or of all processes where these run one program.
    pub(super) fn strategy_on(&self, mesh: &Mesh) -> Result<Strategy> {
        let processes = if self.spans_processes() {
            1
        } else {
            self.processes.as_ref().map_or(1, |group| group.size())
        };
        let Some(strategy) = &self.strategy else {
            let zero = Strategy::zero1();
            let data_parallel = Strategy::data_parallel();
            data_parallel.check(mesh)?;
            return Ok(if processes > 1 && zero.check(mesh).is_ok() {
                zero
            } else {
                data_parallel
            });
        };
        strategy.check(mesh)?;
        if processes > 1 && mesh.size() == 1 && strategy.shards_parameters() {
            let message = format!(
                "`{strategy}` shards parameters over the devices of one process, and each of the \
                 {processes} processes has one device. Between processes on CPUs there are `zero1` \
                 and `dp`; `{strategy}` runs in one process with all devices (--devices), or with \
                 several in each (--mesh process={processes},data=2)"
            );
            return Err(Error::new(ErrorKind::Unsupported, "strategy", message));
        }
        Ok(strategy.clone())
    }

    /// The axes of the mesh over the devices of this process, or of all processes where these run
    /// one program; `None` if there are no others than that of the processes.
    fn local_axes(&self) -> Result<Option<MeshShape>> {
        let Some(axes) = &self.mesh else {
            return Ok(None);
        };
        if self.spans_processes() {
            if axes.iter().any(|(name, _)| **name == *PROCESS_AXIS) {
                let message = format!(
                    "the mesh has the axis `{PROCESS_AXIS}`, which is that of processes with programs \
                     of their own; here one program runs on {} devices of all processes: leave the \
                     axis out",
                    self.client.devices().len()
                );
                return Err(Error::invalid("trainer", message));
            }
            return MeshShape::new(axes.iter().cloned()).map(Some);
        }
        let count = self.processes.as_ref().map_or(1, |group| group.size());
        let (processes, local): (Vec<_>, Vec<_>) = axes
            .iter()
            .cloned()
            .partition(|(name, _)| **name == *PROCESS_AXIS);
        if let Some((_, size)) = processes.iter().find(|(_, size)| *size != count) {
            let job = match count {
                1 => "there is one process; start more with `halite launch -n`, and give the job \
                      to the trainer (`processes`)"
                    .to_string(),
                count => format!("the job has {count} processes"),
            };
            let message = format!("the axis `{PROCESS_AXIS}` of the mesh is {size}, and {job}");
            return Err(Error::invalid("trainer", message));
        }
        let is_given = !local.is_empty() || processes.is_empty();
        is_given.then(|| MeshShape::new(local)).transpose()
    }

    /// Whether one program runs on the devices of all processes: the client has them, and the
    /// processes train together.
    pub(super) fn spans_processes(&self) -> bool {
        let is_job = (self.processes.as_ref()).is_some_and(|group| group.size() > 1);
        is_job
            && self
                .client
                .devices()
                .iter()
                .any(|device| !device.is_local())
    }

    /// Checks that every process has a device in the mesh of one program for all: in all of them
    /// alike.
    pub(super) fn check_processes_in(&self, mesh: &Mesh) -> Result<()> {
        let devices = self.client.devices();
        let in_mesh = devices
            .iter()
            .filter(|one| mesh.devices().contains(&one.id()));
        let in_mesh: BTreeSet<u32> = in_mesh.map(|one| one.process()).collect();
        let all: BTreeSet<u32> = devices.iter().map(|one| one.process()).collect();
        let absent: Vec<String> = all.difference(&in_mesh).map(u32::to_string).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let message = format!(
            "process {} has none of the {} devices of the mesh; one program runs on devices of all {} \
             processes: take some of each (`devices`, --devices), or start fewer processes",
            absent.join(", "),
            mesh.size(),
            all.len()
        );
        Err(Error::invalid("trainer", message))
    }

    /// Returns the devices that were chosen, or all devices of this process, or of all where one
    /// program runs on them. Never empty.
    fn chosen_devices(&self) -> Result<Vec<DeviceId>> {
        let invalid = |message: String| Err(Error::invalid("trainer", message));
        let local = if self.spans_processes() {
            self.client
                .devices()
                .iter()
                .map(|device| device.id())
                .collect()
        } else {
            self.client.local_devices()
        };
        let Some(devices) = &self.devices else {
            if local.is_empty() {
                return invalid(format!("{:?} has no device for this process", self.client));
            }
            return Ok(local);
        };
        if let Some(unknown) = devices.iter().find(|device| !local.contains(device)) {
            let others = if self.client.addresses(&[*unknown]) {
                ""
            } else {
                "; to train on devices of other processes, give the job to the trainer \
                          (`processes`)"
            };
            return invalid(format!(
                "unknown device {}; this process has {local:?}{others}",
                unknown.0
            ));
        }
        if devices.is_empty() {
            return invalid("`devices` is empty; a run needs at least one".into());
        }
        Ok(devices.clone())
    }
}
