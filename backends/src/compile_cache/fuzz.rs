//! Fuzzing of the compile cache's parsers: see [`fuzz`](crate::fuzz).

use std::time::Duration;

use halite_core::{Compiled, ProgramKey};
use halite_pjrt::seal;

use super::{
    entry::{Entry, Header},
    options,
};

const KEY: ProgramKey = ProgramKey([7; 32]);

pub(crate) fn entry(data: &[u8]) -> bool {
    let sealed = seal(data.to_vec());
    let mut accepted = false;
    for bytes in [data, &sealed] {
        let header = Header::of_bytes(bytes);
        if let Ok(entry) = Entry::parse(bytes, &KEY) {
            assert_eq!(
                header.as_ref(),
                Ok(&entry.header),
                "a list shows what is loaded"
            );
            assert_eq!(entry.to_bytes(), bytes, "an entry has one form");
            accepted = true;
        }
    }
    accepted
}

pub(crate) fn entry_seeds() -> Vec<Vec<u8>> {
    let unsealed = |name: &str, payload: &[u8]| {
        let compiled = Compiled {
            name,
            platform: "cpu",
            compile_time: Duration::from_millis(1234),
        };
        let mut bytes = Entry {
            header: Header::of(&KEY, &compiled),
            payload,
        }
        .to_bytes();
        bytes.truncate(bytes.len() - 32);
        bytes
    };
    vec![
        unsealed("train step", b""),
        unsealed("", b"code"),
        unsealed(&"\u{e9}".repeat(150), &[9; 300]),
    ]
}

pub(crate) fn size(text: &str) -> bool {
    match options::parse_bytes(text) {
        None => false,
        Some(bytes) => {
            assert_eq!(
                options::parse_bytes(&bytes.to_string()),
                Some(bytes),
                "plain bytes are a size"
            );
            true
        }
    }
}
