//! Calls of decoders of other crates, which may panic on input that nobody checked.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    /// Calls that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` of a foreign decoder on one file or sample. A panic is an error with its message:
/// the input is at fault, and no state of `work` outlives the panic.
///
/// ```
/// let decoded: Result<u8, String> = halite_core::guard::call(|| [1, 2, 3][..2][2]);
/// assert!(decoded.unwrap_err().starts_with("the decoder panicked: index out of bounds"));
/// ```
///
/// # Errors
/// If `work` panics.
pub fn call<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let _inside = Inside::new();
    // State that `work` leaves behind is dropped with it.
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| format!("the decoder panicked: {}", panic_message(&*panic)))
}

/// Whether this thread is inside a [`call`]: a panic hook does not report such a panic, which
/// becomes an error.
pub fn is_active() -> bool {
    DEPTH.get() > 0
}

/// Message of a caught panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

struct Inside;

impl Inside {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_ends_with_its_call() {
        assert!(!is_active());
        assert_eq!(call(|| call(is_active)), Ok(Ok(true)));
        let error = call(|| panic!("at {}", 7)).unwrap_err();
        assert_eq!(error, "the decoder panicked: at 7");
        assert!(!is_active());
    }
}
