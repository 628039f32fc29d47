//! A job from inside of a program, a test or an example: the running executable is started again
//! for each process.

use std::{env, ffi::OsString, panic::Location, process, thread};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::Bar;

use crate::{
    Job, JobOptions,
    launch::{Ended, Launch, Stream},
};

/// Set in started processes, to the place of the call that started them.
const VARIABLE: &str = "HALITE_SPAWN";

/// Runs `task` in `processes` processes of a job, and waits for all of them. Their output is
/// printed with the number of the process in front.
///
/// Each process runs this executable with the same arguments from its start, up to this call, where
/// it runs `task` and exits. So put the call at the beginning of `main`; calls before this one do
/// nothing in these processes. In a test, the processes run that test alone.
///
/// # Errors
/// If the job cannot be started; the first failure of a process.
#[track_caller]
pub fn spawn(processes: usize, task: impl FnOnce(&Job) -> Result<()>) -> Result<()> {
    spawn_with(processes, JobOptions::default(), task)
}

/// As [`spawn`], with options.
///
/// # Errors
/// As [`spawn`].
#[track_caller]
pub fn spawn_with(
    processes: usize,
    options: JobOptions,
    task: impl FnOnce(&Job) -> Result<()>,
) -> Result<()> {
    let here = Location::caller().to_string();
    match env::var(VARIABLE) {
        Ok(place) if place == here => run(options, task),
        // A later call is the one.
        Ok(_) => Ok(()),
        Err(_) => start(processes, &options, here),
    }
}

/// Runs the task in a started process, and ends it.
fn run(options: JobOptions, task: impl FnOnce(&Job) -> Result<()>) -> ! {
    let result = Job::with_options(options).and_then(|job| {
        let result = task(&job);
        job.finish_with(result)
    });
    if let Err(error) = &result {
        crate::tell_launcher(error);
        eprintln!("error: {error}");
    }
    process::exit(i32::from(result.is_err()))
}

fn start(processes: usize, options: &JobOptions, here: String) -> Result<()> {
    let executable = env::current_exe()?;
    let mut launch = Launch::new(processes, [executable.into_os_string()]);
    launch.program.extend(arguments());
    launch.variables.push((VARIABLE.to_owned(), here.into()));
    launch.cache.clone_from(&options.cache);
    let ended = launch.run(&mut Bar::default(), &mut |line| match line.stream {
        Stream::Stdout => println!("[{}] {}", line.rank, line.text),
        Stream::Stderr => eprintln!("[{}] {}", line.rank, line.text),
    })?;
    match ended {
        Ended::Finished => Ok(()),
        other => Err(Error::new(
            ErrorKind::Unavailable,
            "spawn",
            other.to_string(),
        )),
    }
}

/// The arguments of this process, or those that run the current test alone.
fn arguments() -> Vec<OsString> {
    let test = thread::current()
        .name()
        .filter(|name| *name != "main")
        .map(str::to_owned);
    let is_harness = env::current_exe().is_ok_and(|path| {
        path.parent()
            .and_then(|folder| folder.file_name())
            .is_some_and(|name| name == "deps")
    });
    match test {
        // The test harness runs each test on a thread with its name.
        Some(test) if is_harness => {
            let options = ["--exact", "--nocapture", "--include-ignored"].map(OsString::from);
            std::iter::once(OsString::from(test))
                .chain(options)
                .collect()
        }
        _ => env::args_os().skip(1).collect(),
    }
}
