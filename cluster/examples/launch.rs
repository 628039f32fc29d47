//! Launches a program: `launch 2 PROGRAM ARGUMENTS`.

use std::{env, process::ExitCode};

use halite_cluster::launch::{Ended, Launch};
use halite_fetch::Bar;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = env::args_os().skip(1);
    let count = arguments.next().ok_or("expected a number of processes")?;
    let count = count.to_string_lossy().parse()?;
    let launch = Launch::new(count, arguments);
    let ended = launch.run(&mut Bar::default(), &mut |line| {
        println!("[{}] {}", line.rank, line.text);
    })?;
    println!("{ended:?}");
    Ok(match ended {
        Ended::Finished => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
