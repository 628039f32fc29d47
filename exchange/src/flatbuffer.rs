//! FlatBuffers (<https://flatbuffers.dev/internals/>): a reader that checks every access, and a
//! writer. Fields are named by their slot in the schema.
//!
//! The reader never panics and never recurses: code that walks a tree of tables must bound its
//! depth.

mod read;
mod write;

pub(crate) use read::{Buffer, Table};
pub(crate) use write::{Value, write};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_field_is_read_back() {
        let child = |number| Value::Table(vec![(1, Value::U16(number))]);
        let bytes = write(&[
            (0, Value::U8(7)),
            (1, Value::U32(70_000)),
            (3, Value::Text("name".into())),
            (4, Value::Bytes(vec![1, 2, 3])),
            (5, Value::U16s(vec![4, 5])),
            (7, Value::List(vec![child(8), child(9)])),
            (8, Value::List(vec![Value::Text("a".into())])),
        ]);
        let buffer = Buffer::new(&bytes);
        let root = buffer.root().unwrap();
        assert_eq!(root.u8(0).unwrap(), 7);
        assert_eq!(root.u32(1).unwrap(), 70_000);
        assert_eq!(root.u16(2).unwrap(), 0);
        assert_eq!(root.text(3).unwrap(), Some("name"));
        assert_eq!(root.bytes(4).unwrap(), [1, 2, 3]);
        assert_eq!(root.u16s(5).unwrap(), [4, 5]);
        let numbers: Vec<u16> = (root.tables(7).unwrap().iter())
            .map(|child| child.u16(1).unwrap())
            .collect();
        assert_eq!(numbers, [8, 9]);
        assert_eq!(root.texts(8).unwrap(), ["a"]);
    }

    #[test]
    fn truncated_buffers_are_errors() {
        let bytes = write(&[(0, Value::Text("a long name".into()))]);
        for length in 0..bytes.len() {
            let buffer = Buffer::new(&bytes[..length]);
            let read = buffer.root().and_then(|root| root.text(0).map(drop));
            // The last byte is the zero after the string, which readers do not need.
            assert!(read.is_err() || length == bytes.len() - 1, "{length}");
        }
    }
}
