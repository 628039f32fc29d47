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

fn scaled(factor: u8, name: &str, version: Option<&str>) -> impl Dataset {
    let fields = [Field::new(name, TensorType::scalar(DType::U8))];
    let map = data("x", &[1, 2, 3, 4]).map(fields, move |sample, into| {
        into.write(0, &[factor * sample.values::<u8>(0)?[0]])
    });
    let map = match version {
        Some(version) => map.version(version),
        None => map,
    };
    Box::new(map)
}

#[test]
fn map_digest_follows_the_function() {
    let of = |factor, name| scaled(factor, name, None).digest().unwrap();
    assert_eq!(of(2, "x"), of(2, "x"));
    assert_ne!(of(2, "x"), of(3, "x"));
    assert_ne!(of(2, "x"), of(2, "y"));
    // Adapters around it follow too.
    let part = |factor| {
        let [first, _] = scaled(factor, "x", None).split(2, 7).unwrap();
        first.digest().unwrap()
    };
    assert_eq!(part(2), part(2));
    assert_ne!(part(2), part(3));
}

#[test]
fn version_of_a_map_stands_for_its_function() {
    let of = |factor, version| scaled(factor, "x", Some(version)).digest().unwrap();
    assert_eq!(of(2, "crop 1"), of(3, "crop 1"));
    assert_ne!(of(2, "crop 1"), of(2, "crop 2"));
    assert!(of(2, "crop 1").ends_with(", map \"crop 1\""));
}

#[test]
fn map_of_no_samples_has_a_digest() {
    let none = data("x", &[1, 2]).subset([]).unwrap();
    let fields = [Field::new("x", TensorType::scalar(DType::U8))];
    assert!(none.map(fields, |_, _| Ok(())).digest().is_some());
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
