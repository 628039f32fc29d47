//! Sequences of different lengths, padded to one.

use halite_core::HostArray;
use halite_data::{Dataset, DatasetExt, InMemory, Loader, LoaderOptions, Padded, Rows};

/// Sequences of pairs, of these lengths: -1, -2, ..
fn sequences(lengths: &[usize]) -> Vec<HostArray> {
    let of = |&length: &usize| {
        let values: Vec<i16> = (1..=2 * length as i16).map(|value| -value).collect();
        HostArray::from_slice(&values, [length, 2]).unwrap()
    };
    lengths.iter().map(of).collect()
}

#[test]
fn batches_have_padding_with_lengths() {
    let labels = HostArray::from_slice(&[5u8, 6, 7], [3]).unwrap();
    let labels = InMemory::new([("label", labels)]).unwrap();
    let data = Padded::new("pairs", sequences(&[2, 0, 3]), 3, 9i16).unwrap();
    let loader = Loader::new(data.zip(labels).unwrap(), LoaderOptions::new(3)).unwrap();
    let batch = loader.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.arrays[0].ty().to_string(), "s16[3, 3, 2]");
    assert_eq!(
        batch.arrays[0].as_slice::<i16>().unwrap(),
        [
            -1, -2, -3, -4, 9, 9, 9, 9, 9, 9, 9, 9, -1, -2, -3, -4, -5, -6
        ]
    );
    assert_eq!(batch.arrays[1].as_slice::<u32>().unwrap(), [2, 0, 3]);
    assert_eq!(batch.arrays[2].as_slice::<u8>().unwrap(), [5, 6, 7]);
}

#[test]
fn mask_is_true_for_rows() {
    let lengths = Padded::new("pairs", sequences(&[2, 0, 3]), 3, 0i16).unwrap();
    let data = lengths.clone().with_mask();
    assert_ne!(data.digest(), lengths.digest());
    assert_eq!(data.fields()[1].ty.to_string(), "bool[3]");
    let mut rows = Rows::zeros(data.fields(), 3).unwrap();
    (0..3).for_each(|index| data.read(index, &mut rows.sample_mut(index)).unwrap());
    assert_eq!(rows.arrays()[1].bytes(), [1, 1, 0, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn sequences_that_do_not_fit_are_errors() {
    let error = |sequences, length| {
        let result = Padded::new("pairs", sequences, length, 0i16);
        result.unwrap_err().to_string()
    };
    assert_eq!(
        error(sequences(&[2, 4]), 3),
        "padded: sequence 1 of `pairs` is s16[4, 2]; expected at most s16[3, 2]"
    );
    let mut mixed = sequences(&[2]);
    mixed.push(HostArray::from_slice(&[0i16; 3], [1, 3]).unwrap());
    assert!(error(mixed, 3).contains("sequence 1"));
    let bytes = vec![HostArray::from_slice(&[0u8; 2], [1, 2]).unwrap()];
    assert!(error(bytes, 3).contains("u8[1, 2]; expected at most s16[3, 2]"));
    assert!(error(vec![HostArray::scalar(0i16)], 3).contains("scalar"));
    assert!(error(Vec::new(), 3).contains("no sequences"));
}

#[test]
fn values_beyond_a_padded_field_are_errors() {
    let data = Padded::new("pairs", sequences(&[1]), 3, 0i16).unwrap();
    let mut rows = Rows::zeros(data.fields(), 2).unwrap();
    let mut sample = rows.sample_mut(1);
    assert_eq!(sample.write_padded(0, &[1i16, 2, 3, 4], 8).unwrap(), 2);
    assert_eq!(sample.write_padded(0, &[] as &[i16], 8).unwrap(), 0);
    for values in [&[0i16; 3][..], &[0; 8]] {
        let error = sample.write_padded(0, values, 8).unwrap_err().to_string();
        assert!(error.contains("expected at most 3 rows of 2"), "{error}");
    }
    assert!(sample.write_padded(0, &[0u8; 2], 8).is_err());
    assert!(sample.write_padded(1, &[0u32; 2], 8).is_err());
    assert_eq!(rows.sample(0).values::<i16>(0).unwrap(), [0; 6]);
    assert_eq!(rows.sample(1).values::<i16>(0).unwrap(), [8; 6]);
}
