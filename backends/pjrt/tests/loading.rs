//! Files that cannot be loaded are refused with the path and the reason; others are loaded once.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use halite_core::{Arg, Backend, CompileOptions, Error, ErrorKind, Executable};
use halite_pjrt::{LoadOptions, Pjrt, Plugin};
use tempfile::TempDir;

use crate::common::*;

#[test]
fn missing_file_is_refused_with_its_path() {
    let error = refused(Path::new("/nowhere/plugin.so"));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("/nowhere/plugin.so"), "{error}");
}

#[test]
fn directory_is_refused() {
    let error = refused(directory().path());
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("is not a file"), "{error}");
}

/// The load runs on a thread: if it opened the pipe, it would wait forever for the other end.
#[test]
fn pipe_is_refused_at_once() {
    let directory = directory();
    let pipe = directory.path().join("pipe.so");
    let made = Command::new("sh")
        .arg("-c")
        .arg("mkfifo \"$0\"")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success(), "mkfifo: {made}");
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(refused(&pipe)));
    let error = receive
        .recv_timeout(std::time::Duration::from_secs(60))
        .expect("the load waits for the pipe");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("is not a file"), "{error}");
}

#[test]
fn file_that_is_not_a_library_is_refused() {
    let directory = directory();
    for (name, bytes) in [
        ("empty.so", &b""[..]),
        ("text.so", b"hello, plugin"),
        ("page.so", b"<!doctype html>"),
    ] {
        let error = refused(&write(&directory, name, bytes));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.message().contains("is not a shared library"),
            "{error}"
        );
    }
}

#[test]
fn truncated_plugin_is_refused_with_both_sizes() {
    let directory = directory();
    let whole = build(directory.path(), "whole", "int nothing(void) { return 0; }");
    let bytes = fs::read(&whole).unwrap();
    // Within the header, within the segments, and one byte short of the section table's end.
    for length in [10, 63, 200, bytes.len() / 2, bytes.len() - 1] {
        let error = refused(&write(&directory, "cut.so", &bytes[..length]));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(
            error
                .message()
                .contains(&format!("truncated: {length} bytes")),
            "{error}"
        );
    }
}

#[test]
fn plugin_with_impossible_headers_is_refused() {
    let directory = directory();
    let bytes = fs::read(build(
        directory.path(),
        "whole",
        "int nothing(void) { return 0; }",
    ))
    .unwrap();
    // Offsets of the tables, and the sizes of their entries.
    for (at, value) in [
        (32, 0xff),
        (39, 0x7f),
        (40, 0xff),
        (47, 0x7f),
        (54, 0x01),
        (58, 0x01),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] = value;
        let error = refused(&write(&directory, "damaged.so", &damaged));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
    }
}

#[test]
fn plugin_for_another_machine_is_refused_by_name() {
    let directory = directory();
    let mut bytes = fs::read(build(
        directory.path(),
        "whole",
        "int nothing(void) { return 0; }",
    ))
    .unwrap();
    let (number, name) = if cfg!(target_arch = "aarch64") {
        (62, "x86_64")
    } else {
        (183, "aarch64")
    };
    bytes[18] = number;
    let error = refused(&write(&directory, "other.so", &bytes));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.message().contains(&format!(
            "is for {name}, this machine is {}",
            std::env::consts::ARCH
        )),
        "{error}"
    );
}

#[test]
fn library_that_is_not_a_plugin_is_refused() {
    let directory = directory();
    let library = build(
        directory.path(),
        "library",
        "int nothing(void) { return 0; }",
    );
    let error = refused(&library);
    assert!(
        error
            .message()
            .contains("not a PJRT plugin: it has no `GetPjrtApi`"),
        "{error}"
    );
}

#[test]
fn library_that_lacks_another_is_refused() {
    let directory = directory();
    let code = "extern int from_elsewhere(void); int GetPjrtApi(void) { return from_elsewhere(); }";
    let error = refused(&build(directory.path(), "lacks", code));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = error.to_string();
    for part in ["from_elsewhere", "another version of a library"] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn library_with_much_static_tls_has_its_remedy() {
    let directory = directory();
    let code = "__attribute__((tls_model(\"initial-exec\"))) __thread char big[1000000];
                void *GetPjrtApi(void) { big[3] = 1; return 0; }";
    let error = refused(&build(directory.path(), "tls", code)).to_string();
    for part in [
        "static TLS",
        "LD_PRELOAD",
        "GLIBC_TUNABLES=glibc.rtld.optional_static_tls",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

/// The variable with the library that the test below loads, in the process that it starts.
const NOEXEC: &str = "HALITE_TEST_NOEXEC";

#[test]
fn library_on_a_noexec_file_system_has_its_remedy() {
    if let Some(library) = std::env::var_os(NOEXEC) {
        let error = refused(Path::new(&library)).to_string();
        let mount = Path::new(&library).parent().unwrap().display().to_string();
        for part in [&*mount, "mounted `noexec`", "HALITE_CACHE_DIR"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        println!("refused: {error}");
        return;
    }
    let directory = directory();
    let library = build(directory.path(), "whole", "int nothing(void) { return 0; }");
    let mount = directory.path().join("mount");
    fs::create_dir(&mount).unwrap();
    // In a mount namespace of its own, as the root of it where users may be.
    let unshared = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--map-root-user", "sh", "-c", command, "sh"]);
        unshare.args([&mount, &library]);
        unshare
    };
    let mounted = "mount -t tmpfs -o noexec tmpfs \"$1\"";
    if !unshared(mounted)
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: this user may not mount a file system");
        return;
    }
    let test = format!(
        "{mounted} && cp \"$2\" \"$1/whole.so\" && {NOEXEC}=\"$1/whole.so\" exec \"$3\" --exact --nocapture \
         loading::library_on_a_noexec_file_system_has_its_remedy"
    );
    let output = unshared(&test)
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("refused: "),
        "{output:?}"
    );
}

#[test]
fn plugin_of_another_version_is_refused() {
    let directory = directory();
    for (major, minor, advice) in [
        (0, 40, "install a newer plugin"),
        (1, 0, "install a newer halite"),
    ] {
        let code = format!(
            "#include <stddef.h>
            struct {{ size_t size; void* ext; size_t vsize; void* vext; int major, minor; void* slots[138]; }} api =
                {{ sizeof api, 0, 24, 0, {major}, {minor}, {{ 0 }} }};
            void* GetPjrtApi(void) {{ return &api; }}"
        );
        let error = refused(&build(directory.path(), &format!("v{major}"), &code));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error
                .message()
                .contains(&format!("uses PJRT {major}.{minor}; 0.58 or newer")),
            "{error}"
        );
        assert!(error.message().contains(advice), "{error}");
    }
}

#[test]
fn plugin_without_functions_is_refused_with_their_names() {
    let code = "#include <stddef.h>
        struct { size_t size; void* ext; size_t vsize; void* vext; int major, minor; void* slots[138]; } api =
            { sizeof api, 0, 24, 0, 0, 100, { 0 } };
        void* GetPjrtApi(void) { return &api; }";
    let directory = directory();
    let error = refused(&build(directory.path(), "holes", code));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error
            .message()
            .contains("lacks PJRT_Error_Destroy, PJRT_Error_Message"),
        "{error}"
    );

    let none = "void* GetPjrtApi(void) { return 0; }";
    let error = refused(&build(directory.path(), "null", none));
    assert!(error.message().contains("returned no table"), "{error}");
}

#[test]
fn file_is_loaded_once_by_any_path() {
    let directory = directory();
    let link = directory.path().join("link.so");
    symlink(cpu_plugin(), &link).unwrap();
    let plugins: Vec<_> = std::thread::scope(|scope| {
        let loads: Vec<_> = [cpu_plugin(), link.clone(), cpu_plugin(), link]
            .into_iter()
            .map(|path| scope.spawn(|| std::ptr::from_ref(Plugin::load(path).unwrap()).addr()))
            .collect();
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    });
    assert!(
        plugins.windows(2).all(|pair| pair[0] == pair[1]),
        "{plugins:x?}"
    );
}

#[test]
fn plugin_reports_versions_extensions_attributes() {
    let plugin = Plugin::load(cpu_plugin()).unwrap();
    let (major, minor) = plugin.api_version();
    assert!(major == 0 && minor >= 81, "{major}.{minor}");
    let versions = plugin.stablehlo().unwrap();
    assert!(versions.minimum < versions.current, "{versions:?}");
    let extensions: Vec<_> = plugin
        .extensions()
        .iter()
        .filter_map(halite_pjrt::Extension::name)
        .collect();
    assert!(
        extensions.contains(&"FFI") && extensions.contains(&"Layouts"),
        "{extensions:?}"
    );
    assert!(
        plugin
            .attributes()
            .iter()
            .any(|(name, _)| name == "xla_version"),
        "{:?}",
        plugin.attributes()
    );
}

/// The real plugin behind a table that ends early, as an older plugin's does.
fn shorter(directory: &TempDir) -> &'static Plugin {
    let code = format!(
        "#include <dlfcn.h>
        #include <stddef.h>
        #include <string.h>
        static struct {{ size_t size; void* ext; size_t vsize; void* vext; int major, minor;
                         void* slots[138]; }} api;
        void* GetPjrtApi(void) {{
            void* real = dlopen(\"{}\", RTLD_NOW | RTLD_LOCAL);
            if (!real) return 0;
            void* (*get)(void) = (void* (*)(void))dlsym(real, \"GetPjrtApi\");
            memcpy(&api, get(), sizeof api);
            api.size = 40 + 100 * 8; /* 0.56 to 0.58 had a hundred slots */
            api.minor = 58;
            return &api;
        }}",
        cpu_plugin().display()
    );
    Plugin::load(build(directory.path(), "shorter", &code)).unwrap()
}

#[test]
fn shorter_table_of_functions_works() {
    let directory = directory();
    let plugin = shorter(&directory);
    assert_eq!(plugin.api_version(), (0, 58));
    let client = plugin.client(vec![]).unwrap();
    let add = compile(&client, &add(4, true));
    let one = upload(&client, &[1.0f32; 4], &[4], 0);
    let two = upload(&client, &[2.0f32; 4], &[4], 0);
    let sum = run(&add, vec![Arg::Borrow(&one), Arg::Borrow(&two)]).unwrap();
    assert_eq!(read::<f32>(&sum[0]), [3.0; 4]);
    assert_eq!(read::<f32>(&one), [1.0; 4]);
    assert!(add.memory().is_ok());
}

#[test]
fn functions_beyond_the_table_are_unsupported() {
    let directory = directory();
    let plugin = shorter(&directory);
    let missing = plugin.missing_functions();
    assert!(
        missing.contains(&"PJRT_TopologyDescription_Fingerprint"),
        "{missing:?}"
    );
    let client = plugin.client(vec![]).unwrap();
    let error = client.topology().unwrap().fingerprint().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.message().contains(
            "(PJRT 0.58) has no PJRT_TopologyDescription_Fingerprint, which came with 0.101"
        ),
        "{error}"
    );
}

/// Another plugin would run its machine code without noticing.
#[test]
fn programs_of_another_plugin_are_refused() {
    let directory = directory();
    let client = shorter(&directory).client(vec![]).unwrap();
    let add = compile(&client, &add(4, true));
    let serialized = add.serialize().unwrap();
    let load = |client: &Pjrt| {
        let options = CompileOptions::default();
        client.load(&serialized, &"add".into(), add.signature(), &options)
    };
    let real = cpu(1);
    let error = load(&real).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let (major, minor) = real.plugin().api_version();
    let both = [
        "is machine code of [cpu, PJRT 0.58, plugin of ",
        &format!("this is [cpu, PJRT {major}.{minor}, plugin of "),
    ];
    assert!(
        both.iter().all(|name| error.message().contains(name)),
        "{error}"
    );
    assert_eq!(load(&client).unwrap().signature(), add.signature());
}

#[test]
fn client_options_of_a_wrong_type_or_name_are_refused() {
    let plugin = Plugin::load(cpu_plugin()).unwrap();
    for (options, expected) in [
        (
            vec![("cpu_device_count".to_owned(), "4".into())],
            "`cpu_device_count` is a whole number, got a string (4)",
        ),
        (
            vec![("asynchronous".to_owned(), 1i64.into())],
            "`asynchronous` is true or false, got a whole number (1)",
        ),
        (
            vec![("cpu_device_count".to_owned(), 0i64.into())],
            "is 0; expected 1 to 4096",
        ),
        (
            vec![("cpu_device_count".to_owned(), 2i64.into()); 2],
            "`cpu_device_count` is given twice",
        ),
        (vec![("bogus".to_owned(), true.into())], "bogus"),
    ] {
        let error = plugin.client(options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(expected), "{options:?}: {error}");
    }
}

fn refused(path: &Path) -> Error {
    Plugin::load(path).unwrap_err()
}

fn write(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn hanging_plugin_is_abandoned_at_the_deadline() {
    let directory = directory();
    let code = "#include <unistd.h>
        void* GetPjrtApi(void) { sleep(20); return 0; }";
    let path = build(directory.path(), "sleeper", code);
    let options = LoadOptions {
        deadline: Duration::from_millis(200),
        ..LoadOptions::default()
    };
    let started = Instant::now();
    for _ in 0..2 {
        let error = Plugin::load_with(&path, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(
            error.message().contains("sleeper")
                && error.message().contains("not started after 0.2 s"),
            "{error}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "it blocks others: {:?}",
        started.elapsed()
    );
    // It does not block other plugins.
    Plugin::load(cpu_plugin()).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn load_options_set_missing_variables() {
    let directory = directory();
    let code = "#include <stdio.h>
        #include <stdlib.h>
        void* GetPjrtApi(void) {
            FILE* file = fopen(getenv(\"HALITE_TEST_OUT\"), \"w\");
            fprintf(file, \"%s %d\", getenv(\"HALITE_TEST_SET\"), getenv(\"PATH\")[0] == '!');
            fclose(file);
            return 0;
        }";
    let path = build(directory.path(), "reader", code);
    let out = directory.path().join("out");
    let environment = [
        ("HALITE_TEST_OUT", out.to_str().unwrap()),
        ("HALITE_TEST_SET", "by us"),
        ("PATH", "!"),
    ];
    let error = Plugin::load_with(
        &path,
        &LoadOptions {
            environment: &environment,
            ..LoadOptions::default()
        },
    )
    .unwrap_err();
    assert!(error.to_string().contains("returned no table"), "{error}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "by us 0");
}
