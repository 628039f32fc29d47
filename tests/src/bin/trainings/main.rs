//! Short trainings for the harness that kills runs, written on the library. They take the options of
//! the trainer.
#![forbid(unsafe_code)]

mod pipelines;
mod two_updates;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use halite::train::{
    TrainerOptions,
    signals::{StopFlag, StopReason},
};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    training: Training,
}

#[derive(Subcommand)]
enum Training {
    /// Two updates in each step
    TwoUpdates {
        #[command(flatten)]
        options: Box<TrainerOptions>,
    },
    /// Augmented images, from files and from records, mixed
    Mixed {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        options: Box<TrainerOptions>,
    },
    /// A stream of records with augmentation, beside mixed ones
    Streamed {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        options: Box<TrainerOptions>,
    },
}

/// What `halite_tests::kill::write_images` has written.
#[derive(clap::Args)]
struct Data {
    /// Directory of the images and records
    #[arg(long)]
    data: PathBuf,
    /// Accelerator with its number of devices
    #[arg(long, default_value = "cpu")]
    accelerator: halite::backends::Accelerator,
}

fn main() -> ExitCode {
    let stop = StopFlag::new();
    let result = match Arguments::parse().training {
        Training::TwoUpdates { options } => two_updates::train(*options, &stop),
        Training::Mixed { data, options } => pipelines::mixed(&data, *options, &stop),
        Training::Streamed { data, options } => pipelines::streamed(&data, *options, &stop),
    };
    match result {
        Ok(stopped_by) => ExitCode::from(stopped_by.map_or(0, StopReason::exit_code)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(stop.reason().map_or(1, StopReason::exit_code))
        }
    }
}
