//! Arrays of NumPy and safetensors, lines of JSON and files of tokens, by other writers
//! (`golden/files/make.py`), and damaged ones.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use halite_core::{DType, ErrorKind, HostArray, Result, TensorType};
use halite_data::{
    ArrayFile, Dataset, DatasetExt, Field, JsonLines, Rows,
    records::{Example, IndexedRecords, write_record},
    text::TokenFile,
};
use halite_weights::{SafetensorsWriter, TensorInfo};
use serde::Deserialize;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/files")
        .join(name)
}

/// All samples, field by field.
fn all(dataset: &dyn Dataset) -> Vec<HostArray> {
    let mut rows = Rows::zeros(dataset.fields(), dataset.len()).unwrap();
    for index in (0..dataset.len()).rev() {
        dataset.read(index, &mut rows.sample_mut(index)).unwrap();
    }
    rows.into_arrays()
}

/// Checks the fields `image` and `score` of the golden files.
#[track_caller]
fn check(dataset: &dyn Dataset) {
    let arrays = all(dataset);
    assert_eq!(arrays[0].ty().to_string(), "u8[4, 2, 3]");
    assert!((0..24).eq(arrays[0].bytes().iter().copied()));
    assert_eq!(arrays[1].as_slice::<f32>().unwrap(), [-1.0, -0.5, 0.0, 0.5]);
}

#[track_caller]
fn fails<T>(result: Result<T>, parts: &[&str]) {
    let text = match result {
        Ok(_) => panic!("no error with {parts:?}"),
        Err(error) => format!("{error:#} {error:?}"),
    };
    for part in parts {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn arrays_of_other_writers_are_datasets() {
    for name in [
        "samples.npz",
        "compressed.npz",
        "columns.npz",
        "samples.safetensors",
    ] {
        check(&ArrayFile::open_fields(golden(name), ["image", "score"]).unwrap());
    }
    let score = ArrayFile::open_fields(golden("samples.npz"), ["score"]).unwrap();
    check(
        &ArrayFile::open(golden("image.npy"))
            .unwrap()
            .zip(score)
            .unwrap(),
    );
}

#[test]
fn array_file_is_checked_when_opened() {
    fails(
        ArrayFile::open(golden("objects.npy")),
        &["objects.npy", "|O"],
    );
    fails(ArrayFile::open(golden("none.npy")), &["none.npy"]);
    let open = |name| ArrayFile::open_fields(golden("samples.npz"), [name]);
    fails(open("scores"), &["samples.npz", "did you mean `score`?"]);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    let array = |dims: &[usize]| {
        let zeros = HostArray::zeros(TensorType::new(DType::U8, dims));
        halite_weights::npy::write(&zeros)
    };
    for (bytes, part) in [
        (Vec::new(), "the file is empty"),
        (array(&[]), "`a` is a scalar"),
        (array(&[0, 3]), "`a` has no rows"),
        (array(&[5])[..130].to_vec(), "needs 5"),
        (array(&[5])[..40].to_vec(), "header"),
    ] {
        fs::write(&path, bytes).unwrap();
        fails(ArrayFile::open(&path), &["a.npy", part]);
    }
    let path = dir.path().join("ab.safetensors");
    let arrays = [("a", 2), ("b", 3)]
        .map(|(name, rows)| (name, HostArray::zeros(TensorType::new(DType::U8, [rows]))));
    let infos = arrays.clone().map(|(name, array)| TensorInfo {
        name: name.to_owned(),
        ty: array.ty().clone(),
    });
    let mut writer = SafetensorsWriter::create(&path, &infos, &BTreeMap::new()).unwrap();
    arrays
        .iter()
        .for_each(|(_, array)| writer.write(array).unwrap());
    writer.finish().unwrap();
    let parts = [
        "ab.safetensors: `b` is u8[3], and `a` has 2 rows",
        "`open_fields`",
    ];
    fails(ArrayFile::open(&path), &parts);
    assert_eq!(ArrayFile::open_fields(&path, ["b"]).unwrap().len(), 3);
}

#[test]
fn file_cut_off_later_names_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    fs::copy(golden("image.npy"), &path).unwrap();
    let data = ArrayFile::open(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(128 + 10).unwrap();
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    data.read(0, &mut rows.sample_mut(0)).unwrap();
    let read = data.read(2, &mut rows.sample_mut(0));
    assert_eq!(read.as_ref().unwrap_err().kind(), ErrorKind::Io);
    fails(read, &["row 2 of `a`", "a.npy"]);
}

#[derive(Deserialize)]
struct Row {
    image: [[u8; 3]; 2],
    score: f32,
}

fn fields() -> [Field; 2] {
    let image = Field::new("image", TensorType::new(DType::U8, [2, 3]));
    [image, Field::new("score", TensorType::scalar(DType::F32))]
}

fn lines(paths: &[PathBuf]) -> Result<impl Dataset + use<>> {
    let write = |row: Row, into: &mut halite_data::SampleMut<'_>| {
        into.write(0, row.image.as_flattened())?;
        into.write(1, &[row.score])
    };
    Ok(JsonLines::open(paths)?.dataset(fields(), write))
}

#[test]
fn json_lines_are_a_dataset() {
    check(&lines(&[golden("samples.jsonl")]).unwrap());
}

#[test]
fn json_lines_of_several_files_follow_each_other() {
    let text = fs::read_to_string(golden("samples.jsonl")).unwrap();
    let (first, second) = text.split_at(text.find("\r\n").unwrap());
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    fs::write(&paths[0], first).unwrap();
    // Without a line end.
    fs::write(&paths[1], second.trim_end()).unwrap();
    check(&lines(&paths).unwrap());
}

#[test]
fn json_errors_have_file_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl");
    let good = r#"{"image": [[1, 2, 3], [4, 5, 6]], "score": 1}"#;
    for (line, parts) in [
        (&good[..20], &["a.jsonl: line 3: column 20: EOF"][..]),
        ("{}", &["line 3", "missing field `image`"]),
        (r#"{"image": 7}"#, &["line 3", "column 11", "integer `7`"]),
        (r#"{"image": [[1, 2, 3], [4, 5, 256]]}"#, &["line 3", "256"]),
        ("\u{1}", &["line 3"]),
        ("[", &["line 3"]),
    ] {
        fs::write(&path, format!("{good}\n\n{line}\n")).unwrap();
        let data = lines(std::slice::from_ref(&path)).unwrap();
        assert_eq!(data.len(), 2);
        let mut rows = Rows::zeros(data.fields(), 1).unwrap();
        data.read(0, &mut rows.sample_mut(0)).unwrap();
        fails(data.read(1, &mut rows.sample_mut(0)), parts);
    }
    for empty in ["", "\n \r\n"] {
        fs::write(&path, empty).unwrap();
        fails(JsonLines::open([&path]), &["a.jsonl: it is empty"]);
    }
    fs::write(&path, [b'"', 0xff, b'"']).unwrap();
    let read = JsonLines::open([&path]).unwrap().read::<String>(0);
    fails(read, &["a.jsonl: line 1"]);
    fs::write(&path, "[".repeat(1 << 20)).unwrap();
    let deep = JsonLines::open([&path]).unwrap();
    fails(deep.read::<serde_json::Value>(0), &["recursion limit"]);
    fails(JsonLines::open([dir.path()]), &["not a plain file"]);
    fs::write(&path, b"\x1f\x8b\x08\0\0\0").unwrap();
    fails(
        JsonLines::open([&path]),
        &["a.jsonl: it is compressed with gzip, and damaged or cut off"],
    );
    fs::write(&path, b"\x28\xb5\x2f\xfd\0\0").unwrap();
    fails(
        JsonLines::open([&path]),
        &["a.jsonl: it is compressed with zstd; decompress it"],
    );
    fails(JsonLines::open([] as [&str; 0]), &["no files"]);
}

#[test]
fn compressed_lines_records_and_tokens_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let gzipped = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        let file = fs::File::create(&path).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap();
        path
    };
    let path = gzipped("a.jsonl.gz", &fs::read(golden("samples.jsonl")).unwrap());
    check(&lines(&[path]).unwrap());

    let mut records = Vec::new();
    for payload in ["one", "two", "three"] {
        write_record(&mut records, payload.as_bytes()).unwrap();
    }
    let path = gzipped("data.tfrecord.gz", &records);
    for _ in 0..2 {
        let records = IndexedRecords::open([&path]).unwrap();
        assert_eq!(records.read(2).unwrap(), b"three");
        assert_eq!(records.read(0).unwrap(), b"one");
        // Its places are those of the content.
        records.write_index().unwrap();
    }

    let path = gzipped("tokens.bin.gz", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
    let windows = TokenFile::open(&path, DType::U16, 2).unwrap();
    assert_eq!(windows.tokens(), 5);
    let arrays = all(&windows);
    assert_eq!(arrays[0].as_slice::<u32>().unwrap(), [1, 2, 3, 3, 4, 5]);
}

#[test]
fn errors_of_writing_name_the_line() {
    let open = JsonLines::open([golden("samples.jsonl")]).unwrap();
    let data = open.dataset(fields(), |row: Row, into| into.write(1, &row.image[0]));
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    fails(
        data.read(3, &mut rows.sample_mut(0)),
        &["samples.jsonl: line 5", "taken for u8"],
    );
}

#[test]
fn tokens_of_numpy_are_windows() {
    for (name, dtype) in [
        ("tokens_u16.bin", DType::U16),
        ("tokens_u32.bin", DType::U32),
    ] {
        let data = TokenFile::open(golden(name), dtype, 5).unwrap();
        assert_eq!(data.tokens(), 11);
        let expected = [0u32, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10].map(|token| 6000 * token);
        assert_eq!(all(&data)[0].as_slice::<u32>().unwrap(), expected);
    }
}

#[test]
fn token_files_are_checked() {
    let open = |name, dtype, length| TokenFile::open(golden(name), dtype, length);
    let odd = &["tokens_u16.bin", "22 bytes are not a whole number of u32"];
    fails(open("tokens_u16.bin", DType::U32, 1), odd);
    fails(
        open("tokens_u16.bin", DType::U8, 1),
        &["expected u16 or u32"],
    );
    fails(
        open("tokens_u16.bin", DType::U16, 11),
        &["context of at most 10"],
    );
    fails(open("tokens_u16.bin", DType::U16, 0), &["at least 1"]);
    fails(open("none.bin", DType::U16, 1), &["none.bin"]);
    let data = open("tokens_u16.bin", DType::U16, 3).unwrap();
    let data = data.with_vocabulary(50_000);
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    data.read(0, &mut rows.sample_mut(0)).unwrap();
    let part = "token 9 is 54000, and the vocabulary has 50000";
    fails(
        data.read(2, &mut rows.sample_mut(0)),
        &["tokens_u16.bin", part],
    );

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.bin");
    let large = TokenFile::write(&path, &[1, 65_536], DType::U16);
    fails(large, &["a.bin: token 1 is 65536"]);
    assert!(!path.exists());
}

/// Files of halite's writers. `golden/files/verify.py` reads those in `HALITE_SAVED` with other
/// packages.
#[test]
fn written_files_come_back() {
    let temporary = tempfile::tempdir().unwrap();
    let saved = std::env::var_os("HALITE_SAVED").map(PathBuf::from);
    let dir = saved.unwrap_or_else(|| temporary.path().to_owned());
    let path = |name: &str| dir.join(name);

    let mut records = Vec::new();
    for i in 0..4i64 {
        let mut example = Example::default();
        example.set_bytes("image", [vec![i as u8; 3 * i as usize], b"two".to_vec()]);
        example.set_floats("scores", [0.5 * i as f32, -1.25, 3e38]);
        example.set_integers("label", [i - 2, i64::MIN]);
        write_record(&mut records, &example.encode()).unwrap();
    }
    fs::write(path("examples.tfrecord"), records).unwrap();
    let records = IndexedRecords::open([path("examples.tfrecord")]).unwrap();
    records.write_index().unwrap();
    let indexed = IndexedRecords::open([path("examples.tfrecord")]).unwrap();
    let example = Example::parse(&indexed.read(3).unwrap()).unwrap();
    assert_eq!(example.integers("label").unwrap(), [1, i64::MIN]);

    let golden = ArrayFile::open_fields(golden("samples.npz"), ["image", "score"]).unwrap();
    for (field, array) in golden.fields().iter().zip(all(&golden)) {
        let path = path(&format!("{}.npy", field.name));
        fs::write(&path, halite_weights::npy::write(&array)).unwrap();
        assert_eq!(all(&ArrayFile::open(path).unwrap()), [array]);
    }
    let tokens = [0, 65_535, 7];
    TokenFile::write(path("tokens.bin"), &tokens, DType::U16).unwrap();
    let written = TokenFile::open(path("tokens.bin"), DType::U16, 2).unwrap();
    assert_eq!(all(&written)[0].as_slice::<u32>().unwrap(), tokens);
}
