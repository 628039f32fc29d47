//! Host memory used in place, orders of dimensions, memories, deletion. The conformance suite has
//! the requirements of every backend; these tests are specific to PJRT.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use halite_core::{
    AlignedBytes, Arg, Backend, Buffer, CompileOptions, DType, Device, DeviceId, ErrorKind, Event,
    HostBytes, MemoryKind, Placement, TensorType,
};
use halite_pjrt::{Pjrt, PjrtBuffer};

use crate::common::*;

#[test]
fn shapes_of_any_rank_come_back_by_both_ways() {
    let client = cpu(1);
    for dims in [&[][..], &[0], &[2, 3, 4], &[1, 2, 1, 2, 1, 2, 1, 2, 1, 3]] {
        let elements: usize = dims.iter().product();
        let values: Vec<i32> = (0..elements as i32).collect();
        let there = upload(&client, &values, dims, 0);
        assert_eq!(there.tensor_type().dims(), dims);
        assert_eq!(read::<i32>(&there), values, "{dims:?}");
        assert_eq!(
            fetch(&there).unwrap(),
            values
                .iter()
                .flat_map(|v| v.to_ne_bytes())
                .collect::<Vec<_>>(),
            "{dims:?}"
        );
    }
}

#[test]
fn column_major_result_is_read_row_major() {
    let client = cpu(1);
    // The result's layout is column-major: without a requested layout, the plugin would copy in that
    // order.
    let code = r#"module @m { func.func public @main(%a: tensor<2x3xi32>) -> (tensor<2x3xi32> {mhlo.layout_mode = "{0,1}"}) {
        %0 = stablehlo.add %a, %a : tensor<2x3xi32>
        return %0 : tensor<2x3xi32> } }"#;
    let program = program(
        code,
        &[ty(DType::S32, &[2, 3])],
        &[ty(DType::S32, &[2, 3])],
        &[],
    );
    let double = match client.compile(&program, &CompileOptions::default()) {
        // Old plugins would return the device's order, so such programs are refused there.
        Err(error) if client.plugin().api_version().1 < 106 => {
            return assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        compiled => compiled.unwrap(),
    };
    let a = upload(&client, &[1, 2, 3, 4, 5, 6], &[2, 3], 0);
    let b = run(&double, vec![Arg::Borrow(&a)]).unwrap().remove(0);
    assert_eq!(read::<i32>(&b), [2, 4, 6, 8, 10, 12]);
}

/// A client that counts copies of the plugin to the host in the length of a file. `more` changes its
/// table of functions.
fn counting_copies(directory: &Path, name: &str, more: &str) -> (Pjrt, impl Fn() -> u64) {
    let copies = directory.join("copies");
    let code = format!(
        r#"
        static void* counted(void* args) {{
            FILE* copies = fopen("{}", "a");
            fputc('x', copies);
            fclose(copies);
            return REAL(PJRT_Buffer_ToHostBuffer)(args);
        }}
        static void replace(void** table) {{
            table[PJRT_Buffer_ToHostBuffer] = counted;
            {more}
        }}
        "#,
        copies.display()
    );
    let replaced = [
        "PJRT_Buffer_ToHostBuffer",
        "PJRT_Buffer_OpaqueDeviceMemoryDataPointer",
        "PJRT_Buffer_IncreaseExternalReferenceCount",
    ];
    let plugin = shim(directory, name, &replaced, &code);
    let client = plugin
        .client(vec![("cpu_device_count".into(), 1i64.into())])
        .unwrap();
    (client, move || {
        copies.metadata().map_or(0, |file| file.len())
    })
}

#[test]
fn read_of_host_memory_is_one_copy() {
    let directory = directory();
    let (client, copies) = counting_copies(directory.path(), "in_place", "");
    for dims in [&[][..], &[0], &[3], &[2, 3, 4], &[64, 1025]] {
        let elements: usize = dims.iter().product();
        let values: Vec<i32> = (0..elements as i32).collect();
        let there = upload(&client, &values, dims, 0);
        assert_eq!(read::<i32>(&there), values, "{dims:?}");
    }
    let bools = upload(&client, &[true, false, true], &[3], 0);
    assert_eq!(read::<bool>(&bools), [true, false, true]);
    // A result, and one in the memory of an argument.
    for donated in [false, true] {
        let program = compile(&client, &add(2, donated));
        let (one, two) = (
            upload(&client, &[1.0f32, 2.0], &[2], 0),
            upload(&client, &[3.0f32, 4.0], &[2], 0),
        );
        let one = match donated {
            true => Arg::Donate(one),
            false => Arg::Borrow(&one),
        };
        let sum = run(&program, vec![one, Arg::Borrow(&two)]).unwrap();
        assert_eq!(read::<f32>(&sum[0]), [4.0, 6.0]);
    }
    assert_eq!(copies(), 0);
}

#[test]
fn plugin_that_hides_its_memory_copies() {
    for (name, hidden) in [
        ("no_address", "PJRT_Buffer_OpaqueDeviceMemoryDataPointer"),
        ("no_count", "PJRT_Buffer_IncreaseExternalReferenceCount"),
    ] {
        let directory = directory();
        let more = format!("table[{hidden}] = 0;");
        let (client, copies) = counting_copies(directory.path(), name, &more);
        let there = upload(&client, &[1i32, 2, 3], &[3], 0);
        assert_eq!(read::<i32>(&there), [1, 2, 3], "{hidden}");
        assert_eq!(copies(), 1, "{hidden}");
    }
}

#[test]
fn invalid_upload_is_refused() {
    let client = cpu(2);
    let three = f32s(&[3]);
    let upload = |bytes: &[u8], ty: &TensorType, to: Placement| {
        client
            .upload(HostBytes::Borrowed(bytes), ty, to)
            .unwrap_err()
    };
    for length in [0, 11, 13, 16] {
        let error = upload(&vec![0; length], &three, DeviceId(0).into());
        assert_eq!(
            error.to_string(),
            format!("upload on cpu: {length} bytes given, f32[3] needs 12")
        );
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let error = upload(&[0; 12], &three, DeviceId(2).into());
    assert_eq!(
        error.to_string(),
        "upload on cpu: unknown device 2; expected one of [0, 1]"
    );
    let huge = TensorType::new(DType::F64, [usize::MAX, 2]);
    assert_eq!(
        upload(&[], &huge, DeviceId(0).into()).kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn read_into_another_size_is_refused() {
    let client = cpu(1);
    let there = upload(&client, &[1.0f32, 2.0], &[2], 0);
    for length in [0, 4, 7, 9] {
        let error = there.read(&mut vec![0; length]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("read on cpu: {length} bytes to read into, f32[2] needs 8")
        );
    }
}

#[test]
fn buffer_is_copied_to_any_memory() {
    let client = cpu(3);
    let there = upload(&client, &[1.0f32, 2.0], &[2], 0);
    let place = |device, memory| Placement {
        device: DeviceId(device),
        memory,
    };
    for to in [
        place(0, MemoryKind::Device),
        place(2, MemoryKind::Device),
        place(0, MemoryKind::PinnedHost),
        place(1, MemoryKind::UnpinnedHost),
    ] {
        let copy = there.copy_to(to).unwrap();
        assert_eq!(copy.placement(), to);
        assert_eq!(read::<f32>(&copy), [1.0, 2.0], "{to:?}");
        assert_ne!(
            copy.device_address().unwrap(),
            there.device_address().unwrap(),
            "{to:?}"
        );
        // The copy back.
        assert_eq!(
            read::<f32>(&copy.copy_to(DeviceId(0).into()).unwrap()),
            [1.0, 2.0],
            "{to:?}"
        );
    }
    assert_eq!(
        client.devices()[0].memories(),
        [
            MemoryKind::Device,
            MemoryKind::PinnedHost,
            MemoryKind::UnpinnedHost
        ]
    );
    assert_eq!(
        there.copy_to(DeviceId(3).into()).unwrap_err().to_string(),
        "copy on cpu: unknown device 3; expected one of [0, 1, 2]"
    );
}

#[test]
fn deleted_buffer_is_refused_everywhere() {
    let client = cpu(1);
    let mut there = upload(&client, &[1.0f32, 2.0], &[2], 0);
    assert!(!there.is_deleted() && !there.is_deleted_on_device().unwrap());
    there.delete().unwrap();
    assert!(there.is_deleted() && there.is_deleted_on_device().unwrap());
    there.delete().unwrap();

    let message = |error: halite_core::Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    let deleted = "the f32[2] buffer was deleted";
    assert_eq!(message(there.read(&mut [0; 8]).unwrap_err()), deleted);
    assert_eq!(message(fetch(&there).unwrap_err()), deleted);
    assert_eq!(message(there.ready().err().unwrap()), deleted);
    assert_eq!(
        message(there.copy_to(DeviceId(0).into()).unwrap_err()),
        deleted
    );
    assert_eq!(message(there.device_address().unwrap_err()), deleted);

    let add = compile(&client, &add(2, false));
    let other = upload(&client, &[1.0f32, 2.0], &[2], 0);
    let error = run(&add, vec![Arg::Borrow(&other), Arg::Borrow(&there)]).unwrap_err();
    assert_eq!(
        message(error),
        "`test`: argument 1 for device 0 (f32[2]) was deleted"
    );
}

#[test]
fn aligned_shared_bytes_are_used_in_place() {
    let client = cpu(1);
    let (host, gone) = Watched::new(AlignedBytes::copy_of(&[7; 4096]), 0);
    let address = host.as_ref().as_ref().as_ptr().addr();
    let there = client
        .upload(
            HostBytes::Shared(host),
            &ty(DType::U8, &[4096]),
            DeviceId(0).into(),
        )
        .unwrap();
    assert_eq!(there.device_address().unwrap(), address);
    assert_eq!(read::<u8>(&there), [7; 4096]);
    assert!(!gone.load(SeqCst), "the bytes are the buffer's memory");
    drop(there);
    wait_until(|| gone.load(SeqCst), "the bytes are freed after the buffer");
}

#[test]
fn unaligned_shared_bytes_are_copied() {
    let client = cpu(1);
    for offset in [1, 4, 32] {
        let (host, gone) = Watched::new(AlignedBytes::copy_of(&[7; 4096]), offset);
        let address = (*host).as_ref().as_ptr().addr();
        let size = 4096 - offset;
        let there = client
            .upload(
                HostBytes::Shared(host),
                &ty(DType::U8, &[size]),
                DeviceId(0).into(),
            )
            .unwrap();
        assert_ne!(there.device_address().unwrap(), address);
        wait_until(|| gone.load(SeqCst), "the bytes are freed after the copy");
        assert_eq!(read::<u8>(&there), vec![7; size]);
    }
}

#[test]
fn failed_buffer_fails_every_reader() {
    let client = cpu(1);
    let failed = client
        .failed_buffer(
            &f32s(&[2]),
            DeviceId(0).into(),
            "the accelerator caught fire",
        )
        .unwrap();
    let told = |error: halite_core::Error| {
        assert!(
            error.message().contains("the accelerator caught fire"),
            "{error}"
        )
    };
    told(failed.read(&mut [0; 8]).unwrap_err());
    told(fetch(&failed).unwrap_err());
    told(failed.ready().unwrap().wait().unwrap_err());

    // A program with it as an argument runs, and its results have the error.
    let one = upload(&client, &[1.0f32; 2], &[2], 0);
    match run(
        &compile(&client, &add(2, false)),
        vec![Arg::Borrow(&failed), Arg::Borrow(&one)],
    ) {
        Ok(sum) => told(sum[0].ready().unwrap().wait().unwrap_err()),
        Err(error) => told(error),
    }
}

fn fetch(buffer: &PjrtBuffer) -> halite_core::Result<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    buffer.fetch(Box::new(move |bytes| send.send(bytes).unwrap()));
    receive
        .recv_timeout(Duration::from_secs(60))
        .expect("a fetch ends")
}

/// Bytes from an offset on, which record when they are freed.
struct Watched {
    bytes: AlignedBytes,
    offset: usize,
    gone: Arc<AtomicBool>,
}

impl Watched {
    #[allow(clippy::new_ret_no_self, reason = "comes shared")]
    fn new(
        bytes: AlignedBytes,
        offset: usize,
    ) -> (Arc<dyn AsRef<[u8]> + Send + Sync>, Arc<AtomicBool>) {
        let gone = Arc::new(AtomicBool::new(false));
        (
            Arc::new(Watched {
                bytes,
                offset,
                gone: gone.clone(),
            }),
            gone,
        )
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes.as_ref()[self.offset..]
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.gone.store(true, SeqCst);
    }
}

fn wait_until(happened: impl Fn() -> bool, what: &str) {
    for _ in 0..6000 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("after a minute, not yet: {what}");
}
