//! `halite plan` with compilers that end their process or hang.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{json, real, text, with};

/// `halite plan` of a small model for virtual CPUs, with this plugin as the compiler.
fn plan(plugin: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halite"));
    command
        .args("plan mnist-mlp --batch-size 64 --offline".split(' '))
        .args(arguments.split(' '));
    command
        .env("HALITE_CPU_PLUGIN", plugin)
        .env_remove("HALITE_LOG")
        .env_remove("HALITE_PROFILE");
    command
}

#[test]
fn compiler_abort_is_an_error_of_the_plan() {
    let directory = tempfile::tempdir().unwrap();
    let body = r#"fprintf(stderr, "chatter\nF1121 21:14:03.5 7 compiler.cc:7] Check failed: axis <= 16\n@ 0x1\n"); abort();"#;
    let plugin = with(&real(), directory.path(), "PJRT_Compile", body);
    let output = plan(&plugin, "--target cpu:8 --strategy fsdp")
        .output()
        .unwrap();
    let words = text(&output.stderr);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(1), String::new()),
        "{words}"
    );
    assert_eq!(words.trim().lines().count(), 1, "one paragraph: {words}");
    for word in [
        "error: plan for cpu:8: fsdp on data=8: the compiler, ",
        "PJRT_Compile.so, ended its process (signal: 6",
        "its last output: F1121 21:14:03.5 7 compiler.cc:7] Check failed: axis <= 16; ",
        "another sharding",
    ] {
        assert!(words.contains(word), "`{word}` is not in: {words}");
    }
    let output = plan(&plugin, "--target cpu:8 --strategy fsdp --verbose")
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).starts_with("chatter\n"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn search_continues_after_a_compiler_abort() {
    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    let body = format!(
        r#"FILE *first = fopen("{}", "wx"); if (first) abort(); fprintf(stderr, "chatter\n"); return replaced(arguments);"#,
        marker.display()
    );
    let plugin = with(&real(), directory.path(), "PJRT_Compile", &body);
    let output = plan(&plugin, "--target cpu:2 --search").output().unwrap();
    let (words, log) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &*log), (Some(0), ""), "{words}");
    let rows: Vec<&str> = words.lines().skip(1).take(2).collect();
    assert!(
        rows[0].starts_with("fsdp       fsdp=2 ") && rows[0].contains(" yes "),
        "{words}"
    );
    assert!(
        rows[1].starts_with("dp         data=2 ") && rows[1].ends_with("failed, see below"),
        "{words}"
    );
    assert!(
        words.contains("\nfailed: plan for cpu:2: dp on data=2: the compiler, "),
        "{words}"
    );
    fs::remove_file(marker).unwrap();
    let value = json(
        &plan(&plugin, "--target cpu:2 --search --json")
            .output()
            .unwrap(),
    );
    assert_eq!(value[0]["fit"]["verdict"], "fits");
    assert!(
        value[1]["error"].as_str().unwrap().contains("signal: 6"),
        "{value}"
    );
}

#[test]
fn hanging_compiler_ends_at_the_deadline_or_with_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let body = format!(
        r#"FILE *file = fopen("{0}.new", "w"); fprintf(file, "%d", getpid()); fclose(file); rename("{0}.new", "{0}"); for (;;) pause();"#,
        pid.display()
    );
    let plugin = with(&real(), directory.path(), "PJRT_Compile", &body);
    let output = plan(&plugin, "--target cpu:2 --deadline 1")
        .output()
        .unwrap();
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(
        words.contains("took more than 1 s and was stopped; raise --deadline"),
        "{words}"
    );

    // It may have been ended before it came to the compiler, or not.
    let _ = fs::remove_file(&pid);
    let patience = Instant::now() + Duration::from_secs(120);
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < patience, "it was never {what}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let mut parent = plan(&plugin, "--target cpu:2")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("compiled", &|| pid.exists());
    let child = Path::new("/proc").join(fs::read_to_string(&pid).unwrap());
    assert!(
        child.exists() && !child.ends_with(parent.id().to_string()),
        "{}",
        child.display()
    );
    // Nothing that the parent could do something at.
    parent.kill().unwrap();
    parent.wait().unwrap();
    // Nobody may be there to wait for it: then it is a zombie.
    let is_gone =
        || fs::read_to_string(child.join("stat")).map_or(true, |stat| stat.contains(") Z "));
    until("ended", &is_gone);
}
