//! Files of arrays and of lines.

use halite_core::HostArray;
use halite_weights::{TensorSource, npy, open_bytes};

use crate::{ArrayFile, Dataset, Rows, files::json_lines};

/// Most bytes of a row that is read.
const LARGEST_ROW: usize = 1 << 16;

/// A file of arrays, whose rows are compared with the arrays.
pub fn array_file(data: &[u8]) -> bool {
    let open = || open_bytes(data.to_vec(), "fuzz");
    let Ok((whole, rows)) = open().and_then(|file| Ok((open()?, ArrayFile::of(file)?))) else {
        return false;
    };
    assert!(!rows.is_empty(), "a file without rows is refused");
    let row_bytes: usize = rows.fields().iter().map(|field| field.ty.bytes()).sum();
    if row_bytes > LARGEST_ROW {
        return true;
    }
    let mut read = Rows::zeros(rows.fields(), 1).expect("a small row");
    for index in [0, rows.len() / 2, rows.len() - 1] {
        if rows.read(index, &mut read.sample_mut(0)).is_err() {
            continue;
        }
        for (place, field) in rows.fields().iter().enumerate() {
            let elements = field.ty.elements();
            let mut expected = vec![0; field.ty.bytes()];
            let part = index * elements..(index + 1) * elements;
            let result = whole.read_elements(place, part, &mut expected);
            assert!(result.is_ok(), "a row is a part of its array");
            assert_eq!(read.sample(0).bytes(place), expected);
        }
    }
    true
}

/// Valid inputs of [`array_file`].
pub fn array_file_seeds() -> Vec<Vec<u8>> {
    let array = HostArray::from_slice(&[0.5f32; 6], [3, 2]).expect("six values");
    let order = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
    let columns = [
        b"\x93NUMPY\x01\0",
        &(order.len() as u16).to_le_bytes()[..],
        order.as_bytes(),
        &[1, 4, 2, 5, 3, 6],
    ];
    let header = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]}}"#;
    let safetensors = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &[1; 10],
    ];
    vec![npy::write(&array), columns.concat(), safetensors.concat()]
}

/// A file of JSON lines: its lines are those of the text that are not empty, in order.
pub fn json_lines(data: &[u8]) -> bool {
    let lines = json_lines::places(data).expect("memory is read");
    let lines = lines.expect("a short file has short lines");
    let found: Vec<&[u8]> = lines.iter().map(|line| &data[line.range()]).collect();
    let expected = data.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let expected: Vec<&[u8]> = expected.filter(|line| !line.is_empty()).collect();
    assert_eq!(found, expected, "lines are those of the text");
    // In pieces, as from a file.
    let pieces = std::io::BufReader::with_capacity(3, data);
    let again = json_lines::places(pieces).expect("memory is read");
    assert_eq!(
        again.as_ref(),
        Ok(&lines),
        "places do not depend on buffers"
    );
    let parsed = |line| json_lines::parse::<serde_json::Value>(line).is_ok();
    !found.is_empty() && found.into_iter().all(parsed)
}

/// Valid inputs of [`json_lines`](fn@json_lines).
pub fn json_lines_seeds() -> Vec<Vec<u8>> {
    [
        "{\"a\": [1, -2.5e3], \"b\": \"\\u00e9\"}\n\n  null \r\n[]\n",
        "true",
        "\n1\n2",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
