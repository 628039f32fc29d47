//! `halite data`: data sets.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use halite::{
    Result,
    data::{
        Digits,
        text::{BOOKS, GPT2_VOCABULARY},
    },
    fetch,
};

/// Data sets: where they come from, and whether they are here.
#[derive(Args, Debug)]
pub(crate) struct Data {
    #[command(subcommand)]
    command: DataCommand,
    /// Where packages are kept [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// The data sets that can be fetched, and which are here
    List,
    /// Download data sets, and verify those already installed
    Get {
        /// `mnist`, `fashion`, `books` or `gpt2`
        #[arg(required = true, value_parser = named)]
        names: Vec<Named>,
    },
}

/// A package of data by the name that it has here.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) package: &'static fetch::Package,
}

/// All there are: images, the books, GPT-2's table of byte pairs.
pub(super) fn sets() -> Vec<Named> {
    let digits = Digits::ALL.map(|digits| Named {
        name: digits.to_string(),
        package: digits.package(),
    });
    let texts = [("books", &BOOKS), ("gpt2", &GPT2_VOCABULARY)];
    digits
        .into_iter()
        .chain(texts.map(|(name, package)| Named {
            name: name.to_string(),
            package,
        }))
        .collect()
}

fn named(name: &str) -> Result<Named, String> {
    let sets = sets();
    let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    let unknown = format!(
        "there is no dataset `{name}`; there are {}",
        names.join(", ")
    );
    sets.iter()
        .find(|set| set.name == name)
        .cloned()
        .ok_or(unknown)
}

impl Data {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = fetch::Cache::open(self.cache_dir.as_deref())?;
        match self.command {
            DataCommand::List => {
                say!(
                    "{:<8} {:<56} {:>8}  {:<9} where",
                    "name",
                    "package",
                    "download",
                    "state"
                );
                for Named { name, package } in sets() {
                    let state = match cache.find(package)? {
                        Some(_) => "here",
                        None => "not here",
                    };
                    let size = fetch::Bytes(package.download_size()).to_string();
                    say!(
                        "{name:<8} {:<56} {size:>8}  {state:<9} {}",
                        package.to_string(),
                        cache.directory(package).display()
                    );
                }
                say!(
                    "\nfetch one with `halite data get NAME`; training fetches what it needs by itself"
                );
            }
            DataCommand::Get { names } => {
                for Named { name, package } in names {
                    cache.ensure_checked(
                        package,
                        fetch::Check::Full,
                        &mut fetch::Bar::default(),
                    )?;
                    say!("{name}: {}", cache.directory(package).display());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
