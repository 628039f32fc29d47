//! The running test, started again as a process of a job.

use std::{
    env,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use halite_cluster::Job;
use halite_core::{HostArray, ReduceOp};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Set in the processes that a test starts.
pub(crate) const CHILD: &str = "HALITE_TEST_CHILD";

/// The test `name` of this executable, as a process of a job.
pub(crate) fn child(name: &str) -> Command {
    child_by(Command::new(env::current_exe().unwrap()), name)
}

/// As [`child`], by a command that ends with this executable.
pub(crate) fn child_by(mut command: Command, name: &str) -> Command {
    command
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// What each process does.
pub(crate) fn sum_ranks() {
    let job = Job::from_env().unwrap();
    let mine = HostArray::scalar(job.rank() as u32);
    let sum = job
        .group()
        .all_reduce("ranks", &mine, ReduceOp::Sum, MINUTE)
        .unwrap();
    let sum = sum.as_slice::<u32>().unwrap()[0];
    let (rank, size, source) = (job.rank(), job.size(), job.source());
    println!("process {rank} of {size} by {source}: {sum}");
    let (rank, size, host) = (job.local_rank(), job.local_size(), job.host());
    println!("process {rank} of {size} on {host}");
    job.finish().unwrap();
}

/// Checks what each of these processes printed.
#[track_caller]
pub(crate) fn check(children: Vec<Child>, expected: &str) {
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "process {rank}: {text}{errors}");
        assert!(
            text.contains(&format!("process {rank} {expected}")),
            "{text}{errors}"
        );
    }
}

/// A port that nobody listens on.
pub(crate) fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < MINUTE, "waited for: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
