//! A small data set of handwritten digits, which is part of this crate.

use halite_core::Result;

use crate::{Dataset, DatasetExt, InMemory, Subset, idx};

/// One sample in this many is of [`test`], the others are of [`train`].
const TEST_ONE_IN: usize = 5;

/// 1,438 images of handwritten digits to train on.
///
/// The fields are `image: u8[8, 8]`, 0 black to 255 white in 17 levels, and `label: u8[]`, 0 to 9.
/// They are the test set of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits",
/// UCI Machine Learning Repository, 1998 (<https://doi.org/10.24432/C50P49>), under the licence
/// [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/), as distributed by scikit-learn. Its
/// levels 0 to 16 are multiplied by 255/16.
///
/// ```
/// use halite_data::{Dataset, digits};
///
/// assert_eq!((digits::train()?.len(), digits::test()?.len()), (1438, 359));
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If the host has too little memory.
pub fn train() -> Result<Subset<InMemory>> {
    part(|index| index % TEST_ONE_IN != TEST_ONE_IN - 1)
}

/// 359 images to test on: every fifth of the data set, by the same writers as those of [`train`].
///
/// # Errors
/// If the host has too little memory.
pub fn test() -> Result<Subset<InMemory>> {
    part(|index| index % TEST_ONE_IN == TEST_ONE_IN - 1)
}

fn part(belongs: impl Fn(&usize) -> bool) -> Result<Subset<InMemory>> {
    let all = all()?;
    let indices = (0..all.len()).filter(belongs).collect::<Vec<_>>();
    all.subset(indices)
}

fn all() -> Result<InMemory> {
    let mut images = idx::parse(include_bytes!("digits/images.idx3.gz"))?;
    for level in images.bytes_mut() {
        *level = (u16::from(*level) * 255 / 16) as u8;
    }
    let labels = idx::parse(include_bytes!("digits/labels.idx1.gz"))?;
    Ok(InMemory::new([("image", images), ("label", labels)])?.named("digits"))
}

#[cfg(test)]
mod tests {
    use crate::{Dataset, Rows};

    /// Counts and sums of the file that scikit-learn distributes.
    #[test]
    fn samples_are_those_of_the_repository() {
        let all = super::all().unwrap();
        assert_eq!(all.len(), 1_797);
        let mut counts = [0; 10];
        let mut rows = Rows::zeros(all.fields(), 1).unwrap();
        let (mut levels, mut brightest) = (0, 0);
        for index in 0..all.len() {
            all.read(index, &mut rows.sample_mut(0)).unwrap();
            let sample = rows.sample(0);
            counts[usize::from(sample.values::<u8>(1).unwrap()[0])] += 1;
            let level = |&pixel: &u8| u32::from(pixel).div_ceil(16).min(16);
            levels += sample.bytes(0).iter().map(level).sum::<u32>();
            brightest = brightest.max(sample.bytes(0).iter().copied().max().unwrap());
        }
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!((levels, brightest), (561_718, 255));
    }
}
