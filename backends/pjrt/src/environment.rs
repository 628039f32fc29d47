//! Environment variables that plugins read, set while other threads may run.
//!
//! Plugins take much of their configuration from the environment alone, when they are loaded. The standard library's way to
//! set a variable is unsafe beside other threads, because the C library moves or frees what they may be reading. Here
//! nothing is moved or freed: a longer list is built beside the old one, and then published by storing one pointer.

use std::{ffi::CString, sync::Mutex};

/// Sets those of `variables` that are not set; what the user chose stays. Where this system offers no safe way (other
/// than Linux), nothing happens.
///
/// A process that changes its environment by other means while this runs breaks the rule of those means, which is that no
/// other thread may look at it meanwhile.
pub(crate) fn set_missing(variables: &[(&str, &str)]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    let _held = ONE_AT_A_TIME.lock();
    let missing = variables.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let entries: Vec<CString> = missing.filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok()).collect();
    if !entries.is_empty() {
        publish(entries);
    }
}

#[cfg(target_os = "linux")]
fn publish(entries: Vec<CString>) {
    use std::{
        ffi::c_char,
        sync::atomic::{AtomicPtr, Ordering},
    };

    unsafe extern "C" {
        /// POSIX: an array of pointers to `name=value`, ended by null.
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: it is a pointer that lives as long as the process. The C library reads it with single loads, which an
    // aligned store of a pointer never tears; who changes it in another way must be alone by that way's own rule.
    let place = unsafe { AtomicPtr::from_ptr(&raw mut environ) };
    let old = place.load(Ordering::Acquire);
    // SAFETY: null, or an array ended by null, which nobody changes meanwhile (see above).
    let known = (0..).map_while(|index| unsafe {
        let entry = if old.is_null() { old.cast() } else { *old.add(index) };
        (!entry.is_null()).then_some(entry)
    });
    let list: Vec<*mut c_char> = known.chain(entries.into_iter().map(CString::into_raw)).chain([std::ptr::null_mut()]).collect();
    // Neither list is ever freed: another thread may be reading the old one, and this one stands until the process ends. The C
    // library frees only lists that it made itself.
    place.store(Box::leak(list.into_boxed_slice()).as_mut_ptr(), Ordering::Release);
}

#[cfg(not(target_os = "linux"))]
fn publish(_: Vec<CString>) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_missing_is_set_while_others_read_and_what_is_set_stays() {
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
                set_missing(&[(&format!("HALITE_TEST_{index}"), "first"), ("HALITE_TEST_0", "second")]);
            }
            done.store(true, Ordering::Relaxed);
        });
        for index in 0..200 {
            assert_eq!(std::env::var(format!("HALITE_TEST_{index}")).as_deref(), Ok("first"));
        }
        let mut child = std::process::Command::new("sh");
        let output = child.args(["-c", "echo $HALITE_TEST_7"]).output().unwrap();
        assert_eq!(output.stdout, b"first\n", "a child inherits it");
    }
}
