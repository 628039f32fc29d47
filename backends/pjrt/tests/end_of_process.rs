//! The end of a process while another thread compiles.

use std::{
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

use halite_core::{Backend, CompileOptions};
use halite_pjrt::Plugin;

use crate::common::*;

/// The CPU plugin with a compiler that takes the given milliseconds, and ends the process if what
/// it needs is destroyed before.
fn slow_compiler(directory: &Path, milliseconds: u32) -> &'static Plugin {
    let code = format!(
        "
        #include <stdlib.h>
        static volatile int gone;
        /* The end of the process takes its time, so that the compiler is sure to meet it. */
        static void destroy(void) {{ gone = 1; usleep(1500000); }}
        static void* compile(void* args) {{
            /* As a static that is first used here. */
            atexit(destroy);
            for (int i = 0; i < {milliseconds} && !gone; i++) usleep(1000);
            if (gone) abort();
            return REAL(PJRT_Client_Compile)(args);
        }}
        static void replace(void** table) {{ table[PJRT_Client_Compile] = compile; }}
        "
    );
    shim(directory, "slow_compiler", &["PJRT_Client_Compile"], &code)
}

/// Ends while another thread compiles.
#[test]
fn child() {
    let Ok(path) = std::env::var("SLOW_COMPILER") else {
        return;
    };
    let client = Plugin::load(path).unwrap().client(vec![]).unwrap();
    thread::spawn(move || {
        let compiled = client.compile(&add(4, false), &CompileOptions::default());
        println!("compiled: {}", compiled.is_ok());
        std::mem::forget(compiled);
    });
    thread::sleep(Duration::from_millis(200));
    // As the end of `main`.
    std::process::exit(7);
}

fn end_while_compiling(milliseconds: u32) -> Output {
    let directory = directory();
    let plugin = slow_compiler(directory.path(), milliseconds);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "end_of_process::child", "--nocapture"])
        .env("SLOW_COMPILER", plugin.path())
        .output()
        .unwrap()
}

#[test]
fn end_of_a_process_waits_for_a_compiler() {
    let output = end_while_compiling(1000);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn slow_compiler_does_not_block_exit() {
    // Far longer than the end waits; were it to wait for the compiler, the runner's limit would end
    // this test.
    let output = end_while_compiling(3_600_000);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}
