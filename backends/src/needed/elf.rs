//! The dynamic section of an ELF library, read without loading it.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use object::{
    Endianness, ReadCache, ReadRef, elf,
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
};

/// Largest dynamic section that is read, in bytes; those of real libraries have some hundred.
const MOST_BYTES: u64 = 1 << 20;

/// Length of the longest string that is read, in bytes. The search path of AMD's plugin has 4,200.
const LONGEST: u64 = 1 << 16;

/// What a library needs, and where it says to search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dynamic {
    /// `DT_NEEDED`: libraries that are loaded with it.
    pub(super) needed: Vec<String>,
    /// `DT_RUNPATH`: directories for its own needs, separated by `:`.
    pub(super) runpath: Option<String>,
    /// `DT_RPATH`: as `runpath`, for the needs of its needs, too. Ignored where `runpath` is given.
    pub(super) rpath: Option<String>,
}

impl Dynamic {
    /// Reads the section of a file for this machine's architecture.
    ///
    /// # Errors
    /// If the file cannot be read, is not a 64-bit little-endian ELF library for this machine, or
    /// is damaged.
    pub(super) fn of_file(path: &Path) -> Result<Self, String> {
        // Opening a pipe would wait for a writer.
        let file = match path.metadata() {
            Ok(metadata) if metadata.is_file() => File::open(path),
            Ok(_) => Err(io::Error::other("not a file")),
            Err(error) => Err(error),
        };
        let file = file.map_err(|error| error.to_string())?;
        Self::read(&ReadCache::new(file))
    }

    /// Reads the section of the bytes of a file.
    ///
    /// # Errors
    /// As [`of_file`](Self::of_file).
    pub(super) fn read<'data>(data: impl ReadRef<'data>) -> Result<Self, String> {
        let damaged = |error: object::Error| format!("not a readable ELF library: {error}");
        let header = elf::FileHeader64::<Endianness>::parse(data).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let machine = header.e_machine.get(endian);
        if endian != Endianness::Little || Some(machine) != this_machine() {
            return Err(format!("for another architecture (ELF machine {machine})"));
        }
        let segments = header.program_headers(endian, data).map_err(damaged)?;
        let dynamic = segments
            .iter()
            .find(|segment| segment.p_type(endian) == elf::PT_DYNAMIC);
        // A library without it needs nothing.
        let Some(dynamic) = dynamic else {
            return Ok(Self::default());
        };
        if dynamic.p_filesz(endian) > MOST_BYTES {
            let size = dynamic.p_filesz(endian);
            return Err(format!("damaged: a dynamic section of {size} bytes"));
        }
        let entries = dynamic.dynamic(endian, data).map_err(damaged)?;
        let entries = entries.unwrap_or_default().iter();
        let entries = entries
            .map(|entry| (entry.tag(endian), entry.val(endian)))
            .take_while(|(tag, _)| *tag != elf::DT_NULL);
        let value = |wanted: i64| {
            let found = entries.clone().find(|(tag, _)| *tag == wanted);
            found.map(|(_, value)| value)
        };
        // The range of the file with the strings.
        let strings = match (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) {
            (Some(address), Some(size)) => {
                let start = segments
                    .iter()
                    .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
                    .find_map(|segment| {
                        let within = address.checked_sub(segment.p_vaddr(endian))?;
                        let inside = within < segment.p_filesz(endian);
                        inside.then(|| segment.p_offset(endian).checked_add(within))?
                    });
                let range = start.and_then(|start| Some(start..start.checked_add(size)?));
                range.ok_or("damaged: its strings lie outside of it")?
            }
            _ => 0..0,
        };
        let string = |offset: u64| {
            let outside = || "damaged: a string lies outside of it".to_owned();
            let start = strings.start.checked_add(offset).ok_or_else(outside)?;
            let length = strings.end.checked_sub(start).ok_or_else(outside)?;
            let bytes = data.read_bytes_at(start, length.min(LONGEST));
            let bytes = bytes.map_err(|()| outside())?;
            let end = bytes.iter().position(|&byte| byte == 0);
            let text = &bytes[..end.ok_or_else(outside)?];
            String::from_utf8(text.into()).map_err(|_| "a name that is not UTF-8".to_owned())
        };
        let needed = entries.clone().filter(|(tag, _)| *tag == elf::DT_NEEDED);
        let needed = needed.map(|(_, offset)| string(offset));
        Ok(Dynamic {
            needed: needed.collect::<Result<_, _>>()?,
            runpath: value(elf::DT_RUNPATH).map(string).transpose()?,
            rpath: value(elf::DT_RPATH).map(string).transpose()?,
        })
    }
}

/// Returns the number of this machine's architecture in ELF headers, if halite knows it.
pub(super) fn this_machine() -> Option<u16> {
    match std::env::consts::ARCH {
        "x86_64" => Some(elf::EM_X86_64),
        "aarch64" => Some(elf::EM_AARCH64),
        "riscv64" => Some(elf::EM_RISCV),
        _ => None,
    }
}

/// Returns the directories of a search path of a library in the directory `origin`.
pub(super) fn directories(path: &str, origin: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for part in path.split(':') {
        let origin = origin.to_string_lossy();
        let part = part
            .replace("${ORIGIN}", &origin)
            .replace("$ORIGIN", &origin)
            .replace("${PLATFORM}", std::env::consts::ARCH)
            .replace("$PLATFORM", std::env::consts::ARCH);
        let part = part.replace("${LIB}", "$LIB");
        if part.contains("$LIB") {
            let places = ["lib64", "lib", &multiarch()];
            found.extend(places.map(|place| PathBuf::from(part.replace("$LIB", place))));
        } else if part.is_empty() {
            found.push(".".into());
        } else {
            found.push(part.into());
        }
    }
    found
}

/// Returns Debian's directory of this architecture below `/usr`.
pub(super) fn multiarch() -> String {
    format!("lib/{}-linux-gnu", std::env::consts::ARCH)
}
