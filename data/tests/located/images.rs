use std::{fs, path::Path};

use halite_data::{
    Dataset, DatasetExt, Key, Loader, LoaderOptions, Rows, Table,
    images::{CT_IDS, CT_LABELS, FakeCt, Framing, ImageFolder, ImageTable, Transforms, read_image},
};

const SMALL: FakeCt = FakeCt {
    studies: 3,
    slices: 4,
    side: 48,
    seed: 7,
};

/// A generated set, its table and its images.
fn small() -> (tempfile::TempDir, Table, ImageTable) {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(SMALL.write(dir.path()).unwrap(), [12, 4]);
    let table = Table::read(dir.path().join("train.csv")).unwrap();
    let images = open(dir.path(), &table).unwrap();
    (dir, table, images)
}

fn open(dir: &Path, table: &Table) -> halite_core::Result<ImageTable> {
    ImageTable::open(dir.join("train"), table, &CT_IDS, Transforms::new(32))?
        .with_labels(table, &CT_LABELS)
}

fn jpeg() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/images/gray.jpg");
    fs::read(path).unwrap()
}

#[test]
fn generated_set_is_read() {
    let (dir, table, images) = small();
    assert_eq!(images.fields()[0].ty.to_string(), "u8[32, 32, 3]");
    assert_eq!(images.fields()[1].ty.to_string(), "f32[10]");
    let path = images.path(5);
    let name = path.file_name().unwrap().to_str().unwrap();
    let id = table.strings(CT_IDS[2]).unwrap()[5];
    assert_eq!(name, format!("0002_{id}.jpg"));
    assert_eq!(read_image(&path).unwrap().ty().to_string(), "u8[48, 48, 3]");
    let loader = Loader::new(images.clone(), LoaderOptions::new(12)).unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    let labels = batch.arrays[1].as_slice::<f32>().unwrap();
    for (place, name) in CT_LABELS.iter().enumerate() {
        let column = table.column::<f32>(name).unwrap();
        let found: Vec<f32> = labels.iter().skip(place).step_by(10).copied().collect();
        assert_eq!(found, column, "{name}");
    }
    let test = Table::read(dir.path().join("test.csv")).unwrap();
    assert_eq!(test.columns(), CT_IDS);
    let test = ImageTable::open(dir.path().join("test"), &test, &CT_IDS, Transforms::new(8));
    assert_eq!(test.unwrap().fields().len(), 1);
}

#[test]
fn generated_images_are_those_of_the_files() {
    let (_dir, _, files) = small();
    let generated = SMALL.images(Transforms::new(32)).unwrap();
    assert_eq!((generated.len(), generated.study(7)), (files.len(), 1));
    let read = |loader: Loader| loader.epoch(0).next().unwrap().unwrap().arrays;
    let [files, generated] = [
        read(Loader::new(files, LoaderOptions::new(12)).unwrap()),
        read(Loader::new(generated, LoaderOptions::new(12)).unwrap()),
    ];
    for (file, generated) in files.iter().zip(&generated) {
        assert_eq!(file.bytes(), generated.bytes());
    }
}

#[test]
fn generated_set_is_a_function_of_its_seed() {
    let content = |seed: u64| {
        let dir = tempfile::tempdir().unwrap();
        FakeCt { seed, ..SMALL }.write(dir.path()).unwrap();
        let table = Table::read(dir.path().join("train.csv")).unwrap();
        let images = open(dir.path(), &table).unwrap();
        let first = fs::read(images.path(0)).unwrap();
        (fs::read(dir.path().join("train.csv")).unwrap(), first)
    };
    assert_eq!(content(7), content(7));
    let (table, image) = content(8);
    assert_ne!(table, content(7).0);
    assert_ne!(image, content(7).1);
}

#[test]
fn labels_of_a_study_are_consistent() {
    let (_dir, table, _) = small();
    let column = |name: &str| table.column::<u8>(name).unwrap();
    let [present, negative] = [column(CT_LABELS[0]), column(CT_LABELS[1])];
    let studies = table.strings(CT_IDS[0]).unwrap();
    for row in 0..table.len() {
        assert!(present[row] + negative[row] < 2, "row {row}");
        assert_eq!(studies[row], studies[row / 4 * 4]);
        assert_eq!(negative[row], negative[row / 4 * 4]);
    }
}

#[test]
fn existing_set_is_not_replaced() {
    let (dir, ..) = small();
    let error = SMALL.write(dir.path()).unwrap_err().to_string();
    assert!(error.contains("train.csv exists"), "{error}");
    let none = FakeCt { slices: 0, ..SMALL }.write(dir.path());
    assert!(none.unwrap_err().to_string().contains("at least one study"));
}

/// A folder with copies of an image under these names.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, jpeg()).unwrap();
    }
    dir
}

#[track_caller]
fn found(names: &[&str], id: &str) -> Result<String, String> {
    let dir = folder(names);
    let table = Table::parse("t.csv", format!("id\n{id}\n").as_bytes()).unwrap();
    let images = ImageTable::open(dir.path(), &table, &["id"], Transforms::new(4));
    let images = images.map_err(|error| error.to_string())?;
    let path = images.path(0);
    assert!(path.is_file());
    let below = path.strip_prefix(dir.path()).unwrap();
    Ok(below.to_str().unwrap().to_owned())
}

#[test]
fn id_may_be_the_end_of_a_file_name() {
    let names = ["a/001_x7.jpg", "a/002_y7.jpg", "a/7.jpg", "b.png"];
    for (id, name) in [
        ("a/x7", "a/001_x7.jpg"),
        ("a/002_y7", "a/002_y7.jpg"),
        ("a/002_y7.jpg", "a/002_y7.jpg"),
        // Exactly, though others end in it.
        ("a/7", "a/7.jpg"),
        ("b", "b.png"),
    ] {
        assert_eq!(found(&names, id).as_deref(), Ok(name), "{id}");
    }
}

/// The end of a name that may be a part of a longer id is another image's.
#[test]
fn id_is_a_whole_part_of_a_name() {
    let names = [
        "14.png",
        "15.png",
        "25.png",
        "scan_7.png",
        "scan-8.png",
        "xab.png",
    ];
    for (id, name) in [("7", "scan_7.png"), ("8", "scan-8.png"), ("15", "15.png")] {
        assert_eq!(found(&names, id).as_deref(), Ok(name));
    }
    for (id, part) in [
        (
            "5",
            "line 2: no image `5`; an id is a whole name, or its end after `_` or `-`",
        ),
        ("5", "not in `15.png`"),
        ("ab", "not in `xab.png`"),
        ("4.png", "no image `4.png`"),
    ] {
        let error = found(&names, id).unwrap_err();
        assert!(error.contains(part), "{id}: {error}");
    }
    let error = found(&["a_7.png", "b-7.png"], "7").unwrap_err();
    assert!(
        error.contains("`7` fits 2 images: `a_7.png`, `b-7.png`"),
        "{error}"
    );
}

#[test]
fn file_name_decides_between_extensions() {
    assert_eq!(found(&["x.png", "x.jpg"], "x.png").as_deref(), Ok("x.png"));
    let error = found(&["x.png", "x.jpg"], "x").unwrap_err();
    assert!(error.contains("fits 2 images: `x.jpg`, `x.png`"), "{error}");
}

#[test]
fn ids_that_cannot_be_found_are_refused() {
    let names = ["a/001_x7.jpg", "a/002_x7.jpg", "a/notes.txt"];
    for (id, part) in [
        ("a/x7", "fits 2 images: `001_x7.jpg`, `002_x7.jpg`"),
        ("a/x8", "line 2: no image `x8`"),
        ("a/notes", "no image `notes`"),
        (
            "a",
            "`a` is a folder; the columns are those of folders and, last,",
        ),
        ("c/x7", "No such file"),
        ("../x7", "leaves the folder"),
        ("/etc/x7", "leaves the folder"),
        ("\"\"", "an id is empty"),
    ] {
        let error = found(&names, id).unwrap_err();
        assert!(error.contains(part), "{id}: {error}");
    }
}

#[test]
fn all_missing_images_are_one_error() {
    let (dir, table, images) = small();
    for row in [1, 2, 3, 4, 5, 6, 7] {
        fs::remove_file(images.path(row)).unwrap();
    }
    let error = open(dir.path(), &table).unwrap_err().to_string();
    for part in [
        "7 of 12 rows have no image",
        "line 3: no",
        "line 7: no",
        "and 2 more rows",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("line 8"), "{error}");
}

#[test]
fn labels_out_of_range_are_refused() {
    let dir = folder(&["1.jpg", "2.jpg"]);
    for (cell, part) in [
        ("2", "line 3, column `sick`: the label 2 is out of range"),
        ("nan", "the label NaN is out of range"),
        (
            "",
            "line 3, column `sick`: the label `` is not a number; expected 0 or 1",
        ),
    ] {
        let text = format!("id,sick\n1,1\n2,{cell}\n");
        let table = Table::parse("t.csv", text.as_bytes()).unwrap();
        let images = ImageTable::open(dir.path(), &table, &["id"], Transforms::new(4)).unwrap();
        let error = images
            .with_labels(&table, &["sick"])
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

fn classes(cells: &[&str]) -> halite_core::Result<ImageTable> {
    let dir = folder(&["1.jpg"]);
    let rows: String = cells.iter().map(|cell| format!("1,{cell}\n")).collect();
    let table = Table::parse("t.csv", format!("id,kind\n{rows}").as_bytes())?;
    ImageTable::open(dir.path(), &table, &["id"], Transforms::new(4))?.with_classes(&table, "kind")
}

#[test]
fn classes_are_numbered_in_the_order_of_their_names() {
    let images = classes(&["dog", " cat", "dog", "\"a, b\""]).unwrap();
    assert_eq!(images.class_names(), ["a, b", "cat", "dog"]);
    let numbers = [0, 1, 2, 3].map(|row| images.class(row).unwrap());
    assert_eq!(numbers, [2, 1, 2, 0]);
    assert_eq!(images.fields()[1].ty.to_string(), "u32[]");
    assert!(images.label_names().is_empty());
    let numbers = classes(&["10", "9", "10"]).unwrap();
    assert_eq!(numbers.class_names(), ["9", "10"]);
}

#[test]
fn class_of_each_sample_is_read() {
    let dir = folder(&["1.jpg", "2.jpg", "3.jpg"]);
    let table = Table::parse("t.csv", b"id,kind\n3,b\n1,a\n2,b\n").unwrap();
    let images = ImageTable::open(dir.path(), &table, &["id"], Transforms::new(4)).unwrap();
    let digest = images.digest();
    let images = images.with_classes(&table, "kind").unwrap();
    assert_ne!(images.digest(), digest);
    let loader = Loader::new(images, LoaderOptions::new(3)).unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.arrays[1].as_slice::<u32>().unwrap(), [1, 0, 1]);
}

#[test]
fn unusable_classes_are_refused() {
    for (cells, part) in [
        (
            &["a", "", "a"][..],
            "line 3, column `kind`: the class is empty",
        ),
        (
            &["a", "\"b\nc\"", "a"],
            "line 3, column `kind`: the class has a line",
        ),
        (&["a", "a"], "column `kind` has one class alone, `a`"),
        (
            &["a", "b", "a "],
            "line 4, column `kind`: `a ` and `a` of line 2 differ only by blanks",
        ),
        (&["New York", "b", "NewYork"], "differ only by blanks"),
        (&["a", "b", "c"], "another text in each of 3 rows"),
    ] {
        let error = classes(cells).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn images_below_a_folder_need_no_table() {
    let dir = folder(&["b/2.jpg", "a.jpg", "b/c/1.jpg", ".hidden.jpg", "notes.txt"]);
    let images = ImageTable::of_folder(dir.path(), Transforms::new(4)).unwrap();
    let paths: Vec<_> = (0..images.len())
        .map(|row| images.path_below(row))
        .collect();
    let expected = ["a.jpg", "b/2.jpg", "b/c/1.jpg"].map(Path::new);
    assert_eq!(paths, expected);
    assert_eq!(images.fields().len(), 1);
    let empty = folder(&["notes.txt"]);
    let error = ImageTable::of_folder(empty.path(), Transforms::new(4));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("no .png, .jpg or .jpeg files below"),
        "{error}"
    );
}

#[test]
fn damaged_image_is_named_with_its_row() {
    let (_dir, _, images) = small();
    let read = |row: usize| {
        let mut rows = Rows::zeros(images.fields(), 1).unwrap();
        let result = images.read(row, &mut rows.sample_mut(0));
        result.unwrap_err().to_string()
    };
    let whole = fs::read(images.path(2)).unwrap();
    fs::write(images.path(2), &whole[..whole.len() / 2]).unwrap();
    fs::remove_file(images.path(3)).unwrap();
    let (truncated, vanished) = (read(2), read(3));
    assert!(truncated.contains("damaged JPEG"), "{truncated}");
    assert!(truncated.contains("train.csv, line 4"), "{truncated}");
    assert!(
        truncated.contains(images.path(2).to_str().unwrap()),
        "{truncated}"
    );
    assert!(vanished.contains("train.csv, line 5"), "{vanished}");
}

#[test]
fn digest_depends_on_transforms_labels_files() {
    let (dir, table, images) = small();
    let digest = images.digest();
    assert_eq!(open(dir.path(), &table).unwrap().digest(), digest);
    let flipped = images
        .clone()
        .with_transforms(Transforms::new(32).flip(0.5))
        .unwrap();
    assert_ne!(flipped.digest(), digest);
    assert_eq!(flipped.for_validation().digest(), digest);
    let fewer = images.clone().with_labels(&table, &CT_LABELS[..9]).unwrap();
    assert_ne!(fewer.digest(), digest);
    fs::copy(images.path(1), images.path(0)).unwrap();
    assert_ne!(open(dir.path(), &table).unwrap().digest(), digest);
}

#[test]
fn augmentation_is_a_function_of_the_key() {
    let (_dir, _, images) = small();
    let transforms = Transforms::new(32)
        .random_resized_crop(0.5..=1.0)
        .flip(0.5)
        .rotate(20.0);
    let images = images.with_transforms(transforms).unwrap();
    let subset = images.subset([3, 3]).unwrap();
    let read = |epoch: u64, index: usize| {
        let mut rows = Rows::zeros(subset.fields(), 1).unwrap();
        let key = Key {
            seed: 1,
            epoch,
            index,
        };
        subset
            .read(index, &mut rows.sample_mut(0).with_key(key))
            .unwrap();
        rows.sample(0).bytes(0).to_vec()
    };
    assert_eq!(read(0, 0), read(0, 0));
    assert_ne!(read(0, 0), read(1, 0));
    assert_ne!(read(0, 0), read(0, 1));
}

#[test]
fn huge_jpeg_in_a_small_file_is_refused() {
    let mut bytes = jpeg();
    let frame = bytes
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    bytes[frame + 5..frame + 9].copy_from_slice(&[0xea, 0x60, 0xea, 0x60]);
    assert!(bytes.len() < 1024);
    let error = halite_data::images::decode_image(&bytes)
        .unwrap_err()
        .to_string();
    assert!(error.contains("declares 60000x60000 pixels"), "{error}");
}

#[test]
fn class_folder_takes_random_transforms() {
    let dir = folder(&["cat/1.jpg", "dog/2.jpg"]);
    let framing = Framing::new(8);
    let framed = ImageFolder::open(dir.path(), framing).unwrap();
    let random = Transforms::from(framing).rotate(30.0);
    let random = ImageFolder::open(dir.path(), random).unwrap();
    assert_eq!([random.label(0), random.label(1)], [0, 1]);
    assert_ne!(random.digest(), framed.digest());
    assert_eq!(random.for_validation().digest(), framed.digest());
    let read = |epoch: u64| {
        let mut rows = Rows::zeros(random.fields(), 1).unwrap();
        let key = Key {
            seed: 1,
            epoch,
            index: 0,
        };
        random
            .read(0, &mut rows.sample_mut(0).with_key(key))
            .unwrap();
        rows.sample(0).bytes(0).to_vec()
    };
    assert_eq!(read(0), read(0));
    assert_ne!(read(0), read(1));
}
