//! TFRecord files in any order, and `tf.train.Example`.

use std::{fs, path::Path};

use halite_core::{DType, TensorType};
use halite_data::{
    Dataset, Field, Loader, LoaderOptions,
    records::{Example, IndexedRecords, Records, write_record},
};
use proptest::prelude::*;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/records");

fn write(path: &Path, payloads: &[&[u8]]) {
    let mut file = Vec::new();
    for payload in payloads {
        write_record(&mut file, payload).unwrap();
    }
    fs::write(path, file).unwrap();
}

#[test]
fn examples_of_another_writer_are_read() {
    let path = Path::new(GOLDEN).join("examples.tfrecord");
    let records = IndexedRecords::open([&path]).unwrap();
    assert_eq!(records.len(), 5);
    for i in [3usize, 0, 4, 1, 2] {
        let example = Example::parse(&records.read(i).unwrap()).unwrap();
        let names: Vec<&str> = example.names().collect();
        assert_eq!(names, ["image/encoded", "label", "scores"]);
        assert_eq!(
            example.bytes("image/encoded").unwrap(),
            [vec![i as u8; 3 * i]]
        );
        assert_eq!(example.integers("label").unwrap(), [i as i64 - 2]);
        assert_eq!(
            example.floats("scores").unwrap(),
            [0.5 * i as f32, -1.25, 3e38]
        );
        assert_eq!(Example::parse(&example.encode()).unwrap(), example);
    }
}

#[test]
fn index_is_that_of_another_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("examples.tfrecord");
    fs::copy(Path::new(GOLDEN).join("examples.tfrecord"), &path).unwrap();
    let records = IndexedRecords::open([&path]).unwrap();
    records.write_index().unwrap();
    let index = |dir: &Path| fs::read_to_string(dir.join("examples.tfrecord.idx")).unwrap();
    assert_eq!(index(dir.path()), index(Path::new(GOLDEN)));
}

#[test]
fn records_of_several_files_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
    write(&paths[0], &[b"0", b"1"]);
    write(&paths[1], &[]);
    write(&paths[2], &[b"2"]);
    let number = || [Field::new("number", TensorType::new(DType::U8, [1]))];
    let open = || IndexedRecords::open(&paths).unwrap();
    let data = open().dataset(number(), |payload, into| into.write(0, payload));
    let digest = data.digest();
    let loader = Loader::new(data, LoaderOptions::new(3)).unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.arrays[0].as_slice::<u8>().unwrap(), b"012");
    let wrong = open().dataset(number(), |_, into| into.write(0, b"ab"));
    assert_eq!(wrong.digest(), digest);
    let error = Loader::new(wrong, LoaderOptions::new(3)).unwrap();
    let error = error.epoch(0).next().unwrap().unwrap_err();
    let text = format!("{error:#} {error:?}");
    assert!(text.contains("record 0"), "{text}");
}

#[test]
fn damage_and_foreign_indices_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    write(&path, &[b"one", b"three"]);
    let whole = fs::read(&path).unwrap();
    let open = || IndexedRecords::open([&path]).map_err(|error| error.to_string());
    for end in (1..whole.len()).filter(|&end| end != 19) {
        fs::write(&path, &whole[..end]).unwrap();
        let error = open().unwrap_err();
        assert!(error.contains("data: record "), "{end}: {error}");
    }
    let mut damaged = whole.clone();
    damaged[19 + 12] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let records = open().unwrap();
    assert_eq!(records.read(0).unwrap(), b"one");
    let error = records.read(1).unwrap_err().to_string();
    assert!(
        error.contains("record 1, at byte 19, has another checksum"),
        "{error}"
    );

    fs::write(&path, &whole).unwrap();
    for index in [
        "0 19",
        "0 19\n19 20\n",
        "0 20\n20 20\n",
        "5 19\n",
        "0 40\n",
        "x\n",
        "0 18446744073709551615\n",
    ] {
        fs::write(dir.path().join("data.idx"), index).unwrap();
        match open() {
            Err(error) => assert!(error.contains("data.idx: "), "{index}: {error}"),
            // A right end with other borders shows when a record is read.
            Ok(records) => assert!(records.read(0).is_err(), "{index}"),
        }
    }
    fs::write(dir.path().join("data.idx"), "0 19\n19 21\n").unwrap();
    assert_eq!(open().unwrap().read(1).unwrap(), b"three");
    assert!(IndexedRecords::open([] as [&str; 0]).is_err());
}

#[test]
fn compressed_records_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.tfrecord");
    for (start, name) in [
        (&b"\x1f\x8b\x08\0"[..], "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ] {
        let file = [start, &[0; 30]].concat();
        fs::write(&path, &file).unwrap();
        let error = IndexedRecords::open([&path]).unwrap_err().to_string();
        let part = format!("data.tfrecord: it is compressed with {name}");
        assert!(error.contains(&part), "{error}");
        let error = Records::new(&file[..])
            .next()
            .unwrap()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("it is compressed with {name}")),
            "{error}"
        );
    }
    // A length of these bytes is one.
    let payload = vec![7; 0x08_8b_1f];
    let mut file = Vec::new();
    write_record(&mut file, &payload).unwrap();
    assert_eq!(file[..3], [0x1f, 0x8b, 8]);
    fs::write(&path, file).unwrap();
    assert_eq!(
        IndexedRecords::open([&path]).unwrap().read(0).unwrap(),
        payload
    );
}

#[test]
fn missing_features_list_what_there_is() {
    let mut example = Example::default();
    example.set_integers("label", [1]);
    let error = example.bytes("image").unwrap_err().to_string();
    assert!(
        error.contains("no feature `image`; there are [label]"),
        "{error}"
    );
    let error = example.floats("label").unwrap_err().to_string();
    assert!(
        error.contains("`label` has integers; floats requested"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(example) = Example::parse(&bytes) {
            prop_assert_eq!(Example::parse(&example.encode()).unwrap().names().count() <= bytes.len(), true);
        }
    }

    #[test]
    fn examples_come_back(
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..3),
        floats in prop::collection::vec(-1e30f32..1e30, 0..5),
        integers in prop::collection::vec(any::<i64>(), 0..5),
    ) {
        let mut example = Example::default();
        example.set_bytes("b", bytes);
        example.set_floats("f", floats);
        example.set_integers("i", integers);
        prop_assert_eq!(Example::parse(&example.encode()).unwrap(), example);
    }
}
