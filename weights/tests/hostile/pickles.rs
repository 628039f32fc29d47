//! Pickles of PyTorch.

use halite_core::ErrorKind;
use halite_weights::open_bytes;
use zip::CompressionMethod;

use crate::hostile::{archive, check, error_of};

/// An archive of `torch.save` with this pickle and a storage of 8 bytes.
fn torch(pickle: &[u8]) -> Vec<u8> {
    archive(
        &[("x/data.pkl", pickle), ("x/data/0", &[0; 8])],
        CompressionMethod::Stored,
    )
}

#[test]
fn pickles_that_ask_for_code_are_refused() {
    let marker = std::env::temp_dir().join(format!("halite-pickle-{}", std::process::id()));
    let command = format!("touch {}", marker.display());
    let system = [
        &b"\x80\x02cos\nsystem\nX"[..],
        &(command.len() as u32).to_le_bytes(),
        command.as_bytes(),
        b"\x85Rcbuiltins\neval\n\x86.",
    ]
    .concat();
    let (kind, text) = error_of(torch(&system));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        text.starts_with("the pickle asks for `builtins.eval`, `os.system`, which could run code"),
        "{text}"
    );
    assert!(!marker.exists());
    // Objects of other classes, with attributes.
    let object = b"\x80\x02cmodel\nNet\n)\x81}X\x01\x00\x00\x00aK\x01sb.";
    assert!(
        error_of(torch(object))
            .1
            .starts_with("the pickle asks for `model.Net`")
    );
    // An opcode that looks up an object in a registry.
    check(
        torch(b"\x80\x02\x82\x01."),
        "the opcode 0x82 is none that files of tensors need",
    );
    check(
        torch(b"\x80\x02(ios\nsystem\n."),
        "the opcode `i` (0x69) is none that files of tensors need",
    );
}

/// `_rebuild_tensor_v2` of a storage of `count` floats, with these bytes for offset, sizes, strides.
fn tensor(count: u8, rest: &[u8]) -> Vec<u8> {
    [
        &b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000NK"[..],
        &[count],
        b"tQ",
        rest,
        b"tR.",
    ]
    .concat()
}

#[test]
fn tensors_beyond_their_storage_are_refused() {
    // Offset 0, sizes [3], strides [1].
    check(
        torch(&tensor(2, b"K\x00K\x03\x85K\x01\x85")),
        "`tensor` is f32[3] with strides [1] at element 0, its storage has 8 bytes",
    );
    // 2^60 elements, all the same one.
    check(
        torch(&tensor(2, b"K\x00\x8a\x08\0\0\0\0\0\0\0\x10\x85K\x00\x85")),
        "`tensor` is f32[1152921504606846976] of a storage of 8 bytes, which it repeats; save \
         `tensor.contiguous()`",
    );
    check(
        torch(&tensor(2, b"K\x00J\xff\xff\xff\xff\x85K\x01\x85")),
        "a tensor is not made of a storage, an offset, sizes and strides",
    );
    let missing = tensor(2, b"K\x00K\x02\x85K\x01\x85");
    let entries: &[(&str, &[u8])] = &[("x/data.pkl", &missing)];
    check(
        archive(entries, CompressionMethod::Stored),
        "the storage `0` of `tensor` is missing",
    );
}

#[test]
fn storages_of_another_size_are_refused() {
    for count in [1, 3] {
        check(
            torch(&tensor(count, b"K\x00K\x01\x85K\x01\x85")),
            &format!(
                "the storage `0` of `tensor` has 8 bytes, and the pickle says {count} elements of 4"
            ),
        );
    }
    assert!(open_bytes(torch(&tensor(2, b"K\x00K\x01\x85K\x01\x85")), "the same").is_ok());
}

#[test]
fn nested_pickles_are_bounded() {
    // A list of two of the list before, sixty times: 2^60 values in 400 bytes.
    let mut doubled = b"\x80\x02]".to_vec();
    for _ in 0..60 {
        doubled.extend(b"q\x00]h\x00ah\x00a");
    }
    doubled.push(b'.');
    let (_, text) = error_of(torch(&doubled));
    assert!(
        text.starts_with("dicts and lists are nested deeper than 32"),
        "{text}"
    );
    // A list that contains itself.
    assert!(
        error_of(torch(b"\x80\x02]q\x00h\x00a."))
            .1
            .contains("nested deeper")
    );
    // A million lists, each in the one before; dropping them does not recurse.
    let deep = [&b"\x80\x02"[..], &b"](".repeat(1 << 20), b"."].concat();
    error_of(torch(&deep));
}

/// Few bytes of a file, many in memory.
#[test]
fn pickles_that_grow_are_refused() {
    let text = [&b"X\x00\x00\x10\x00"[..], &[b'a'; 1 << 20]].concat();
    let many = 5 << 20;
    for (pickle, expected) in [
        (
            [b"\x80\x02", &b"(".repeat(many)[..]].concat(),
            "more than 4194304 elements",
        ),
        (
            [b"\x80\x02N", &b"2".repeat(many)[..]].concat(),
            "more than 4194304 elements",
        ),
        (
            [
                b"\x80\x02]",
                &[b"(N", &b"2".repeat(1 << 20)[..], b"e"].concat().repeat(5)[..],
            ]
            .concat(),
            "more than 4194304 elements",
        ),
        (
            [b"\x80\x02", &b"N".repeat(many)[..]].concat(),
            "more than 1048576 values",
        ),
        (
            [b"\x80\x02", &text[..], b"q\x00h\x00\x93."].concat(),
            "the name of a global has 1048576 bytes",
        ),
        (
            vec![b'N'; (64 << 20) + 1],
            "`x/data.pkl` has 67108865 bytes, more than 67108864",
        ),
    ] {
        let entries: &[(&str, &[u8])] = &[("x/data.pkl", &pickle)];
        let (_, text) = error_of(archive(entries, CompressionMethod::Deflated));
        assert!(text.contains(expected), "{text}");
    }
}

/// `_rebuild_tensor_v2` with more arguments: requires_grad, hooks, metadata.
#[test]
fn lazy_conjugates_are_refused() {
    let with = |metadata: &[u8]| {
        let rest = [b"K\x00K\x02\x85K\x01\x85\x89N", metadata].concat();
        torch(&tensor(2, &rest))
    };
    for plain in [&b"N"[..], b"}", b"}X\x04\x00\x00\x00conj\x89s"] {
        assert!(open_bytes(with(plain), "plain").is_ok());
    }
    let (kind, text) = error_of(with(b"}X\x04\x00\x00\x00conj\x88s"));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        text.starts_with("a tensor is a lazy conjugate or negative"),
        "{text}"
    );
}

#[test]
fn tensors_of_other_kinds_are_named() {
    let quantized = b"\x80\x02ctorch\nQInt8Storage\nctorch._utils\n_rebuild_qtensor\n\x86.";
    let (kind, text) = error_of(torch(quantized));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        text.starts_with(
            "the pickle has tensors of `torch.QInt8Storage`, `torch._utils._rebuild_qtensor`"
        ),
        "{text}"
    );
}

#[test]
fn keys_that_are_not_names_are_refused() {
    let plain = tensor(2, b"K\x00K\x02\x85K\x01\x85");
    let value = &plain[2..plain.len() - 1];
    let keyed = |value: &[u8]| torch(&[b"\x80\x02}N", value, b"s."].concat());
    let (_, text) = error_of(keyed(value));
    assert!(
        text.starts_with("a key on the way to a tensor is neither"),
        "{text}"
    );
    assert!(open_bytes(keyed(b"K\x01"), "a number").is_ok());
}

/// Strided views of one storage, each of which is read from its first to its last element.
#[test]
fn storages_are_not_read_a_thousand_times() {
    let plain = tensor(100, b"K\x00K\x02\x85K\x01\x85");
    let strided = tensor(100, b"K\x00K\x02\x85KQ\x85");
    let list = |count: usize| {
        let views = [&strided[2..strided.len() - 1], b"a"]
            .concat()
            .repeat(count);
        let pickle = [b"\x80\x02]", &views[..], &plain[2..plain.len() - 1], b"a."].concat();
        let storage = [0; 400];
        let entries: &[(&str, &[u8])] = &[("x/data.pkl", &pickle), ("x/data/0", &storage)];
        archive(entries, CompressionMethod::Stored)
    };
    assert!(open_bytes(list(70), "few").is_ok());
    let (_, text) = error_of(list(100));
    assert!(
        text.starts_with("its tensors share storages of 400 bytes"),
        "{text}"
    );
}
