//! Damage to files and folders.

use std::{
    fmt, fs, io,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use crate::{process::unlink, random::Random};

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
    let others: Vec<&String> = names
        .iter()
        .filter(|other| {
            let apart =
                !other.starts_with(&name) && !name.starts_with(*other) && !other.ends_with(".so");
            let same_kind = |found: std::fs::Metadata| {
                if is_folder {
                    found.is_dir()
                } else {
                    found.is_file()
                }
            };
            apart && root.join(other).symlink_metadata().is_ok_and(same_kind)
        })
        .collect();
    let takes_other = matches!(kind, Kind::Replace | Kind::Swap);
    if takes_other && others.is_empty() {
        return Ok(None);
    }
    let other = takes_other.then(|| (*random.pick(&others)).clone());
    // A plugin with an unchanged time is trusted: only its digest shows the damage, and digests are
    // not taken at each start.
    let unseen = !is_folder && !name.ends_with(".so") && random.percent(30);
    let times = (
        metadata.modified()?,
        SystemTime::now() + Duration::from_secs(1),
    );
    let mut damaged = Damaged {
        kind,
        name,
        other,
        unseen,
        detail: String::new(),
    };
    damaged.detail = apply(root, &damaged, is_folder, random)?;
    if matches!(
        kind,
        Kind::Truncate | Kind::FlipBit | Kind::Empty | Kind::Append
    ) && !is_folder
    {
        let time = if unseen { times.0 } else { times.1 };
        fs::File::options()
            .append(true)
            .open(&path)?
            .set_modified(time)?;
    }
    Ok(Some(damaged))
}

fn apply(
    root: &Path,
    damaged: &Damaged,
    is_folder: bool,
    random: &mut Random,
) -> io::Result<String> {
    let path = root.join(&damaged.name);
    let other = damaged.other.as_ref().map(|other| root.join(other));
    let remove = |path: &Path| {
        if is_folder {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    };
    match damaged.kind {
        Kind::Truncate => {
            unlink(&path)?;
            let length = fs::metadata(&path)?.len();
            let left = random.next_u64() % length.max(1);
            fs::File::options().write(true).open(&path)?.set_len(left)?;
            return Ok(format!(" from {length} to {left} bytes"));
        }
        Kind::FlipBit => {
            unlink(&path)?;
            let mut bytes = fs::read(&path)?;
            if bytes.is_empty() {
                return Ok(" (empty)".to_owned());
            }
            // A short run reads mostly the beginning of large files.
            let end = if random.percent(50) {
                bytes.len()
            } else {
                bytes.len().min(20_000)
            };
            let (at, bit) = (random.below(end), random.below(8));
            bytes[at] ^= 1 << bit;
            fs::write(&path, bytes)?;
            return Ok(format!(", bit {bit} of byte {at}"));
        }
        Kind::Empty => {
            remove(&path)?;
            fs::write(&path, "")?;
        }
        Kind::Append => {
            unlink(&path)?;
            let bytes: Vec<u8> = (0..1 + random.below(64))
                .map(|_| random.next_u64() as u8)
                .collect();
            io::Write::write_all(&mut fs::File::options().append(true).open(&path)?, &bytes)?;
        }
        Kind::Replace => {
            let other = other.expect("it was drawn");
            remove(&path)?;
            if is_folder {
                crate::process::link_tree(&other, &path)?
            } else {
                _ = fs::copy(&other, &path)?
            }
        }
        Kind::Swap => {
            let (other, between) = (other.expect("it was drawn"), root.join("between"));
            fs::rename(&path, &between)?;
            fs::rename(&other, &path)?;
            fs::rename(&between, &other)?;
        }
        Kind::Remove => remove(&path)?,
        Kind::Directory => {
            remove(&path)?;
            fs::create_dir(&path)?;
        }
        Kind::Pipe => {
            remove(&path)?;
            let made = Command::new("mkfifo").arg(&path).status()?;
            if !made.success() {
                return Err(io::Error::other(format!("mkfifo: {made}")));
            }
        }
        Kind::DanglingLink => {
            remove(&path)?;
            symlink("nowhere", &path)?;
        }
        Kind::LinkLoop => {
            remove(&path)?;
            symlink(path.file_name().expect("it has a name"), &path)?;
        }
        Kind::DeviceLink => {
            remove(&path)?;
            symlink("/dev/full", &path)?;
        }
    }
    Ok(String::new())
}
