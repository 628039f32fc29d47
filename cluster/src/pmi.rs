//! The process manager's side of PMI 1, by which processes find each other when they initialize MPI:
//! a key-value space and a barrier. A process sends lines of `name=value` words on the socket that
//! `PMI_FD` names, and receives one line for each.
//!
//! Nothing here listens: [`Process`](crate::processes::Process) gives a process of this host a socket
//! of its own, and [`Gate`](crate::gate::Gate) lets in those of other hosts that know the job's key.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use halite_core::{Error, ErrorKind, Result};

use crate::key;

/// Longest line of a process, far above the 1,024 bytes that MPICH sends.
const LINE: u64 = 1 << 16;

/// Serves the processes of one job.
#[derive(Clone)]
pub(crate) struct Server {
    /// Name of the key-value space, which MPICH uses for the names of its files in `/dev/shm`.
    name: String,
    state: Arc<Mutex<State>>,
}

struct State {
    values: HashMap<String, String>,
    processes: Vec<Client>,
    aborted: bool,
    /// Time of the first end of a process that had not left the job.
    failed: Option<Instant>,
}

/// One process, as the server sees it.
#[derive(Default)]
struct Client {
    answers: Option<Box<dyn Write + Send>>,
    waits: bool,
    finalized: bool,
    gone: bool,
}

impl Server {
    /// A server for this number of processes.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new(size: usize) -> Result<Self> {
        let name = format!("kvs_{}", key::hex(&key::random::<8>()?));
        let mapping = format!("(vector,(0,{size},1))");
        let state = State {
            // Each process is a node: MPICH's network library finds those that share memory.
            values: HashMap::from([("PMI_process_mapping".to_owned(), mapping)]),
            processes: (0..size).map(|_| Client::default()).collect(),
            aborted: false,
            failed: None,
        };
        let state = Arc::new(Mutex::new(state));
        Ok(Server { name, state })
    }

    /// Takes the place of a process; returns false if another one has it.
    pub(crate) fn claim(&self, rank: usize, answers: impl Write + Send + 'static) -> bool {
        match self.lock().processes.get_mut(rank) {
            Some(client) if client.answers.is_none() && !client.gone => {
                client.answers = Some(Box::new(answers));
                true
            }
            _ => false,
        }
    }

    /// Serves a process that has its place until its end.
    pub(crate) fn serve(&self, rank: usize, lines: impl Read) {
        let mut lines = BufReader::new(lines);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines).take(LINE).read_until(b'\n', &mut line);
            if !read.is_ok_and(|count| count > 0) || !line.ends_with(b"\n") {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            if !self.lock().answer(rank, text.trim_end(), &self.name) {
                break;
            }
        }
        let mut state = self.lock();
        let client = &mut state.processes[rank];
        client.answers = None;
        client.gone = true;
        if !client.finalized {
            state.failed.get_or_insert_with(Instant::now);
        }
    }

    /// Serves a process of this host on a thread of its own.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn start<S>(&self, rank: usize, socket: S, answers: S) -> Result<()>
    where
        S: Read + Write + Send + 'static,
    {
        let server = self.clone();
        self.claim(rank, answers);
        let thread = thread::Builder::new().name("halite-pmi".into());
        let started = thread.spawn(move || server.serve(rank, socket));
        started.map(drop).map_err(|error| {
            let message = "cannot start a thread that serves a process";
            Error::new(ErrorKind::Unavailable, "job", message).caused_by(error)
        })
    }

    /// Whether a process called `MPI_Abort`, which ends all.
    pub(crate) fn is_aborted(&self) -> bool {
        self.lock().aborted
    }

    /// Time of the first end of a process that had not left the job.
    pub(crate) fn failed_since(&self) -> Option<Instant> {
        self.lock().failed
    }

    /// The processes that have not come.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let state = self.lock();
        let processes = state.processes.iter().enumerate();
        let missing = processes.filter(|(_, client)| client.answers.is_none() && !client.gone);
        missing.map(|(rank, _)| rank).collect()
    }

    /// Whether all processes that came have left the job or ended.
    pub(crate) fn all_left(&self) -> bool {
        let state = self.lock();
        let mut processes = state.processes.iter();
        processes.all(|client| client.answers.is_none() || client.finalized)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Answers a line; returns false if the process cannot be served.
    fn answer(&mut self, rank: usize, line: &str, name: &str) -> bool {
        let word = |wanted: &str| {
            let mut pairs = line.split(' ').filter_map(|word| word.split_once('='));
            pairs.find_map(|(name, value)| (name == wanted).then_some(value))
        };
        let answer = match word("cmd") {
            Some("init") => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned(),
            Some("get_maxes") => {
                "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024".to_owned()
            }
            Some("get_appnum") => "cmd=appnum rc=0 appnum=0".to_owned(),
            Some("get_universe_size") => {
                format!("cmd=universe_size rc=0 size={}", self.processes.len())
            }
            Some("get_my_kvsname") => format!("cmd=my_kvsname rc=0 kvsname={name}"),
            Some("put") => {
                let (Some(key), Some(value)) = (word("key"), word("value")) else {
                    return false;
                };
                self.values.insert(key.to_owned(), value.to_owned());
                "cmd=put_result rc=0".to_owned()
            }
            Some("get") => match word("key").and_then(|key| self.values.get(key)) {
                Some(value) => format!("cmd=get_result rc=0 value={value}"),
                None => "cmd=get_result rc=1".to_owned(),
            },
            Some("barrier_in") => {
                self.processes[rank].waits = true;
                if self.processes.iter().all(|client| client.waits) {
                    for rank in 0..self.processes.len() {
                        self.processes[rank].waits = false;
                        self.send(rank, "cmd=barrier_out rc=0");
                    }
                }
                return true;
            }
            Some("finalize") => {
                self.processes[rank].finalized = true;
                "cmd=finalize_ack rc=0".to_owned()
            }
            Some("abort") => {
                self.aborted = true;
                self.failed.get_or_insert_with(Instant::now);
                return true;
            }
            // Processes that start others, and later versions of PMI.
            _ => return false,
        };
        self.send(rank, &answer);
        true
    }

    /// Sends a line to a process. One that does not read it has ended, which its thread notices.
    fn send(&mut self, rank: usize, line: &str) {
        if let Some(answers) = &mut self.processes[rank].answers {
            _ = answers.write_all(format!("{line}\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A process of a test, connected to the server.
    fn process(server: &Server, rank: usize) -> BufReader<UnixStream> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        server.start(rank, ours.try_clone().unwrap(), ours).unwrap();
        BufReader::new(theirs)
    }

    #[track_caller]
    fn says(process: &mut BufReader<UnixStream>, line: &str, expected: &str) {
        process
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        hears(process, expected);
    }

    #[track_caller]
    fn hears(process: &mut BufReader<UnixStream>, expected: &str) {
        let mut answer = String::new();
        process.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), expected);
    }

    /// As `mpiexec` of MPICH 5.0.2 answers its processes.
    #[test]
    fn processes_exchange_values() {
        let server = Server::new(2).unwrap();
        let (mut one, mut two) = (process(&server, 0), process(&server, 1));
        let init = "cmd=init pmi_version=1 pmi_subversion=1";
        let hello = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1";
        says(&mut one, init, hello);
        let get = |key: &str| format!("cmd=get kvsname=kvs_1 key={key}");
        let mapping = "cmd=get_result rc=0 value=(vector,(0,2,1))";
        says(&mut one, &get("PMI_process_mapping"), mapping);
        says(&mut two, &get("address-0"), "cmd=get_result rc=1");
        let put = "cmd=put kvsname=kvs_1 key=address-0 value=a=b";
        says(&mut one, put, "cmd=put_result rc=0");
        one.get_mut().write_all(b"cmd=barrier_in\n").unwrap();
        says(&mut two, "cmd=barrier_in", "cmd=barrier_out rc=0");
        hears(&mut one, "cmd=barrier_out rc=0");
        says(&mut two, &get("address-0"), "cmd=get_result rc=0 value=a=b");
        assert!(!server.all_left());
        for process in [&mut one, &mut two] {
            says(process, "cmd=finalize", "cmd=finalize_ack rc=0");
        }
        assert!(server.all_left() && server.failed_since().is_none());
    }

    #[test]
    fn process_that_ends_early_is_noticed() {
        let server = Server::new(2).unwrap();
        let mut one = process(&server, 0);
        one.get_mut().write_all(b"cmd=barrier_in\n").unwrap();
        drop(one);
        let start = Instant::now();
        while server.failed_since().is_none() && start.elapsed().as_secs() < 60 {
            thread::yield_now();
        }
        assert!(server.failed_since().is_some());
    }

    #[test]
    fn place_of_a_process_is_taken_once() {
        let server = Server::new(2).unwrap();
        assert!(server.claim(1, Vec::new()));
        assert!(!server.claim(1, Vec::new()));
        assert!(!server.claim(2, Vec::new()));
    }

    #[test]
    fn unknown_command_ends_the_connection() {
        for line in ["cmd=spawn nprocs=1\n", "8 bytes!\n", "cmd=put key=a\n"] {
            let server = Server::new(1).unwrap();
            let mut one = process(&server, 0);
            one.get_mut().write_all(line.as_bytes()).unwrap();
            assert_eq!(one.read_line(&mut String::new()).unwrap(), 0, "{line}");
        }
    }
}
