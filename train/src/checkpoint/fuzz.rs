//! Fuzzing of the parsers of checkpoints: see [`fuzz`](crate::fuzz).

use std::{fs, path::Path};

use halite_core::{DType, HostArray, Result, TensorType};

use super::{
    RunPosition,
    arrays::{self, ArrayFile},
    digest,
    manifest::{ArrayEntry, BestBy, Contents, FileEntry, Manifest, PartEntry},
};

const FILE: &str = "arrays.safetensors";

pub(crate) fn manifest(data: &[u8]) -> bool {
    let Ok(manifest) = Manifest::parse(data) else {
        return false;
    };
    let printed = manifest.to_bytes().expect("what was parsed is written");
    let again = Manifest::parse(&printed).and_then(|again| again.to_bytes());
    assert_eq!(again.ok(), Some(printed), "a manifest survives printing");
    true
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let of = |contents: Contents| Manifest::new(contents).to_bytes().expect("it is small");
    let empty = || Contents {
        sequence: 0,
        position: RunPosition::default(),
        seed: 0,
        best: None,
        arrays: Vec::new(),
        files: Vec::new(),
        metadata: serde_json::Value::Null,
    };
    let full = Contents {
        sequence: 7,
        position: RunPosition {
            step: 3,
            epoch: 1,
            batch: 2,
        },
        seed: u64::MAX,
        best: Some(BestBy::new("loss", -0.25)),
        arrays: vec![
            ArrayEntry::new("model.w", &TensorType::new(DType::F32, [2, 3]), FILE),
            ArrayEntry::new("model.b", &TensorType::new(DType::Bf16, [0]), FILE),
        ],
        files: vec![FileEntry::new(FILE, 32, vec!["00".into()])],
        metadata: serde_json::json!({ "any": ["thing", 1.5, {"deep": null}] }),
    };
    let part = |file: &str, start, end| PartEntry {
        file: file.to_string(),
        start,
        end,
    };
    let parts = vec![part(FILE, 0, 4), part("other", 4, 6)];
    let w = TensorType::new(DType::F32, [2, 3]);
    let divided = Contents {
        arrays: vec![ArrayEntry::divided("model.w", &w, parts)],
        files: [FILE, "other"]
            .map(|file| FileEntry::new(file, 32, vec!["00".into()]))
            .into(),
        ..empty()
    };
    vec![of(empty()), of(full), of(divided)]
}

fn write(folder: &Path, name: &str, arrays: &[(String, HostArray)]) -> FileEntry {
    let types: Vec<_> = (arrays.iter())
        .map(|(name, array)| (&**name, array.ty()))
        .collect();
    arrays::write(folder, name, &types, |index| Ok(&arrays[index].1)).expect("it can be written")
}

fn read(
    folder: &Path,
    entry: &FileEntry,
    wanted: &[ArrayEntry],
) -> Result<Vec<(String, HostArray)>> {
    let file = ArrayFile::open_verified(folder, entry)?;
    let located = file.arrays()?;
    arrays::check_types(&entry.name, &located, wanted.iter())?;
    let piece = |array: &arrays::Located| arrays::Piece {
        file: &file,
        offset: array.offset,
        bytes: array.ty.bytes(),
    };
    let places = (located.iter()).map(|array| (&array.ty, vec![piece(array)]));
    let arrays = arrays::read(&places.collect::<Vec<_>>())?;
    Ok(located
        .into_iter()
        .map(|array| array.name)
        .zip(arrays)
        .collect())
}

/// `scratch` is a directory of this thread's alone.
pub(crate) fn safetensors(data: &[u8], scratch: &Path) -> bool {
    fs::write(scratch.join(FILE), data).expect("the scratch directory can be written");
    let digests = data.chunks(digest::CHUNK as usize).map(digest::of_chunk);
    let entry = FileEntry::new(FILE, data.len() as u64, digests.collect());
    // What the file itself says of its arrays, in the words of a manifest.
    let header = safetensors::SafeTensors::read_metadata(data).ok();
    let types = header
        .iter()
        .flat_map(|(_, header)| header.tensors())
        .filter_map(|(name, info)| {
            let dtype = DType::from_safetensors_name(&info.dtype.to_string())?;
            Some(ArrayEntry::new(
                &name,
                &TensorType::new(dtype, &info.shape),
                FILE,
            ))
        });
    let wanted: Vec<ArrayEntry> = types.collect();
    let Ok(found) = read(scratch, &entry, &wanted) else {
        return false;
    };

    const COPY: &str = "copy.safetensors";
    let copy = scratch.join(COPY);
    let _ = fs::remove_file(&copy);
    let written = write(scratch, COPY, &found);
    let listed: Vec<ArrayEntry> = found
        .iter()
        .map(|(name, array): &(String, HostArray)| ArrayEntry::new(name, array.ty(), COPY))
        .collect();
    let mut again = read(scratch, &written, &listed).expect("what is written is read");
    let mut found = found;
    let by_name = |a: &(String, HostArray), b: &(String, HostArray)| a.0.cmp(&b.0);
    found.sort_by(by_name);
    again.sort_by(by_name);
    assert!(found == again, "arrays survive writing");
    true
}

pub(crate) fn safetensors_seeds(scratch: &Path) -> Vec<Vec<u8>> {
    let zeros = |dtype, dims: &[usize]| HostArray::zeros(TensorType::new(dtype, dims));
    let sets = [
        vec![
            ("w".to_owned(), zeros(DType::F32, &[2, 3])),
            ("b".to_owned(), zeros(DType::Bf16, &[3])),
        ],
        vec![
            ("scalar".to_owned(), zeros(DType::F64, &[])),
            ("none".to_owned(), zeros(DType::Bool, &[0, 4])),
        ],
    ];
    let file = |set: &Vec<(String, HostArray)>| {
        let path = scratch.join("seed.safetensors");
        let _ = fs::remove_file(&path);
        write(scratch, "seed.safetensors", set);
        fs::read(path).expect("it was written")
    };
    sets.iter().map(file).collect()
}
