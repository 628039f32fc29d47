//! Damage to files and folders.

use std::{
    fmt, fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::{
    process::{link_tree, unlink},
    random::Random,
};

/// One kind of damage to one file or folder.
#[derive(Clone, Debug)]
pub(super) struct Damaged {
    kind: Kind,
    name: String,
    other: Option<String>,
    /// Whether the modification time is unchanged, as after bit rot.
    unseen: bool,
    detail: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Truncate,
    FlipBit,
    Empty,
    Append,
    Replace,
    Swap,
    Remove,
    Directory,
    Pipe,
    DanglingLink,
    LinkLoop,
    DeviceLink,
}

const OF_FILES: [Kind; 14] = [
    Kind::Truncate,
    Kind::FlipBit,
    Kind::FlipBit,
    Kind::FlipBit,
    Kind::Empty,
    Kind::Append,
    Kind::Replace,
    Kind::Swap,
    Kind::Remove,
    Kind::Directory,
    Kind::Pipe,
    Kind::DanglingLink,
    Kind::LinkLoop,
    Kind::DeviceLink,
];
const OF_FOLDERS: [Kind; 6] = [
    Kind::Remove,
    Kind::Replace,
    Kind::Swap,
    Kind::Empty,
    Kind::Pipe,
    Kind::DanglingLink,
];

impl Damaged {
    /// Returns whether this file, or a folder that contains it, was damaged.
    pub(super) fn touches(&self, name: &str) -> bool {
        let below = |folder: &str| {
            name == folder
                || name
                    .strip_prefix(folder)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        below(&self.name) || self.other.as_deref().is_some_and(below)
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)?;
        if let Some(other) = &self.other {
            write!(f, " with {other}")?;
        }
        write!(
            f,
            "{}{}",
            self.detail,
            if self.unseen { " (time unchanged)" } else { "" }
        )
    }
}

/// Damages one of the files or folders `names` below `root`; `None` if earlier damage removed it.
pub(super) fn draw(
    root: &Path,
    names: &[String],
    random: &mut Random,
) -> io::Result<Option<Damaged>> {
    // Damaging a plugin costs a copy of 200 MB, so it is drawn more rarely.
    let mut name = random.pick(names).clone();
    for _ in 0..3 {
        if name.ends_with(".so") {
            name = random.pick(names).clone();
        }
    }
    let path = root.join(&name);
    // Pipes and links are results of earlier damage, which is enough.
    let Some(metadata) = path
        .symlink_metadata()
        .ok()
        .filter(|found| found.is_file() || found.is_dir())
    else {
        return Ok(None);
    };
    let is_folder = metadata.is_dir();
    let kind = *if is_folder {
        random.pick(&OF_FOLDERS)
    } else {
        random.pick(&OF_FILES)
    };
    let mut other = None;
    if matches!(kind, Kind::Replace | Kind::Swap) {
        let others = replacements(root, names, &name, is_folder);
        if others.is_empty() {
            return Ok(None);
        }
        other = Some((*random.pick(&others)).clone());
    }
    let mut damaged = Damaged {
        kind,
        // A plugin with an unchanged time is trusted: only its digest shows the damage, and
        // digests are not taken at each start.
        unseen: !is_folder && !name.ends_with(".so") && random.percent(30),
        name,
        other,
        detail: String::new(),
    };
    let before = metadata.modified()?;
    let after = SystemTime::now() + Duration::from_secs(1);
    damaged.detail = apply(root, &damaged, is_folder, random)?;
    let is_same_file = matches!(
        kind,
        Kind::Truncate | Kind::FlipBit | Kind::Empty | Kind::Append
    );
    if is_same_file && !is_folder {
        let time = if damaged.unseen { before } else { after };
        fs::File::options()
            .append(true)
            .open(&path)?
            .set_modified(time)?;
    }
    Ok(Some(damaged))
}

/// The files, or the folders, that `name` may be replaced by: not plugins, and none inside another.
fn replacements<'a>(
    root: &Path,
    names: &'a [String],
    name: &str,
    is_folder: bool,
) -> Vec<&'a String> {
    let fits = |other: &&String| {
        let nested = other.starts_with(name) || name.starts_with(*other);
        let same_kind = |found: fs::Metadata| match is_folder {
            true => found.is_dir(),
            false => found.is_file(),
        };
        let found = root.join(other).symlink_metadata();
        !nested && !other.ends_with(".so") && found.is_ok_and(same_kind)
    };
    names.iter().filter(fits).collect()
}

/// Applies damage; returns a description of what was drawn for it.
fn apply(
    root: &Path,
    damaged: &Damaged,
    is_folder: bool,
    random: &mut Random,
) -> io::Result<String> {
    let path = root.join(&damaged.name);
    let other = || root.join(damaged.other.as_ref().expect("it was drawn"));
    match damaged.kind {
        Kind::Truncate => return truncate(&path, random),
        Kind::FlipBit => return flip_bit(&path, random),
        Kind::Append => append(&path, random)?,
        Kind::Swap => {
            let between = root.join("between");
            fs::rename(&path, &between)?;
            fs::rename(other(), &path)?;
            fs::rename(&between, other())?;
        }
        _ => {
            match is_folder {
                true => fs::remove_dir_all(&path)?,
                false => fs::remove_file(&path)?,
            }
            put_in_place(damaged.kind, &path, other)?;
        }
    }
    Ok(String::new())
}

fn truncate(path: &Path, random: &mut Random) -> io::Result<String> {
    unlink(path)?;
    let length = fs::metadata(path)?.len();
    let left = random.next_u64() % length.max(1);
    fs::File::options().write(true).open(path)?.set_len(left)?;
    Ok(format!(" from {length} to {left} bytes"))
}

fn flip_bit(path: &Path, random: &mut Random) -> io::Result<String> {
    unlink(path)?;
    let mut bytes = fs::read(path)?;
    if bytes.is_empty() {
        return Ok(" (empty)".to_owned());
    }
    // A short run reads mostly the beginning of large files.
    let end = match random.percent(50) {
        true => bytes.len(),
        false => bytes.len().min(20_000),
    };
    let (at, bit) = (random.below(end), random.below(8));
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes)?;
    Ok(format!(", bit {bit} of byte {at}"))
}

fn append(path: &Path, random: &mut Random) -> io::Result<()> {
    unlink(path)?;
    let bytes: Vec<u8> = (0..1 + random.below(64))
        .map(|_| random.next_u64() as u8)
        .collect();
    fs::File::options()
        .append(true)
        .open(path)?
        .write_all(&bytes)
}

/// Puts something else in the place of a file or folder that was removed.
fn put_in_place(kind: Kind, path: &Path, other: impl Fn() -> PathBuf) -> io::Result<()> {
    match kind {
        Kind::Empty => fs::write(path, ""),
        Kind::Replace if other().is_dir() => link_tree(&other(), path),
        Kind::Replace => fs::copy(other(), path).map(drop),
        Kind::Directory => fs::create_dir(path),
        Kind::Pipe => {
            let made = Command::new("mkfifo").arg(path).status()?;
            match made.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("mkfifo: {made}"))),
            }
        }
        Kind::DanglingLink => symlink("nowhere", path),
        Kind::LinkLoop => symlink(path.file_name().expect("it has a name"), path),
        Kind::DeviceLink => symlink("/dev/full", path),
        Kind::Remove | Kind::Truncate | Kind::FlipBit | Kind::Append | Kind::Swap => Ok(()),
    }
}
