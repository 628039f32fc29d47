//! Page-locked host memory, where a backend has it.

use std::sync::Arc;

use halite_core::{Client, DType, HostBytes, Pending, PinnedPool};

use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("transfers", host_memory_maps).except(HOLDS_ZEROS),
    case!("transfers", mapped_memory_may_be_dropped_in_any_order).except(HOLDS_ZEROS),
];

/// A pool of `limit` bytes, where the backend page-locks memory.
fn pool_of(client: &Client, limit: usize) -> Checked<PinnedPool> {
    let missing = || Stop::Skipped("the backend does not page-lock host memory".to_owned());
    PinnedPool::new(client, limit)?.ok_or_else(missing)
}

/// Page-locked memory, reused for the next upload as soon as it is free.
fn host_memory_maps(subject: &Subject) -> Checked {
    let client = subject.client();
    let pool = pool_of(client, 1 << 20)?;
    for device in client.local_devices().into_iter().take(2) {
        let mut buffers = Vec::new();
        for (seed, len) in (1..).zip([0, 1, 4096, 65_537, 200_000, 65_537, 4096, 1, 0]) {
            let host = noise(&ty(DType::U8, &[len]), seed);
            let mut pinned = pool.zeros(host.ty().clone())?;
            check!(
                pinned.bytes().iter().all(|&byte| byte == 0),
                "reused memory is not zero"
            );
            pinned.bytes_mut().copy_from_slice(host.bytes());
            let shared = HostBytes::Shared(Arc::new(pinned));
            buffers.push((client.upload(shared, host.ty(), device.into())?, host));
        }
        for (buffer, host) in &buffers {
            let what = format!("{} from page-locked memory", host.ty());
            same_bytes(what, &read_bytes(buffer)?, host.bytes())?;
        }
        let memory = client.pinned_memory(4096)?;
        let mut memory = memory.ok_or_else(|| Stop::Failed("it has no more of it".to_owned()))?;
        memory.as_mut().fill(7);
        let bytes = HostBytes::Borrowed(memory.as_ref());
        let buffer = client.upload(bytes, &ty(DType::U8, &[4096]), device.into())?;
        let (fetched, resolve) = Pending::new("fetch");
        buffer.first().fetch_into_then(memory, Box::new(resolve));
        let fetched = fetched.wait_for(PATIENCE)?;
        same_bytes(
            "fetched into page-locked memory",
            fetched.as_ref(),
            &[7; 4096],
        )?;
    }
    check!(
        pool.bytes() <= 1 << 20,
        "a pool of {} bytes has {}",
        1 << 20,
        pool.bytes()
    );
    Ok(())
}

/// A transfer may end after its client, its pool and its buffers are dropped.
fn mapped_memory_may_be_dropped_in_any_order(subject: &Subject) -> Checked {
    for order in 0..3 {
        let client = subject.another()?;
        let pool = pool_of(&client, 1 << 24)?;
        let host = noise(&ty(DType::U8, &[4 << 20]), 9);
        let mut pinned = pool.zeros(host.ty().clone())?;
        pinned.bytes_mut().copy_from_slice(host.bytes());
        let shared = HostBytes::Shared(Arc::new(pinned));
        let place = first(&client).into();
        let buffer = client.upload(shared.clone(), host.ty(), place)?;
        let fetched = buffer.first().fetch();
        match order {
            0 => {
                drop((client, pool, buffer));
                drop(shared);
            }
            1 => drop((shared, buffer, pool, client)),
            _ => drop((pool, shared, client, buffer)),
        }
        let fetched = fetched.wait_for(PATIENCE)?;
        same_bytes("fetched after the drops", &fetched, host.bytes())?;
    }
    Ok(())
}
