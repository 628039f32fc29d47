//! Messages between a process and process 0.

use std::collections::BTreeMap;

use halite_core::{Error, ErrorKind, Result};

/// A call of one process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// Number of the call.
    pub(super) round: u64,
    pub(super) name: String,
    pub(super) payload: Vec<u8>,
}

impl Call {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = self.round.to_le_bytes().to_vec();
        put(&mut bytes, self.name.as_bytes());
        put(&mut bytes, &self.payload);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (round, mut rest) = bytes.split_first_chunk()?;
        let name = String::from_utf8(take(&mut rest)?).ok()?;
        let payload = take(&mut rest)?;
        Some(Call {
            round: u64::from_le_bytes(*round),
            name,
            payload,
        })
    }
}

/// What becomes of the calls of all.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Everybody's bytes, by rank.
    All(Vec<Vec<u8>>),
    /// Processes did not come within the deadline.
    Missing(String),
    /// Processes called something else.
    Differs(String),
}

impl Outcome {
    /// Compares the calls of the processes of these ranks.
    pub(super) fn of(round: u64, name: &str, ranks: &[usize], calls: Vec<Option<Call>>) -> Self {
        let mut others = BTreeMap::<String, Vec<usize>>::new();
        let mut payloads = Vec::new();
        for (&rank, call) in ranks.iter().zip(calls) {
            match call {
                Some(call) if call.round == round && call.name == name => {
                    payloads.push(call.payload);
                }
                Some(call) => others
                    .entry(format!("`{}` (call {})", call.name, call.round))
                    .or_default()
                    .push(rank),
                None => others
                    .entry("something unreadable".to_owned())
                    .or_default()
                    .push(rank),
            }
        }
        if others.is_empty() {
            return Outcome::All(payloads);
        }
        let others = others.iter().map(|(what, ranks)| {
            let verb = if ranks.len() == 1 { "calls" } else { "call" };
            format!("{} {verb} {what}", super::processes(ranks))
        });
        let others = others.collect::<Vec<_>>().join(", ");
        Outcome::Differs(format!(
            "process {} calls `{name}` (call {round}), {others}; all processes must make the same \
             calls in the same order",
            ranks[0]
        ))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let (kind, parts) = match self {
            Outcome::All(payloads) => (0, payloads.iter().map(Vec::as_slice).collect()),
            Outcome::Missing(message) => (1, vec![message.as_bytes()]),
            Outcome::Differs(message) => (2, vec![message.as_bytes()]),
        };
        let mut bytes = vec![kind];
        for part in parts {
            put(&mut bytes, part);
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Self {
        let unreadable = || Outcome::Differs("process 0 sent something unreadable".to_owned());
        let Some((&kind, mut rest)) = bytes.split_first() else {
            return unreadable();
        };
        let mut parts = Vec::new();
        while !rest.is_empty() {
            match take(&mut rest) {
                Some(part) => parts.push(part),
                None => return unreadable(),
            }
        }
        if kind == 0 {
            return Outcome::All(parts);
        }
        let message = String::from_utf8_lossy(&parts.concat()).into_owned();
        match kind {
            1 => Outcome::Missing(message),
            _ => Outcome::Differs(message),
        }
    }

    /// The result of the call `name`.
    pub(super) fn result(self, name: &str) -> Result<Vec<Vec<u8>>> {
        let (kind, message) = match self {
            Outcome::All(payloads) => return Ok(payloads),
            Outcome::Missing(message) => (ErrorKind::DeadlineExceeded, message),
            Outcome::Differs(message) => (ErrorKind::InvalidArgument, message),
        };
        Err(Error::new(kind, format!("`{name}`"), message))
    }
}

pub(super) fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u64).to_le_bytes());
    bytes.extend(part);
}

pub(super) fn take(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (part, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(part.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(round: u64, name: &str) -> Option<Call> {
        let (name, payload) = (name.to_owned(), vec![round as u8; 3]);
        Some(Call {
            round,
            name,
            payload,
        })
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let call = call(7, "save").unwrap();
        assert_eq!(Call::read(&call.write()), Some(call));
        for outcome in [
            Outcome::All(vec![vec![1, 2], vec![], vec![3]]),
            Outcome::Missing("process 1".to_owned()),
            Outcome::Differs("process 2".to_owned()),
        ] {
            assert_eq!(Outcome::read(&outcome.write()), outcome);
        }
        assert_eq!(Call::read(&[1; 9]), None);
        assert!(matches!(Outcome::read(&[0, 9]), Outcome::Differs(_)));
    }

    #[test]
    fn differing_calls_are_named_with_their_processes() {
        let calls = vec![
            call(3, "save"),
            call(3, "load"),
            call(3, "save"),
            call(3, "load"),
        ];
        let outcome = Outcome::of(3, "save", &[0, 1, 2, 3], calls);
        let error = outcome.result("save").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            (error.message()).starts_with(
                "process 0 calls `save` (call 3), processes 1, 3 call `load` (call 3)"
            ),
            "{error}"
        );
    }
}
