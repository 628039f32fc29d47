//! Entry points into this crate's parsers for fuzzing. Not part of the public API, and without
//! stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics if a property does
//! not hold.

mod files;

use std::io::Write as _;

use halite_core::{DType, HostArray};

pub use self::files::{array_file, array_file_seeds, json_lines, json_lines_seeds};
use crate::{
    Key, Table, idx, images,
    records::Example,
    text::{BytePairs, Tokenizer},
};

/// An idx file.
pub fn idx(data: &[u8]) -> bool {
    let Ok(array) = idx::parse(data) else {
        return false;
    };
    assert!(
        is_gzip(data) || idx_file(&array) == data,
        "an idx file has one encoding"
    );
    true
}

/// A compressed idx file: any bytes as gzip, and the compressed form of any bytes.
pub fn idx_gzip(data: &[u8]) -> bool {
    let compressed = gzip(data);
    assert!(
        is_gzip(data) || idx::parse(&compressed).ok() == idx::parse(data).ok(),
        "compression preserves the content"
    );
    is_gzip(data) && idx::parse(data).is_ok()
}

fn is_gzip(data: &[u8]) -> bool {
    data.starts_with(&crate::input::GZIP_MAGIC)
}

/// Valid inputs of [`idx`].
pub fn idx_seeds() -> Vec<Vec<u8>> {
    let of = |dtype: u8, dims: &[u32], bytes: usize| {
        let mut file = vec![0, 0, dtype, dims.len() as u8];
        dims.iter().for_each(|dim| file.extend(dim.to_be_bytes()));
        file.extend((0..bytes).map(|byte| byte as u8));
        file
    };
    vec![
        of(8, &[2, 3], 6),
        of(9, &[0, 28, 28], 0),
        of(0xb, &[3], 6),
        of(0xd, &[1, 1, 2], 8),
        of(0xe, &[2], 16),
    ]
}

/// Valid inputs of [`idx_gzip`].
pub fn idx_gzip_seeds() -> Vec<Vec<u8>> {
    idx_seeds()
        .iter()
        .flat_map(|file| [gzip(file), file.clone()])
        .collect()
}

/// The content of `tokenizer.json`.
pub fn tokenizer(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(tokenizer) = Tokenizer::from_json(text) else {
        return false;
    };
    if let Tokenizer::Subwords(subwords) = &tokenizer {
        for text in [SENTENCE, "", "[UNK] <s>\u{e9}"] {
            let tokens = tokenizer.encode_input(text, Some(8));
            tokens.iter().flatten().for_each(|&token| {
                assert!(
                    (token as usize) < subwords.vocabulary(),
                    "unknown token {token}"
                );
            });
            tokenizer.decode(&tokens.unwrap_or_default());
        }
        return true;
    }
    let printed = tokenizer.to_json();
    let again = Tokenizer::from_json(&printed).expect("what is printed is parsed");
    assert_eq!(again.to_json(), printed, "a tokenizer has one encoding");
    if let Tokenizer::Characters(_) = &tokenizer {
        let tokens: Vec<u32> = (0..tokenizer.vocabulary() as u32).collect();
        assert_eq!(
            again.encode(&tokenizer.decode(&tokens)).ok(),
            Some(tokens),
            "each character has one token"
        );
    }
    true
}

const SENTENCE: &str = "I'll say  it's 3rd,\n\n na\u{ef}ve";

/// Valid inputs of [`tokenizer`].
pub fn tokenizer_seeds() -> Vec<Vec<u8>> {
    let characters = Tokenizer::characters_of(["Zeile eins\n\"\u{e9}\" \u{1f600}"])
        .expect("there are characters");
    // Together they have all parts that are accepted, with a small vocabulary.
    let files = [
        r#"{"version": "1.0", "added_tokens": [
            {"id": 0, "content": "[UNK]", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false, "special": true},
            {"id": 1, "content": "[CLS]", "single_word": true, "lstrip": false, "rstrip": true, "normalized": true, "special": false}],
          "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
            {"type": "Replace", "pattern": {"String": "3"}, "content": "i"}, {"type": "Strip", "strip_left": true, "strip_right": true},
            {"type": "Prepend", "prepend": "s"}, {"type": "NFC"}, {"type": "Nmt"}]},
          "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"},
            {"type": "Split", "pattern": {"Regex": "\\s+|'(?=l)"}, "behavior": "MergedWithPrevious", "invert": false},
            {"type": "Punctuation", "behavior": "Isolated"}, {"type": "WhitespaceSplit"}]},
          "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}}},
          "decoder": {"type": "WordPiece", "prefix": "\u0023\u0023", "cleanup": true},
          "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "\u0023\u0023",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "[CLS]": 1, "s": 2, "\u0023\u0023ay": 3, "it": 4, "i": 5}}}"#,
        r#"{"version": "1.0", "added_tokens": [],
          "normalizer": {"type": "Lowercase"},
          "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true},
          "post_processor": {"type": "RobertaProcessing", "sep": ["s", 2], "cls": ["i", 1], "trim_offsets": true, "add_prefix_space": true},
          "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
          "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "i": 1, "s": 2, "t": 3, "it": 4, "<0x0A>": 5, "_": 6}, "merges": [["i", "t"]]}}"#,
    ];
    let pairs = BytePairs::from_merges("b c\n\u{120} a\n").expect("two merges");
    let pairs = pairs.tokenizer().expect("they are of the vocabulary");
    let mut seeds = vec![
        Tokenizer::Bytes.to_json().into_bytes(),
        characters.to_json().into_bytes(),
        pairs.to_json().into_bytes(),
    ];
    seeds.extend(files.map(|file| file.as_bytes().to_vec()));
    seeds
}

/// A table of byte pairs, then after a NUL byte a text to encode.
pub fn byte_pairs(data: &[u8]) -> bool {
    let data = String::from_utf8_lossy(data);
    let (table, text) = data.split_once('\0').unwrap_or((&data, SENTENCE));
    let Ok(pairs) = BytePairs::from_merges(table) else {
        return false;
    };
    let Ok(tokenizer) = pairs.tokenizer() else {
        return false;
    };
    let tokens = tokenizer.encode(text).expect("all bytes have tokens");
    assert!(
        tokens
            .iter()
            .all(|token| (*token as usize) < tokenizer.vocabulary()),
        "tokens are in the vocabulary"
    );
    assert_eq!(
        tokenizer.decode(&tokens),
        text,
        "decoding restores the text"
    );
    true
}

/// Valid inputs of [`byte_pairs`].
pub fn byte_pairs_seeds() -> Vec<Vec<u8>> {
    let table = "#version: 0.2\nb c\na b\nbc d\n\u{120} a\nt h\nth e\n";
    vec![
        table.into(),
        format!("{table}\0abcd the a\u{e9}  bcd\n").into(),
        "#version: 0.2\n\0".into(),
    ]
}

/// A CSV file.
pub fn table(data: &[u8]) -> bool {
    let Ok(table) = Table::parse("table.csv", data) else {
        return false;
    };
    for column in table.columns() {
        let cells = table.strings(column).expect("the column exists");
        assert_eq!(cells.len(), table.len(), "a column has a cell for each row");
        let numbers = table.column::<f32>(column);
        assert!(
            numbers.is_ok() || !table.is_empty(),
            "no cells have no errors"
        );
    }
    let rows: Vec<usize> = (0..table.len()).collect();
    let all = table.select(&rows).expect("rows of the table");
    assert_eq!(all, table, "all rows are the table");
    let lines: Vec<u64> = rows.iter().map(|&row| table.line(row)).collect();
    assert!(lines.is_sorted(), "rows are in the order of their lines");
    true
}

/// Valid inputs of [`table`].
pub fn table_seeds() -> Vec<Vec<u8>> {
    [
        "id,label\na,1\nb,0\n",
        "\u{feff}\"a, b\",\"c \"\"d\"\"\"\r\n\r\n\"x\ny\",-1.5e3\r\n",
        "a\n\n\n1\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// The payload of a record: a `tf.train.Example`.
pub fn example(data: &[u8]) -> bool {
    let Ok(example) = Example::parse(data) else {
        return false;
    };
    // Compared as bytes: NaN differs from itself.
    let encoded = example.encode();
    let again = Example::parse(&encoded).expect("its own encoding");
    assert_eq!(again.encode(), encoded, "the encoding is read back");
    true
}

/// Valid inputs of [`example`].
pub fn example_seeds() -> Vec<Vec<u8>> {
    let mut example = Example::default();
    example.set_bytes("image", [&b"JPEG"[..], b""]);
    example.set_floats("scores", [0.5, f32::NAN]);
    example.set_integers("label", [-1, i64::MAX]);
    // A list of floats and one of integers that are not packed.
    let unpacked = b"\x0a\x10\x0a\x0e\x0a\x01f\x12\x09\x12\x07\x0d\0\0\x80\x3f\x08\x01";
    vec![example.encode(), unpacked.to_vec()]
}

/// Transforms in their text form.
pub fn transforms(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(parsed) = text.parse::<images::Transforms>() else {
        return false;
    };
    let again: images::Transforms = parsed.to_string().parse().expect("its own text");
    assert_eq!(again, parsed, "the text is read back");
    if parsed.side() <= 64 {
        let image = HostArray::from_slice(&[9u8; 5 * 7 * 3], [5, 7, 3]).expect("an image");
        let key = Key::default();
        let result = parsed.apply(&image, key).expect("a small image");
        assert_eq!(result.ty().dims(), [parsed.side(), parsed.side(), 3]);
    }
    true
}

/// Valid inputs of [`transforms`].
pub fn transforms_seeds() -> Vec<Vec<u8>> {
    [
        "8,random-resized-crop=0.08..1,flip=0.5,rotate=10,blur=0.1..2,erase=1",
        "3,crop=0.875,filter=lanczos,zoom=0.5..2,shear=80,brightness=1,contrast=1,saturation=1",
        "16,crop-ratio=0.1..3,flip-vertical=1,translate=1,blur-probability=1,erase-area=0.1..1",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Pixels of an image in a small file, which decode in milliseconds.
const PIXELS: usize = 1 << 20;

/// A PNG or JPEG file.
pub fn image(data: &[u8]) -> bool {
    let Ok(image) = images::decode(data, PIXELS) else {
        return false;
    };
    let dims = image.ty().dims();
    assert!(dims.len() == 3 && dims[2] == 3, "an image is RGB");
    assert!((1..=PIXELS).contains(&(dims[0] * dims[1])), "limits hold");
    let again = images::decode(data, PIXELS);
    assert_eq!(again.as_ref(), Ok(&image), "a file is one image");
    true
}

/// Valid inputs of [`image`].
pub fn image_seeds() -> Vec<Vec<u8>> {
    use png::{BitDepth, ColorType, Encoder};
    let samples: Vec<u8> = (0..=255).collect();
    let of = |color: ColorType, depth: BitDepth, bytes: usize| {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 8, 4);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette(&samples[..48]);
            encoder.set_trns(&samples[..16]);
        }
        (encoder.write_header())
            .and_then(|mut writer| writer.write_image_data(&samples[..bytes]))
            .expect("writing to memory does not fail");
        file
    };
    vec![
        of(ColorType::Rgb, BitDepth::Eight, 96),
        of(ColorType::Rgba, BitDepth::Eight, 128),
        of(ColorType::Grayscale, BitDepth::Two, 8),
        of(ColorType::GrayscaleAlpha, BitDepth::Sixteen, 128),
        of(ColorType::Indexed, BitDepth::Four, 16),
        include_bytes!("images/seed_gray.jpg").to_vec(),
        include_bytes!("images/seed_progressive.jpg").to_vec(),
    ]
}

fn idx_file(array: &HostArray) -> Vec<u8> {
    let dtype = match array.ty().dtype() {
        DType::U8 => 0x08,
        DType::S8 => 0x09,
        DType::S16 => 0x0b,
        DType::S32 => 0x0c,
        DType::F32 => 0x0d,
        DType::F64 => 0x0e,
        other => panic!("idx has no element type {other}"),
    };
    let dims = array.ty().dims();
    let mut file = vec![
        0,
        0,
        dtype,
        u8::try_from(dims.len()).expect("the rank is one byte"),
    ];
    dims.iter().for_each(|dim| {
        file.extend(
            u32::try_from(*dim)
                .expect("a dimension is four bytes")
                .to_be_bytes(),
        )
    });
    for element in array.bytes().chunks_exact(array.ty().dtype().size()) {
        let mut element = element.to_vec();
        if cfg!(target_endian = "little") {
            element.reverse();
        }
        file.extend(element);
    }
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .expect("writing to memory does not fail")
}
