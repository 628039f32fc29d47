//! Transfers to devices, between them, and back.

mod copies;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{AlignedBytes, DType, DeviceId, ErrorKind, HostArray, HostBytes, Pending};

use self::copies::{
    absent_memory_kind_is_rejected, copies_reach_every_device,
    copy_on_the_same_device_is_independent, every_memory_kind_round_trips,
};
use super::{Case, Subject, support::*};

pub(super) const CASES: &[Case] = &[
    case!("transfers", every_type_round_trips_bit_exactly).except(HOLDS_ZEROS),
    case!("transfers", other_types_round_trip_or_are_unsupported).except(HOLDS_ZEROS),
    case!("transfers", nan_keeps_its_bits).except(HOLDS_ZEROS),
    case!("transfers", large_tensors_round_trip).except(HOLDS_ZEROS),
    case!("transfers", buffer_reports_its_type),
    case!("transfers", borrowed_memory_may_be_reused_at_once).except(HOLDS_ZEROS),
    case!("transfers", shared_memory_lives_while_in_use).except(HOLDS_ZEROS),
    case!("transfers", concurrent_fetches_agree_with_read).except(HOLDS_ZEROS),
    case!("transfers", fetch_outlives_its_buffer).except(HOLDS_ZEROS),
    case!("transfers", copy_on_the_same_device_is_independent).except(HOLDS_ZEROS),
    case!("transfers", copies_reach_every_device)
        .devices(2)
        .except(HOLDS_ZEROS),
    case!("transfers", every_memory_kind_round_trips).except(HOLDS_ZEROS),
    case!("transfers", absent_memory_kind_is_rejected).except(HOLDS_ZEROS),
    case!("transfers", wrong_number_of_bytes_is_rejected),
    case!("transfers", unknown_device_is_rejected),
];

const DIMS: [&[usize]; 9] = [
    &[],
    &[0],
    &[1],
    &[7],
    &[0, 3],
    &[3, 5],
    &[2, 0, 4],
    &[2, 3, 4, 5],
    &[1, 2, 1, 3, 1, 2, 1, 2, 2],
];

fn every_type_round_trips_bit_exactly(subject: &Subject) -> Checked {
    let client = subject.client();
    for device in client.local_devices().into_iter().take(2) {
        for (seed, dtype) in (1..).zip(DType::computed()) {
            for dims in DIMS {
                let host = noise(&ty(dtype, dims), seed);
                let buffer =
                    client.upload(HostBytes::Borrowed(host.bytes()), host.ty(), device.into())?;
                let what = |how: &str| format!("{} {how} device {}", host.ty(), device.0);
                same_bytes(what("read from"), &read_bytes(&buffer)?, host.bytes())?;
                same_bytes(
                    what("fetched from"),
                    &buffer.first().fetch().wait_for(PATIENCE)?,
                    host.bytes(),
                )?;
                let (filled, resolve) = Pending::new("fetch");
                let memory = AlignedBytes::zeroed(host.bytes().len());
                buffer.first().fetch_into_then(memory, Box::new(resolve));
                let filled = filled.wait_for(PATIENCE)?;
                same_bytes(
                    what("fetched into memory from"),
                    filled.as_ref(),
                    host.bytes(),
                )?;
            }
        }
    }
    Ok(())
}

fn other_types_round_trip_or_are_unsupported(subject: &Subject) -> Checked {
    let client = subject.client();
    let others = DType::ALL.into_iter().filter(|dtype| !dtype.is_computed());
    for (seed, dtype) in (1..).zip(others) {
        let host = noise(&ty(dtype, &[3, 5]), seed);
        let device = first(client).into();
        match client.upload(HostBytes::Borrowed(host.bytes()), host.ty(), device) {
            Ok(buffer) => same_bytes(host.ty(), &read_bytes(&buffer)?, host.bytes())?,
            Err(error) => same(
                format!("the kind of the error of {}", host.ty()),
                error.kind(),
                ErrorKind::Unsupported,
            )?,
        }
    }
    Ok(())
}

fn nan_keeps_its_bits(subject: &Subject) -> Checked {
    let client = subject.client();
    for dtype in DType::computed().filter(|dtype| dtype.is_float()) {
        let host = HostArray::from_bytes(&special_values(dtype), ty(dtype, &[8]))?;
        let buffer = client.upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            first(client).into(),
        )?;
        same_bytes(
            format!("special values of {dtype}, read"),
            &read_bytes(&buffer)?,
            host.bytes(),
        )?;
        same_bytes(
            format!("special values of {dtype}, fetched"),
            &buffer.first().fetch().wait_for(PATIENCE)?,
            host.bytes(),
        )?;
    }
    Ok(())
}

/// Eight values of a float type: quiet and signalling NaN of both signs, with payloads at both
/// ends; infinities, negative zero, the smallest subnormal.
fn special_values(dtype: DType) -> Vec<u8> {
    let (exponent, quiet) = match dtype {
        DType::F16 => (0x7c00, 0x0200),
        DType::Bf16 => (0x7f80, 0x0040),
        DType::F32 => (0x7f80_0000, 0x0040_0000),
        _ => (0x7ff0 << 48, 8u64 << 48),
    };
    let sign = 1 << (8 * dtype.size() - 1);
    let values = [
        exponent | quiet,
        exponent | quiet | 0x15,
        exponent | 1,
        sign | exponent | 1,
        exponent,
        sign | exponent,
        sign,
        1,
    ];
    let bytes = |bits: u64| match dtype.size() {
        2 => (bits as u16).to_ne_bytes().to_vec(),
        4 => (bits as u32).to_ne_bytes().to_vec(),
        _ => bits.to_ne_bytes().to_vec(),
    };
    values.into_iter().flat_map(bytes).collect()
}

fn large_tensors_round_trip(subject: &Subject) -> Checked {
    let client = subject.client();
    for dims in [&[33, 257, 257][..], &[2_000_003]] {
        let host = noise(&f32s(dims), 5);
        let buffer = client.upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            first(client).into(),
        )?;
        same_bytes(host.ty(), &read_bytes(&buffer)?, host.bytes())?;
    }
    Ok(())
}

fn buffer_reports_its_type(subject: &Subject) -> Checked {
    let client = subject.client();
    for device in client.local_devices() {
        for dtype in DType::computed() {
            for dims in DIMS {
                let host = HostArray::zeros(ty(dtype, dims));
                let buffer =
                    client.upload(HostBytes::Borrowed(host.bytes()), host.ty(), device.into())?;
                same("the type", buffer.first().tensor_type(), host.ty())?;
                same(
                    format!("the placement of {}", host.ty()),
                    buffer.first().placement(),
                    device.into(),
                )?;
            }
        }
    }
    Ok(())
}

fn borrowed_memory_may_be_reused_at_once(subject: &Subject) -> Checked {
    let client = subject.client();
    for size in [1, 64, 4096, 1 << 20] {
        let mut memory = AlignedBytes::zeroed(size);
        let mut buffers = Vec::new();
        for round in 0..8u8 {
            memory.as_mut().fill(round);
            buffers.push(client.upload(
                HostBytes::Borrowed(memory.as_ref()),
                &ty(DType::U8, &[size]),
                first(client).into(),
            )?);
        }
        memory.as_mut().fill(0xee);
        for (round, buffer) in (0..).zip(&buffers) {
            let what =
                format!("upload {round} of {size} bytes whose memory was overwritten afterwards");
            same_bytes(what, &read_bytes(buffer)?, &vec![round; size])?;
        }
    }
    Ok(())
}

/// Host memory that counts its live instances.
struct Counted {
    bytes: AlignedBytes,
    offset: usize,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes.as_ref()[self.offset..]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Makes a read after the drop visible.
        self.bytes.as_mut().fill(0xdd);
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn shared_memory_lives_while_in_use(subject: &Subject) -> Checked {
    let client = subject.client();
    let alive = Arc::new(AtomicUsize::new(0));
    // Aligned memory may be used in place, other memory is copied.
    for offset in [0, 4] {
        for count in [1, 16, 100_000] {
            let ty = f32s(&[count]);
            let want = noise(&ty, count as u64);
            let mut bytes = AlignedBytes::zeroed(offset + ty.bytes());
            bytes.as_mut()[offset..].copy_from_slice(want.bytes());
            alive.fetch_add(1, Ordering::SeqCst);
            let owner = Arc::new(Counted {
                bytes,
                offset,
                alive: alive.clone(),
            });
            let buffer = client.upload(HostBytes::Shared(owner), &ty, first(client).into())?;
            let what = format!("{ty} from shared memory at offset {offset}");
            same_bytes(format!("{what}, read"), &read_bytes(&buffer)?, want.bytes())?;
            let copy = buffer.first().copy_to(first(client).into())?;
            drop(buffer);
            same_bytes(format!("{what}, copied"), &read_bytes(&copy)?, want.bytes())?;
            drop(copy);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while alive.load(Ordering::SeqCst) > 0 {
        let left = alive.load(Ordering::SeqCst);
        check!(
            Instant::now() < deadline,
            "{left} of 6 shared memories are not freed {PATIENCE:?} after their buffers"
        );
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn concurrent_fetches_agree_with_read(subject: &Subject) -> Checked {
    let client = subject.client();
    let host = noise(&f32s(&[10_000]), 3);
    let buffer = client.upload(
        HostBytes::Borrowed(host.bytes()),
        host.ty(),
        first(client).into(),
    )?;
    let fetches: Vec<_> = (0..20).map(|_| buffer.first().fetch()).collect();
    same_bytes("read among 20 fetches", &read_bytes(&buffer)?, host.bytes())?;
    for fetch in fetches {
        same_bytes(
            "one of 20 fetches",
            &fetch.wait_for(PATIENCE)?,
            host.bytes(),
        )?;
    }
    let (send, receive) = mpsc::channel();
    buffer.first().fetch_then(Box::new(move |bytes| {
        let _ = send.send(bytes);
    }));
    match receive.recv_timeout(PATIENCE) {
        Ok(bytes) => same_bytes("a fetch with a callback", &bytes?, host.bytes())?,
        Err(error) => check!(false, "the callback of a fetch was not called: {error}"),
    }
    check!(
        receive.recv_timeout(PATIENCE).is_err(),
        "the callback of a fetch was called twice"
    );
    Ok(())
}

fn fetch_outlives_its_buffer(subject: &Subject) -> Checked {
    let client = subject.client();
    let host = noise(&f32s(&[1 << 18]), 4);
    for _ in 0..10 {
        let buffer = client.upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            first(client).into(),
        )?;
        let fetch = buffer.first().fetch();
        drop(buffer);
        same_bytes(
            "fetched from a buffer that was dropped",
            &fetch.wait_for(PATIENCE)?,
            host.bytes(),
        )?;
    }
    Ok(())
}

fn wrong_number_of_bytes_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    for given in [0usize, 1, 23, 25, 48] {
        let bytes = vec![0; given];
        let wrong = client.upload(
            HostBytes::Borrowed(&bytes),
            &f32s(&[2, 3]),
            first(client).into(),
        );
        let words = [&*given.to_string(), "24", "f32[2, 3]"];
        expect_error(
            format!("an upload of {given} bytes as f32[2, 3]"),
            wrong,
            ErrorKind::InvalidArgument,
            &words,
        )?;
    }
    let impossible = client.upload(
        HostBytes::Borrowed(&[]),
        &f32s(&[usize::MAX, 8]),
        first(client).into(),
    );
    expect_error(
        "an upload of a type larger than memory",
        impossible,
        ErrorKind::InvalidArgument,
        &[],
    )?;
    let buffer = upload(client, &[0.0f32; 6], &[2, 3], first(client))?;
    let mut short = [0; 23];
    expect_error(
        "a read into 23 bytes",
        buffer.first().read(&mut short),
        ErrorKind::InvalidArgument,
        &["23", "24", "f32[2, 3]"],
    )
}

fn unknown_device_is_rejected(subject: &Subject) -> Checked {
    let client = subject.client();
    for id in [u32::MAX, 1_000_000] {
        let lost = upload(client, &[1.0f32], &[1], DeviceId(id));
        expect_error(
            format!("an upload to device {id}"),
            lost,
            ErrorKind::InvalidArgument,
            &[&id.to_string()],
        )?;
    }
    Ok(())
}
