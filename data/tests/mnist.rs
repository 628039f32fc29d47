//! The real images, installed in the cache where they are missing by the real clients (npm; apt-get
//! where there is one).

use std::process::Command;

use halite_core::{DType, TensorType};
use halite_data::{Dataset, Mnist, Rows};
use halite_fetch::{Cache, Quiet};

#[test]
fn first_sample_of_mnist_is_a_five() {
    let cache = Cache::open(None).unwrap();
    let train = Mnist::Digits.train(&cache, &mut Quiet).unwrap();
    let test = Mnist::Digits.test(&cache, &mut Quiet).unwrap();
    assert_eq!((train.len(), test.len()), (60_000, 10_000));
    assert_eq!(train.fields()[0].ty, TensorType::new(DType::U8, [28, 28]));
    assert_eq!(
        counts(&train),
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    );
    let mut rows = Rows::zeros(train.fields(), 2).unwrap();
    train.read(0, &mut rows.sample_mut(1)).unwrap();
    assert_eq!(rows.sample(1).values::<u8>(1).unwrap(), [5]);
    let ink: u32 = rows
        .sample(1)
        .bytes(0)
        .iter()
        .map(|&pixel| u32::from(pixel))
        .sum();
    assert_eq!(ink, 27_525);
    assert!(
        rows.sample(0).bytes(0).iter().all(|&pixel| pixel == 0),
        "the other row is untouched"
    );
}

#[test]
fn fashion_mnist_has_6000_of_each_class() {
    if Command::new("apt-get").arg("--version").output().is_err() {
        println!("skipped: there is no apt-get here");
        return;
    }
    let cache = Cache::open(None).unwrap();
    assert_eq!(
        counts(&Mnist::Fashion.train(&cache, &mut Quiet).unwrap()),
        [6000; 10]
    );
    assert_eq!(
        counts(&Mnist::Fashion.test(&cache, &mut Quiet).unwrap()),
        [1000; 10]
    );
}

#[test]
fn unknown_name_is_rejected_with_the_known_ones() {
    assert_eq!("fashion".parse::<Mnist>().unwrap(), Mnist::Fashion);
    let error = "cifar".parse::<Mnist>().unwrap_err().to_string();
    assert!(
        error.contains("`cifar`") && error.contains("expected mnist or fashion"),
        "{error}"
    );
}

fn counts(dataset: &halite_data::InMemory) -> [usize; 10] {
    let mut counts = [0; 10];
    dataset.arrays()[1]
        .as_slice::<u8>()
        .unwrap()
        .iter()
        .for_each(|&label| counts[usize::from(label)] += 1);
    counts
}
