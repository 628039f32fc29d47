//! Environment variables that plugins read, set while other threads may run.
//!
//! Plugins take much of their configuration from the environment alone, when they are loaded. The
//! standard library's way to set a variable is unsafe while other threads run, because the C
//! library moves or frees memory that they may be reading. Here nothing is moved or freed: a new
//! list is built and then published by storing one pointer.

use std::{
    ffi::{CString, c_char},
    sync::Mutex,
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Sets those of `variables` that are not set, so that the user's values stay. Does nothing on
/// systems other than Linux, where no safe way is known.
///
/// A process must not change its environment by other means at the same time: those require that no
/// other thread reads it.
pub(crate) fn set_missing(variables: &[(&str, &str)]) {
    let _held = ONE_AT_A_TIME.lock();
    let missing = variables
        .iter()
        .filter(|(name, _)| std::env::var_os(name).is_none());
    let entries: Vec<CString> = missing
        .filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok())
        .collect();
    if !entries.is_empty() {
        publish(|list| list.extend(entries.into_iter().map(CString::into_raw)));
    }
}

/// Runs `work` with a variable set, unless the user set it.
pub(crate) fn with_missing<R>(name: &str, value: &str, work: impl FnOnce() -> R) -> R {
    if std::env::var_os(name).is_some() {
        work()
    } else {
        with_override(name, value.as_bytes(), work)
    }
}

/// Runs `work` with a variable set in place of the user's value, which is restored afterwards.
///
/// A value with a NUL byte, which no variable can hold, changes nothing.
pub(crate) fn with_override<R>(name: &str, value: &[u8], work: impl FnOnce() -> R) -> R {
    let Ok(entry) = CString::new([name.as_bytes(), b"=", value].concat()) else {
        return work();
    };
    // An address, which is never freed: another thread may be reading what is there.
    let entry = entry.into_raw() as usize;
    let change = |change: &dyn Fn(&mut Vec<*mut c_char>, *mut c_char)| {
        let _held = ONE_AT_A_TIME.lock();
        publish(|list| change(list, entry as *mut c_char));
    };
    // The C library takes the first of two entries with one name, so the user's entry stays in
    // place.
    change(&|list, entry| list.insert(0, entry));
    let result = work();
    change(&|list, entry| list.retain(|known| *known != entry));
    result
}

/// Publishes the list of all variables after a change. Called by one at a time.
#[cfg(target_os = "linux")]
fn publish(change: impl FnOnce(&mut Vec<*mut c_char>)) {
    use std::sync::atomic::{AtomicPtr, Ordering};

    unsafe extern "C" {
        /// POSIX: an array of pointers to `name=value`, ended by null.
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: it is a pointer that lives as long as the process. The C library reads it with single
    // loads, which an aligned store of a pointer never tears. Other ways to change it require that
    // no other thread uses it.
    let place = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    let old = place.load(Ordering::Acquire);
    // SAFETY: null, or an array ended by null, which no other thread changes now (see above).
    let known = (0..).map_while(|index| unsafe {
        let entry = if old.is_null() {
            old.cast()
        } else {
            *old.add(index)
        };
        (!entry.is_null()).then_some(entry)
    });
    let mut list: Vec<*mut c_char> = known.collect();
    change(&mut list);
    list.push(std::ptr::null_mut());
    // Neither list is ever freed: another thread may be reading the old one, and the new one is
    // used until the process ends. The C library frees only its own lists.
    place.store(
        Box::leak(list.into_boxed_slice()).as_mut_ptr(),
        Ordering::Release,
    );
}

#[cfg(not(target_os = "linux"))]
fn publish(_: impl FnOnce(&mut Vec<*mut c_char>)) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn missing_variables_are_set_while_others_read() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert!(std::env::var_os("PATH").is_some());
                    }
                });
            }
            for index in 0..200 {
                set_missing(&[
                    (&format!("HALITE_TEST_{index}"), "first"),
                    ("HALITE_TEST_0", "second"),
                ]);
            }
            done.store(true, Ordering::Relaxed);
        });
        for index in 0..200 {
            assert_eq!(
                std::env::var(format!("HALITE_TEST_{index}")).as_deref(),
                Ok("first")
            );
        }
        let mut child = std::process::Command::new("sh");
        let output = child.args(["-c", "echo $HALITE_TEST_7"]).output().unwrap();
        assert_eq!(output.stdout, b"first\n", "a child inherits it");
    }

    #[test]
    fn override_hides_the_users_value() {
        let read = || std::env::var("HALITE_TEST_OVERRIDE").ok();
        set_missing(&[("HALITE_TEST_OVERRIDE", "the user's")]);
        assert_eq!(
            with_override("HALITE_TEST_OVERRIDE", b"ours", read).as_deref(),
            Some("ours")
        );
        assert_eq!(read().as_deref(), Some("the user's"));
        assert_eq!(
            with_override("HALITE_TEST_OVERRIDE", b"nul\0", read).as_deref(),
            Some("the user's")
        );
    }

    #[test]
    fn temporary_variables_are_restored() {
        let read = || std::env::var("HALITE_TEST_WHILE").ok();
        assert_eq!(
            with_missing("HALITE_TEST_WHILE", "now", read).as_deref(),
            Some("now")
        );
        assert_eq!(read(), None);
        set_missing(&[("HALITE_TEST_WHILE", "the user's")]);
        assert_eq!(
            with_missing("HALITE_TEST_WHILE", "now", read).as_deref(),
            Some("the user's")
        );
        assert_eq!(read().as_deref(), Some("the user's"));
    }
}
