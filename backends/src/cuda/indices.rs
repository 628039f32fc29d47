//! The GPUs of a process among those of its host.

use std::{env, time::Duration};

use halite_core::{Error, ErrorKind, ProcessGroup, Result};

use super::Driver;
use crate::devices::Devices;

/// Returns the indices of these devices; empty for all.
pub(super) fn indices(driver: &Driver, devices: &Devices) -> Result<Vec<u32>> {
    let names = || {
        let gpus = driver.devices.iter().enumerate();
        let names: Vec<String> = gpus
            .map(|(index, gpu)| format!("{index}: {}", gpu.name))
            .collect();
        names.join(", ")
    };
    let indices = devices.among(driver.devices.len(), "device", names);
    indices.map_err(|message| Error::new(ErrorKind::Unavailable, "cuda", message))
}

/// Time that the other processes have to open their devices, too.
const TOGETHER: Duration = Duration::from_secs(300);

/// Returns the indices of the devices of one of several processes. Indices that the user chose are
/// each process' own; otherwise the processes of a host divide its GPUs, unless their launcher has:
/// then their variables `CUDA_VISIBLE_DEVICES` differ.
pub(super) fn own_indices(
    driver: &Driver,
    devices: &Devices,
    group: &dyn ProcessGroup,
) -> Result<Vec<u32>> {
    let visible = env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let all = group.all_gather("CUDA_VISIBLE_DEVICES", visible.as_bytes(), TOGETHER)?;
    let is_divided = all.iter().any(|other| other != visible.as_bytes());
    if is_divided || matches!(devices, Devices::Indices(_)) {
        return indices(driver, devices);
    }
    let place = [group.local_rank(), group.local_size()];
    let part = part(driver.devices.len(), devices, place);
    part.map_err(|message| Error::new(ErrorKind::Unavailable, "cuda", message))
}

/// Returns the part of `count` GPUs of process `rank` among `size` of a host.
pub(super) fn part(
    count: usize,
    devices: &Devices,
    process: [usize; 2],
) -> Result<Vec<u32>, String> {
    let [rank, size] = process;
    let each = match devices {
        Devices::Count(each) => *each as usize,
        _ => count / size,
    };
    let of = || format!("{size} processes share this host, which has {count} GPUs");
    if each == 0 || each * size > count {
        return Err(format!(
            "{} and {} are needed; start fewer processes, or name GPUs that several of them share: \
             `cuda:[0]`",
            of(),
            each.max(1) * size
        ));
    }
    if !matches!(devices, Devices::Count(_)) && each * size < count {
        return Err(format!(
            "{}: not a multiple; `cuda:{each}` takes {each} for each process",
            of()
        ));
    }
    Ok((rank * each..(rank + 1) * each)
        .map(|index| index as u32)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::{super::tests::driver, *};

    #[test]
    fn unknown_device_is_an_error_with_all_devices() {
        let of =
            |devices| indices(&driver((13, 0), 2), &devices).map_err(|error| error.to_string());
        assert_eq!(
            of(Devices::Indices(vec![1, 2])).unwrap_err(),
            "cuda: unknown device 2; expected one of 0: NVIDIA H100, 1: NVIDIA H100"
        );
        assert_eq!(
            of(Devices::Count(3)).unwrap_err(),
            "cuda: 3 devices asked for, and this host has 2: 0: NVIDIA H100, 1: NVIDIA H100; an \
             index is written in brackets: [3]"
        );
        assert!(of(Devices::All).unwrap().is_empty());
        assert_eq!(of(Devices::Count(2)).unwrap(), [0, 1]);
        assert_eq!(of(Devices::Indices(vec![1])).unwrap(), [1]);
    }

    #[test]
    fn processes_of_a_host_divide_its_devices() {
        let all = |count, place| part(count, &Devices::All, place);
        assert_eq!(all(8, [0, 8]).unwrap(), [0]);
        assert_eq!(all(8, [3, 4]).unwrap(), [6, 7]);
        assert_eq!(all(4, [0, 1]).unwrap(), [0, 1, 2, 3]);
        assert_eq!(part(8, &Devices::Count(2), [1, 2]).unwrap(), [2, 3]);
        assert_eq!(
            all(1, [0, 2]).unwrap_err(),
            "2 processes share this host, which has 1 GPUs and 2 are needed; start fewer processes, \
             or name GPUs that several of them share: `cuda:[0]`"
        );
        assert!(
            all(8, [0, 3])
                .unwrap_err()
                .contains("`cuda:2` takes 2 for each process")
        );
        assert!(
            part(4, &Devices::Count(3), [0, 2])
                .unwrap_err()
                .contains("6 are needed")
        );
    }
}
