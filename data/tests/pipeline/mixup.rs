//! Mixup and CutMix, against the formulas of their papers.

use halite_core::{Error, ErrorKind, HostArray, Result};
use halite_data::{
    Dataset, DatasetExt, Field, InMemory, Key, Loader, LoaderOptions, Position, Rows, Sample,
    SampleMut,
};

const SAMPLES: usize = 10;
const HEIGHT: usize = 12;
const WIDTH: usize = 17;

/// Images of one value, 20 times the class, and the class, which is the index.
fn images() -> InMemory {
    let pixels: Vec<u8> = (0..SAMPLES)
        .flat_map(|class| vec![20 * class as u8; HEIGHT * WIDTH * 3])
        .collect();
    let image = HostArray::from_slice(&pixels, [SAMPLES, HEIGHT, WIDTH, 3]).unwrap();
    let labels: Vec<u32> = (0..SAMPLES as u32).collect();
    let labels = HostArray::from_slice(&labels, [SAMPLES]).unwrap();
    InMemory::new([("image", image), ("label", labels.clone()), ("id", labels)]).unwrap()
}

fn one_hot() -> impl Dataset {
    images().one_hot("label", SAMPLES).unwrap()
}

/// Calls `check` with many samples and their indices.
fn each(data: &dyn Dataset, epochs: u64, mut check: impl FnMut(usize, Sample<'_>)) {
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    for epoch in 0..epochs {
        for index in 0..data.len() {
            let key = Key {
                seed: 1,
                epoch,
                index,
            };
            data.read(index, &mut rows.sample_mut(0).with_key(key))
                .unwrap();
            check(index, rows.sample(0));
        }
    }
}

/// Class and share of the partner; `None` if it is the sample itself.
fn partner(index: usize, label: &[f32]) -> Option<(usize, f64)> {
    let sum: f32 = label.iter().sum();
    assert!((sum - 1.0).abs() < 1e-6, "{label:?}");
    let others = label
        .iter()
        .enumerate()
        .filter(|&(class, &share)| class != index && share > 0.0);
    let others: Vec<_> = others
        .map(|(class, &share)| (class, f64::from(share)))
        .collect();
    assert!(others.len() <= 1, "{label:?}");
    others.first().copied()
}

#[test]
fn one_hot_has_one_for_the_class() {
    each(&one_hot(), 1, |index, sample| {
        let label = sample.values::<f32>(1).unwrap();
        assert_eq!(label[index], 1.0);
        assert_eq!(label.iter().sum::<f32>(), 1.0);
        assert_eq!(sample.values::<u32>(2).unwrap(), [index as u32]);
    });
    let data = images().one_hot("label", 9).unwrap();
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    let error = data.read(9, &mut rows.sample_mut(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "one-hot: `label` of sample 9 is 9; expected 0 to 8"
    );
}

/// Zhang et al. 2018: x = l x1 + (1 - l) x2, y = l y1 + (1 - l) y2.
#[test]
fn mixup_is_the_convex_combination() {
    let data = one_hot().mixup("image", "label", 1.0).unwrap();
    let mut partners = [0; SAMPLES];
    each(&data, 20, |index, sample| {
        assert_eq!(sample.values::<u32>(2).unwrap(), [index as u32]);
        let (other, share) =
            partner(index, sample.values::<f32>(1).unwrap()).unwrap_or((index, 0.0));
        partners[other] += 1;
        let expected = 20.0 * ((1.0 - share) * index as f64 + share * other as f64);
        for &pixel in sample.bytes(0) {
            assert!(
                (f64::from(pixel) - expected).abs() <= 0.5001,
                "{pixel} {expected}"
            );
        }
    });
    assert!(partners.iter().all(|&count| count > 4), "{partners:?}");
}

#[test]
fn mixup_of_floats_is_not_rounded() {
    let values = HostArray::from_slice(&[0.0f32, 1.0, 2.0, 3.0], [4, 1]).unwrap();
    let data = InMemory::new([("x", values.clone()), ("y", values)]).unwrap();
    let data = data.mixup("x", "y", 0.4).unwrap();
    let mut fractions = 0;
    each(&data, 10, |_, sample| {
        let x = sample.values::<f32>(0).unwrap();
        assert_eq!(x, sample.values::<f32>(1).unwrap());
        fractions += usize::from(x[0].fract() != 0.0);
    });
    assert!(fractions > 20, "{fractions}");
}

/// Yun et al. 2019: a rectangle of the partner, and labels by its share of the pixels.
#[test]
fn cutmix_label_is_the_share_of_pixels() {
    let data = one_hot().cutmix("image", "label", 1.0).unwrap();
    let mut mixed = 0;
    each(&data, 20, |index, sample| {
        let Some((other, share)) = partner(index, sample.values::<f32>(1).unwrap()) else {
            assert!(sample.bytes(0).iter().all(|&byte| byte == 20 * index as u8));
            return;
        };
        mixed += 1;
        let mut pasted = Vec::new();
        for (place, pixel) in sample.bytes(0).chunks_exact(3).enumerate() {
            assert_eq!(pixel, [pixel[0]; 3]);
            match pixel[0] == 20 * other as u8 {
                true => pasted.push([place / WIDTH, place % WIDTH]),
                false => assert_eq!(pixel[0], 20 * index as u8),
            }
        }
        // As many pixels as the smallest rectangle around them.
        let side = |axis: usize| {
            let places = || pasted.iter().map(|place| place[axis]);
            places().max().unwrap() - places().min().unwrap() + 1
        };
        assert_eq!(pasted.len(), side(0) * side(1));
        let expected = pasted.len() as f64 / (HEIGHT * WIDTH) as f64;
        assert!((share - expected).abs() < 1e-6, "{share} {expected}");
    });
    assert!(mixed > 120, "{mixed}");
}

/// The mean share of the partner is 1/2 for mixup, and its variance 1 / (4 (2 alpha + 1)).
#[test]
fn shares_have_the_moments_of_beta() {
    for alpha in [0.2, 1.0, 4.0] {
        let data = one_hot().mixup("image", "label", alpha).unwrap();
        let mut shares = Vec::new();
        each(&data, 150, |index, sample| {
            // Of partners that are another sample.
            if let Some((_, share)) = partner(index, sample.values::<f32>(1).unwrap()) {
                shares.push(share);
            }
        });
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares
            .iter()
            .map(|share| (share - mean).powi(2))
            .sum::<f64>()
            / count;
        let expected = 0.25 / (2.0 * alpha + 1.0);
        assert!(
            (mean - 0.5).abs() < 5.0 * (expected / count).sqrt(),
            "{alpha}: {mean}"
        );
        assert!(
            (variance / expected - 1.0).abs() < 0.15,
            "{alpha}: {variance}"
        );
    }
}

#[test]
fn either_method_is_drawn() {
    let data = one_hot().mixup("image", "label", 1.0).unwrap();
    let data = data.or_cutmix(1.0).unwrap().probability(0.5).unwrap();
    let (mut same, mut cut, mut blended) = (0, 0, 0);
    each(&data, 100, |index, sample| {
        let mut values = sample.bytes(0).to_vec();
        values.sort_unstable();
        values.dedup();
        match (values.len(), values[0] == 20 * index as u8) {
            (1, true) => same += 1,
            (1, false) => blended += 1,
            _ => cut += 1,
        }
    });
    // 500 and more unmixed ones, 250 of either method less partners that are the sample itself.
    assert!(
        same > 450 && cut > 150 && blended > 150,
        "{same} {cut} {blended}"
    );
}

#[test]
fn mixed_batches_resume_to_the_bit() {
    let loader = |workers| {
        let noise = images().map_random("noise", images().fields(), |sample, random, into| {
            into.write(0, &vec![random.below(256) as u8; HEIGHT * WIDTH * 3])?;
            into.write(1, sample.values::<u32>(1)?)?;
            into.write(2, sample.values::<u32>(2)?)
        });
        let data = noise.one_hot("label", SAMPLES).unwrap();
        let data = data
            .mixup("image", "label", 0.4)
            .unwrap()
            .or_cutmix(1.0)
            .unwrap();
        let options = LoaderOptions {
            workers,
            ..LoaderOptions::shuffled(5, 7)
        };
        Loader::new(data, options).unwrap()
    };
    let position = Position { epoch: 3, batch: 1 };
    let whole: Vec<_> = loader(2).epoch(3).map(Result::unwrap).collect();
    let resumed = loader(0).read(position).unwrap();
    assert_eq!(resumed.arrays, whole[1].arrays);
    let other = loader(0).read(Position { epoch: 4, batch: 1 }).unwrap();
    assert_ne!(other.arrays[0], whole[1].arrays[0]);
}

fn error<T>(result: halite_core::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn fields_that_do_not_mix_are_errors() {
    let label = error(images().mixup("image", "label", 0.2));
    assert!(
        label.contains("`label` is u32[]") && label.contains("one_hot"),
        "{label}"
    );
    let missing = error(images().mixup("picture", "label", 0.2));
    assert!(
        missing.contains("no field `picture`; it has `image`"),
        "{missing}"
    );
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(one_hot().mixup("image", "label", alpha).is_err(), "{alpha}");
        assert!(
            one_hot().cutmix("image", "label", alpha).is_err(),
            "{alpha}"
        );
    }
    let mixed = || one_hot().mixup("image", "label", 0.2).unwrap();
    assert!(mixed().probability(1.1).is_err());
    let flat = images().one_hot("id", SAMPLES).unwrap();
    assert!(flat.cutmix("label", "id", 1.0).is_err());
    let digests = [mixed().digest(), mixed().or_cutmix(1.0).unwrap().digest()];
    assert_ne!(digests[0], digests[1]);
    assert_ne!(digests[0], one_hot().digest());
}

/// Images of which one cannot be read.
struct Damaged(InMemory, usize);

impl Dataset for Damaged {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        match index == self.1 {
            true => Err(Error::new(ErrorKind::Corrupt, "read", "damaged")),
            false => self.0.read(index, into),
        }
    }
}

#[test]
fn damaged_sample_is_no_partner() {
    let data = Damaged(images(), 3).one_hot("label", SAMPLES).unwrap();
    let data = data.mixup("image", "label", 1.0).unwrap();
    let mut rows = Rows::zeros(data.fields(), 1).unwrap();
    for epoch in 0..20 {
        for index in 0..SAMPLES {
            let key = Key {
                seed: 1,
                epoch,
                index,
            };
            let read = data.read(index, &mut rows.sample_mut(0).with_key(key));
            assert_eq!(read.is_err(), index == 3, "{index}");
            let label = rows.sample(0).values::<f32>(1).unwrap();
            assert!(index == 3 || partner(index, label).is_none_or(|(other, _)| other != 3));
        }
    }
}
