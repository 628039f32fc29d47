//! Class folders of training and of validation.

use std::{path::Path, str::FromStr};

use halite_core::{Error, Result};

use super::{
    Transforms,
    folder::{ImageFolder, folders},
};

/// The folders of training and validation among those of a data set, in each of which are the
/// folders of the classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    /// Found by their names: `train` or `training`, and `val`, `valid` or `validation`, in any
    /// case; else `train` and `test` alone. Without any of these names, each folder is a class.
    #[default]
    Find,
    /// None: each folder is a class.
    None,
    /// Folders of these names.
    Named {
        /// Of training.
        train: String,
        /// Of validation.
        validation: String,
    },
}

/// `none`, or the names of the folders of training and validation, separated by a comma.
impl FromStr for Parts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(',') {
            None if text == "none" => Ok(Parts::None),
            Some((train, validation)) if !(train.is_empty() || validation.is_empty()) => {
                Ok(Parts::Named {
                    train: train.to_owned(),
                    validation: validation.to_owned(),
                })
            }
            _ => Err(
                "expected the names of the folders of training and validation, such as \
                 `train,val`, or `none` if each folder is a class"
                    .to_owned(),
            ),
        }
    }
}

/// Class folders of a data set: of training, and of validation if they are apart.
///
/// ```no_run
/// // Needs folders of images.
/// use halite_data::images::{ClassFolders, Framing, Parts};
///
/// // pictures/train/cat/1.jpg, pictures/train/dog/2.jpg, pictures/valid/cat/3.jpg, ..
/// let pictures = ClassFolders::open("pictures", &Parts::Find, Framing::new(224))?;
/// assert!(pictures.validation.is_some());
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClassFolders {
    /// Images to train on.
    pub train: ImageFolder,
    /// Images to validate on, of the same classes; `None` if no folder is for validation.
    pub validation: Option<ImageFolder>,
}

const CONTEXT: &str = "class folders";

/// Names of parts, without regard to case.
const TRAIN: &[&str] = &["train", "training"];
const VALIDATION: &[&str] = &["val", "valid", "validation"];
const TEST: &[&str] = &["test", "testing"];

/// Folders that a message names.
const NAMED: usize = 10;

impl ClassFolders {
    /// Opens the folders of the classes in `root`, or in its parts.
    ///
    /// # Errors
    /// Those of [`ImageFolder::open`]; if it is uncertain which folders are parts and which are
    /// classes, or training and validation have different classes.
    pub fn open(
        root: impl AsRef<Path>,
        parts: &Parts,
        transforms: impl Into<Transforms>,
    ) -> Result<Self> {
        let (root, transforms) = (root.as_ref(), transforms.into());
        let found = match parts {
            Parts::Find => find(root)?,
            Parts::None => None,
            Parts::Named { train, validation } => Some([train.clone(), validation.clone()]),
        };
        let Some(names) = found else {
            let train = ImageFolder::open(root, transforms)?;
            return Ok(ClassFolders {
                train,
                validation: None,
            });
        };
        let [train, validation] = names.each_ref().map(|name| root.join(name));
        let validation = ImageFolder::open(validation, transforms.for_validation())?;
        let train = ImageFolder::open(train, transforms)?;
        same_classes(&names, [train.classes(), validation.classes()])?;
        Ok(ClassFolders {
            train,
            validation: Some(validation),
        })
    }
}

/// Names of the folders of training and validation, if there are such.
fn find(root: &Path) -> Result<Option<[String; 2]>> {
    let names: Vec<String> = (folders(root)?.into_iter()).map(|(name, _)| name).collect();
    let named = |known: &[&str]| -> Vec<&String> {
        let is_known = |name: &&String| known.iter().any(|one| name.eq_ignore_ascii_case(one));
        names.iter().filter(is_known).collect()
    };
    let (train, validation, test) = (named(TRAIN), named(VALIDATION), named(TEST));
    let parts = match (&train[..], &validation[..], &test[..]) {
        ([], [], []) => return Ok(None),
        ([train], [validation], [] | [_]) => Some([train, validation]),
        // A folder of images without classes is for predictions.
        ([train], [], [test]) if names.len() == 2 && !folders(&root.join(test))?.is_empty() => {
            Some([train, test])
        }
        _ => None,
    };
    if let Some(parts) = parts {
        return Ok(Some(parts.map(|name| (*name).clone())));
    }
    let more = if names.len() > NAMED { ", .." } else { "" };
    let shown: Vec<String> = (names.iter().take(NAMED))
        .map(|name| format!("`{name}`"))
        .collect();
    let message = format!(
        "{} has the folders {}{more}, which may be classes or parts of the data; `Parts` (--parts \
         TRAIN,VALIDATION) names the folders of training and validation, and is `none` if each folder \
         is a class",
        root.display(),
        shown.join(", ")
    );
    Err(Error::invalid(CONTEXT, message))
}

/// # Errors
/// If the classes of training and validation differ.
fn same_classes(names: &[String; 2], classes: [&[String]; 2]) -> Result<()> {
    let [ours, theirs] = classes;
    if ours == theirs {
        return Ok(());
    }
    let lacks = |some: &[String], all: &[String]| {
        let missing = all.iter().filter(|name| !some.contains(name));
        missing.take(5).cloned().collect::<Vec<_>>().join(", ")
    };
    let [train, validation] = names;
    let message = format!(
        "`{train}` and `{validation}` have different classes; `{train}` lacks [{}], `{validation}` \
         lacks [{}]",
        lacks(ours, theirs),
        lacks(theirs, ours)
    );
    Err(Error::invalid(CONTEXT, message))
}
