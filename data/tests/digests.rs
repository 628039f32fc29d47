//! Digests of datasets: equal for equal samples, different where a value, a name, a type or the
//! order differs.

use halite_core::{DType, HostArray, TensorType};
use halite_data::{Dataset, DatasetExt, Field, InMemory, SampleMut, text::TokenWindows};

fn data(name: &str, values: &[u8]) -> InMemory {
    InMemory::new([(name, HostArray::from_slice(values, [values.len()]).unwrap())]).unwrap()
}

#[test]
fn digest_follows_values_names_types() {
    let digest = data("x", &[1, 2, 3, 4]).digest().unwrap();
    assert!(
        digest.starts_with("sha256 ") && digest.len() == 71,
        "{digest}"
    );
    assert_eq!(data("x", &[1, 2, 3, 4]).digest().unwrap(), digest);
    let signed = HostArray::from_slice(&[1i8, 2, 3, 4], [4]).unwrap();
    for other in [
        data("x", &[1, 2, 4, 3]),
        data("y", &[1, 2, 3, 4]),
        InMemory::new([("x", signed)]).unwrap(),
    ] {
        assert_ne!(other.digest().unwrap(), digest);
    }
}

#[test]
fn subset_digest_follows_the_indices() {
    let of = |indices: &[usize]| {
        data("x", &[1, 2, 3, 4])
            .subset(indices)
            .unwrap()
            .digest()
            .unwrap()
    };
    assert_eq!(of(&[0, 2]), of(&[0, 2]));
    assert_ne!(of(&[0, 2]), of(&[2, 0]));
    assert_ne!(
        of(&[0, 2]),
        data("x", &[1, 2, 3, 5])
            .subset([0, 2])
            .unwrap()
            .digest()
            .unwrap()
    );
}

#[test]
fn window_digest_follows_tokens_length() {
    let of = |tokens: &[u32], length| TokenWindows::new(tokens, length).unwrap().digest().unwrap();
    assert_eq!(of(&[1, 2, 3, 4, 5], 2), of(&[1, 2, 3, 4, 5], 2));
    assert_ne!(of(&[1, 2, 3, 4, 5], 2), of(&[1, 2, 3, 4, 5], 4));
    assert_ne!(of(&[1, 2, 3, 4, 5], 2), of(&[1, 2, 3, 5, 4], 2));
}

#[test]
fn mapped_data_has_the_digest_of_its_source() {
    let inner = data("x", &[1, 2, 3, 4]);
    let digest = inner.digest();
    let fields = [Field::new("x", TensorType::scalar(DType::U8))];
    assert_eq!(Box::new(inner.map(fields, |_, _| Ok(()))).digest(), digest);
}

#[test]
fn unknown_data_has_no_digest() {
    struct Unknown;
    impl Dataset for Unknown {
        fn len(&self) -> usize {
            1
        }

        fn fields(&self) -> &[Field] {
            &[]
        }

        fn read(&self, _: usize, _: &mut SampleMut<'_>) -> halite_core::Result<()> {
            Ok(())
        }
    }
    assert_eq!(Unknown.digest(), None);
    assert_eq!(Unknown.subset([0]).unwrap().digest(), None);
}
