//! Assembly of an artifact from its tables and its program.

use super::{
    encoder::Encoder,
    interned::{DIALECTS, Entry, Interned, Tables},
    sections::{MAGIC, PRODUCER, format, section},
};

/// The header, the tables and the program.
pub(super) fn file(mut tables: Tables, ir: &Encoder) -> Encoder {
    let mut dialects = Encoder::default();
    dialects.size(DIALECTS.len());
    for dialect in DIALECTS {
        dialects.flagged(tables.string(dialect), false);
    }
    let names = std::mem::take(&mut tables.names);
    dialects.size(names.values().len());
    for group in names
        .values()
        .chunk_by(|left, right| left.dialect == right.dialect)
    {
        dialects.size(group[0].dialect).size(group.len());
        for name in group {
            dialects.flagged(tables.string(&name.name), true);
        }
    }
    let (mut offsets, mut entries) = (Encoder::default(), Encoder::default());
    offsets
        .size(tables.attributes.values().len())
        .size(tables.types.values().len());
    for table in [&tables.attributes, &tables.types] {
        write_entries(table, &mut offsets, &mut entries);
    }
    let mut strings = Encoder::default();
    strings.size(tables.strings.values().len());
    for text in tables.strings.values().iter().rev() {
        strings.size(text.len() + 1);
    }
    for text in tables.strings.values() {
        strings.bytes(text).byte(0);
    }
    let mut properties = Encoder::default();
    properties.size(tables.properties.values().len());
    for value in tables.properties.values() {
        properties.size(value.0.len()).bytes(&value.0);
    }
    let producer = format!("{PRODUCER}{}", tables.version());
    let mut file = Encoder::default();
    file.bytes(&MAGIC)
        .varint(format::NEWEST)
        .bytes(producer.as_bytes())
        .byte(0);
    file.section(section::DIALECTS, &dialects);
    file.section(section::OFFSETS, &offsets);
    file.section(section::ENTRIES, &entries);
    file.section(section::IR, ir);
    file.section(section::STRINGS, &strings);
    file.section(section::PROPERTIES, &properties);
    file
}

fn write_entries(table: &Interned<Entry>, offsets: &mut Encoder, entries: &mut Encoder) {
    for group in table
        .values()
        .chunk_by(|left, right| left.dialect == right.dialect)
    {
        offsets.size(group[0].dialect).size(group.len());
        for entry in group {
            offsets.flagged(entry.contents.0.len(), entry.encoded);
            entries.bytes(&entry.contents.0);
        }
    }
}
