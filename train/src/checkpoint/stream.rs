//! Arrays that a save asks for one by one, from the thread that has the state.

use std::sync::mpsc::{Receiver, Sender, channel};

use halite_core::{Error, ErrorKind, HostArray, Result, TensorType};

/// The arrays of a state, at the side of the save: each can be taken once.
#[derive(Debug)]
pub(crate) struct StateStream {
    types: Vec<(String, TensorType)>,
    requests: Sender<usize>,
    arrays: Receiver<Result<HostArray>>,
}

/// The same at the side of the state.
#[derive(Debug)]
pub(crate) struct StateServer {
    /// Arrays that were not asked for.
    left: usize,
    requests: Receiver<usize>,
    arrays: Sender<Result<HostArray>>,
}

impl StateStream {
    /// A stream of arrays of these names and types.
    pub(crate) fn new(types: Vec<(String, TensorType)>) -> (Self, StateServer) {
        let (requests, requested) = channel();
        let (fetched, arrays) = channel();
        let server = StateServer {
            left: types.len(),
            requests: requested,
            arrays: fetched,
        };
        let stream = StateStream {
            types,
            requests,
            arrays,
        };
        (stream, server)
    }

    /// Names and types of the arrays.
    pub(crate) fn types(&self) -> &[(String, TensorType)] {
        &self.types
    }

    /// Takes the array of an index.
    ///
    /// # Errors
    /// That of the copy from the device; if the run has ended.
    pub(crate) fn array(&self, index: usize) -> Result<HostArray> {
        let ended = || {
            let message = "the run has ended before the state was saved";
            Error::new(ErrorKind::Cancelled, "checkpoint", message)
        };
        self.requests.send(index).map_err(|_| ended())?;
        self.arrays.recv().map_err(|_| ended())?
    }
}

impl StateServer {
    /// Gives each array that the save asks for, until it has all, or has failed.
    pub(crate) fn serve(mut self, mut fetch: impl FnMut(usize) -> Result<HostArray>) {
        while self.left > 0
            && let Ok(index) = self.requests.recv()
            && self.arrays.send(fetch(index)).is_ok()
        {
            self.left -= 1;
        }
    }
}
