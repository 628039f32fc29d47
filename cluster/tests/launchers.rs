//! Jobs that other launchers start, and what is left over when launchers are killed.

use std::{
    env,
    io::Write,
    net::{TcpListener, TcpStream},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use halite_cluster::{
    Job, MPICH,
    launch::{Ended, Launch},
};
use halite_fetch::{Bar, Cache};

use crate::shared::child::{CHILD, MINUTE, check, child, is_child, port, sum_ranks, wait_until};

#[test]
fn torchrun_variables_start_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let before = (port() - 1).to_string();
    let children = (0..3).map(|rank| {
        let mut command = child("launchers::torchrun_variables_start_a_job");
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "3");
        command
            .env("MASTER_ADDR", "localhost")
            .env("MASTER_PORT", &before);
        command.spawn().unwrap()
    });
    check(children.collect(), "of 3 by torchrun: 3");
}

#[test]
fn slurm_variables_start_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let job = std::process::id().to_string();
    let children = (0..2).map(|rank| {
        let mut command = child("launchers::slurm_variables_start_a_job");
        command
            .env("SLURM_PROCID", rank.to_string())
            .env("SLURM_NTASKS", "2");
        command.env("SLURM_JOB_ID", &job).env("SLURM_STEP_ID", "0");
        command.env("SLURM_STEP_NODELIST", "localhost");
        command.spawn().unwrap()
    });
    check(children.collect(), "of 2 by SLURM: 1");
}

#[test]
fn steps_of_a_slurm_job_do_not_meet() {
    if is_child() {
        return sum_ranks();
    }
    let job = (std::process::id() + 1).to_string();
    let step = |step: usize| {
        let children = (0..2).map(|rank| {
            let mut command = child("launchers::steps_of_a_slurm_job_do_not_meet");
            command
                .env("SLURM_PROCID", rank.to_string())
                .env("SLURM_STEP_NUM_TASKS", "2")
                .env("SLURM_JOB_ID", &job)
                .env("SLURM_STEP_ID", step.to_string())
                .env("SLURM_STEP_NODELIST", "localhost");
            command.spawn().unwrap()
        });
        children.collect::<Vec<_>>()
    };
    let steps = [step(0), step(1)];
    for children in steps {
        check(children, "of 2 by SLURM: 1");
    }
}

#[test]
fn open_mpi_variables_start_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let name = format!("prterun-test-{}@1", std::process::id());
    let children = (0..2).map(|rank| {
        let mut command = child("launchers::open_mpi_variables_start_a_job");
        command
            .env("OMPI_COMM_WORLD_RANK", rank.to_string())
            .env("OMPI_COMM_WORLD_SIZE", "2")
            .env("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
            .env("PMIX_RANK", rank.to_string())
            .env("PMIX_NAMESPACE", &name);
        command.spawn().unwrap()
    });
    check(children.collect(), "of 2 by OpenMPI: 1");
}

#[test]
fn processes_meet_at_an_address_of_ipv6() {
    if is_child() {
        return sum_ranks();
    }
    let Ok(free) = TcpListener::bind("[::1]:0") else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let name = "launchers::processes_meet_at_an_address_of_ipv6";
    let children = (0..2).map(|rank| {
        let mut command = explicit(name, rank, 2, 1);
        command.env("HALITE_COORDINATOR_ADDRESS", &address);
        command.spawn().unwrap()
    });
    check(children.collect(), "of 2 by HALITE_PROCESS_ID: 1");
}

/// Sends what no process of a job says, and waits with a connection that says nothing.
#[test]
fn strangers_do_not_end_a_job() {
    let name = "launchers::strangers_do_not_end_a_job";
    if is_child() {
        return sum_ranks();
    }
    let port = port();
    let process = |rank, secret| {
        let mut command = explicit(name, rank, 2, port);
        command.env("HALITE_JOB_SECRET", secret).spawn().unwrap()
    };
    let first = process(0, "ours");
    let connect = || TcpStream::connect(("localhost", port));
    wait_until("process 0 listens", || connect().is_ok());
    let quiet = connect().unwrap();
    for bytes in [&b"8 bytes!"[..], &[255; 1 << 16], b"cmd=abort exitcode=1\n"] {
        _ = connect().unwrap().write_all(bytes);
    }
    let output = process(1, "theirs").wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let text = format!("{text}{}", String::from_utf8_lossy(&output.stdout));
    assert!(!output.status.success(), "{output:?}");
    assert!(text.contains("does not know the key of this job"), "{text}");
    check(
        vec![first, process(1, "ours")],
        "of 2 by HALITE_PROCESS_ID: 1",
    );
    drop(quiet);
}

#[test]
fn second_process_of_a_rank_does_not_end_a_job() {
    let name = "launchers::second_process_of_a_rank_does_not_end_a_job";
    if is_child() {
        let job = Job::from_env().unwrap();
        println!("joined");
        job.group().barrier("start", MINUTE).unwrap();
        thread::sleep(Duration::from_secs(4));
        job.group().barrier("end", MINUTE).unwrap();
        println!("process {} ends", job.rank());
        return job.finish().unwrap();
    }
    let port = port();
    let start = |rank| explicit(name, rank, 2, port).spawn().unwrap();
    let children = vec![start(0), start(1)];
    // As `kubectl exec` of another command of halite in the pod of a running job.
    thread::sleep(Duration::from_secs(2));
    for rank in 0..2 {
        let output = start(rank).wait_with_output().unwrap();
        assert!(!output.status.success(), "{output:?}");
    }
    check(children, "ends");
}

/// Addresses at which a process listens by TCP, as the system has them.
fn listening(pid: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = files
        .flatten()
        .filter_map(|file| std::fs::read_link(file.path()).ok());
    let sockets: Vec<String> = targets.map(|target| target.display().to_string()).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let tables = tables.map(Result::unwrap_or_default).join("");
    let lines = tables
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = lines.filter(|words| words.get(3) == Some(&"0A"));
    let own = lines.filter(|words| sockets.contains(&format!("socket:[{}]", words[9])));
    own.map(|words| words[1].to_owned()).collect()
}

/// Any user of the machine may connect to what listens.
#[test]
fn launch_on_one_machine_does_not_listen() {
    let name = "launchers::launch_on_one_machine_does_not_listen";
    const LAUNCHER: &str = "HALITE_TEST_LAUNCHER";
    if let Ok(launcher) = env::var(LAUNCHER) {
        let job = Job::from_env().unwrap();
        job.group().barrier("start", MINUTE).unwrap();
        for process in [launcher.parse().unwrap(), std::process::id()] {
            assert_eq!(listening(process), [""; 0]);
        }
        job.group().barrier("end", MINUTE).unwrap();
        return job.finish().unwrap();
    }
    if is_child() {
        let this = env::current_exe().unwrap().into_os_string();
        let test = ["--exact", name, "--nocapture"].map(Into::into);
        let mut launch = Launch::new(2, std::iter::once(this).chain(test));
        let id = std::process::id().to_string();
        launch.variables.push((LAUNCHER.to_owned(), id.into()));
        let ended = launch.run(&mut Bar::default(), &mut |line| println!("{}", line.text));
        return println!("ended: {}", ended.unwrap());
    }
    let output = child(name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ended: every process finished"), "{output:?}");
}

#[test]
fn processes_have_an_empty_input() {
    for processes in [1, 3] {
        let started = Instant::now();
        let ended = Launch::new(processes, ["cat"]).run(&mut Bar::default(), &mut |_| {});
        match ended.unwrap() {
            Ended::Finished => assert_eq!(processes, 1),
            Ended::NotJoined => assert_eq!(processes, 3),
            other => panic!("{other}"),
        }
        assert!(started.elapsed() < MINUTE);
    }
}

#[test]
fn option_is_no_host() {
    let mut launch = Launch::new(2, ["true"]);
    launch.hosts = vec!["node1".to_owned(), "-oProxyCommand=id".to_owned()];
    let error = launch.run(&mut Bar::default(), &mut |_| {}).unwrap_err();
    let expected = "`-oProxyCommand=id` is not the name of a host";
    assert!(error.to_string().contains(expected), "{error}");
}

/// A process that a program of a job starts, as Python's `subprocess` does: with the variables, and
/// without the socket.
#[test]
fn closed_socket_of_a_launcher_is_named() {
    if is_child() {
        let error = Job::from_env().unwrap_err().to_string();
        assert!(
            error.contains("PMI_FD is 77, which is no socket"),
            "{error}"
        );
        return println!("as expected");
    }
    let mut command = child("launchers::closed_socket_of_a_launcher_is_named");
    command
        .env("PMI_FD", "77")
        .env("PMI_RANK", "0")
        .env("PMI_SIZE", "2");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("as expected"), "{output:?}");
}

/// `ssh` that runs the command here, as a process group of its own.
#[test]
fn processes_of_hosts_join_by_a_secret() {
    let name = "launchers::processes_of_hosts_join_by_a_secret";
    if is_child() {
        return sum_ranks();
    }
    let this = env::current_exe().unwrap().into_os_string();
    let test = ["--exact", name, "--nocapture"].map(Into::into);
    let mut launch = Launch::new(2, std::iter::once(this).chain(test));
    launch.hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    launch.variables.push((CHILD.to_owned(), "1".into()));
    // Neither the host, nor a secret in the command.
    let script = "case \"$2\" in *HALITE_JOB_SECRET=*) exit 9;; esac; exec sh -c \"$2\"";
    launch.ssh = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    let mut output = String::new();
    let ended = launch.run(&mut Bar::default(), &mut |line| {
        output += &format!("{}\n", line.text)
    });
    assert!(matches!(ended, Ok(Ended::Finished)), "{ended:?} {output}");
    for rank in 0..2 {
        let expected = format!("process {rank} of 2 by MPI: 1");
        assert!(output.contains(&expected), "{output}");
    }
}

#[test]
fn mpiexec_starts_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let installed = Cache::open(None)
        .unwrap()
        .ensure(&MPICH, &mut Bar::default())
        .unwrap();
    let this = child("launchers::mpiexec_starts_a_job");
    let mut command = Command::new(installed.path("bin/mpiexec"));
    command
        .args(["-n", "2"])
        .arg(this.get_program())
        .args(this.get_args())
        .env(CHILD, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for rank in 0..2 {
        assert!(
            text.contains(&format!("process {rank} of 2 by MPI: 1")),
            "{text}"
        );
    }
}

#[test]
fn process_that_fails_to_meet_is_an_error() {
    if is_child() {
        let mut options = halite_cluster::JobOptions::default();
        options.start = Duration::from_secs(2);
        let error = Job::with_options(options).unwrap_err().to_string();
        assert!(
            error.contains("process 1 of 2 did not reach process 0 at localhost:"),
            "{error}"
        );
        return println!("as expected");
    }
    let mut command = explicit(
        "launchers::process_that_fails_to_meet_is_an_error",
        1,
        2,
        port(),
    );
    let output = command.output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("as expected"),
        "{output:?}"
    );
}

#[test]
fn unknown_host_of_process_0_is_named() {
    if is_child() {
        let mut options = halite_cluster::JobOptions::default();
        options.start = Duration::from_secs(3);
        let error = Job::with_options(options).unwrap_err().to_string();
        let expected = "within 3s: unable to get the address of no-such-host.invalid";
        assert!(error.contains(expected), "{error}");
        return println!("as expected");
    }
    let mut command = explicit(
        "launchers::unknown_host_of_process_0_is_named",
        1,
        2,
        port(),
    );
    command.env("HALITE_COORDINATOR_ADDRESS", "no-such-host.invalid:29500");
    let output = command.output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("as expected"),
        "{output:?}"
    );
}

/// As `halite train` ends when SIGTERM stops it at one step of all processes.
#[test]
fn stopped_job_tells_its_scheduler() {
    if is_child() {
        let job = Job::from_env().unwrap();
        halite_cluster::tell_stopped(143);
        return job.finish().unwrap();
    }
    let before = (port() - 1).to_string();
    let children: Vec<Child> = (0..2)
        .map(|rank| {
            let mut command = child("launchers::stopped_job_tells_its_scheduler");
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
            command
                .env("MASTER_ADDR", "localhost")
                .env("MASTER_PORT", &before);
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(143), "{output:?}");
    }
}

/// The process `rank` of `size` that meet at a port, as `name` has it.
fn explicit(name: &str, rank: usize, size: usize, port: u16) -> Command {
    let mut command = child(name);
    command
        .env("HALITE_PROCESS_ID", rank.to_string())
        .env("HALITE_NUM_PROCESSES", size.to_string())
        .env("HALITE_COORDINATOR_ADDRESS", format!("localhost:{port}"));
    command
}

#[test]
fn job_ends_that_a_process_never_joins() {
    let name = "launchers::job_ends_that_a_process_never_joins";
    if is_child() {
        let mut options = halite_cluster::JobOptions::default();
        options.start = Duration::from_secs(6);
        let error = Job::with_options(options).unwrap_err().to_string();
        println!("{error}");
        std::process::exit(3);
    }
    let port = port();
    let children: Vec<Child> = (0..2)
        .map(|rank| explicit(name, rank, 3, port).spawn().unwrap())
        .collect();
    let started = Instant::now();
    for mut child in children {
        wait_until("the process ends", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success(), "{output:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(40));
}

#[test]
fn signal_ends_a_process_that_waits_for_its_peers() {
    let name = "launchers::signal_ends_a_process_that_waits_for_its_peers";
    if is_child() {
        Job::from_env().unwrap();
        return;
    }
    for rank in 0..2 {
        let mut child = explicit(name, rank, 2, port()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let handles_sigterm = || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> 14 & 1 == 1)
        };
        wait_until("it handles signals", handles_sigterm);
        let id = child.id().to_string();
        Command::new("kill").arg(id).status().unwrap();
        wait_until("it ends", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(143), "{output:?}");
    }
}

#[test]
fn port_of_another_job_is_refused() {
    if is_child() {
        let error = Job::from_env().unwrap_err().to_string();
        assert!(error.contains("if another job meets there"), "{error}");
        return println!("as expected");
    }
    let other = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let mut command = explicit("launchers::port_of_another_job_is_refused", 0, 2, port);
    let output = command.output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("as expected"),
        "{output:?}"
    );
}

#[test]
fn another_executable_is_refused() {
    if is_child() {
        let error = Job::from_env().unwrap_err().to_string();
        println!("{error}");
        return;
    }
    let folder = env::temp_dir().join(format!("halite-copy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (this, copy) = (env::current_exe().unwrap(), folder.join("copy"));
    let mut bytes = std::fs::read(&this).unwrap();
    bytes.push(0);
    std::fs::write(&copy, bytes).unwrap();
    std::fs::set_permissions(&copy, std::fs::metadata(&this).unwrap().permissions()).unwrap();
    // `sh -c SCRIPT this copy ..`: process 1 runs the copy.
    let script = "[ $PMI_RANK = 1 ] && exec \"$1\" $TEST; exec \"$0\" $TEST";
    let this = this.into_os_string();
    let words = [
        "sh".into(),
        "-c".into(),
        script.into(),
        this,
        copy.clone().into_os_string(),
    ];
    let mut launch = Launch::new(2, words);
    let test = "--exact launchers::another_executable_is_refused --nocapture";
    launch.variables.push(("TEST".to_owned(), test.into()));
    launch.variables.push((CHILD.to_owned(), "1".into()));
    let mut output = String::new();
    _ = launch.run(&mut Bar::default(), &mut |line| {
        output += &format!("{}\n", line.text)
    });
    std::fs::remove_dir_all(&folder).unwrap();
    let expected = format!("process 1 on {}", host());
    assert!(
        output.contains(&expected) && output.contains(" runs "),
        "{output}"
    );
    assert!(
        output.contains("all processes must run one program"),
        "{output}"
    );
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn killed_launcher_leaves_no_process() {
    let folder = env::temp_dir().join(format!("halite-launcher-{}", std::process::id()));
    if is_child() {
        // Each process tells its id, and does not end by itself.
        let script = "echo $$ > \"$FOLDER/$PMI_RANK\"; sleep 100";
        let launch = Launch::new(2, ["sh", "-c", script]);
        _ = launch.run(&mut Bar::default(), &mut |_| {});
        return;
    }
    std::fs::create_dir_all(&folder).unwrap();
    let mut launcher = child("launchers::killed_launcher_leaves_no_process");
    let mut launcher = launcher.env("FOLDER", &folder).spawn().unwrap();
    let id = |rank: usize| std::fs::read_to_string(folder.join(rank.to_string())).ok();
    let alive = |rank| {
        let id = id(rank).unwrap_or_default();
        !id.trim().is_empty() && PathBuf::from(format!("/proc/{}", id.trim())).exists()
    };
    wait_until("both processes run", || alive(0) && alive(1));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    wait_until("no process is left", || !alive(0) && !alive(1));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The first process of a job without PMI serves the others, which are connected to it.
#[test]
fn killed_first_process_leaves_no_process() {
    let name = "launchers::killed_first_process_leaves_no_process";
    let folder = env::temp_dir().join(format!("halite-first-{}", std::process::id()));
    if is_child() {
        let job = Job::from_env().unwrap();
        let file = PathBuf::from(env::var_os("FOLDER").unwrap()).join(job.rank().to_string());
        std::fs::write(file, std::process::id().to_string()).unwrap();
        _ = job.group().barrier("never", 10 * MINUTE);
        return thread::sleep(10 * MINUTE);
    }
    std::fs::create_dir_all(&folder).unwrap();
    let port = port();
    let children = (0..3).map(|rank| {
        let mut command = explicit(name, rank, 3, port);
        command.env("FOLDER", &folder).spawn().unwrap()
    });
    let mut children: Vec<Child> = children.collect();
    let alive = |rank: usize| {
        let id = std::fs::read_to_string(folder.join(rank.to_string())).unwrap_or_default();
        !id.is_empty() && PathBuf::from(format!("/proc/{id}")).exists()
    };
    wait_until("all processes run", || (0..3).all(alive));
    children[0].kill().unwrap();
    for mut child in children {
        wait_until("it ends", || child.try_wait().unwrap().is_some());
        assert!(!child.wait().unwrap().success());
    }
    wait_until("no process is left", || !(0..3).any(alive));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Nothing else than the closed connection tells the others, which wait by shared memory.
#[test]
fn killed_process_without_a_launcher_is_noticed() {
    let name = "launchers::killed_process_without_a_launcher_is_noticed";
    if is_child() {
        let job = Job::from_env().unwrap();
        job.group().at_step(7);
        job.group().barrier("start", MINUTE).unwrap();
        if env::var("KILLED").unwrap() == job.rank().to_string() {
            let id = std::process::id().to_string();
            Command::new("kill").args(["-KILL", &id]).status().unwrap();
        }
        _ = job.group().barrier("never", 10 * MINUTE);
        return;
    }
    for killed in ["0", "2"] {
        let port = port();
        let children = (0..3).map(|rank| {
            let mut command = explicit(name, rank, 3, port);
            command.env("KILLED", killed).spawn().unwrap()
        });
        let children: Vec<Child> = children.collect();
        let started = Instant::now();
        for (rank, child) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            assert!(!output.status.success(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stderr);
            if rank.to_string() != killed {
                assert!(text.contains("at step 7, waiting for `never`"), "{text}");
            }
        }
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

/// Sends SIGTERM to this process.
fn terminate() {
    let id = std::process::id().to_string();
    Command::new("kill").arg(id).status().unwrap();
}

#[test]
fn failure_after_a_signal_says_so() {
    if is_child() {
        // On SIGTERM, the save of each process fails.
        let script = "trap 'printf \"\\036halite failed disk full\\n\" >&2; exit 1' TERM; \
                      echo ready; while :; do sleep 0.1; done";
        let launch = Launch::new(2, ["sh", "-c", script]);
        let mut ready = 0;
        let ended = launch.run(&mut Bar::default(), &mut |line| {
            ready += usize::from(line.text == "ready");
            if line.text == "ready" && ready == 2 {
                terminate();
            }
        });
        let Ok(Ended::Failed(failure)) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(failure.stopped, Some(15), "{failure}");
        assert!(failure.reason.contains("disk full"), "{failure}");
        println!("as expected");
        // The launch is over: the signal ends this process.
        terminate();
        return thread::sleep(MINUTE);
    }
    let child = child("launchers::failure_after_a_signal_says_so")
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("as expected"),
        "{output:?}"
    );
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
}
