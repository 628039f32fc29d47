//! `halite new`: a project with a model, a task and a `main` that trains.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use halite::{Error, ErrorKind, Result};

/// Write a project of your own: a model, a task and a `main` that trains it
///
/// The program is that of halite's README: handwritten digits, a network of two layers. halite is
/// not published yet, so the project depends on a clone of its repository by path.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    /// Directory to create; its last part is the name of the package
    path: PathBuf,
    /// Clone of halite's repository that the project depends on [default: the one that this command
    /// was built from]
    #[arg(long = "path", value_name = "DIR")]
    halite: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  halite new my-model
  cd my-model && cargo run --release          builds halite once, then trains
  cargo doc --open                            the documentation of halite beside your own";

/// The program, which is compiled as an example and shown in the README.
const PROGRAM: &str = include_str!("../../examples/mnist.rs");

impl New {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let name = package_name(&self.path)?;
        let halite = self.clone_of_halite()?;
        let path = &self.path;
        if path.symlink_metadata().is_ok() {
            let message = format!(
                "{} exists already; give the path of a directory that does not",
                path.display()
            );
            return Err(Error::invalid("new", message));
        }
        let files = [
            ("Cargo.toml", manifest(name, &halite)),
            ("src/main.rs", program(name)),
            ("README.md", readme(name)),
            (".gitignore", "/target\n/runs\n".to_string()),
        ];
        for (file, text) in files {
            write(&path.join(file), &text)
                .map_err(|error| failed(&format!("write {}", path.join(file).display()), &error))?;
        }
        say!("{}: a model, a task and a main", path.display());
        say!("  cd {} && cargo run --release", path.display());
        Ok(ExitCode::SUCCESS)
    }

    /// The absolute path of the repository that the project depends on.
    fn clone_of_halite(&self) -> Result<PathBuf> {
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = self.halite.as_deref().unwrap_or(built_from);
        let is_clone = fs::read_to_string(path.join("Cargo.toml"))
            .is_ok_and(|text| text.contains("name = \"halite\"\n"));
        if !is_clone {
            let message = format!(
                "{} is not a clone of halite's repository; give one with `--path DIR`",
                path.display()
            );
            return Err(Error::invalid("new", message));
        }
        path.canonicalize()
            .map_err(|error| failed(&format!("find {}", path.display()), &error))
    }
}

fn failed(doing: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, "new", format!("cannot {doing}: {error}"))
}

/// The last part of a path, if cargo takes it as the name of a package.
fn package_name(path: &Path) -> Result<&str> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
    // A package cannot depend on another one of its own name, and these are crates of Rust.
    let is_taken = ["halite", "core", "std", "alloc", "test", "proc_macro"].contains(&name);
    if starts_well && name.bytes().all(allowed) && !is_taken {
        return Ok(name);
    }
    let message = format!(
        "`{name}` cannot be the name of a package; use letters, digits, `-` and `_`, a letter \
         first, such as `my-model`"
    );
    Err(Error::invalid("new", message))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

fn manifest(name: &str, halite: &Path) -> String {
    // As TOML's basic strings have it.
    let halite = halite.display().to_string();
    let halite = halite.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "[package]
name = \"{name}\"
version = \"0.1.0\"
edition = \"2024\"

[dependencies]
# `default-features = false` leaves out halite's command, which this program does not use.
halite = {{ path = \"{halite}\", default-features = false }}

# The embedded executor is 10 to 100 times slower without optimization: these lines keep
# `cargo run` fast, without `--release`, while your own code compiles quickly.
[profile.dev.package.halite-kernels]
opt-level = 3
[profile.dev.package.halite-embedded]
opt-level = 2
# The digests of plugins and data take seconds without it.
[profile.dev.package.sha2]
opt-level = 3

# Not a member of a workspace around it.
[workspace]
"
    )
}

/// The example, with a header of the project.
fn program(name: &str) -> String {
    let code = PROGRAM
        .lines()
        .skip_while(|line| line.starts_with("//!"))
        .collect::<Vec<_>>()
        .join("\n");
    format!("//! {name}: a model, a task, and training.\n{code}\n")
}

fn readme(name: &str) -> String {
    format!(
        "# {name}\n\n`cargo run --release` trains the model of `src/main.rs` on handwritten \
         digits. Give the trainer\n`.out(\"runs/first\")` for checkpoints, a table and a plot, and \
         `.resume(true)` to continue.\n"
    )
}
