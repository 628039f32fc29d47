//! Command lines of the benchmarks: words and options with values. Nothing here knows a benchmark.

use std::{fmt::Display, process::ExitCode, str::FromStr};

use halite::{Error, Result};

/// Words and options of a command line: `WORD.. [--name VALUE]..`, in any order.
#[derive(Debug)]
pub struct Arguments {
    program: &'static str,
    words: Vec<String>,
    /// Names, with their dashes, and values.
    options: Vec<(String, String)>,
}

impl Arguments {
    /// Reads the arguments of this process. `names` are the known options, with their dashes.
    ///
    /// # Errors
    /// If an option is unknown, or has no value.
    pub fn read(program: &'static str, names: &[&str]) -> Result<Self> {
        let mut arguments = Arguments {
            program,
            words: vec![],
            options: vec![],
        };
        let mut rest = std::env::args().skip(1);
        while let Some(argument) = rest.next() {
            if !argument.starts_with("--") {
                arguments.words.push(argument);
                continue;
            }
            if !names.contains(&&*argument) {
                let known = names.join(", ");
                let message = format!("unknown option `{argument}`; expected one of {known}");
                return Err(Error::invalid(program, message));
            }
            let missing = || Error::invalid(program, format!("`{argument}` needs a value"));
            let value = rest.next().ok_or_else(missing)?;
            arguments.options.push((argument, value));
        }
        Ok(arguments)
    }

    /// The words, in their order, or `default` if there are none.
    pub fn words(&self, default: &[&str]) -> Vec<String> {
        match self.words.is_empty() {
            true => default.iter().copied().map(String::from).collect(),
            false => self.words.clone(),
        }
    }

    /// The value of the option `name`, the last one if it is repeated.
    ///
    /// # Errors
    /// If the value is not of this type.
    pub fn option<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        Ok(self.all(name)?.pop())
    }

    /// The values of the option `name`, which may be repeated.
    ///
    /// # Errors
    /// If a value is not of this type.
    pub fn all<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Vec<T>> {
        let values = self.options.iter().filter(|(known, _)| known == name);
        let parsed = values.map(|(_, text)| {
            text.parse()
                .map_err(|error| Error::invalid(self.program, format!("`{name} {text}`: {error}")))
        });
        parsed.collect()
    }
}

/// Prints the error of a benchmark, if there is one, and returns the exit code of the process.
pub fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
