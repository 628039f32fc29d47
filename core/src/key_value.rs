//! Key-value stores, through which the drivers of a job's devices find each other.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, ErrorKind, Result};

/// Values by key that all processes of a job share. Drivers exchange the topology of their devices
/// and the addresses of their networks through it, from any thread.
///
/// [`LocalStore`] is one within a process; [`ProcessGroup::store`](crate::ProcessGroup::store)
/// makes one between processes.
pub trait KeyValueStore: fmt::Debug + Send + Sync {
    /// Sets the value of a key, replacing an earlier one.
    ///
    /// # Errors
    /// If the value does not reach the store.
    fn put(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Returns the value of a key. Waits at most `timeout` until there is one.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`], with the key, the wait and the processes that are late.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;

    /// Returns the current value of a key, or `None` if it has none.
    ///
    /// # Errors
    /// If the store cannot be asked.
    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>>;
}

/// A key-value store within a process.
///
/// ```
/// use halite_core::{KeyValueStore, LocalStore};
/// use std::time::Duration;
///
/// let store = LocalStore::default();
/// store.put("port", b"29500")?;
/// assert_eq!(store.get("port", Duration::from_secs(1))?, b"29500");
/// assert_eq!(store.try_get("host")?, None);
/// # halite_core::Result::<()>::Ok(())
/// ```
#[derive(Default)]
pub struct LocalStore {
    values: Mutex<HashMap<String, Arc<[u8]>>>,
    changed: Condvar,
}

impl LocalStore {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[u8]>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyValueStore for LocalStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.lock().insert(key.to_owned(), value.into());
        self.changed.notify_all();
        Ok(())
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let started = Instant::now();
        let mut values = self.lock();
        loop {
            if let Some(value) = values.get(key) {
                return Ok(value.to_vec());
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                let message = format!("waited {timeout:?}, and nothing has put it");
                let op = format!("key `{key}`");
                return Err(Error::new(ErrorKind::DeadlineExceeded, op, message));
            }
            let waited = self.changed.wait_timeout(values, left);
            values = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.lock().get(key).map(|value| value.to_vec()))
    }
}

/// The keys, without their values.
impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.lock();
        let mut keys: Vec<_> = values.keys().collect();
        keys.sort();
        f.debug_tuple("LocalStore").field(&keys).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_waits_for_a_put_of_another_thread() {
        let store = LocalStore::default();
        let value = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| store.get("a", Duration::from_secs(60)));
            store.put("b", b"other")?;
            store.put("a", b"first")?;
            waiting.join().expect("no panic")
        });
        assert_eq!(value.unwrap(), b"first");
    }

    #[test]
    fn late_key_is_named() {
        let store = LocalStore::default();
        let error = store.get("nccl/7", Duration::from_millis(5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        let expected = "key `nccl/7`: waited 5ms, and nothing has put it";
        assert_eq!(error.to_string(), expected);
    }
}
