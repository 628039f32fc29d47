//! Images, compared with what Pillow reads (`golden/images/make.py`).

use std::{collections::BTreeMap, fs, path::PathBuf, str::FromStr};

use halite_core::{ErrorKind, HostArray};
use halite_data::{
    BadSample, Dataset, Loader, LoaderOptions, Rows,
    images::{
        ClassFolders, FakeImages, Filter, Framing, ImageFolder, Parts, center_crop, decode_image,
        read_image, resize,
    },
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    files: BTreeMap<String, Image>,
    resized: BTreeMap<String, Image>,
}

#[derive(Deserialize)]
struct Image {
    dims: Vec<usize>,
    bytes: Vec<u8>,
}

impl Image {
    fn host(&self) -> HostArray {
        HostArray::from_slice(&self.bytes, &self.dims).unwrap()
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/images")
        .join(name)
}

fn golden() -> Golden {
    serde_json::from_str(&fs::read_to_string(path("expected.json")).unwrap()).unwrap()
}

/// Compares bytes, which differ by at most `most`, and by `mean` on average.
#[track_caller]
fn close(what: &str, found: &HostArray, expected: &Image, most: u8, mean: f64) {
    assert_eq!(found.ty().dims(), expected.dims, "{what}");
    let differences = found
        .bytes()
        .iter()
        .zip(&expected.bytes)
        .map(|(a, b)| a.abs_diff(*b));
    let (mut largest, mut sum) = (0, 0.0);
    for difference in differences {
        largest = largest.max(difference);
        sum += f64::from(difference);
    }
    let average = sum / expected.bytes.len() as f64;
    assert!(
        largest <= most && average <= mean,
        "{what}: at most {largest}, mean {average}"
    );
}

#[test]
fn png_of_every_kind_is_what_pillow_reads() {
    let golden = golden();
    let mut count = 0;
    for (name, expected) in golden
        .files
        .iter()
        .filter(|(name, _)| name.ends_with(".png"))
    {
        close(name, &read_image(path(name)).unwrap(), expected, 0, 0.0);
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn jpeg_is_what_pillow_reads() {
    let golden = golden();
    let mut count = 0;
    for (name, expected) in golden
        .files
        .iter()
        .filter(|(name, _)| !name.ends_with(".png"))
    {
        // Decoders round and interpolate differently.
        let (most, mean) = match name.as_str() {
            "subsampled.jpg" | "progressive.jpeg" => (8, 1.0),
            "cmyk.jpg" => (4, 1.0),
            _ => (2, 0.5),
        };
        close(name, &read_image(path(name)).unwrap(), expected, most, mean);
        count += 1;
    }
    assert_eq!(count, 13);
}

#[test]
fn resized_images_are_those_of_pillow() {
    let golden = golden();
    let image = golden.resized["image"].host();
    for (name, filter) in [
        ("Bilinear", Filter::Bilinear),
        ("Bicubic", Filter::Bicubic),
        ("Box", Filter::Box),
        ("Lanczos", Filter::Lanczos),
    ] {
        for dims in [[8, 8], [30, 50], [21, 10]] {
            let what = format!("{name} {} {}", dims[0], dims[1]);
            let found = resize(&image, dims, filter).unwrap();
            // Weights of both are integers, of different scales.
            close(&what, &found, &golden.resized[&what], 2, 0.1);
        }
    }
}

#[test]
fn crops_are_central() {
    let pixels: Vec<u8> = (0..5 * 4).flat_map(|pixel| [pixel, 100, 200]).collect();
    let image = HostArray::from_slice(&pixels, [5, 4, 3]).unwrap();
    let crop = center_crop(&image, [2, 2]).unwrap();
    let red: Vec<u8> = crop.bytes().iter().step_by(3).copied().collect();
    assert_eq!(red, [9, 10, 13, 14]); // 1.5 rows are rounded to 2
    assert_eq!(center_crop(&image, [5, 4]).unwrap(), image);
    // The whole image as it is.
    let square = center_crop(&image, [4, 4]).unwrap();
    assert_eq!(Framing::new(4).crop(1.0).apply(&image).unwrap(), square);
    for (dims, part) in [([6, 2], "[6, 2] of [5, 4]"), ([0, 1], "[0, 1]")] {
        let error = center_crop(&image, dims).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[derive(Deserialize)]
struct Framings {
    image: Image,
    cases: Vec<Framed>,
}

/// The top left part of the image, through `Resize` and `CenterCrop`.
#[derive(Deserialize)]
struct Framed {
    image: [usize; 2],
    resize: usize,
    crop: usize,
    filter: String,
    bytes: Vec<u8>,
}

#[test]
fn framing_is_that_of_torchvision() {
    let text = fs::read_to_string(path("framing.json")).unwrap();
    let golden: Framings = serde_json::from_str(&text).unwrap();
    let row = 3 * golden.image.dims[1];
    assert_eq!(golden.cases.len(), 60);
    for case in golden.cases {
        let [height, width] = case.image;
        let rows = golden.image.bytes.chunks(row).take(height);
        let part: Vec<u8> = rows.flat_map(|row| &row[..3 * width]).copied().collect();
        let image = HostArray::from_slice(&part, [height, width, 3]).unwrap();
        let filter = match case.filter.as_str() {
            "Bilinear" => Filter::Bilinear,
            _ => Filter::Bicubic,
        };
        let framing = Framing::new(case.crop)
            .crop(case.crop as f64 / case.resize as f64)
            .filter(filter);
        let expected = Image {
            dims: vec![case.crop, case.crop, 3],
            bytes: case.bytes,
        };
        let what = format!(
            "{height}x{width} to {} of {}, {filter:?}",
            case.crop, case.resize
        );
        // Pillow rounds and clips after the horizontal pass, and we after the vertical one.
        close(&what, &framing.apply(&image).unwrap(), &expected, 8, 0.2);
    }
}

#[test]
fn arrays_that_are_no_images_are_refused() {
    let gray = HostArray::from_slice(&[0u8; 6], [2, 3]).unwrap();
    let image = HostArray::from_slice(&[0u8; 12], [2, 2, 3]).unwrap();
    let errors = [
        resize(&gray, [2, 2], Filter::Box).unwrap_err(),
        center_crop(&gray, [1, 1]).unwrap_err(),
        Framing::new(2).apply(&gray).unwrap_err(),
    ];
    for error in errors {
        assert!(
            error
                .to_string()
                .contains("u8[2, 3]; expected u8[height, width, 3]"),
            "{error}"
        );
    }
    assert!(resize(&image, [0, 2], Filter::Box).is_err());
    assert!(resize(&image, [70_000, 2], Filter::Box).is_err());
    for crop in [0.0, -1.0, 1.1, f64::NAN, 1e-300] {
        assert!(Framing::new(2).crop(crop).apply(&image).is_err());
    }
}

#[test]
fn damaged_files_are_errors_with_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["rgb.png", "palette.png", "rgb.jpg", "progressive.jpeg"] {
        let whole = fs::read(path(name)).unwrap();
        let damaged = dir.path().join(name);
        for length in [whole.len() / 2, 20, 4] {
            fs::write(&damaged, &whole[..length]).unwrap();
            let error = read_image(&damaged).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name} {length}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    let missing = read_image(dir.path().join("none.png")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io);
    for (content, part) in [
        (&b""[..], "it is empty"),
        (b"GIF89a....", "it is a GIF"),
        (b"hello world", "it starts with [68, 65"),
    ] {
        let error = decode_image(content).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// A header of a large image in a small file is refused before memory is taken.
#[test]
fn sizes_beyond_the_file_are_refused() {
    let mut png = fs::read(path("rgb.png")).unwrap();
    let set = |png: &mut Vec<u8>, width: u32, height: u32| {
        png[16..20].copy_from_slice(&width.to_be_bytes());
        png[20..24].copy_from_slice(&height.to_be_bytes());
        let sum = crc32(&png[12..29]);
        png[29..33].copy_from_slice(&sum.to_be_bytes());
    };
    for (width, height, part) in [
        (10_000, 10_000, "bytes cannot contain"),
        (60_000, 60_000, "an image has at most"),
        (70_000, 1, "a side has at most 65535"),
    ] {
        set(&mut png, width, height);
        let error = decode_image(&png).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// The checksum of a PNG chunk.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// A folder with these files, copies of golden images.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (to, from) in files {
        let to = dir.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path(from), to).unwrap();
    }
    dir
}

#[test]
fn folders_are_classes() {
    let dir = folder(&[
        ("dog/7.png", "rgb.png"),
        ("dog/more/8.PNG", "alpha.png"),
        ("cat/2.jpg", "rgb.jpg"),
        ("cat/1.jpeg", "progressive.jpeg"),
        ("cat/notes.txt", "expected.json"),
        ("cat/.hidden.png", "expected.json"),
        ("list.csv", "expected.json"),
    ]);
    let framing = Framing::new(6);
    let data = ImageFolder::open(dir.path(), framing).unwrap();
    assert_eq!(data.classes(), ["cat", "dog"]);
    assert_eq!(data.len(), 4);
    let expected = ["cat/1.jpeg", "cat/2.jpg", "dog/7.png", "dog/more/8.PNG"];
    let paths: Vec<PathBuf> = (0..4).map(|index| data.path(index)).collect();
    assert_eq!(paths, expected.map(|name| dir.path().join(name)));
    let digest = data.digest().unwrap();

    let loader = Loader::new(data, LoaderOptions::new(4)).unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.arrays[0].ty().to_string(), "u8[4, 6, 6, 3]");
    assert_eq!(batch.arrays[1].as_slice::<u32>().unwrap(), [0, 0, 1, 1]);
    let third = framing
        .apply(&read_image(path("rgb.png")).unwrap())
        .unwrap();
    assert_eq!(&batch.arrays[0].bytes()[2 * 108..3 * 108], third.bytes());

    let again = ImageFolder::open(dir.path(), framing).unwrap();
    assert_eq!(again.digest().unwrap(), digest);
    fs::rename(dir.path().join("dog/7.png"), dir.path().join("dog/6.png")).unwrap();
    let renamed = ImageFolder::open(dir.path(), framing).unwrap();
    assert_ne!(renamed.digest().unwrap(), digest);
}

#[test]
fn folders_without_images_are_refused() {
    let none = tempfile::tempdir().unwrap();
    let error = |dir: &tempfile::TempDir| {
        ImageFolder::open(dir.path(), Framing::new(6))
            .unwrap_err()
            .to_string()
    };
    assert!(
        error(&none).contains("expected one for each class"),
        "{}",
        error(&none)
    );
    let dir = folder(&[("cat/1.png", "rgb.png"), ("b/x.txt", "expected.json")]);
    fs::create_dir(dir.path().join("a")).unwrap();
    assert!(error(&dir).contains("in `a`, `b` of"), "{}", error(&dir));
    let damaged = folder(&[("cat/1.png", "expected.json"), ("dog/2.png", "rgb.png")]);
    let data = ImageFolder::open(damaged.path(), Framing::new(6)).unwrap();
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    let error = data.read(0, &mut rows.sample_mut(0)).unwrap_err();
    assert!(error.to_string().contains("1.png"), "{error}");
}

fn refused(dir: &tempfile::TempDir, parts: &Parts) -> String {
    let opened = ClassFolders::open(dir.path(), parts, Framing::new(6));
    opened.unwrap_err().to_string()
}

#[test]
fn classes_that_are_uncertain_are_refused() {
    let one = folder(&[("cat/a/1.png", "rgb.png"), ("cat/b/2.png", "rgb.png")]);
    let error = refused(&one, &Parts::None);
    assert!(
        error.contains("one class alone, `cat`; expected two or more; if the 2"),
        "{error}"
    );
    let blanks = folder(&[("cat/1.png", "rgb.png"), ("cat /2.png", "rgb.png")]);
    let error = refused(&blanks, &Parts::None);
    assert!(
        error.contains("the folders `cat` and `cat ` differ only by blanks"),
        "{error}"
    );
}

/// A data set with these parts, each with two classes.
fn parts(names: &[&str]) -> tempfile::TempDir {
    let files = names.iter().flat_map(|name| {
        ["cat/1.png", "dog/2.png"].map(|file| (format!("{name}/{file}"), "rgb.png"))
    });
    let files: Vec<(String, &str)> = files.collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(to, from)| (&**to, *from)).collect();
    folder(&files)
}

#[test]
fn parts_are_found_by_usual_names() {
    for names in [
        &["train", "val"][..],
        &["train", "valid"],
        &["Train", "Val"],
        &["training", "validation"],
        &["train", "test"],
        &["train", "val", "test"],
    ] {
        let dir = parts(names);
        let open = |parts: &Parts| ClassFolders::open(dir.path(), parts, Framing::new(6)).unwrap();
        let found = open(&Parts::Find);
        assert_eq!(found.train.name(), names[0]);
        assert_eq!(found.validation.unwrap().name(), names[1]);
        assert_eq!(found.train.classes(), ["cat", "dog"]);
        let all = open(&Parts::None);
        assert_eq!(all.train.classes().len(), names.len());
        assert!(all.validation.is_none());
    }
    let named = Parts::from_str("b,a").unwrap();
    let dir = parts(&["a", "b"]);
    let found = ClassFolders::open(dir.path(), &named, Framing::new(6)).unwrap();
    assert_eq!(found.train.name(), "b");
    assert_eq!(found.validation.unwrap().name(), "a");
    let dir = folder(&[("cat/1.png", "rgb.png"), ("dog/2.png", "rgb.png")]);
    let found = ClassFolders::open(dir.path(), &Parts::Find, Framing::new(6)).unwrap();
    assert_eq!(found.train.classes(), ["cat", "dog"]);
}

#[test]
fn uncertain_parts_are_asked_for() {
    for names in [
        &["train"][..],
        &["train", "cat"],
        &["val", "test"],
        &["train", "val", "valid"],
        &["train", "Train", "val"],
        &["train", "test", "cat"],
    ] {
        let error = refused(&parts(names), &Parts::Find);
        assert!(
            error.contains("may be classes or parts of the data"),
            "{error}"
        );
        assert!(error.contains("--parts TRAIN,VALIDATION"), "{error}");
    }
    // A folder of images without labels.
    let dir = folder(&[("train/cat/1.png", "rgb.png"), ("test/2.png", "rgb.png")]);
    let error = refused(&dir, &Parts::Find);
    assert!(error.contains("`test`, `train`, which may be"), "{error}");
    let dir = folder(&[
        ("train/a/1.png", "rgb.png"),
        ("train/b/1.png", "rgb.png"),
        ("valid/a/1.png", "rgb.png"),
        ("valid/c/1.png", "rgb.png"),
    ]);
    let error = refused(&dir, &Parts::Find);
    assert!(
        error.contains("`train` lacks [c], `valid` lacks [b]"),
        "{error}"
    );
    for text in ["", "train", "a,", ",b"] {
        assert!(Parts::from_str(text).is_err(), "{text}");
    }
}

/// A chunk of a PNG file.
fn chunk(kind: &[u8], content: &[u8]) -> Vec<u8> {
    let sum = crc32(&[kind, content].concat()).to_be_bytes();
    [
        &(content.len() as u32).to_be_bytes()[..],
        kind,
        content,
        &sum,
    ]
    .concat()
}

/// A sample whose decoder panics is an error with its name, and is skipped where that is allowed.
#[test]
fn decoder_panics_are_errors_of_their_files() {
    let dir = folder(&[("a/1.png", "palette.png"), ("b/2.png", "rgb.png")]);
    let mut file = fs::read(path("palette.png")).unwrap();
    let at = file.windows(4).position(|kind| kind == b"PLTE").unwrap() - 4;
    let length = u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let whole = file[at + 8..at + 8 + length].to_vec();
    file.splice(at..at + 12 + length, chunk(b"PLTE", &whole[..length - 2]));
    fs::write(dir.path().join("a/1.png"), &file).unwrap();
    let error = read_image(dir.path().join("a/1.png")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let error = error.to_string();
    assert!(
        error.contains("1.png: damaged PNG: a palette of"),
        "{error}"
    );
    let data = ImageFolder::open(dir.path(), Framing::new(4)).unwrap();
    let options = LoaderOptions {
        bad_samples: BadSample::Skip { at_most: 1 },
        ..LoaderOptions::new(2)
    };
    let loader = Loader::new(data, options).unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.arrays[2].as_slice::<f32>().unwrap(), [0.0, 1.0]);
    let skipped = loader.skipped();
    assert_eq!((skipped.len(), skipped[0].index), (1, 0));
    assert!(skipped[0].reason.contains("1.png"), "{}", skipped[0].reason);
}

/// As in Pillow: a number of any type, after the image too, and in texts of ImageMagick.
#[test]
fn orientation_is_found_wherever_pillow_finds_it() {
    let upright = fs::read(path("rgb.png")).unwrap();
    let [body, end] = [
        &upright[..upright.len() - 12],
        &upright[upright.len() - 12..],
    ];
    let [header, rest] = [&upright[..33], &upright[33..]];
    let exif = |kind: u8, count: u8, value: &[u8]| {
        let mut bytes = b"II*\0\x08\0\0\0\x01\0\x12\x01".to_vec();
        bytes.extend([kind, 0, count, 0, 0, 0]);
        bytes.extend(value);
        bytes
    };
    let turned = decode_image(&fs::read(path("orientation6.png")).unwrap()).unwrap();
    let short = exif(3, 1, &[6, 0, 0, 0]);
    let after = [body, &chunk(b"eXIf", &short), end].concat();
    assert_eq!(decode_image(&after).unwrap(), turned);
    let long = exif(4, 1, &[6, 0, 0, 0]);
    let rational = exif(
        5,
        1,
        &[&[22, 0, 0, 0][..], &[12, 0, 0, 0, 2, 0, 0, 0]].concat(),
    );
    let float = exif(11, 1, &6f32.to_le_bytes());
    let digits: String = short.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "Raw profile type exif\0\nexif\n  {}\n{digits}\n",
        short.len()
    );
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut zlib, &text.as_bytes()[22..]).unwrap();
    let compressed = [&text.as_bytes()[..22], &[0], &zlib.finish().unwrap()].concat();
    for (kind, content) in [
        (b"eXIf", &long[..]),
        (b"eXIf", &rational),
        (b"eXIf", &float),
        (b"tEXt", text.as_bytes()),
        (b"zTXt", &compressed),
    ] {
        let file = [header, &chunk(kind, content), rest].concat();
        assert_eq!(decode_image(&file).unwrap(), turned, "{content:?}");
    }
    // Cut off, of another type, or out of range.
    for content in [
        &short[..short.len() - 3],
        &exif(2, 1, b"6\0\0\0"),
        &exif(3, 1, &[9, 0, 0, 0]),
    ] {
        let file = [header, &chunk(b"eXIf", content), rest].concat();
        assert_eq!(
            decode_image(&file).unwrap(),
            decode_image(&upright).unwrap()
        );
    }
}

#[test]
fn fake_images_are_a_function_of_their_arguments() {
    let read = |seed: u64, index: usize| {
        let data = FakeImages::new(10, 5, 3, seed).unwrap();
        let mut rows = Rows::zeros(data.fields(), 1).unwrap();
        data.read(index, &mut rows.sample_mut(0)).unwrap();
        let label = rows.sample(0).values::<u32>(1).unwrap()[0];
        (rows.sample(0).bytes(0).to_vec(), label)
    };
    assert_eq!(read(1, 4), read(1, 4));
    assert_ne!(read(1, 4).0, read(2, 4).0);
    assert_ne!(read(1, 4).0, read(1, 7).0);
    assert_eq!([0, 1, 2, 3].map(|index| read(0, index).1), [0, 1, 2, 0]);
    assert!(FakeImages::new(0, 5, 3, 0).is_err());
    assert!(FakeImages::new(1, 5, 0, 0).is_err());
    assert!(FakeImages::new(1, 100_000, 1, 0).is_err());
}
