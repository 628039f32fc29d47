//! Header, sections, and the tables of strings, dialects, operation names and properties.

use std::{borrow::Cow, fmt};

use halite_core::Result;

use super::cursor::{Cursor, check_index, corrupt, unsupported};
use crate::{
    Version,
    vhlo::{VhloOp, split_version},
};

/// First bytes of MLIR bytecode.
pub(super) const MAGIC: [u8; 4] = *b"ML\xefR";
/// Before the version, in the producer of a portable artifact.
pub(super) const PRODUCER: &str = "StableHLO_v";

/// Versions of bytecode that changed the encoding.
pub(super) mod format {
    pub(crate) const DIALECT_VERSIONS: u64 = 1;
    pub(crate) const LAZY_REGIONS: u64 = 2;
    pub(crate) const USE_LISTS: u64 = 3;
    pub(crate) const OPTIONAL_ARGUMENT_LOCATIONS: u64 = 4;
    pub(crate) const PROPERTIES: u64 = 5;
    pub(crate) const NEWEST: u64 = 6;
}

/// Numbers of sections.
pub(super) mod section {
    pub(crate) const STRINGS: u8 = 0;
    pub(crate) const DIALECTS: u8 = 1;
    pub(crate) const ENTRIES: u8 = 2;
    pub(crate) const OFFSETS: u8 = 3;
    pub(crate) const IR: u8 = 4;
    pub(crate) const DIALECT_VERSION: u8 = 7;
    pub(crate) const PROPERTIES: u8 = 8;
    pub(crate) const COUNT: usize = 9;
}

/// Parts of an operation, by the bits of its mask.
pub(super) mod part {
    pub(crate) const ATTRIBUTES: u8 = 1;
    pub(crate) const RESULTS: u8 = 2;
    pub(crate) const OPERANDS: u8 = 4;
    pub(crate) const SUCCESSORS: u8 = 8;
    pub(crate) const REGIONS: u8 = 0x10;
    pub(crate) const USE_LISTS: u8 = 0x20;
    pub(crate) const PROPERTIES: u8 = 0x40;
}

/// The parts of an artifact, with tables that are not decoded further.
pub(super) struct Sections<'a> {
    /// Version of bytecode.
    pub(super) format: u64,
    pub(super) strings: Strings<'a>,
    pub(super) operations: Vec<OpName<'a>>,
    pub(super) attributes: Vec<Entry<'a>>,
    pub(super) types: Vec<Entry<'a>>,
    /// Properties of operations, each the encoded attributes.
    pub(super) properties: Vec<Cursor<'a>>,
    pub(super) ir: Cursor<'a>,
}

impl<'a> Sections<'a> {
    pub(super) fn read(file: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(file);
        if !file.starts_with(&MAGIC) {
            return Err(corrupt(
                0,
                "not MLIR bytecode, which starts with `ML\\xEFR`",
            ));
        }
        cursor.part(MAGIC.len() as u64)?;
        let format = cursor.varint()?;
        if format > format::NEWEST {
            let newest = format::NEWEST;
            let message =
                format_args!("bytecode version {format}; versions up to {newest} are known");
            return Err(unsupported(4, message));
        }
        check_producer(&mut cursor)?;
        let mut found = [None; section::COUNT];
        while !cursor.is_empty() {
            let position = cursor.position();
            let (number, contents) = cursor.section()?;
            match found.get_mut(usize::from(number)) {
                Some(section @ None) => *section = Some(contents),
                Some(Some(_)) => {
                    return Err(corrupt(position, format_args!("a second section {number}")));
                }
                None => return Err(corrupt(position, format_args!("unknown section {number}"))),
            }
        }
        let section = |number: u8| {
            let section = found[usize::from(number)];
            section.ok_or_else(|| corrupt(file.len(), format_args!("no section {number}")))
        };
        let strings = Strings::read(section(section::STRINGS)?)?;
        let (dialects, operations) = dialects(section(section::DIALECTS)?, &strings, format)?;
        let (attributes, types) = entries(
            section(section::OFFSETS)?,
            section(section::ENTRIES)?,
            &dialects,
        )?;
        let properties = match format {
            format::PROPERTIES.. => properties(section(section::PROPERTIES)?)?,
            _ => Vec::new(),
        };
        Ok(Sections {
            format,
            strings,
            operations,
            attributes,
            types,
            properties,
            ir: section(section::IR)?,
        })
    }
}

/// Refuses artifacts of a newer version. Other producers may write the same dialects.
fn check_producer(cursor: &mut Cursor<'_>) -> Result<()> {
    let position = cursor.position();
    let producer = String::from_utf8_lossy(cursor.nul_terminated()?);
    let version = producer.strip_prefix(PRODUCER).map(str::parse::<Version>);
    match version {
        Some(Ok(version)) if version.release() > Version::NEWEST.release() => Err(unsupported(
            position,
            format_args!(
                "StableHLO {version}; versions up to {} are known: serialize the program for one \
                 of them",
                Version::NEWEST
            ),
        )),
        _ => Ok(()),
    }
}

/// The table of strings.
#[derive(Default)]
pub(super) struct Strings<'a>(Vec<&'a [u8]>);

impl<'a> Strings<'a> {
    fn read(mut cursor: Cursor<'a>) -> Result<Self> {
        let count = cursor.count("strings")?;
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            lengths.push((cursor.varint()?, cursor.position()));
        }
        // Lengths are of the last string first, and count the final byte 0.
        let mut strings = Vec::with_capacity(count);
        for (length, position) in lengths.into_iter().rev() {
            let bytes = cursor.part(length)?.rest();
            let Some((0, text)) = bytes.split_last() else {
                return Err(corrupt(position, "a string without a final byte 0"));
            };
            strings.push(text);
        }
        cursor.finish("the strings")?;
        Ok(Strings(strings))
    }

    /// The string that the next index names.
    pub(super) fn next(&self, cursor: &mut Cursor<'_>) -> Result<&'a str> {
        let position = cursor.position();
        self.at(cursor.varint()?, position)
    }

    /// The string that the next index names, which may be of any bytes.
    pub(super) fn next_bytes(&self, cursor: &mut Cursor<'_>) -> Result<&'a [u8]> {
        let position = cursor.position();
        self.bytes_at(cursor.varint()?, position)
    }

    fn bytes_at(&self, index: u64, position: usize) -> Result<&'a [u8]> {
        let index = check_index(index, self.0.len(), position, "string")?;
        Ok(self.0[index])
    }

    fn at(&self, index: u64, position: usize) -> Result<&'a str> {
        std::str::from_utf8(self.bytes_at(index, position)?)
            .map_err(|_| unsupported(position, format_args!("string {index} is not UTF-8")))
    }
}

/// A dialect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect<'a> {
    Builtin,
    Vhlo,
    Shardy,
    Other(&'a str),
}

impl Dialect<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Dialect::Builtin => "builtin",
            Dialect::Vhlo => "vhlo",
            Dialect::Shardy => "sdy",
            Dialect::Other(name) => name,
        }
    }
}

/// The name of an operation.
#[derive(Debug)]
pub(super) struct OpName<'a> {
    pub(super) dialect: Dialect<'a>,
    /// The name without dialect.
    pub(super) name: &'a str,
    /// Its version, if it is an operation of VHLO that is known.
    pub(super) vhlo: Option<&'static VhloOp>,
    /// Whether the producer knew the operation, and so its properties.
    pub(super) registered: bool,
}

impl OpName<'_> {
    /// The name that [`OpKind::from_attributes`](crate::OpKind::from_attributes) expects.
    pub(super) fn stablehlo(&self) -> Cow<'_, str> {
        match (self.dialect, self.vhlo) {
            (_, Some(op)) => op.name.into(),
            (Dialect::Vhlo, None) => split_version(self.name).map_or(self.name, |it| it.0).into(),
            _ => self.to_string().into(),
        }
    }

    /// Whether it ends a region.
    pub(super) fn is_return(&self) -> bool {
        matches!(
            (self.dialect, self.name),
            (Dialect::Vhlo, "return_v1") | (Dialect::Shardy, "return")
        )
    }
}

impl fmt::Display for OpName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.dialect.name(), self.name)
    }
}

/// Reads the dialects and the names of operations.
fn dialects<'a>(
    mut cursor: Cursor<'a>,
    strings: &Strings<'a>,
    format: u64,
) -> Result<(Vec<Dialect<'a>>, Vec<OpName<'a>>)> {
    let count = cursor.count("dialects")?;
    let mut dialects = Vec::with_capacity(count);
    for _ in 0..count {
        let position = cursor.position();
        let (index, versioned) = match format {
            format::DIALECT_VERSIONS.. => cursor.flagged()?,
            _ => (cursor.varint()?, false),
        };
        dialects.push(match strings.at(index, position)? {
            "builtin" => Dialect::Builtin,
            "vhlo" => Dialect::Vhlo,
            "sdy" => Dialect::Shardy,
            other => Dialect::Other(other),
        });
        if versioned {
            let position = cursor.position();
            let (number, _) = cursor.section()?;
            if number != section::DIALECT_VERSION {
                let message = format_args!("section {number} in place of a dialect's version");
                return Err(corrupt(position, message));
            }
        }
    }
    if format >= format::OPTIONAL_ARGUMENT_LOCATIONS {
        cursor.varint()?; // The number of names, which groups repeat.
    }
    let mut operations = Vec::new();
    while !cursor.is_empty() {
        let dialect = dialects[cursor.index(dialects.len(), "dialect")?];
        for _ in 0..cursor.count("operations")? {
            let position = cursor.position();
            let (index, registered) = match format {
                format::PROPERTIES.. => cursor.flagged()?,
                _ => (cursor.varint()?, true),
            };
            let name = strings.at(index, position)?;
            operations.push(OpName {
                dialect,
                name,
                vhlo: (dialect == Dialect::Vhlo)
                    .then(|| VhloOp::find(name))
                    .flatten(),
                registered,
            });
        }
    }
    Ok((dialects, operations))
}

/// An attribute or a type, encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) dialect: Dialect<'a>,
    /// Whether it has the dialect's encoding, rather than text.
    pub(super) encoded: bool,
    pub(super) contents: Cursor<'a>,
}

/// Splits the section of attributes and types into entries.
fn entries<'a>(
    mut offsets: Cursor<'a>,
    mut contents: Cursor<'a>,
    dialects: &[Dialect<'a>],
) -> Result<(Vec<Entry<'a>>, Vec<Entry<'a>>)> {
    let attributes = offsets.count("attributes")?;
    let types = offsets.count("types")?;
    let mut table = |count: usize| {
        let mut entries = Vec::with_capacity(count);
        while entries.len() < count {
            let dialect = dialects[offsets.index(dialects.len(), "dialect")?];
            let position = offsets.position();
            let group = offsets.count("entries")?;
            if group > count - entries.len() {
                return Err(corrupt(position, "more entries than the table has"));
            }
            for _ in 0..group {
                let (length, encoded) = offsets.flagged()?;
                entries.push(Entry {
                    dialect,
                    encoded,
                    contents: contents.part(length)?,
                });
            }
        }
        Ok(entries)
    };
    let entries = (table(attributes)?, table(types)?);
    offsets.finish("the offsets of attributes and types")?;
    Ok(entries)
}

/// Splits the section of properties.
fn properties(mut cursor: Cursor<'_>) -> Result<Vec<Cursor<'_>>> {
    let count = cursor.count("properties")?;
    let properties = (0..count).map(|_| {
        let length = cursor.varint()?;
        cursor.part(length)
    });
    properties.collect()
}
