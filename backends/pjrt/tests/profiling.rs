//! A plugin's own profiler. XLA's CPU plugin has none, so one is put before it, written in C as the
//! header says.

mod common;

use std::{fs, path::PathBuf, process::Command};

use common::*;
use halite_core::ErrorKind;
use halite_pjrt::Plugin;
use tempfile::TempDir;

/// The CPU plugin with a profiler before its extensions. `size` is that of the profiler's table,
/// `own` whether the first call of `collect_data` hands out bytes of its own, as today's plugins
/// do, or only their number, as the header says.
fn with_profiler(directory: &TempDir, name: &str, size: usize, own: bool) -> &'static Plugin {
    let code = format!(
        r#"
        #include <dlfcn.h>
        #include <stddef.h>
        #include <stdint.h>
        #include <string.h>
        struct error {{ const char* text; }};
        struct profiler {{ int running, recorded; }};
        struct destroy_error {{ size_t size; void* priv; struct error* error; }};
        struct message {{ size_t size; void* priv; const struct error* error; const char* message; size_t message_size; }};
        struct create {{ size_t size; const char* options; size_t options_size; struct profiler* profiler; }};
        struct handle {{ size_t size; struct profiler* profiler; }};
        struct collect {{ size_t size; struct profiler* profiler; uint8_t* buffer; size_t bytes; }};
        static struct error busy = {{"another one is running"}};
        static struct profiler one;
        static int alive;
        /* A field, and the byte too many that plugins say. */
        static uint8_t data[] = {{0x0a, 3, 'x', 'y', 'z', 0}};
        static void destroy_error(struct destroy_error* a) {{ if (a->size != 24) __builtin_trap(); }}
        static void message(struct message* a) {{
            if (a->size != 40) __builtin_trap();
            a->message = a->error->text;
            a->message_size = strlen(a->error->text);
        }}
        static struct error* code(void* a) {{ return 0; }}
        static struct error* create(struct create* a) {{
            if (alive) return &busy;
            if (a->size != 32 || a->options_size == 0) __builtin_trap();
            alive = 1;
            a->profiler = &one;
            return 0;
        }}
        static struct error* destroy(struct handle* a) {{ alive = 0; one.running = one.recorded = 0; return 0; }}
        static struct error* start(struct handle* a) {{ a->profiler->running = 1; return 0; }}
        static struct error* stop(struct handle* a) {{
            if (a->profiler->running) a->profiler->recorded = 1;
            a->profiler->running = 0;
            return 0;
        }}
        static struct error* collect(struct collect* a) {{
            if (a->size != 32 || !a->profiler->recorded) __builtin_trap();
            if (a->buffer) memcpy(a->buffer, data, sizeof data);
            else if ({own}) a->buffer = data;
            a->bytes = sizeof data;
            return 0;
        }}
        static struct {{ size_t size; void* priv; void* f[8]; }} table =
            {{{size}, 0, {{destroy_error, message, code, create, destroy, start, stop, collect}}}};
        static struct {{ size_t size; int type; void* next; void* api; int64_t id; }} extension = {{40, 1, 0, &table, 0}};
        static struct {{ size_t size; void* ext; char rest[4096]; }} api;
        void* GetPjrtApi(void) {{
            void* real = dlopen("{}", RTLD_NOW | RTLD_LOCAL);
            if (!real) return 0;
            void* (*get)(void) = (void* (*)(void))dlsym(real, "GetPjrtApi");
            size_t* from = get();
            memcpy(&api, from, *from);
            extension.next = api.ext;
            api.ext = &extension;
            return &api;
        }}
        "#,
        cpu_plugin().display(),
        own = i32::from(own),
    );
    Plugin::load(build(directory, name, &code)).unwrap()
}

/// Compiles C code as a shared library.
fn build(directory: &TempDir, name: &str, code: &str) -> PathBuf {
    let (source, library) = (
        directory.path().join(format!("{name}.c")),
        directory.path().join(format!("{name}.so")),
    );
    fs::write(&source, code).unwrap();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(cc)
        .args(["-w", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    library
}

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_cpu_plugin_has_no_profiler() {
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
        // Dropped unread it is destroyed too, so that there can be another.
        drop(profiler.start().unwrap());
        drop(profiler.start().unwrap());
    }
}

#[test]
fn a_profiler_whose_table_is_too_short_is_none() {
    let directory = directory();
    assert!(
        with_profiler(&directory, "short", 72, true)
            .profiler()
            .is_none()
    );
}
