//! Page-locked host memory: its registration with a plugin, and the end of it.

use std::{fs, path::Path, sync::Arc, thread, time::Duration};

use halite_core::{AlignedBytes, Client, DType, ErrorKind, HostBytes, PinnedPool, TensorType};
use tempfile::TempDir;

use crate::common::*;

/// A client of the CPU plugin with functions for host memory, which write their calls to a file.
struct Mapping {
    client: Client,
    directory: TempDir,
}

impl Mapping {
    /// `map` and `unmap` are statements of C that may return an error, `refuse()`. `calls` is the
    /// number of this call.
    fn new(name: &str, map: &str, unmap: &str) -> Self {
        let directory = directory();
        let code = format!(
            r#"
            struct map {{ size_t struct_size; void* extension; void* client; char* data; size_t size; }};
            struct unmap {{ size_t struct_size; void* extension; void* client; char* data; }};
            static int calls;
            static FILE* log_file(void) {{ calls++; return fopen("{}", "a"); }}
            /* An error of the real plugin: the size is wrong. */
            static void* refuse(void) {{ size_t wrong[8] = {{1}}; return REAL(PJRT_Event_IsReady)(wrong); }}
            static void* map(struct map* args) {{
                FILE* file = log_file();
                fprintf(file, "map %p %zu\n", args->data, args->size);
                fclose(file);
                {map}
                return 0;
            }}
            static void* unmap(struct unmap* args) {{
                FILE* file = log_file();
                fprintf(file, "unmap %p\n", args->data);
                fclose(file);
                {unmap}
                return 0;
            }}
            static void replace(void** table) {{
                table[PJRT_Client_DmaMap] = map;
                table[PJRT_Client_DmaUnmap] = unmap;
            }}
            "#,
            calls(directory.path())
        );
        let names = [
            "PJRT_Client_DmaMap",
            "PJRT_Client_DmaUnmap",
            "PJRT_Event_IsReady",
        ];
        let plugin = shim(directory.path(), name, &names, &code);
        let client = plugin.client(vec![("cpu_device_count".into(), 1i64.into())]);
        Mapping {
            client: Client::new(client.unwrap()),
            directory,
        }
    }

    /// The calls so far: `map 64` for one of 64 KiB, `unmap` for one of the first that is mapped.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(calls(self.directory.path())).unwrap_or_default();
        let mut mapped = Vec::new();
        let call = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["map", address, bytes] => {
                mapped.push(address.to_owned());
                format!("map {}", bytes.parse::<usize>().unwrap() >> 10)
            }
            ["unmap", address] => {
                let place = mapped.iter().position(|known| known == address);
                format!("unmap {:?}", place.expect("an unknown address is unmapped"))
            }
            _ => panic!("{line}"),
        };
        text.lines().map(call).collect()
    }
}

fn calls(directory: &Path) -> String {
    directory.join("calls").display().to_string()
}

fn bytes_of(len: usize) -> TensorType {
    ty(DType::U8, &[len])
}

#[test]
fn cpu_plugin_has_no_pinned_memory() {
    let client = Client::new(cpu(1));
    assert!(client.pinned_memory(4096).unwrap().is_none());
    assert!(PinnedPool::new(&client, 1 << 20).unwrap().is_none());
}

#[test]
fn memory_is_mapped_in_whole_pages() {
    let mapping = Mapping::new("pages", "", "");
    for (len, kilobytes) in [(0, 64), (1, 64), (65_536, 64), (65_537, 128)] {
        let memory: AlignedBytes = mapping.client.pinned_memory(len).unwrap().unwrap();
        assert_eq!(memory.as_ref(), vec![0; len]);
        assert_eq!(memory.as_ref().as_ptr().align_offset(65_536), 0);
        assert_eq!(mapping.calls().last(), Some(&format!("map {kilobytes}")));
    }
    assert_eq!(mapping.calls().len(), 8);
}

#[test]
fn memory_is_unmapped_after_its_upload() {
    let mapping = Mapping::new("order", "", "");
    let mut memory = mapping.client.pinned_memory(4096).unwrap().unwrap();
    memory.as_mut().fill(7);
    let shared = HostBytes::Shared(Arc::new(memory));
    let device = mapping.client.local_devices()[0];
    let upload = mapping
        .client
        .upload(shared, &bytes_of(4096), device.into());
    let there = upload.unwrap();
    let client = mapping.client.clone();
    let mut read = [0; 4096];
    there.first().read(&mut read).unwrap();
    assert_eq!(read, [7; 4096]);
    // The buffer uses the bytes in place.
    assert_eq!(mapping.calls(), ["map 64"]);
    drop((client, there));
    wait_for(&mapping, &["map 64", "unmap 0"]);
}

#[test]
fn memory_outlives_its_client() {
    let Mapping { client, directory } = Mapping::new("last", "", "");
    let mut memory = client.pinned_memory(4096).unwrap().unwrap();
    let held = Mapping {
        client: Client::new(halite_core::Null::new(1)),
        directory,
    };
    drop(client);
    memory.as_mut().fill(7);
    assert_eq!(held.calls(), ["map 64"]);
    drop(memory);
    assert_eq!(held.calls(), ["map 64", "unmap 0"]);
}

#[test]
fn pool_maps_once_for_many_uploads() {
    let mapping = Mapping::new("pool", "", "");
    let pool = PinnedPool::new(&mapping.client, 1 << 20).unwrap().unwrap();
    let device = mapping.client.local_devices()[0];
    for round in 0..20u8 {
        let mut batch = pool.zeros(bytes_of(100_000)).unwrap();
        batch.bytes_mut().fill(round);
        let shared = HostBytes::Shared(Arc::new(batch));
        let there = mapping
            .client
            .upload(shared, &bytes_of(100_000), device.into());
        let mut read = vec![0; 100_000];
        there.unwrap().first().read(&mut read).unwrap();
        assert_eq!(read, vec![round; 100_000]);
    }
    let mapped = mapping.calls().len();
    // One for the page of `new`; the plugin may return a block late.
    assert!((2..=6).contains(&mapped), "{:?}", mapping.calls());
    drop(pool);
    let unmapped = |calls: &[String]| calls.iter().filter(|call| call.contains("unmap")).count();
    wait(
        || unmapped(&mapping.calls()) == mapped,
        "everything is unmapped",
    );
}

#[test]
fn refused_memory_is_an_error() {
    let mapping = Mapping::new("refused", "return refuse();", "");
    let error = mapping.client.pinned_memory(100_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    assert!(text.starts_with("pin memory on cpu: "), "{text}");
    assert!(text.contains("131072 bytes of host memory"), "{text}");
    assert!(PinnedPool::new(&mapping.client, 1 << 20).is_err());
}

#[test]
fn pool_is_pageable_after_a_failure() {
    let mapping = Mapping::new("later", "if (calls > 2) return refuse();", "");
    let pool = PinnedPool::new(&mapping.client, 1 << 20).unwrap().unwrap();
    let arrays: Vec<_> = (0..4)
        .map(|_| pool.zeros(bytes_of(100_000)).unwrap())
        .collect();
    assert!(arrays.iter().all(|array| array.bytes() == vec![0; 100_000]));
    // The third call fails, and none follows.
    assert_eq!(mapping.calls(), ["map 64", "map 128", "map 128"]);
    assert_eq!(pool.bytes(), 3 << 16);
    drop(arrays);
    assert_eq!(
        pool.zeros(bytes_of(70_000)).unwrap().bytes(),
        vec![0; 70_000]
    );
    assert_eq!(mapping.calls().len(), 3);
}

/// Freeing memory that the driver still has registered would let it read other data.
#[test]
fn memory_stays_if_it_cannot_be_unmapped() {
    let mapping = Mapping::new("stays", "", "return refuse();");
    let first = mapping.client.pinned_memory(1 << 20).unwrap().unwrap();
    let start = first.as_ref().as_ptr();
    drop(first);
    let second = mapping.client.pinned_memory(1 << 20).unwrap().unwrap();
    assert_ne!(second.as_ref().as_ptr(), start);
    assert_eq!(mapping.calls(), ["map 1024", "unmap 0", "map 1024"]);
}

fn wait_for(mapping: &Mapping, calls: &[&str]) {
    wait(|| mapping.calls() == calls, &format!("{calls:?}"));
}

fn wait(happened: impl Fn() -> bool, what: &str) {
    for _ in 0..6000 {
        if happened() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("after a minute, not yet: {what}");
}
