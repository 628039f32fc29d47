//! What becomes of a job when a process fails: the error names it, and nothing is left over.

use std::{
    env, fs,
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};

use halite_cluster::{
    Job, JobOptions,
    launch::{Ended, Launch},
    spawn_with,
};
use halite_core::{DType, Error, Exchange, ReduceOp, Result};
use halite_fetch::Bar;

fn options() -> JobOptions {
    let mut options = JobOptions::default();
    options.lost = Duration::from_secs(3);
    options.heartbeat = Duration::from_millis(100);
    options
}

/// Checks the error of a job, that it came in time, and that no process of it is left over.
#[track_caller]
fn check(started: Instant, result: Result<()>, expected: &str) {
    let error = result.expect_err("the job fails").to_string();
    assert!(error.contains(expected), "{error}\n\nexpected: {expected}");
    assert!(
        started.elapsed() < Duration::from_secs(25),
        "{:?}",
        started.elapsed()
    );
    let test = thread::current().name().expect("a test").to_owned();
    let ended = Instant::now();
    while let Some(left) = processes_of(&test).first() {
        assert!(
            ended.elapsed() < Duration::from_secs(10),
            "left over: {left}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Command lines of the other processes of a test: those of its jobs, and of their launchers.
fn processes_of(test: &str) -> Vec<String> {
    let this = env::current_exe().unwrap().to_string_lossy().into_owned();
    let own = process::id().to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let others = all.filter(|entry| *entry.file_name() != *own);
    let lines = others.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines
        .filter(|line| line.contains(&this) && line.contains(test))
        .collect()
}

/// Waits for a process that does not come.
fn wait(job: &Job) -> Result<()> {
    job.group().barrier("step", Duration::from_secs(600))
}

/// Sends a signal to this process.
fn signal(name: &str) {
    let pid = process::id().to_string();
    Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status()
        .unwrap();
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn killed_process_is_named() {
    let started = Instant::now();
    let result = spawn_with(3, options(), |job| {
        job.group().barrier("start", Duration::from_secs(60))?;
        if job.rank() == 1 {
            signal("KILL");
        }
        wait(job)
    });
    check(started, result, "process 1 on ");
}

#[test]
fn killed_process_0_is_named() {
    // It collects the calls of all others.
    let started = Instant::now();
    let result = spawn_with(3, options(), |job| {
        job.group().barrier("start", Duration::from_secs(60))?;
        if job.rank() == 0 {
            signal("KILL");
        }
        wait(job)
    });
    check(started, result, "process 0 on ");
}

#[test]
fn process_without_memory_is_named() {
    let started = Instant::now();
    let result = spawn_with(2, options(), |job| {
        job.group().barrier("start", Duration::from_secs(60))?;
        if job.rank() == 1 {
            limit("--as=8589934592");
            let filled = vec![1u8; 16 << 30];
            println!("{}", filled[filled.len() - 1]);
        }
        wait(job)
    });
    check(started, result, ": ended by SIGABRT");
}

/// Limits this process, as `prlimit` says.
fn limit(option: &str) {
    let pid = process::id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &pid, option])
        .status();
    assert!(limited.unwrap().success());
}

#[test]
fn survivors_tell_what_they_waited_for() {
    let script = "exec \"$0\" --exact failures::survivors_tell_what_they_waited_for --nocapture";
    if std::env::var_os("PMI_RANK").is_some() {
        let job = Job::from_env().unwrap();
        job.group().at_step(5);
        job.group().has_saved("run/checkpoints/step-4");
        job.group()
            .barrier("start", Duration::from_secs(60))
            .unwrap();
        if job.rank() == 1 {
            signal("KILL");
        }
        _ = wait(&job);
    }
    let this = std::env::current_exe().unwrap().into_os_string();
    let launch = Launch::new(3, ["sh".into(), "-c".into(), script.into(), this]);
    let mut lines = vec![String::new(); 3];
    let ended = launch.run(&mut Bar::default(), &mut |line| {
        lines[line.rank] += &line.text
    });
    let ended = ended.unwrap().to_string();
    assert!(
        ended.starts_with("process 1 on ") && ended.contains("SIGKILL"),
        "{ended}"
    );
    let checkpoint = "; the last checkpoint is run/checkpoints/step-4";
    assert!(ended.ends_with(checkpoint), "{ended}");
    for rank in [0, 2] {
        let expected = "stopped: another process failed; this process was at step 5, waiting for `step` (call ";
        assert!(lines[rank].contains(expected), "{}", lines[rank]);
        assert!(lines[rank].contains(checkpoint), "{}", lines[rank]);
    }
}

#[test]
fn stopped_process_is_named_by_the_others() {
    let started = Instant::now();
    let result = spawn_with(3, options(), |job| {
        job.group().barrier("start", Duration::from_secs(60))?;
        if job.rank() == 2 {
            signal("STOP");
        }
        wait(job)
    });
    check(started, result, "process 2 on ");
}

#[test]
fn process_that_gives_up_tells_the_others() {
    let started = Instant::now();
    let result = spawn_with(2, options(), |job| {
        job.group().barrier("start", Duration::from_secs(60))?;
        if job.rank() == 1 {
            (job.group()).warn_others(&Error::invalid("step 7", "the device hangs"));
            // The heart beats on.
            thread::sleep(Duration::from_secs(60));
        }
        wait(job)
    });
    check(started, result, "step 7: the device hangs");
}

#[test]
fn early_exit_is_a_failure() {
    let started = Instant::now();
    let result = spawn_with(2, options(), |job| {
        if job.rank() == 1 {
            process::exit(0);
        }
        wait(job)
    });
    check(
        started,
        result,
        "exited with status 0 before it had finished the job",
    );
}

#[test]
fn panic_ends_the_job() {
    let started = Instant::now();
    let result = spawn_with(2, options(), |job| {
        assert_ne!(job.rank(), 1, "process 1 panics");
        wait(job)
    });
    check(started, result, "process 1 on ");
}

#[test]
fn error_of_a_process_is_that_of_the_job() {
    let started = Instant::now();
    let result = spawn_with(2, options(), |job| match job.rank() {
        1 => Err(Error::invalid("data", "sample 7 is broken")),
        _ => wait(job),
    });
    check(started, result, "data: sample 7 is broken");
}

#[test]
fn late_process_is_named_with_its_step() {
    let started = Instant::now();
    let result = spawn_with(3, options(), |job| {
        let group = job.group();
        group.at_step(41);
        if job.rank() == 1 {
            thread::sleep(Duration::from_secs(20));
        }
        group.barrier("save", Duration::from_secs(2))
    });
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let expected = format!(
        "waited 2s for process 1 on {} (step 41, computing; heard",
        host.trim()
    );
    check(started, result, &expected);
}

#[test]
fn process_that_finishes_late_is_named() {
    let started = Instant::now();
    let mut options = options();
    options.start = Duration::from_secs(8);
    let result = spawn_with(2, options, |job| {
        job.group().barrier("start", Duration::from_secs(60))?;
        if job.rank() == 1 {
            thread::sleep(Duration::from_secs(40));
        }
        Ok(())
    });
    check(started, result, "waited 8s for process 1 on ");
}

#[test]
fn finished_job_refuses_calls() {
    if std::env::var_os("PMI_RANK").is_some() {
        let job = Job::from_env().unwrap();
        let group = job.group();
        let lane = group.lane("kept").unwrap();
        job.finish().unwrap();
        let soon = Duration::from_secs(1);
        for error in [
            group.barrier("late", soon).unwrap_err(),
            lane.barrier("late", soon).unwrap_err(),
            group.lane("late").unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains("the job is finished"), "{text}");
        }
        return;
    }
    let this = std::env::current_exe().unwrap().into_os_string();
    let test = [
        "--exact",
        "failures::finished_job_refuses_calls",
        "--nocapture",
    ]
    .map(Into::into);
    let launch = Launch::new(2, std::iter::once(this).chain(test));
    let mut lines = String::new();
    let ended = launch.run(&mut Bar::default(), &mut |line| {
        lines += &format!("{}\n", line.text);
    });
    assert!(matches!(ended, Ok(Ended::Finished)), "{ended:?} {lines}");
}

#[test]
fn late_process_of_an_exchange_is_named() {
    let started = Instant::now();
    let result = spawn_with(3, options(), |job| {
        let lane = job.group().lane("device 0")?;
        if job.rank() == 2 {
            job.group().at_step(7);
            thread::sleep(Duration::from_secs(20));
        }
        let (op, dtype) = (ReduceOp::Sum, DType::F32);
        let (from, into) = (&[0; 64][..], &mut [0; 64][..]);
        let exchange = Exchange::AllReduce {
            op,
            dtype,
            from,
            into,
        };
        lane.exchange("gradients", exchange, Duration::from_secs(2))
    });
    let expected = "`gradients` (call 1 of lane `device 0`): waited 2s for process 2 on ";
    check(started, result, expected);
}

#[test]
fn process_that_never_joins_is_named() {
    let started = Instant::now();
    // The child knows its rank before it joins.
    if std::env::var("PMI_RANK").is_ok_and(|rank| rank == "1") {
        process::exit(0);
    }
    let result = spawn_with(2, options(), wait);
    check(
        started,
        result,
        "process 1: exited with status 0 and never joined the job",
    );
}

#[test]
fn process_that_joins_late_is_named() {
    let started = Instant::now();
    if std::env::var("PMI_RANK").is_ok_and(|rank| rank == "1") {
        thread::sleep(Duration::from_secs(40));
    }
    let mut options = options();
    options.start = Duration::from_secs(4);
    let result = spawn_with(3, options, wait);
    check(
        started,
        result,
        "waited 4s for the other 2 processes to join; process 1 has not joined",
    );
}
