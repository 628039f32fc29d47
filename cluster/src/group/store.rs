//! Key-value stores between processes: process 0 holds the values, and a thread of it answers the
//! others, whatever its other threads wait for.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, KeyValueStore, LocalStore, Result};

use super::{
    GRACE,
    calls::{put, take},
};
use crate::{
    mpi::{Comm, SLEEP, Sending},
    presence::{Deadline, Presence},
};

/// Tag of messages to process 0.
const REQUEST: i32 = 1;

/// Tags of its answers, as several threads of a process may wait. They repeat: an answer has the
/// number of its request, too.
const ANSWERS: std::ops::Range<i32> = 2..16_384;

/// Longest pause of the thread that answers. Requests come while devices are opened, and rarely
/// later.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Time in which process 0 answers a request that need not wait for another process.
const PROMPT: Duration = Duration::from_secs(60);

/// A key-value store, as one process sees it.
pub(super) struct Store {
    comm: Comm,
    presence: Arc<Presence>,
    name: String,
    /// The values, in process 0.
    values: Option<Arc<LocalStore>>,
    /// Number of requests so far.
    requests: AtomicU64,
}

impl Store {
    /// Starts the store; all processes call this with a communicator of their own for it.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(super) fn start(comm: Comm, presence: Arc<Presence>, name: &str) -> Result<Self> {
        let values = (presence.rank == 0).then(Arc::<LocalStore>::default);
        if let Some(values) = &values {
            let server = Server {
                comm,
                presence: presence.clone(),
                values: values.clone(),
                waiting: Vec::new(),
                sending: Vec::new(),
            };
            let thread = thread::Builder::new().name("halite-store".into());
            thread.spawn(move || server.run()).map_err(|error| {
                let op = format!("key-value store `{name}`");
                Error::new(ErrorKind::Unavailable, op, "cannot start a thread").caused_by(error)
            })?;
        }
        Ok(Store {
            comm,
            presence,
            name: name.to_owned(),
            values,
            requests: AtomicU64::new(0),
        })
    }

    /// Name of a wait for a key, the same in all processes.
    fn what(&self, key: &str) -> String {
        format!("key `{key}` of store `{}`", self.name)
    }

    /// Sends a request to process 0, and returns the value of its answer.
    fn ask(&self, request: &Request, deadline: &mut Deadline<'_>) -> Result<Option<Vec<u8>>> {
        let number = self.requests.fetch_add(1, Relaxed);
        let (tag, message) = (answer_tag(number), request.write(number));
        let mut sending = self.comm.send(0, REQUEST, message)?;
        loop {
            if let Some(answer) = self.comm.receive(0, tag, deadline)? {
                let Some(value) = read_answer(&answer, number) else {
                    continue;
                };
                // The request was received, but MPI may not have noticed that.
                while !sending.is_done()? && !deadline.is_over() {
                    deadline.pause();
                }
                return Ok(value);
            }
            if deadline.is_over() {
                let awaited = format!("{}, which holds the store", self.presence.list(&[0]));
                return Err(deadline.missed(&awaited));
            }
            deadline.pause();
        }
    }
}

impl KeyValueStore for Store {
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        if let Some(values) = &self.values {
            return values.put(key, value);
        }
        let what = self.what(key);
        let _open = self.presence.enter(&what)?;
        let request = Request::Put(key.to_owned(), value.to_vec());
        let mut deadline = Deadline::new(&self.presence, what, PROMPT);
        self.ask(&request, &mut deadline).map(drop)
    }

    fn get(&self, key: &str, patience: Duration) -> Result<Vec<u8>> {
        let what = self.what(key);
        let _open = self.presence.enter(&what)?;
        let mut deadline = Deadline::new(&self.presence, &*what, patience.saturating_add(GRACE));
        let found = match &self.values {
            Some(values) => values.get(key, patience).ok(),
            None => {
                let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
                self.ask(&Request::Get(key.to_owned(), millis), &mut deadline)?
            }
        };
        found.ok_or_else(|| {
            let late = self.presence.not_waiting_for(&what);
            let message = format!(
                "waited {patience:?} for the value, which one of them has not put: {}",
                self.presence.list(&late)
            );
            Error::new(ErrorKind::DeadlineExceeded, what.clone(), message)
        })
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        if let Some(values) = &self.values {
            return values.try_get(key);
        }
        let what = self.what(key);
        let _open = self.presence.enter(&what)?;
        let mut deadline = Deadline::new(&self.presence, what, PROMPT);
        self.ask(&Request::Get(key.to_owned(), 0), &mut deadline)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.name)
            .field("rank", &self.presence.rank)
            .finish_non_exhaustive()
    }
}

/// A request to process 0.
#[derive(Debug, PartialEq)]
enum Request {
    Put(String, Vec<u8>),
    /// A key, and the milliseconds to wait for its value.
    Get(String, u64),
}

impl Request {
    /// The message of the request of this number.
    fn write(&self, number: u64) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        let (kind, key) = match self {
            Request::Put(key, _) => (0, key),
            Request::Get(key, _) => (1, key),
        };
        bytes.push(kind);
        put(&mut bytes, key.as_bytes());
        match self {
            Request::Put(_, value) => put(&mut bytes, value),
            Request::Get(_, millis) => bytes.extend(millis.to_le_bytes()),
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<(u64, Self)> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (kind, mut rest) = rest.split_first()?;
        let key = String::from_utf8(take(&mut rest)?).ok()?;
        let request = match kind {
            0 => Request::Put(key, take(&mut rest)?),
            _ => Request::Get(key, u64::from_le_bytes(*rest.first_chunk()?)),
        };
        Some((u64::from_le_bytes(*number), request))
    }
}

/// The tag of the answer to the request of this number.
fn answer_tag(number: u64) -> i32 {
    let tags = (ANSWERS.end - ANSWERS.start) as u64;
    ANSWERS.start + (number % tags) as i32
}

/// The answer to the request of this number, with the value if there is one.
fn write_answer(number: u64, value: Option<Vec<u8>>) -> Vec<u8> {
    let mut answer = number.to_le_bytes().to_vec();
    answer.push(u8::from(value.is_some()));
    answer.extend(value.unwrap_or_default());
    answer
}

/// The value in the answer to the request of this number; `None` if it is that of an earlier one,
/// which was too late.
fn read_answer(answer: &[u8], number: u64) -> Option<Option<Vec<u8>>> {
    let (of, rest) = answer.split_first_chunk()?;
    let (&there, value) = rest.split_first()?;
    (u64::from_le_bytes(*of) == number).then(|| (there == 1).then(|| value.to_vec()))
}

/// The thread of process 0 that answers the others.
struct Server {
    comm: Comm,
    presence: Arc<Presence>,
    values: Arc<LocalStore>,
    waiting: Vec<Waiting>,
    sending: Vec<Sending>,
}

/// A request for a value that is not there yet.
struct Waiting {
    rank: usize,
    /// Number of the request.
    number: u64,
    key: String,
    /// `None` if it waits for ever.
    until: Option<Instant>,
}

impl Server {
    /// Answers until the job is finished.
    fn run(mut self) {
        let presence = self.presence.clone();
        let mut pause = SLEEP;
        while let Ok(open) = presence.enter("key-value store") {
            match self.answer() {
                Ok(true) => pause = SLEEP,
                Ok(false) => pause = (2 * pause).min(LONGEST_PAUSE),
                // The others would wait for it.
                Err(error) => presence.die(&error),
            }
            drop(open);
            thread::sleep(pause);
        }
        // MPI is not asked any more whether it still reads them.
        self.sending.into_iter().for_each(mem::forget);
    }

    /// Receives requests, and answers those that can be; returns whether there were any.
    fn answer(&mut self) -> Result<bool> {
        let presence = self.presence.clone();
        let mut deadline = Deadline::quiet(&presence, PROMPT);
        let mut is_busy = false;
        for rank in 1..presence.size {
            while let Some(bytes) = self.comm.receive(rank, REQUEST, &mut deadline)? {
                is_busy = true;
                match Request::read(&bytes) {
                    Some((number, Request::Put(key, value))) => {
                        self.values.put(&key, &value)?;
                        self.send(rank, number, None)?;
                    }
                    Some((number, Request::Get(key, millis))) => self.waiting.push(Waiting {
                        rank,
                        number,
                        key,
                        until: Instant::now().checked_add(Duration::from_millis(millis)),
                    }),
                    None => {
                        let message = format!("process {rank} sent something unreadable");
                        return Err(Error::invalid("key-value store", message));
                    }
                }
            }
        }
        for waiting in mem::take(&mut self.waiting) {
            let value = self.values.try_get(&waiting.key)?;
            let is_late = waiting.until.is_some_and(|until| Instant::now() >= until);
            if value.is_none() && !is_late {
                self.waiting.push(waiting);
                continue;
            }
            is_busy = true;
            self.send(waiting.rank, waiting.number, value)?;
        }
        self.sending
            .retain_mut(|message| matches!(message.is_done(), Ok(false)));
        Ok(is_busy)
    }

    fn send(&mut self, rank: usize, number: u64, value: Option<Vec<u8>>) -> Result<()> {
        let answer = write_answer(number, value);
        let sending = self.comm.send(rank, answer_tag(number), answer)?;
        self.sending.push(sending);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        for request in [
            Request::Put("local_topology/1".to_owned(), vec![0, 255, 7]),
            Request::Put(String::new(), Vec::new()),
            Request::Get("global_topology".to_owned(), 120_000),
        ] {
            let number = u64::from(u32::MAX) + 77;
            let bytes = request.write(number);
            assert_eq!(Request::read(&bytes), Some((number, request)));
            assert_eq!(Request::read(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn late_answer_to_an_earlier_request_is_not_taken() {
        let tags = (ANSWERS.end - ANSWERS.start) as u64;
        let (earlier, now) = (5, 5 + tags);
        assert_eq!(answer_tag(earlier), answer_tag(now));
        assert!(ANSWERS.contains(&answer_tag(u64::MAX)));
        let late = write_answer(earlier, Some(b"other".to_vec()));
        assert_eq!(read_answer(&late, now), None);
        let answer = write_answer(now, Some(b"value".to_vec()));
        assert_eq!(read_answer(&answer, now), Some(Some(b"value".to_vec())));
        assert_eq!(read_answer(&write_answer(now, None), now), Some(None));
    }
}
