//! Where processes of a job meet that no launcher has connected. The side that serves them listens,
//! and both prove that they know the job's key before anything else is said:
//!
//! ```text
//! server   halite job 1 NONCE
//! process  RANK SIZE NONCE PROOF
//! server   welcome PROOF            or: refused REASON
//! ```
//!
//! A proof is an HMAC of both random nonces, so a recorded one is worth nothing. Then the process
//! speaks PMI. A connection that says something else, or nothing in time, is dropped, and the job
//! goes on. Nothing is encrypted.

use std::{
    io::{self, ErrorKind::AddrInUse, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};

use crate::{
    environment::Recognized,
    key::{Key, SECRET, hex, is_same, random},
    pmi::Server,
};

/// What a server says first.
const GREETING: &str = "halite job 1 ";

/// Time in which the other side proves that it belongs to the job.
const PROVE: Duration = Duration::from_secs(3);

/// Time in which an address answers a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Longest line before the proof.
const LINE: usize = 256;

/// Connections that may be about to prove something; more are dropped.
const PENDING: usize = 512;

/// Pauses between attempts to connect: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Time after which a process says what it waits for.
pub(crate) const NOTE: Duration = Duration::from_millis(2500);

fn of_process(rank: usize, size: usize, nonces: [&str; 2]) -> String {
    format!("process {rank} of {size} {} {}", nonces[0], nonces[1])
}

fn of_server(rank: usize, size: usize, nonces: [&str; 2]) -> String {
    format!("server of {}", of_process(rank, size, nonces))
}

/// Listens for the processes of a job.
pub(crate) struct Gate {
    addresses: Vec<SocketAddr>,
    closed: Arc<AtomicBool>,
}

impl Gate {
    /// Lets processes that know the key in to the server.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn open(
        listeners: Vec<TcpListener>,
        key: &Key,
        size: usize,
        server: &Server,
    ) -> Result<Self> {
        let closed = Arc::new(AtomicBool::new(false));
        let mut addresses = Vec::new();
        for listener in listeners {
            addresses.push(listener.local_addr()?);
            let door = Door {
                key: key.clone(),
                size,
                server: server.clone(),
                pending: Arc::default(),
                closed: closed.clone(),
            };
            let thread = thread::Builder::new().name("halite-gate".into());
            thread
                .spawn(move || door.listen(&listener))
                .map_err(|error| {
                    let message = "cannot start a thread that listens for the other processes";
                    Error::new(ErrorKind::Unavailable, "job", message).caused_by(error)
                })?;
        }
        Ok(Gate { addresses, closed })
    }

    pub(crate) fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.closed.store(true, SeqCst);
        for address in &self.addresses {
            let ip = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            // Wakes the thread, which ends then.
            _ = TcpStream::connect_timeout(&SocketAddr::new(ip, address.port()), CONNECT);
        }
    }
}

/// One listening thread of a gate.
#[derive(Clone)]
struct Door {
    key: Key,
    size: usize,
    server: Server,
    pending: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

impl Door {
    fn listen(&self, listener: &TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Too many open files, as a rule of others than processes of this job.
                thread::sleep(PAUSES[0]);
                continue;
            };
            if self.closed.load(SeqCst) {
                return;
            }
            if self.pending.fetch_add(1, SeqCst) >= PENDING {
                self.pending.fetch_sub(1, SeqCst);
                continue;
            }
            let door = self.clone();
            let thread = thread::Builder::new().name("halite-pmi".into());
            let started = thread.spawn(move || {
                let proven = door.prove(&stream);
                door.pending.fetch_sub(1, SeqCst);
                if let Some(rank) = proven {
                    door.server.serve(rank, stream);
                }
            });
            if started.is_err() {
                self.pending.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Returns the process at the other end, if it proves that it is one of the job.
    fn prove(&self, mut stream: &TcpStream) -> Option<usize> {
        let end = Instant::now() + PROVE;
        let mine = hex(&random::<16>().ok()?);
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(PROVE)).ok()?;
        stream
            .write_all(format!("{GREETING}{mine}\n").as_bytes())
            .ok()?;
        let line = read_line(stream, end).ok()?;
        let mut words = line.split(' ');
        let [rank, size, theirs, proof] = std::array::from_fn(|_| words.next().unwrap_or_default());
        let (rank, size): (usize, usize) = (rank.parse().ok()?, size.parse().ok()?);
        let nonces = [&*mine, theirs];
        let is_known = is_same(proof, &self.key.proof(&of_process(rank, size, nonces)));
        let refused = if !is_known {
            "it does not know the key of this job".to_owned()
        } else if size != self.size || rank >= size {
            format!("this job has {} processes", self.size)
        } else if !self.server.claim(rank, stream.try_clone().ok()?) {
            format!("process {rank} of this job is there already")
        } else {
            let proof = self.key.proof(&of_server(rank, size, nonces));
            stream
                .write_all(format!("welcome {proof}\n").as_bytes())
                .ok()?;
            stream.set_read_timeout(None).ok()?;
            return Some(rank);
        };
        _ = stream.write_all(format!("refused {refused}\n").as_bytes());
        None
    }
}

/// Reads a line and not a byte after it.
fn read_line(mut stream: &TcpStream, end: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        match byte[0] {
            b'\n' => return String::from_utf8(line).map_err(io::Error::other),
            _ if line.len() == LINE => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
}

/// Listens at the address where the processes of a job meet: a name of this machine alone or an
/// address that this machine has, and otherwise all addresses, because names of networks often lead
/// elsewhere on the machine that has them. `process` describes this one, in errors.
///
/// # Errors
/// If that is not possible, as when another job meets there.
pub(crate) fn listen(address: &str, process: &str) -> Result<Vec<TcpListener>> {
    let failed = |at: &str, error: io::Error| {
        let message = format!(
            "{process} cannot listen at {at}, where the processes meet; if another process has its \
             number, give each its own; if another job meets there, set HALITE_PROCESS_ID, \
             HALITE_NUM_PROCESSES and HALITE_COORDINATOR_ADDRESS with another port"
        );
        Error::new(ErrorKind::Unavailable, "job", message).caused_by(error)
    };
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let port: u16 = port.parse().map_err(|_| {
        let message = format!("the coordinator's address is `{address}`; expected HOST:PORT");
        Error::invalid("job", message)
    })?;
    let given = address.parse::<SocketAddr>().ok();
    if is_of_one_machine(address) {
        let mut listeners = Vec::new();
        let mut last = None;
        for one in address
            .to_socket_addrs()
            .map_err(|error| failed(address, error))?
        {
            match TcpListener::bind(one) {
                Ok(listener) => listeners.push(listener),
                Err(error) if error.kind() == AddrInUse => return Err(failed(address, error)),
                // `localhost` has an address of IPv6 where there is no IPv6.
                Err(error) => last = Some(error),
            }
        }
        return match last {
            Some(error) if listeners.is_empty() => Err(failed(address, error)),
            _ => Ok(listeners),
        };
    }
    if let Some(at) = given {
        match TcpListener::bind(at) {
            Ok(listener) => return Ok(vec![listener]),
            // One that leads here by translation.
            Err(error) if at.is_ipv4() && error.kind() != AddrInUse => {}
            Err(error) if at.is_ipv6() && error.kind() != AddrInUse => {
                let message = format!(
                    "{process} cannot listen at {address}: this machine does not have that IPv6 \
                     address"
                );
                return Err(Error::new(ErrorKind::Unavailable, "job", message).caused_by(error));
            }
            Err(error) => return Err(failed(address, error)),
        }
    }
    listen_everywhere(port).map_err(|error| failed(&format!("port {port}"), error))
}

/// Whether only processes of one machine can meet at an address.
pub(crate) fn is_of_one_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let given = address.parse::<SocketAddr>();
    host == "localhost" || given.is_ok_and(|at| at.ip().is_loopback())
}

/// Listens at all addresses of this machine.
pub(crate) fn listen_everywhere(port: u16) -> io::Result<Vec<TcpListener>> {
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() != AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        other => other,
    };
    Ok(vec![listener?])
}

/// A failed attempt to reach the server.
enum Failed {
    /// It may be there later.
    Yet(String),
    /// It is the server of another job, or nobody's.
    Never(String),
}

/// Connects a process to the server of its job; `None` if `is_stopped` says that it need not.
///
/// # Errors
/// If the server is not reached within `patience`; at once if something else answers there.
pub(crate) fn reach(
    job: &Recognized,
    address: &str,
    key: &Key,
    patience: Duration,
    mut is_stopped: impl FnMut() -> bool,
) -> Result<Option<TcpStream>> {
    let (rank, size) = (job.rank, job.size);
    let (start, mut pause, mut noted) = (Instant::now(), PAUSES[0], false);
    loop {
        let left = patience.saturating_sub(start.elapsed());
        let why = match attempt(rank, size, address, key, left) {
            Ok(stream) => return Ok(Some(stream)),
            Err(Failed::Never(why)) => {
                let message = format!("process {rank} of {size} cannot join at {address}: {why}");
                return Err(Error::new(ErrorKind::Unavailable, "job", message));
            }
            Err(Failed::Yet(why)) => why,
        };
        if start.elapsed() >= patience {
            let message = format!(
                "process {rank} of {size} did not reach process 0 at {address} within \
                 {patience:.0?}: {why}"
            );
            return Err(Error::new(ErrorKind::DeadlineExceeded, "job", message));
        }
        if start.elapsed() >= NOTE && !noted {
            let job = job.description();
            eprintln!("halite: {job} waits for process 0 at {address}: {why}");
            noted = true;
        }
        let wait = Instant::now();
        while wait.elapsed() < pause.min(patience.saturating_sub(start.elapsed())) {
            if is_stopped() {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(10));
        }
        pause = (2 * pause).min(PAUSES[1]);
    }
}

fn attempt(
    rank: usize,
    size: usize,
    address: &str,
    key: &Key,
    left: Duration,
) -> Result<TcpStream, Failed> {
    let yet = |error: io::Error| Failed::Yet(error.to_string());
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let found = address
        .to_socket_addrs()
        .map_err(|error| Failed::Yet(format!("unable to get the address of {host}: {error}")))?;
    let mut why = Failed::Yet(format!("{host} has no address"));
    for one in found {
        let limit = left.clamp(Duration::from_millis(1), CONNECT);
        let stream = match TcpStream::connect_timeout(&one, limit) {
            Ok(stream) => stream,
            // A host that is there accepts or refuses at once.
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused && is_ipv6(address) => {
                let text = format!("the IPv6 address does not answer: {error}");
                why = Failed::Never(text);
                continue;
            }
            Err(error) => {
                why = yet(error);
                continue;
            }
        };
        // Without a listener, the system may connect a port of its own choice to itself.
        if stream.local_addr().ok() == stream.peer_addr().ok() {
            why = yet(io::ErrorKind::ConnectionRefused.into());
            continue;
        }
        return greet(rank, size, &stream, key).map(|()| stream);
    }
    Err(why)
}

fn is_ipv6(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|at| at.is_ipv6())
}

/// The side of a process.
fn greet(rank: usize, size: usize, mut stream: &TcpStream, key: &Key) -> Result<(), Failed> {
    let yet = |error: io::Error| Failed::Yet(error.to_string());
    let end = Instant::now() + PROVE;
    stream.set_nodelay(true).map_err(yet)?;
    let greeting = read_line(stream, end).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => yet(error),
        _ => Failed::Never("what listens there is not halite".to_owned()),
    })?;
    let Some(theirs) = greeting.strip_prefix(GREETING) else {
        let message = "what listens there is not halite, or another version of it";
        return Err(Failed::Never(message.to_owned()));
    };
    let random = random::<16>().map_err(|error| Failed::Never(error.to_string()))?;
    let mine = hex(&random);
    let nonces = [theirs, &*mine];
    let proof = key.proof(&of_process(rank, size, nonces));
    let line = format!("{rank} {size} {mine} {proof}\n");
    stream.write_all(line.as_bytes()).map_err(yet)?;
    let answer = read_line(stream, end).map_err(yet)?;
    if let Some(reason) = answer.strip_prefix("refused ") {
        return Err(Failed::Never(format!(
            "another job meets there, or another process has this place: {reason}; give this job \
             another port, and all of its processes the same {SECRET}"
        )));
    }
    let expected = key.proof(&of_server(rank, size, nonces));
    match answer.strip_prefix("welcome ") {
        Some(proof) if is_same(proof, &expected) => {}
        _ => {
            let message = "what listens there does not know the key of this job";
            return Err(Failed::Never(message.to_owned()));
        }
    }
    stream.set_read_timeout(None).map_err(yet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &str) -> Key {
        Key::secret(secret)
    }

    fn job(rank: usize) -> Recognized {
        let variables = [
            ("HALITE_PROCESS_ID", rank.to_string()),
            ("HALITE_NUM_PROCESSES", "2".to_owned()),
            ("HALITE_COORDINATOR_ADDRESS", "localhost:1".to_owned()),
        ];
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
        Recognized::from(|name| find(name).map(|(_, value)| value.clone())).unwrap()
    }

    /// A gate on a free port of this machine, and its address.
    fn gate(server: &Server) -> (Gate, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Gate::open(vec![listener], &key("a"), 2, server).unwrap();
        (gate, address)
    }

    fn join(rank: usize, address: &str, key: &Key) -> Result<Option<TcpStream>> {
        reach(&job(rank), address, key, Duration::from_secs(20), || false)
    }

    #[track_caller]
    fn refused(rank: usize, address: &str, key: &Key, expected: &str) {
        let error = join(rank, address, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn only_the_key_opens_the_gate() {
        let server = Server::new(2).unwrap();
        let (_gate, address) = gate(&server);
        refused(
            1,
            &address,
            &key("b"),
            "it does not know the key of this job",
        );
        let identity = Key::of(2, &[]);
        refused(
            1,
            &address,
            &identity,
            "it does not know the key of this job",
        );
        let stream = join(1, &address, &key("a")).unwrap();
        refused(
            1,
            &address,
            &key("a"),
            "process 1 of this job is there already",
        );
        let mut stream = stream.unwrap();
        stream.write_all(b"cmd=get_appnum\n").unwrap();
        let answer = read_line(&stream, Instant::now() + PROVE).unwrap();
        assert_eq!(answer, "cmd=appnum rc=0 appnum=0");
    }

    #[test]
    fn strangers_are_dropped() {
        let server = Server::new(2).unwrap();
        let (_gate, address) = gate(&server);
        let quiet = TcpStream::connect(&address).unwrap();
        for bytes in [
            &b"8 bytes!"[..],
            &[0; 4096],
            b"\n",
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            let mut stream = TcpStream::connect(&address).unwrap();
            _ = stream.write_all(bytes);
        }
        let _stream = join(1, &address, &key("a")).unwrap().expect("not stopped");
        // The greeting, and the end in time.
        let start = Instant::now();
        let mut text = String::new();
        _ = (&quiet).read_to_string(&mut text);
        assert!(text.starts_with(GREETING), "{text}");
        assert!(start.elapsed() < 2 * PROVE && server.failed_since().is_none());
    }

    #[test]
    fn other_listeners_are_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let says = |text: &'static str| {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(text.as_bytes()).unwrap();
            stream
        };
        thread::scope(|scope| {
            scope.spawn(|| says("SSH-2.0-OpenSSH_9.6\r\n"));
            refused(1, &address, &key("a"), "is not halite, or another version");
            // It knows no key, and so cannot prove that it belongs to the job.
            scope.spawn(|| {
                let mut stream = says("halite job 1 00\n");
                _ = read_line(&stream, Instant::now() + PROVE);
                _ = stream.write_all(b"welcome 00\n");
            });
            refused(1, &address, &key("a"), "does not know the key of this job");
        });
    }

    #[test]
    fn port_is_free_after_the_gate_is_dropped() {
        let server = Server::new(2).unwrap();
        let (gate, address) = gate(&server);
        drop(gate);
        let start = Instant::now();
        while TcpListener::bind(&address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn addresses_of_one_machine_are_not_reached_from_others() {
        for address in ["localhost", "127.0.0.1"] {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
            let address = format!("{address}:{}", free.unwrap().port());
            let listeners = listen(&address, "process 0").unwrap();
            for listener in listeners {
                assert!(listener.local_addr().unwrap().ip().is_loopback());
            }
        }
        let error = listen("[2001:db8::7]:29500", "process 0")
            .unwrap_err()
            .to_string();
        assert!(error.contains("does not have that IPv6 address"), "{error}");
    }
}
