//! A plugin's own profiler. XLA's CPU plugin has none, so one in C is put before it, which follows
//! the header.

use halite_core::ErrorKind;
use halite_pjrt::Plugin;
use tempfile::TempDir;

use crate::common::*;

/// The CPU plugin with a profiler before its extensions. `size` is the size that the profiler's
/// table reports. `own` is true if the first call of `collect_data` returns bytes of its own, as
/// today's plugins do, and false if it returns only their number, as the header requires.
fn with_profiler(directory: &TempDir, name: &str, size: usize, own: bool) -> &'static Plugin {
    let code = format!(
        "#define TABLE_SIZE {size}\n#define OWN {}\n#define REAL_PLUGIN {:?}\n{}",
        u8::from(own),
        cpu_plugin(),
        include_str!("common/profiler.c"),
    );
    Plugin::load(build(directory.path(), name, &code)).unwrap()
}

#[test]
fn cpu_plugin_has_no_profiler() {
    assert!(Plugin::load(cpu_plugin()).unwrap().profiler().is_none());
}

#[test]
fn recording_is_complete_with_either_protocol() {
    let directory = directory();
    for (name, own) in [("lends", true), ("copies", false)] {
        let profiler = with_profiler(&directory, name, 80, own).profiler().unwrap();
        let profiling = profiler.start().unwrap();
        let error = profiler.start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.message().starts_with("create, Plugin(")
                && error.message().ends_with("another one is running"),
            "{error}"
        );
        assert_eq!(profiling.stop().unwrap(), [0x0a, 3, b'x', b'y', b'z']);
        // One that is dropped unread is destroyed too: otherwise the next start would fail.
        drop(profiler.start().unwrap());
        drop(profiler.start().unwrap());
    }
}

#[test]
fn profiler_with_a_short_table_is_not_used() {
    let directory = directory();
    assert!(
        with_profiler(&directory, "short", 72, true)
            .profiler()
            .is_none()
    );
}
