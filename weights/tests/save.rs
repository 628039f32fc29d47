//! Saving: files of an earlier save, order of tensors, files that others left.

use std::{collections::BTreeMap, fs, path::Path};

use halite_core::{Array, Client, DType, HostArray, Tree};
use halite_embedded::{Embedded, Options};
use halite_nn::{Linear, Model, Param};
use halite_weights::{
    NameMap, SafetensorsWriter, TensorInfo, TensorSource, WeightLoader, WeightSaver, open,
};

fn client() -> Client {
    Client::new(Embedded::new(&Options::default()).unwrap())
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn files_of_an_earlier_save_are_replaced() {
    let (client, map) = (client(), NameMap::torch());
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    let model = [Linear::new(4, 4), Linear::new(4, 4), Linear::new(4, 4)].to_vec();
    for (seed, file_bytes, expected) in [
        (1, 64, 7),
        (2, 1 << 30, 1),
        (3, 80, 4),
        (4, 160, 3),
        (5, 64, 7),
    ] {
        let values = model.initialize(&client, seed).unwrap();
        WeightSaver::new(&map)
            .file_bytes(file_bytes)
            .save_directory(&model, &values, dir.path())
            .unwrap();
        let saved = open(dir.path()).unwrap();
        for (number, layer) in values.iter().enumerate() {
            let bias = saved.read(&format!("{number}.bias")).unwrap();
            assert_eq!(bias, layer.bias.as_ref().unwrap().read().unwrap());
            let weight = saved.read(&format!("{number}.weight")).unwrap();
            assert_eq!(weight.as_slice::<f32>().unwrap()[1], at(&layer.weight, 4));
        }
        assert_eq!(
            names_in(dir.path()).len(),
            1 + expected,
            "{:?}",
            names_in(dir.path())
        );
    }
}

fn at(array: &Array, index: usize) -> f32 {
    array.to_vec::<f32>().unwrap()[index]
}

#[test]
fn dtypes_that_are_not_floats_are_refused() {
    let (client, map) = (client(), NameMap::torch());
    let model = Linear::new(2, 2);
    let values = model.initialize(&client, 1).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let error = WeightSaver::new(&map)
        .dtype(DType::S32)
        .save(&model, &values, &path)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "save weights: dtype s32: expected f16, bf16, f32 or f64"
    );
    WeightSaver::new(&map).save(&model, &values, &path).unwrap();
    let file = open(&path).unwrap();
    let error = WeightLoader::new(&file, &map)
        .stored_as(DType::S32)
        .load(&client, &model)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "load weights: stored_as s32: expected f16, bf16, f32 or f64"
    );
}

/// Readers that cast a mapped file need each tensor at a multiple of its element size.
#[test]
fn saved_tensors_are_aligned() {
    let client = client();
    let narrow = Linear::<Param>::new(2, 1).map_leaves(|_, param| param.with_dtype(DType::F16));
    let model = [narrow, Linear::new(3, 1)].to_vec();
    let values = model.initialize(&client, 1).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    WeightSaver::new(&NameMap::torch())
        .save(&model, &values, &path)
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    for tensor in open(&path).unwrap().tensors() {
        let start = header[&tensor.name]["data_offsets"][0].as_u64().unwrap();
        assert_eq!(
            start % tensor.ty.dtype().size() as u64,
            0,
            "{}",
            tensor.name
        );
    }
}

/// A link in the place of the temporary file, which leads to a file of another user.
#[test]
#[cfg(unix)]
fn links_are_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    for ending in ["tmp".to_owned(), format!("{}.tmp", std::process::id())] {
        let link = dir.path().join(format!(".model.safetensors.{ending}"));
        std::os::unix::fs::symlink(&victim, link).unwrap();
    }
    let array = HostArray::scalar(1.0f32);
    let infos = [TensorInfo {
        name: "a".into(),
        ty: array.ty().clone(),
    }];
    let path = dir.path().join("model.safetensors");
    let mut writer = SafetensorsWriter::create(&path, &infos, &BTreeMap::new()).unwrap();
    writer.write(&array).unwrap();
    writer.finish().unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
    assert_eq!(open(&path).unwrap().read("a").unwrap(), array);
}
