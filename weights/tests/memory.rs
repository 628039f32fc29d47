//! Host memory of loading. Alone in its process, whose peak it measures.
#![cfg(target_os = "linux")]

use std::{collections::BTreeMap, fs, fs::File, io::Write};

use halite_core::{Client, DType, Null, Tree};
use halite_nn::{Linear, Param};
use halite_weights::{NameMap, WeightLoader, open};

/// Largest memory that this process had so far, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

#[test]
fn loading_takes_the_largest_shard() {
    const LAYERS: usize = 12;
    const SIDE: usize = 4096;
    let bytes = SIDE * SIDE * 4;
    // A file of 800 MB that takes none of the disk: what was not written is zeros.
    let entry = |layer: usize| {
        let (start, end) = (layer * bytes, (layer + 1) * bytes);
        let entry = serde_json::json!({"dtype": "F32", "shape": [SIDE, SIDE], "data_offsets": [start, end]});
        (format!("{layer}.weight"), entry)
    };
    let header: BTreeMap<_, _> = (0..LAYERS).map(entry).collect();
    let header = serde_json::to_vec(&header).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.safetensors");
    let mut file = File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(&header).unwrap();
    file.set_len((8 + header.len() + LAYERS * bytes) as u64)
        .unwrap();

    // Nothing is stored on its device, so that all memory is that of loading.
    let client = Client::new(Null::new(1));
    let (file, names) = (open(&path).unwrap(), NameMap::torch());
    let model: Vec<Linear<Param>> = (0..LAYERS)
        .map(|_| Linear::new(SIDE, SIDE).without_bias())
        .collect();
    let narrow = model
        .clone()
        .map_leaves(|_, param| param.with_dtype(DType::Bf16));
    let before = peak();
    for model in [model, narrow] {
        WeightLoader::new(&file, &names)
            .load(&client, &model)
            .unwrap();
    }
    let used = peak() - before;
    assert!(
        used < bytes + 100_000_000,
        "{used} bytes for shards of {bytes}"
    );
}
