//! Copies between devices and memories.

use halite_core::{Arg, DType, DeviceId, ErrorKind, HostBytes, MemoryKind, Placement};

use super::super::{Subject, support::*};

pub(super) fn copy_on_the_same_device_is_independent(subject: &Subject) -> Checked {
    let client = subject.client();
    let device = first(client);
    let increment = compile(client, &add(1000, true))?;
    let one = upload(client, &[1.0f32; 1000], &[1000], device)?;
    let original = upload(client, &[5.0f32; 1000], &[1000], device)?;
    let copy = original.first().copy_to(device.into())?;
    same(
        "the placement of the copy",
        copy.first().placement(),
        device.into(),
    )?;
    let sum = launch_for_one(&increment, vec![Arg::Donate(copy), Arg::Borrow(&one)])?;
    same("the copy plus one", read::<f32>(&sum)?, vec![6.0; 1000])?;
    same(
        "the original after its copy was donated",
        read::<f32>(&original)?,
        vec![5.0; 1000],
    )
}

pub(super) fn copies_reach_every_device(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = client.local_devices();
    for (seed, dtype) in (1..).zip(DType::computed()) {
        let host = noise(&ty(dtype, &[3, 5]), seed);
        let original = client.upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            devices[0].into(),
        )?;
        // Each copies the previous copy, which may still be in progress.
        let mut copies = vec![original];
        for &device in &devices[1..] {
            let copy = copies[copies.len() - 1].first().copy_to(device.into())?;
            same(
                "the placement of a copy",
                copy.first().placement(),
                device.into(),
            )?;
            copies.push(copy);
        }
        while let Some(copy) = copies.pop() {
            let what = format!("{} after {} copies", host.ty(), copies.len());
            same_bytes(what, &read_bytes(&copy)?, host.bytes())?;
        }
    }
    let lost = upload(client, &[1.0f32], &[1], devices[0])?
        .first()
        .copy_to(DeviceId(u32::MAX).into());
    expect_error(
        "a copy to an unknown device",
        lost,
        ErrorKind::InvalidArgument,
        &[],
    )
}

pub(super) fn every_memory_kind_round_trips(subject: &Subject) -> Checked {
    let client = subject.client();
    let devices = client.devices();
    let device = devices.iter().find(|device| device.is_local());
    let Some(device) = device else {
        return Err(Stop::Failed("no device is local".to_owned()));
    };
    check!(
        device.memories().first() == Some(&MemoryKind::Device),
        "the first kind of memory is not `Device`"
    );
    let host = noise(&f32s(&[1000]), 6);
    let own = client.upload(
        HostBytes::Borrowed(host.bytes()),
        host.ty(),
        device.id().into(),
    )?;
    for &memory in device.memories() {
        let place = Placement {
            device: device.id(),
            memory,
        };
        let there = client.upload(HostBytes::Borrowed(host.bytes()), host.ty(), place)?;
        same(
            "the placement of an upload",
            there.first().placement(),
            place,
        )?;
        same_bytes(
            format!("uploaded to {memory:?} memory"),
            &read_bytes(&there)?,
            host.bytes(),
        )?;
        let copied = own.first().copy_to(place)?;
        same("the placement of a copy", copied.first().placement(), place)?;
        same_bytes(
            format!("copied to {memory:?} memory"),
            &read_bytes(&copied)?,
            host.bytes(),
        )?;
        let back = copied.first().copy_to(device.id().into())?;
        same_bytes(
            format!("copied back from {memory:?} memory"),
            &read_bytes(&back)?,
            host.bytes(),
        )?;
    }
    Ok(())
}

pub(super) fn absent_memory_kind_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    let host = noise(&f32s(&[1000]), 6);
    for device in client.devices().iter().filter(|device| device.is_local()) {
        for memory in [MemoryKind::PinnedHost, MemoryKind::UnpinnedHost] {
            if device.memories().contains(&memory) {
                continue;
            }
            let place = Placement {
                device: device.id(),
                memory,
            };
            expect_error(
                format!("an upload to {memory:?} memory, which does not exist"),
                client.upload(HostBytes::Borrowed(host.bytes()), host.ty(), place),
                ErrorKind::InvalidArgument,
                &[],
            )?;
        }
    }
    Ok(())
}
