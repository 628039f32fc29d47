//! Transfers: chunked uploads, aliases, layouts, and memory that is used after a call.
#![allow(unsafe_code)]

use halite_pjrt_sys::{
    base::PJRT_Extension_Base, buffer::*, client::*, error::PJRT_Error_Code as Code, event::*,
    transfer::*,
};

use crate::common::*;

const VALUES: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn chunked_upload_arrives_in_pieces() {
    let chunked = Chunked::new(client("").unwrap());
    chunked.send(&VALUES, 3..5, false).unwrap_err().expect(
        Code::INVALID_ARGUMENT,
        "8 bytes from offset 12 are not in a buffer of 16",
    );
    chunked.send(&VALUES, 2..4, false).unwrap();
    chunked.send(&VALUES, 0..2, true).unwrap();
    assert_eq!(read(chunked.buffer).unwrap(), VALUES);
    chunked
        .send(&VALUES, 0..2, true)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "the last piece");
}

/// One thread may launch, copy and read before it sends the last piece.
#[test]
fn launch_before_the_last_piece_is_an_error() {
    let client = client("").unwrap();
    let program = compile(client, PROGRAM).unwrap();
    let chunked = Chunked::new(client);
    let b = upload(client, &[0.0; 4]).unwrap();
    launch(program, &[chunked.buffer, b])
        .unwrap_err()
        .expect(Code::FAILED_PRECONDITION, "is not transferred yet");
    let mut copy = PJRT_Buffer_CopyToDevice_Args {
        buffer: chunked.buffer,
        dst_device: first_device(client),
        ..PJRT_Buffer_CopyToDevice_Args::new()
    };
    let failure = call(&mut copy).unwrap_err();
    failure.expect(Code::FAILED_PRECONDITION, "is not transferred yet");
    chunked.send(&VALUES, 0..4, true).unwrap();
    assert_eq!(
        read(launch(program, &[chunked.buffer, b]).unwrap()).unwrap(),
        VALUES
    );
}

#[test]
fn read_waits_for_the_last_piece() {
    let chunked = Chunked::new(client("").unwrap());
    let mut values = [f32::NAN; 4];
    let event = start_read(chunked.buffer, &mut values).unwrap();
    assert!(!is_ready(event));
    chunked.send(&VALUES, 0..4, true).unwrap();
    wait(event).unwrap();
    assert_eq!(values, VALUES);
}

#[test]
fn panic_in_the_last_piece_fails_the_buffer() {
    let chunked = Chunked::new(client("Backend::upload").unwrap());
    let event = ready(chunked.buffer);
    for outcome in [
        chunked.send(&VALUES, 0..4, true),
        wait(event),
        read(chunked.buffer).map(drop),
    ] {
        outcome.unwrap_err().expect(
            Code::INTERNAL,
            "panic in the plugin: fault in Backend::upload",
        );
    }
}

#[test]
fn dropped_callback_fails_a_chunked_upload() {
    let chunked = Chunked::new(client("event drops its callback").unwrap());
    chunked.send(&VALUES, 0..4, true).unwrap();
    wait(ready(chunked.buffer)).unwrap();
    let chunked = Chunked::new(client("event drops its callback").unwrap());
    let event = ready(chunked.buffer);
    chunked.send(&VALUES, 0..4, true).unwrap();
    wait(event)
        .unwrap_err()
        .expect(Code::INTERNAL, "dropped a callback of `Event::on_ready`");
}

#[test]
fn destroyed_manager_fails_its_buffers() {
    let chunked = Chunked::new(client("").unwrap());
    let event = ready(chunked.buffer);
    chunked.destroy();
    for outcome in [wait(event), read(chunked.buffer).map(drop)] {
        outcome
            .unwrap_err()
            .expect(Code::CANCELLED, "destroyed before the last piece");
    }
}

#[test]
fn event_of_the_plugin_cannot_be_set() {
    let chunked = Chunked::new(client("").unwrap());
    let mut set = PJRT_Event_Set_Args {
        event: ready(chunked.buffer),
        ..PJRT_Event_Set_Args::new()
    };
    call(&mut set)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "not made by PJRT_Event_Create");
    let mut created = PJRT_Event_Create_Args::new();
    call(&mut created).unwrap();
    set.event = created.event;
    call(&mut set).unwrap();
    wait(created.event).unwrap();
    call(&mut set)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "is set already");
}

#[test]
fn alias_has_the_contents_of_its_source() {
    let client = client("").unwrap();
    let alias = Alias::new(client, &[4]);
    let event = ready(alias.buffer);
    assert!(!is_ready(event));
    let source = upload(client, &VALUES).unwrap();
    alias.fulfill(source).unwrap();
    wait(event).unwrap();
    destroy_buffer(source).unwrap();
    assert_eq!(read(alias.buffer).unwrap(), VALUES);
    alias
        .fulfill(source)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "it was destroyed");
}

/// Each fails the alias, and uses its callback up.
#[test]
fn wrong_source_fails_the_alias() {
    let client = client("").unwrap();
    let other = crate::common::client("").unwrap();
    let deleted = upload(client, &VALUES).unwrap();
    call(&mut PJRT_Buffer_Delete_Args {
        buffer: deleted,
        ..PJRT_Buffer_Delete_Args::new()
    })
    .unwrap();
    let pending = Alias::new(client, &[4]).buffer;
    for (source, code, words) in [
        (
            std::ptr::null_mut(),
            Code::INVALID_ARGUMENT,
            "null was passed",
        ),
        (deleted, Code::INVALID_ARGUMENT, "was deleted or donated"),
        (pending, Code::FAILED_PRECONDITION, "is not transferred yet"),
        (
            upload(other, &VALUES).unwrap(),
            Code::INVALID_ARGUMENT,
            "a buffer of another client",
        ),
    ] {
        let alias = Alias::new(client, &[4]);
        alias.fulfill(source).unwrap_err().expect(code, words);
        wait(ready(alias.buffer))
            .unwrap_err()
            .expect(Code::INTERNAL, "the alias buffer was not fulfilled");
        alias
            .fulfill(source)
            .unwrap_err()
            .expect(Code::INVALID_ARGUMENT, "it was destroyed");
    }
    let alias = Alias::new(client, &[2, 2]);
    alias
        .fulfill(upload(client, &VALUES).unwrap())
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "cannot be f32[2, 2]");
    assert!(is_ready(ready(alias.buffer)));
    let alias = Alias::new(client, &[4]);
    alias
        .fulfill(alias.buffer)
        .unwrap_err()
        .expect(Code::FAILED_PRECONDITION, "is not transferred yet");
    assert!(read(alias.buffer).is_err());
}

/// The bytes stay the backend's although the upload failed: the caller gets the event that says
/// when it may free them.
#[test]
fn failed_zero_copy_upload_returns_its_event() {
    let client = client("upload keeps the bytes and fails").unwrap();
    let (dims, values) = ([4i64], Box::new(VALUES));
    let mut args = PJRT_Client_BufferFromHostBuffer_Args {
        client,
        data: values.as_ptr().cast(),
        r#type: PJRT_Buffer_Type::F32,
        dims: dims.as_ptr(),
        num_dims: 1,
        host_buffer_semantics: PJRT_HostBufferSemantics::kImmutableZeroCopy,
        ..PJRT_Client_BufferFromHostBuffer_Args::new()
    };
    call(&mut args).unwrap();
    assert!(!is_ready(args.done_with_host_buffer));
    faulty::release();
    wait(args.done_with_host_buffer).unwrap();
    drop(values);
    read(args.buffer)
        .unwrap_err()
        .expect(Code::RESOURCE_EXHAUSTED, "no memory left");
}

/// The copy is queued, so that the caller must keep its memory until the event.
#[test]
fn panic_after_a_queued_read_returns_the_event() {
    let client = client("fetch panics after it is queued").unwrap();
    let buffer = upload(client, &VALUES).unwrap();
    let mut values = [f32::NAN; 4];
    let event = start_read(buffer, &mut values).unwrap();
    faulty::release();
    wait(event).unwrap();
    assert_eq!(values, VALUES);
}

/// XLA does not initialize the sizes in layouts.
#[test]
fn sizes_in_layouts_are_not_read() {
    let client = client("").unwrap();
    let buffer = upload(client, &VALUES).unwrap();
    let mut values = [f32::NAN; 4];
    let strides = [4i64];
    let odd = std::ptr::without_provenance_mut::<PJRT_Extension_Base>(7);
    let mut layout = PJRT_Buffer_MemoryLayout {
        struct_size: 0,
        extension_start: odd,
        r#type: PJRT_Buffer_MemoryLayout_Type::Strides,
        value: PJRT_Buffer_MemoryLayout_Value {
            strides: PJRT_Buffer_MemoryLayout_Strides {
                struct_size: 0,
                extension_start: odd,
                byte_strides: strides.as_ptr(),
                num_byte_strides: 1,
            },
        },
    };
    let mut args = PJRT_Buffer_ToHostBuffer_Args {
        src: buffer,
        host_layout: &raw mut layout,
        dst: values.as_mut_ptr().cast(),
        dst_size: 16,
        ..PJRT_Buffer_ToHostBuffer_Args::new()
    };
    call(&mut args).unwrap();
    wait(args.event).unwrap();
    assert_eq!(values, VALUES);
}

#[test]
fn strided_upload_is_transposed() {
    let client = client("").unwrap();
    let values = [1.0f32, 3.0, 2.0, 4.0];
    let (dims, strides) = ([2i64, 2], [4i64, 8]);
    let mut args = PJRT_Client_BufferFromHostBuffer_Args {
        client,
        data: values.as_ptr().cast(),
        r#type: PJRT_Buffer_Type::F32,
        dims: dims.as_ptr(),
        num_dims: 2,
        byte_strides: strides.as_ptr(),
        num_byte_strides: 2,
        ..PJRT_Client_BufferFromHostBuffer_Args::new()
    };
    call(&mut args).unwrap();
    assert_eq!(read(args.buffer).unwrap(), VALUES);
}

/// A chunked upload of four floats.
struct Chunked {
    manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    buffer: *mut PJRT_Buffer,
}

impl Chunked {
    fn new(client: *mut PJRT_Client) -> Self {
        let dims = [4i64];
        let mut spec = PJRT_ShapeSpec {
            dims: dims.as_ptr(),
            num_dims: 1,
            element_type: PJRT_Buffer_Type::F32,
            ..PJRT_ShapeSpec::new()
        };
        let mut create = PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
            client,
            shape_specs: &mut spec,
            num_shape_specs: 1,
            memory: first_memory(client),
            ..PJRT_Client_CreateBuffersForAsyncHostToDevice_Args::new()
        };
        call(&mut create).unwrap();
        let mut retrieve = PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
            transfer_manager: create.transfer_manager,
            ..PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args::new()
        };
        call(&mut retrieve).unwrap();
        Chunked {
            manager: create.transfer_manager,
            buffer: retrieve.buffer_out,
        }
    }

    /// Sends the floats of a range. Those beyond `values` are not read, as the range is refused.
    fn send(
        &self,
        values: &[f32; 4],
        range: std::ops::Range<usize>,
        is_last_transfer: bool,
    ) -> Result<(), Failure> {
        call(
            &mut PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
                transfer_manager: self.manager,
                data: values[range.start..].as_ptr().cast(),
                offset: 4 * range.start as i64,
                transfer_size: 4 * range.len() as i64,
                is_last_transfer,
                ..PJRT_AsyncHostToDeviceTransferManager_TransferData_Args::new()
            },
        )
    }

    fn destroy(&self) {
        call(&mut PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
            transfer_manager: self.manager,
            ..PJRT_AsyncHostToDeviceTransferManager_Destroy_Args::new()
        })
        .unwrap();
    }
}

/// A buffer that another one fulfills.
struct Alias {
    client: *mut PJRT_Client,
    buffer: *mut PJRT_Buffer,
    callback: *mut PJRT_FulfillAliasBufferCallback,
}

impl Alias {
    fn new(client: *mut PJRT_Client, dims: &[i64]) -> Self {
        let mut args = PJRT_Client_CreateAliasBuffer_Args {
            client,
            memory: first_memory(client),
            shape_dims: dims.as_ptr(),
            shape_num_dims: dims.len(),
            shape_element_type: PJRT_Buffer_Type::F32,
            ..PJRT_Client_CreateAliasBuffer_Args::new()
        };
        call(&mut args).unwrap();
        Alias {
            client,
            buffer: args.alias_buffer,
            callback: args.fulfill_alias_buffer_cb,
        }
    }

    fn fulfill(&self, buffer: *mut PJRT_Buffer) -> Result<(), Failure> {
        call(&mut PJRT_Client_FulfillAliasBuffer_Args {
            client: self.client,
            buffer,
            fulfill_alias_buffer_cb: self.callback,
            ..PJRT_Client_FulfillAliasBuffer_Args::new()
        })
    }
}

fn map(client: *mut PJRT_Client, address: usize, size: usize) -> Result<(), Failure> {
    call(&mut PJRT_Client_DmaMap_Args {
        client,
        data: std::ptr::without_provenance_mut(address),
        size,
        ..PJRT_Client_DmaMap_Args::new()
    })
}

fn unmap(client: *mut PJRT_Client, address: usize) -> Result<(), Failure> {
    call(&mut PJRT_Client_DmaUnmap_Args {
        client,
        data: std::ptr::without_provenance_mut(address),
        ..PJRT_Client_DmaUnmap_Args::new()
    })
}

fn destroy_client(client: *mut PJRT_Client) {
    call(&mut PJRT_Client_Destroy_Args {
        client,
        ..PJRT_Client_Destroy_Args::new()
    })
    .unwrap();
}

/// The calls of the backend's registration, in order.
#[test]
fn backend_sees_each_map() {
    let client = client("host memory").unwrap();
    map(client, 0x1000, 0x1000).unwrap();
    map(client, 0x2000, 0x800).unwrap();
    unmap(client, 0x1000).unwrap();
    destroy_client(client);
    let calls = [
        ("map", 0x1000, 0x1000),
        ("map", 0x2000, 0x800),
        ("unmap", 0x1000, 0x1000),
        ("unmap", 0x2000, 0x800),
    ];
    let seen = faulty::MAPS.lock().unwrap();
    // Other tests map at higher addresses.
    let seen: Vec<_> = seen
        .iter()
        .filter(|(_, start, _)| *start < 0x8000)
        .collect();
    assert_eq!(seen, calls.iter().collect::<Vec<_>>());
}

#[test]
fn maps_do_not_overlap() {
    let client = client("host memory").unwrap();
    map(client, 0x9000, 0x1000).unwrap();
    for (address, size) in [
        (0x9000, 0x1000),
        (0x8000, 0x1001),
        (0x9fff, 1),
        (0x8000, 0x4000),
    ] {
        map(client, address, size).unwrap_err().expect(
            Code::INVALID_ARGUMENT,
            "overlap 4096 bytes at 0x9000, which are mapped",
        );
    }
    map(client, 0x8000, 0x1000).unwrap();
    map(client, 0xa000, 1).unwrap();
}

#[test]
fn empty_maps_are_refused() {
    let client = client("host memory").unwrap();
    for (address, size) in [(0, 1), (0x9000, 0), (usize::MAX, 2)] {
        let failure = map(client, address, size).unwrap_err();
        failure.expect(Code::INVALID_ARGUMENT, "are no memory to map");
    }
}

#[test]
fn memory_is_unmapped_once() {
    let client = client("host memory").unwrap();
    map(client, 0x9000, 0x1000).unwrap();
    let expect = |failure: Failure| {
        failure.expect(Code::INVALID_ARGUMENT, "is not the start of mapped memory");
    };
    expect(unmap(client, 0x9001).unwrap_err());
    unmap(client, 0x9000).unwrap();
    expect(unmap(client, 0x9000).unwrap_err());
    map(client, 0x9000, 0x1000).unwrap();
}

#[test]
fn failed_maps_leave_nothing() {
    let panics = client("host memory: map").unwrap();
    let failure = map(panics, 0x9000, 0x1000).unwrap_err();
    failure.expect(Code::INTERNAL, "fault in host memory: map");
    unmap(panics, 0x9000)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "not the start of mapped memory");
    let stuck = client("host memory: unmap").unwrap();
    map(stuck, 0x9000, 0x1000).unwrap();
    for _ in 0..2 {
        let failure = unmap(stuck, 0x9000).unwrap_err();
        failure.expect(Code::INTERNAL, "the page is lost");
    }
    destroy_client(stuck);
}

#[test]
fn backend_without_host_memory_maps_nothing() {
    let client = client("").unwrap();
    let missing = "not implemented by this plugin";
    map(client, 0x9000, 0x1000)
        .unwrap_err()
        .expect(Code::UNIMPLEMENTED, missing);
    unmap(client, 0x9000)
        .unwrap_err()
        .expect(Code::UNIMPLEMENTED, missing);
}
