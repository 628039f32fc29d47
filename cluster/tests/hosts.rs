//! Jobs over two hosts: network namespaces with addresses of their own, and a cable between them. Only
//! root can make them, by `ip` (Debian: iproute2) and `unshare`; for others these tests do nothing.

#![cfg(target_os = "linux")]

use std::{
    env, fs, iter,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use halite_cluster::{Job, JobOptions, launch::Launch};
use halite_fetch::Bar;
use tempfile::TempDir;

use crate::shared::child::{MINUTE, check, child_by, is_child, sum_ranks, wait_until};

/// Address of the first host; the second has the next one.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Port at which the processes meet, on hosts that nothing else runs on.
const PORT: u16 = 29500;

/// Names of the hosts.
const NAMES: [&str; 2] = ["host-a", "host-b"];

/// MPICH's network library exchanges by TCP alone: the hosts have one memory, which it would find.
const BY_TCP: [&str; 2] = ["UCX_TLS", "tcp,self"];

/// Runs a command with another name of the host.
const NAMED: &str = "hostname \"$0\"; exec \"$@\"";

/// Two hosts and the cable between them.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// `None` where namespaces cannot be made.
    fn new() -> Option<Hosts> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, SeqCst);
        let names = ["a", "b"].map(|host| format!("hl-{}-{number}-{host}", std::process::id()));
        let made = names.iter().all(|name| ip(&format!("netns add {name}")));
        let hosts = Hosts { names };
        let [a, b] = &hosts.names;
        let cable = format!("link add cable netns {a} type veth peer name cable netns {b}");
        if !made || !ip(&cable) {
            eprintln!("skipped: `ip netns` makes no network namespaces for this user");
            return None;
        }
        for (index, name) in hosts.names.iter().enumerate() {
            let address = address(index);
            for command in [
                format!("addr add {address}/24 dev cable"),
                "link set cable up".to_owned(),
                "link set lo up".to_owned(),
            ] {
                assert!(ip(&format!("-n {name} {command}")), "{command}");
            }
        }
        // A signal on the cable takes a while, and a network without one is not used.
        for name in &hosts.names {
            let state = format!("-n {name} link show cable");
            wait_until("the cable is up", || said(&state).contains("state UP"));
        }
        Some(hosts)
    }

    /// A command on a host, to which arguments are added.
    fn on(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.names[host]])
            .args(["unshare", "--uts", "sh", "-c", NAMED, NAMES[host]])
            .arg(program);
        command
    }

    /// This test, on a host.
    fn child(&self, host: usize, name: &str) -> Command {
        let mut command = child_by(self.on(host, &env::current_exe().unwrap()), name);
        command.env(BY_TCP[0], BY_TCP[1]);
        command
    }

    /// The processes of a job, one on each host, that these variables and one with the rank make.
    fn job(&self, name: &str, variables: &[(&str, &str)], rank: &str) -> Vec<Child> {
        let process = |index: usize| {
            let mut command = self.child(index, name);
            let variables = variables.iter().copied();
            command.envs(variables).env(rank, index.to_string());
            command.spawn().unwrap()
        };
        (0..2).map(process).collect()
    }

    /// As [`job`](Self::job), with halite's own variables.
    fn explicit_job(&self, name: &str, variables: &[(&str, &str)]) -> Vec<Child> {
        let address = format!("{FIRST}:{PORT}");
        let own = [
            ("HALITE_NUM_PROCESSES", "2"),
            ("HALITE_COORDINATOR_ADDRESS", &*address),
        ];
        self.job(name, &[&own, variables].concat(), "HALITE_PROCESS_ID")
    }

    fn pull_cable(&self) {
        assert!(ip(&format!("-n {} link set cable down", self.names[1])));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // What a test that failed left running.
            for id in said(&format!("netns pids {name}")).split_whitespace() {
                _ = Command::new("kill").args(["-KILL", id]).status();
            }
            ip(&format!("netns del {name}"));
        }
    }
}

fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST) + host as u32)
}

fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command
        .args(arguments.split_whitespace())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What `ip` printed.
fn said(arguments: &str) -> String {
    let mut command = Command::new("ip");
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn processes_of_two_hosts_are_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let Some(hosts) = Hosts::new() else { return };
    let children = hosts.explicit_job("hosts::processes_of_two_hosts_are_a_job", &[]);
    check(children, "of 2 by HALITE_PROCESS_ID: 1");
}

/// What `torchrun --nnodes 2 --nproc_per_node 1 --rdzv_endpoint FIRST` sets on each host.
#[test]
fn torchrun_variables_of_two_hosts_are_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let Some(hosts) = Hosts::new() else { return };
    let address = FIRST.to_string();
    let variables = [
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", &*address),
        ("MASTER_PORT", "29500"),
    ];
    let name = "hosts::torchrun_variables_of_two_hosts_are_a_job";
    check(hosts.job(name, &variables, "RANK"), "of 2 by torchrun: 1");
}

/// The variables of a slice of Cloud TPUs with two hosts.
#[test]
fn tpu_variables_of_two_hosts_are_a_job() {
    if is_child() {
        return sum_ranks();
    }
    let Some(hosts) = Hosts::new() else { return };
    let names = [0, 1].map(|host| address(host).to_string()).join(",");
    let variables = [("TPU_WORKER_HOSTNAMES", &*names)];
    let name = "hosts::tpu_variables_of_two_hosts_are_a_job";
    check(
        hosts.job(name, &variables, "TPU_WORKER_ID"),
        "of 2 by Cloud TPU: 1",
    );
}

/// Directory in which each process writes a file with its id when it exchanges.
const READY: &str = "HALITE_TEST_READY";

/// Exchanges until that fails, and ends with the error.
fn exchange_until_it_fails() -> ! {
    let mut options = JobOptions::default();
    (options.lost, options.heartbeat) = (Duration::from_secs(3), Duration::from_millis(100));
    let job = Job::with_options(options).unwrap();
    job.group().at_step(12);
    let ready = PathBuf::from(env::var_os(READY).unwrap()).join(job.rank().to_string());
    let mut exchanged = 0;
    let error = loop {
        if let Err(error) = job.group().barrier("step", MINUTE) {
            break error;
        }
        exchanged += 1;
        // The heartbeats have told the step by then.
        if exchanged == 20 {
            fs::write(&ready, process::id().to_string()).unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    };
    let error = job.finish_with::<()>(Err(error)).unwrap_err();
    eprintln!("error: {error}");
    process::exit(3);
}

/// Waits until the processes exchange, and returns their ids.
fn ids(ready: &Path) -> [String; 2] {
    let id = |rank: usize| fs::read_to_string(ready.join(rank.to_string())).unwrap_or_default();
    wait_until("the processes exchange", || {
        (0..2).all(|rank| !id(rank).is_empty())
    });
    [0, 1].map(id)
}

#[test]
fn pulled_cable_is_an_error_in_time() {
    if is_child() {
        exchange_until_it_fails();
    }
    let Some(hosts) = Hosts::new() else { return };
    let ready = tempfile::tempdir().unwrap();
    let variable = (READY, ready.path().to_str().unwrap());
    let children = hosts.explicit_job("hosts::pulled_cable_is_an_error_in_time", &[variable]);
    ids(ready.path());
    hosts.pull_cable();
    let pulled = Instant::now();
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let other = 1 - rank;
        let expected = format!("process {other} on {}", NAMES[other]);
        assert!(text.contains(&expected), "{rank}: {output:?}");
        assert!(!output.status.success(), "{rank}: {output:?}");
    }
    let took = pulled.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// A daemon of ssh on each host, and a key that opens them.
struct Ssh {
    folder: TempDir,
    daemons: Vec<Child>,
}

impl Ssh {
    /// `None` where OpenSSH (Debian: openssh-server) is not installed.
    fn start(hosts: &Hosts) -> Option<Ssh> {
        let program = Path::new("/usr/sbin/sshd");
        if !program.exists() {
            eprintln!("skipped: there is no {}", program.display());
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]);
            assert!(command.status().unwrap().success());
        }
        let (host, user, keys) = (file("host"), file("user"), file("user.pub"));
        let daemon = format!(
            "HostKey {host}\nAuthorizedKeysFile {keys}\nPidFile none\nStrictModes no\nUsePAM no\n"
        );
        fs::write(file("sshd_config"), daemon).unwrap();
        let client = format!(
            "IdentityFile {user}\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\n\
             LogLevel ERROR\n"
        );
        fs::write(file("config"), client).unwrap();
        // A directory that the daemon wants.
        fs::create_dir_all("/run/sshd").unwrap();
        let daemon = |host: usize| {
            let mut command = hosts.on(host, program);
            command.args(["-D", "-e", "-f", &file("sshd_config")]);
            command.stderr(Stdio::null()).spawn().unwrap()
        };
        let daemons = vec![daemon(0), daemon(1)];
        let ssh = Ssh { folder, daemons };
        for name in &hosts.names {
            let sockets = format!("netns exec {name} ss -Hltn");
            wait_until("the daemon of ssh listens", || {
                said(&sockets).contains(":22 ")
            });
        }
        Some(ssh)
    }

    /// The command that starts a command on a host.
    fn command(&self) -> String {
        let config = self.folder.path().join("config");
        format!("ssh -o BatchMode=yes -F {}", config.display())
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            _ = daemon.kill();
            _ = daemon.wait();
        }
    }
}

/// The command of [`Ssh`], for a process that launches.
const SSH: &str = "HALITE_TEST_SSH";

/// Launches this test on both hosts, and prints its output and how it ended.
fn launch(name: &str) {
    let this = env::current_exe().unwrap().into_os_string();
    let test = ["--exact", name, "--nocapture"].map(Into::into);
    let mut launch = Launch::new(2, iter::once(this).chain(test));
    launch.hosts = [0, 1].map(|host| address(host).to_string()).to_vec();
    launch.variables = vec![(BY_TCP[0].to_owned(), BY_TCP[1].into())];
    let ssh = env::var(SSH).unwrap();
    launch.ssh = ssh.split(' ').map(str::to_owned).collect();
    let ended = launch.run(&mut Bar::default(), &mut |line| println!("{}", line.text));
    println!("ended: {}", ended.unwrap());
}

fn is_launched() -> bool {
    env::var_os("PMI_RANK").is_some()
}

#[test]
fn ssh_starts_processes_on_hosts() {
    let name = "hosts::ssh_starts_processes_on_hosts";
    if is_launched() {
        return sum_ranks();
    }
    if is_child() {
        return launch(name);
    }
    let Some(hosts) = Hosts::new() else { return };
    let Some(ssh) = Ssh::start(&hosts) else {
        return;
    };
    let mut launcher = hosts.child(0, name);
    let output = launcher.env(SSH, ssh.command()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for expected in [
        "process 0 of 2 by MPI: 1",
        "process 1 of 2 by MPI: 1",
        "process 0 of 1 on host-a",
        "process 0 of 1 on host-b",
        "ended: every process finished",
    ] {
        assert!(text.contains(expected), "{output:?}");
    }
}

#[test]
fn pulled_cable_ends_a_launch() {
    let name = "hosts::pulled_cable_ends_a_launch";
    if is_launched() {
        exchange_until_it_fails();
    }
    if is_child() {
        return launch(name);
    }
    let Some(hosts) = Hosts::new() else { return };
    let Some(ssh) = Ssh::start(&hosts) else {
        return;
    };
    let ready = tempfile::tempdir().unwrap();
    let mut launcher = hosts.child(0, name);
    launcher.env(SSH, ssh.command()).env(READY, ready.path());
    let launcher = launcher.spawn().unwrap();
    let ids = ids(ready.path());
    hosts.pull_cable();
    let pulled = Instant::now();
    let output = launcher.wait_with_output().unwrap();
    let took = pulled.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let waited = format!("process 1 on {} (step 12", NAMES[1]);
    for expected in [&*waited, "ended: process 0 on host-a"] {
        assert!(text.contains(expected), "no `{expected}` in {output:?}");
    }
    wait_until("no process is left", || {
        ids.iter().all(|id| !Path::new("/proc").join(id).exists())
    });
}
