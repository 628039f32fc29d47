//! Named values: options of callers and attributes of plugins.

use std::{
    alloc::{self, Layout},
    ffi::c_char,
    fmt,
};

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::base::*;

/// The value of an option or attribute. Plugins are strict about the type.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// Text.
    Str(String),
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A 32-bit float.
    Float(f32),
    /// A boolean.
    Bool(bool),
}

impl OptionValue {
    fn type_name(&self) -> &'static str {
        match self {
            OptionValue::Str(_) => "a string",
            OptionValue::Int(_) => "a whole number",
            OptionValue::Ints(_) => "a list of whole numbers",
            OptionValue::Float(_) => "a float",
            OptionValue::Bool(_) => "true or false",
        }
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Str(value) => f.write_str(value),
            OptionValue::Int(value) => value.fmt(f),
            OptionValue::Ints(values) => {
                let words: Vec<_> = values.iter().map(i64::to_string).collect();
                f.write_str(&words.join(","))
            }
            OptionValue::Float(value) => value.fmt(f),
            OptionValue::Bool(value) => value.fmt(f),
        }
    }
}

macro_rules! from {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for OptionValue {
            fn from(value: $rust) -> Self {
                OptionValue::$variant(value.into())
            }
        })*
    };
}

from! { &str => Str, String => Str, i64 => Int, u32 => Int, Vec<i64> => Ints, f32 => Float, bool => Bool }

/// Options by name, in order.
pub type Options = Vec<(String, OptionValue)>;

/// Options with a known type. CPU plugins up to API 0.106 abort the process on another type.
const KNOWN: &[(&str, &str)] = &[
    ("cpu_device_count", "a whole number"),
    ("asynchronous", "true or false"),
    ("process_id", "a whole number"),
    ("node_id", "a whole number"),
    ("num_nodes", "a whole number"),
    ("allocator", "a string"),
    ("platform_name", "a string"),
    ("memory_fraction", "a float"),
    ("preallocate", "true or false"),
    ("visible_devices", "a list of whole numbers"),
    ("max_inflight_computations", "a whole number"),
];

/// Checks the types of known options, and that names are unique.
pub(crate) fn check_options(op: &'static str, options: &Options) -> Result<()> {
    for (index, (name, value)) in options.iter().enumerate() {
        if let Some((_, wanted)) = KNOWN.iter().find(|(known, _)| known == name)
            && *wanted != value.type_name()
        {
            return Err(Error::invalid(
                op,
                format!(
                    "option `{name}` is {wanted}, got {} ({value})",
                    value.type_name()
                ),
            ));
        }
        if options[..index].iter().any(|(other, _)| other == name) {
            return Err(Error::invalid(
                op,
                format!("option `{name}` is given twice"),
            ));
        }
    }
    if let Some((_, OptionValue::Int(count))) =
        options.iter().find(|(name, _)| name == "cpu_device_count")
        && !(1..=4096).contains(count)
    {
        return Err(Error::invalid(
            op,
            format!("option `cpu_device_count` is {count}; expected 1 to 4096"),
        ));
    }
    Ok(())
}

/// Points into `options`, which must outlive the result.
pub(crate) fn to_named(options: &Options) -> Vec<PJRT_NamedValue> {
    let named = |(name, value): &(String, OptionValue)| {
        let (r#type, value, value_size) = match value {
            OptionValue::Str(text) => {
                let pointer = text.as_ptr().cast::<c_char>();
                (
                    PJRT_NamedValue_Type::kString,
                    PJRT_NamedValue_Value {
                        string_value: pointer,
                    },
                    text.len(),
                )
            }
            OptionValue::Int(number) => (
                PJRT_NamedValue_Type::kInt64,
                PJRT_NamedValue_Value {
                    int64_value: *number,
                },
                1,
            ),
            OptionValue::Ints(numbers) => {
                let pointer = numbers.as_ptr();
                (
                    PJRT_NamedValue_Type::kInt64List,
                    PJRT_NamedValue_Value {
                        int64_array_value: pointer,
                    },
                    numbers.len(),
                )
            }
            OptionValue::Float(number) => (
                PJRT_NamedValue_Type::kFloat,
                PJRT_NamedValue_Value {
                    float_value: *number,
                },
                1,
            ),
            OptionValue::Bool(yes) => (
                PJRT_NamedValue_Type::kBool,
                PJRT_NamedValue_Value { bool_value: *yes },
                1,
            ),
        };
        PJRT_NamedValue {
            name: name.as_ptr().cast(),
            name_size: name.len(),
            r#type,
            value,
            value_size,
            ..PJRT_NamedValue::new()
        }
    };
    options.iter().map(named).collect()
}

/// The longest accepted list of devices, attributes or results.
const MOST_VALUES: usize = 1 << 20;
/// The longest accepted string in bytes.
const MOST_TEXT: usize = 1 << 24;
/// The largest accepted program in bytes. A protobuf has at most half of this.
pub(crate) const MOST_CODE: usize = 1 << 32;

/// Copies a plugin's list. Values of an unknown type are skipped.
///
/// # Errors
/// If a size is implausible.
///
/// # Safety
///
/// * `values` points at `count` named values with their texts and lists alive, or `count` is 0.
pub(crate) unsafe fn from_named(
    plugin: &str,
    values: *const PJRT_NamedValue,
    count: usize,
) -> Result<Options> {
    // SAFETY: the caller's condition, also for the texts and lists below.
    let values = unsafe { slice_of(plugin, values, count)? };
    let read = |value: &PJRT_NamedValue| {
        // SAFETY: `type` tells which member of the union is set.
        let read = unsafe {
            match value.r#type {
                PJRT_NamedValue_Type::kString => {
                    OptionValue::Str(text_of(plugin, value.value.string_value, value.value_size)?)
                }
                PJRT_NamedValue_Type::kInt64 => OptionValue::Int(value.value.int64_value),
                PJRT_NamedValue_Type::kInt64List => OptionValue::Ints(
                    slice_of(plugin, value.value.int64_array_value, value.value_size)?.to_vec(),
                ),
                PJRT_NamedValue_Type::kFloat => OptionValue::Float(value.value.float_value),
                PJRT_NamedValue_Type::kBool => OptionValue::Bool(value.value.bool_value),
                _ => return Ok(None),
            }
        };
        // SAFETY: as above.
        Ok(Some((
            unsafe { text_of(plugin, value.name, value.name_size)? },
            read,
        )))
    };
    values
        .iter()
        .filter_map(|value| read(value).transpose())
        .collect()
}

/// The bytes of a plugin's string, which is not NUL-terminated.
///
/// # Errors
/// If the length is implausible.
///
/// # Safety
///
/// * `start` points at `length` bytes that live as long as the result is used, or `length` is 0.
pub(crate) unsafe fn bytes_of<'a>(
    plugin: &str,
    start: *const c_char,
    length: usize,
) -> Result<&'a [u8]> {
    // SAFETY: the caller's condition.
    unsafe { at_most(MOST_TEXT, plugin, start.cast::<u8>(), length) }
}

/// A plugin's string, escaped for printing.
///
/// # Errors
/// If the length is implausible.
///
/// # Safety
///
/// * As for [`bytes_of`].
pub(crate) unsafe fn text_of(plugin: &str, start: *const c_char, length: usize) -> Result<String> {
    // SAFETY: the caller's condition.
    Ok(printable(&String::from_utf8_lossy(unsafe {
        bytes_of(plugin, start, length)?
    })))
}

/// A plugin's list, which may be null when it is empty.
///
/// # Errors
/// If the length is implausible.
///
/// # Safety
///
/// * `start` points at `length` values that live as long as the result is used, or `length` is 0.
pub(crate) unsafe fn slice_of<'a, T>(
    plugin: &str,
    start: *const T,
    length: usize,
) -> Result<&'a [T]> {
    // SAFETY: the caller's condition.
    unsafe { at_most(MOST_VALUES, plugin, start, length) }
}

/// The bytes of a plugin's program.
///
/// # Errors
/// If the length is implausible.
///
/// # Safety
///
/// * As for [`bytes_of`].
pub(crate) unsafe fn code_of<'a>(
    plugin: &str,
    start: *const c_char,
    length: usize,
) -> Result<&'a [u8]> {
    // SAFETY: the caller's condition.
    unsafe { at_most(MOST_CODE, plugin, start.cast::<u8>(), length) }
}

/// # Safety
///
/// * As for [`slice_of`].
unsafe fn at_most<'a, T>(
    most: usize,
    plugin: &str,
    start: *const T,
    length: usize,
) -> Result<&'a [T]> {
    if start.is_null() || length == 0 {
        return Ok(&[]);
    }
    if length > most {
        return Err(implausible(plugin, length, most));
    }
    if !start.is_aligned() {
        let message = format!(
            "{plugin} returned a list of {length} values at the misaligned address {start:p}; \
             {ANOTHER_BUILD}"
        );
        return Err(Error::new(ErrorKind::Internal, READ, message));
    }
    // SAFETY: the caller's condition.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

const READ: &str = "read of a plugin";
const ANOTHER_BUILD: &str = "use another build of it";

/// The error of an implausible length.
#[cold]
pub(crate) fn implausible(plugin: &str, length: usize, most: usize) -> Error {
    let message = format!(
        "{plugin} claims a length of {length}, more than the {most} that are accepted; \
         {ANOTHER_BUILD}"
    );
    Error::new(ErrorKind::Internal, READ, message)
}

/// Zeroed memory of a size that a plugin claims. The system provides its pages when they are first
/// written, so that a false claim commits none.
///
/// # Errors
/// If the size exceeds [`MOST_CODE`], or the host has no address space for it.
pub(crate) fn zeroed(plugin: &str, length: usize) -> Result<Vec<u8>> {
    let refused = || implausible(plugin, length, MOST_CODE);
    if length > MOST_CODE {
        return Err(refused());
    }
    if length == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(length).map_err(|_| refused())?;
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(refused());
    }
    // SAFETY: the allocator is the global one, with this layout, and all bytes are initialized.
    Ok(unsafe { Vec::from_raw_parts(start, length, length) })
}

/// Escapes what a terminal would act upon in a text of a plugin: control characters other than
/// newlines and tabs, and marks that change the direction of text. A colour is shown as
/// `\u{1b}[31m`.
pub fn printable(text: &str) -> String {
    let acted_upon = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(acted_upon) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acted_upon(c) {
            shown.extend(c.escape_unicode())
        } else {
            shown.push(c)
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_has_no_control_characters() {
        assert_eq!(
            printable("two\nlines\tand \u{e9}"),
            "two\nlines\tand \u{e9}"
        );
        assert_eq!(
            printable("\x1b[31m\x07\u{9b}\u{202e}\r"),
            r"\u{1b}[31m\u{7}\u{9b}\u{202e}\u{d}"
        );
    }

    /// A plugin that claims 4 GiB must not cost 4 GiB.
    #[cfg(target_os = "linux")]
    #[test]
    fn claimed_sizes_commit_no_memory() {
        let resident = || {
            // In kB, whatever the size of a page.
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let size = size.unwrap().trim_end_matches("kB").trim();
            size.parse::<usize>().unwrap() << 10
        };
        let before = resident();
        let bytes = zeroed("x.so", MOST_CODE).unwrap();
        let grown = resident().saturating_sub(before);
        assert_eq!((bytes.len(), bytes[MOST_CODE - 1]), (MOST_CODE, 0));
        assert!(grown < MOST_CODE / 4, "{grown} bytes");
        assert!(zeroed("x.so", MOST_CODE + 1).is_err());
        assert!(zeroed("x.so", 0).unwrap().is_empty());
    }

    #[test]
    fn impossible_lengths_are_refused_unread() {
        // SAFETY: nothing is read at these addresses: that is what is tested.
        unsafe {
            let start = std::ptr::without_provenance(1 << 20);
            let error = text_of("x.so", start, 1 << 50).unwrap_err().to_string();
            assert!(
                error.contains("x.so claims a length of 1125899906842624"),
                "{error}"
            );
            let error = slice_of::<u64>("x.so", std::ptr::without_provenance(9), 2)
                .unwrap_err()
                .to_string();
            assert!(error.contains("misaligned address"), "{error}");
            assert_eq!(
                slice_of::<u64>("x.so", std::ptr::null(), 1 << 50).unwrap(),
                [0u64; 0]
            );
        }
    }
}
