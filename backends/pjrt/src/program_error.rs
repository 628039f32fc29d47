//! Errors of compiling and launching, with the program's name and the shortage of memory.

use std::sync::Arc;

use halite_core::{Error, ErrorKind, Shortage};

/// Adds the program's name to the compiler's error. For a text that does not parse XLA returns
/// `UNKNOWN`; it is the caller's mistake.
pub(crate) fn of_program(error: Error, op: &'static str, name: &str) -> Error {
    let kind = match error.kind() {
        ErrorKind::Internal if op == "compile" && error.message().ends_with("(UNKNOWN)") => {
            ErrorKind::InvalidArgument
        }
        kind => kind,
    };
    let named = Error::new(kind, op, format!("`{name}`: {}", error.message()));
    let named = match shortage(error.message()) {
        Some(shortage) if kind == ErrorKind::OutOfMemory => named.caused_by(shortage),
        _ => named,
    };
    match error.platform() {
        Some(platform) => named.on(&Arc::from(platform)),
        None => named,
    }
}

/// Parses the shortage of device memory from a message of libtpu:
/// `required for .. (29.60G) exceeds available HBM (15.75G)`.
fn shortage(words: &str) -> Option<Shortage> {
    let (required, available) = words.split_once(" exceeds available ")?;
    let in_brackets = |text: &str| bytes_of_words(text.split_once('(')?.1.split_once(')')?.0);
    Some(Shortage {
        required: in_brackets(&required[required.rfind('(')?..])?,
        available: in_brackets(available)?,
    })
}

/// `29.60G` is in units of 1024 cubed.
fn bytes_of_words(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1.0,
        "K" | "KiB" => 1024.0,
        "M" | "MiB" => 1024.0 * 1024.0,
        "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "T" | "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((digits.parse::<f64>().ok()? * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_shortage_of_libtpu_is_parsed() {
        let words = "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory \
         required for HLO temporaries (29.50G) \
                     exceeds available HBM (15.75G). HLO module: jit_step.";
        let gib = |gib: f64| (gib * f64::from(1 << 30)) as u64;
        assert_eq!(
            shortage(words),
            Some(Shortage {
                required: gib(29.5),
                available: gib(15.75)
            })
        );
        let error = Error::new(ErrorKind::OutOfMemory, "compile", words);
        assert_eq!(
            of_program(error, "compile", "step")
                .shortage()
                .unwrap()
                .required,
            gib(29.5)
        );
        for words in [
            "",
            "(1G) exceeds available HBM",
            "a lot exceeds available (2G)",
            "(1G) exceeds available (2X)",
        ] {
            assert_eq!(shortage(words), None, "{words}");
        }
    }
}
