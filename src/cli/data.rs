//! `halite data`: data sets.

mod images;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use halite::{
    Result,
    data::{
        Mnist,
        text::{BOOKS, GPT2_VOCABULARY},
    },
    fetch,
};

/// List, download, generate or look at data sets
#[derive(Args, Debug)]
pub(crate) struct Data {
    #[command(subcommand)]
    command: DataCommand,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// List the data sets and which are installed
    List,
    /// Download data sets, and verify those already installed
    Get {
        /// `mnist`, `fashion`, `books` or `gpt2`
        #[arg(required = true, value_parser = named)]
        names: Vec<Named>,
    },
    Fake(images::Fake),
    View(Box<images::View>),
    Stats(images::Stats),
}

/// A package of data with its name in halite.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) package: &'static fetch::Package,
}

/// Returns all data sets: images, books, GPT-2's byte-pair table.
pub(super) fn sets() -> Vec<Named> {
    let digits = Mnist::ALL.map(|digits| Named {
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
        "unknown data set `{name}`; expected one of {}",
        names.join(", ")
    );
    sets.iter()
        .find(|set| set.name == name)
        .cloned()
        .ok_or(unknown)
}

impl Data {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let open = || fetch::Cache::open(self.cache_dir.as_deref());
        match self.command {
            DataCommand::Fake(fake) => fake.run()?,
            DataCommand::View(view) => view.run()?,
            DataCommand::Stats(stats) => stats.run()?,
            DataCommand::List => {
                let cache = open()?;
                say!(
                    "{:<8} {:<56} {:>8}  {:<9} where",
                    "name",
                    "package",
                    "download",
                    "state"
                );
                for Named { name, package } in sets() {
                    let state = match cache.find(package)? {
                        Some(_) => "installed",
                        None => "missing",
                    };
                    let size = fetch::Bytes(package.download_size()).to_string();
                    say!(
                        "{name:<8} {:<56} {size:>8}  {state:<9} {}",
                        package.to_string(),
                        cache.directory(package).display()
                    );
                }
                say!(
                    "\ndownload one with `halite data get NAME`; training downloads what it needs"
                );
            }
            DataCommand::Get { names } => {
                let cache = open()?;
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
