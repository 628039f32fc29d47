//! Validates a shared library before it is loaded: the dynamic loader maps what the headers
//! declare, and touching a page beyond the end of a truncated file kills the process.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use halite_core::{Error, ErrorKind, Result};

const OP: &str = "load plugin";

/// Refuses files that cannot be a plugin for this machine.
///
/// On systems other than Linux it checks only that the file exists: the loader does the rest.
pub(crate) fn check(path: &Path) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        let kind = if error.kind() == std::io::ErrorKind::NotFound {
            ErrorKind::Unavailable
        } else {
            ErrorKind::Io
        };
        Error::new(
            kind,
            OP,
            format!(
                "{} cannot be read; give the path of a PJRT plugin",
                path.display()
            ),
        )
        .caused_by(error)
    };
    // Before it is opened: opening a pipe waits for a writer.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let message = format!(
            "{} is not a file; give the path of the shared library itself",
            path.display()
        );
        return Err(Error::invalid(OP, message));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    if cfg!(target_os = "linux") {
        check_elf(&mut file, metadata.len(), path, unreadable)
    } else {
        Ok(())
    }
}

/// Checks that a file is a shared library for this machine, and that it is as long as its headers
/// declare.
fn check_elf(
    file: &mut File,
    length: u64,
    path: &Path,
    unreadable: impl Fn(std::io::Error) -> Error,
) -> Result<()> {
    let mut header = [0; 64];
    let got = read_up_to(file, 0, &mut header).map_err(&unreadable)?;
    if got < 4 || header[..4] != *b"\x7fELF" {
        let message = format!(
            "{} is not a shared library ({length} bytes, no ELF header); is it a plugin's `.so`?",
            path.display()
        );
        return Err(Error::invalid(OP, message));
    }
    if got < header.len() {
        return Err(truncated(path, length, header.len() as u64));
    }
    check_machine(&header, path)?;

    // Segments are what is mapped. The section table is at the end of most files, so it shows best
    // that a file was truncated.
    let mut needed = 0;
    let segments = table(file, length, path, Table::segments(&header), &unreadable)?;
    for entry in segments.chunks_exact(56) {
        needed = needed.max(u64_at(entry, 8).saturating_add(u64_at(entry, 32)));
    }
    const NOBITS: u32 = 8;
    let sections = table(file, length, path, Table::sections(&header), &unreadable)?;
    for entry in sections.chunks_exact(64) {
        if u32_at(entry, 4) != NOBITS {
            needed = needed.max(u64_at(entry, 24).saturating_add(u64_at(entry, 32)));
        }
    }
    if needed > length {
        Err(truncated(path, length, needed))
    } else {
        Ok(())
    }
}

/// Checks that an ELF header is that of a shared library for this machine.
fn check_machine(header: &[u8; 64], path: &Path) -> Result<()> {
    const SHARED_LIBRARY: u16 = 3;

    let shown = path.display();
    let (class, order) = (header[4], header[5]);
    if class != 2 || order != 1 {
        let message =
            format!("{shown} is not a 64-bit little-endian library, which this machine needs");
        return Err(Error::invalid(OP, message));
    }
    let machine = u16_at(header, 18);
    if machine != this_machine() {
        let message = format!(
            "{shown} is for {}, this machine is {}; install the plugin built for this architecture",
            machine_name(machine),
            std::env::consts::ARCH,
        );
        return Err(Error::new(ErrorKind::Unsupported, OP, message));
    }
    if u16_at(header, 16) != SHARED_LIBRARY {
        let message = format!("{shown} is an ELF file but not a shared library");
        return Err(Error::invalid(OP, message));
    }
    Ok(())
}

/// One of the two tables of an ELF header.
struct Table {
    offset: u64,
    entry: usize,
    count: usize,
    entry_of_elf64: usize,
}

impl Table {
    fn segments(header: &[u8]) -> Self {
        let [offset, entry, count] = [
            u64_at(header, 32),
            u16_at(header, 54).into(),
            u16_at(header, 56).into(),
        ];
        Table {
            offset,
            entry: entry as usize,
            count: count as usize,
            entry_of_elf64: 56,
        }
    }

    fn sections(header: &[u8]) -> Self {
        let [offset, entry, count] = [
            u64_at(header, 40),
            u16_at(header, 58).into(),
            u16_at(header, 60).into(),
        ];
        Table {
            offset,
            entry: entry as usize,
            count: count as usize,
            entry_of_elf64: 64,
        }
    }
}

fn table(
    file: &mut File,
    length: u64,
    path: &Path,
    table: Table,
    unreadable: impl Fn(std::io::Error) -> Error,
) -> Result<Vec<u8>> {
    if table.count == 0 {
        return Ok(Vec::new());
    }
    if table.entry != table.entry_of_elf64 {
        let message = format!(
            "{} is corrupt: table entries of {} bytes; fetch it again",
            path.display(),
            table.entry
        );
        return Err(Error::new(ErrorKind::Corrupt, OP, message));
    }
    let mut bytes = vec![0; table.entry * table.count];
    let end = table.offset.saturating_add(bytes.len() as u64);
    if end > length {
        return Err(truncated(path, length, end));
    }
    let got = read_up_to(file, table.offset, &mut bytes).map_err(unreadable)?;
    if got < bytes.len() {
        Err(truncated(path, length, end))
    } else {
        Ok(bytes)
    }
}

fn truncated(path: &Path, length: u64, needed: u64) -> Error {
    let message = format!(
        "{} is truncated: {length} bytes, its headers promise at least {needed}; delete it and \
         fetch it again",
        path.display()
    );
    Error::new(ErrorKind::Corrupt, OP, message)
}

fn read_up_to(file: &mut File, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
    file.seek(SeekFrom::Start(offset))?;
    let mut filled = 0;
    while filled < into.len() {
        match file.read(&mut into[filled..])? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const RISCV: u16 = 243;

fn this_machine() -> u16 {
    match std::env::consts::ARCH {
        "aarch64" => AARCH64,
        "riscv64" => RISCV,
        _ => X86_64,
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        X86_64 => "x86_64".to_owned(),
        AARCH64 => "aarch64".to_owned(),
        RISCV => "riscv64".to_owned(),
        other => format!("another architecture (ELF machine {other})"),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
