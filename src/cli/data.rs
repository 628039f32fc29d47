//! `halite data`: data sets.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use halite::{Result, data::Digits, fetch};

/// Data sets: where they come from, and whether they are here.
#[derive(Args, Debug)]
pub(crate) struct Data {
    #[command(subcommand)]
    command: DataCommand,
    /// Where packages are kept. Default: HALITE_CACHE_DIR, else the platform's cache directory
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// The data sets that can be fetched, and which are here
    List,
    /// Fetch data sets, checking their digests
    Get {
        /// `mnist` or `fashion`
        #[arg(required = true)]
        names: Vec<Digits>,
    },
}

impl Data {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = fetch::Cache::open(self.cache_dir.as_deref())?;
        match self.command {
            DataCommand::List => {
                say!("{:<10} {:<44} {:<14} where", "name", "package", "state");
                for digits in Digits::ALL {
                    let package = digits.package();
                    let state = match cache.find(package)? {
                        Some(_) => "here",
                        None => "not here",
                    };
                    say!(
                        "{:<10} {:<44} {state:<14} {}",
                        digits.to_string(),
                        package.to_string(),
                        cache.directory(package).display()
                    );
                }
                say!("\nfetch one with `halite data get NAME`; training fetches what it needs by itself");
            }
            DataCommand::Get { names } => {
                for digits in names {
                    cache.ensure(digits.package(), &mut fetch::Bar::default())?;
                    say!("{digits}: {}", cache.directory(digits.package()).display());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
