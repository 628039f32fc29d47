//! Flags that the compiler takes from the environment, and the key of a cached program: a program
//! that was compiled under one set of flags is never found under another.
//!
//! XLA reads them once in each process, so every case here is a process of its own.
#![cfg(unix)]

use std::{fs, path::Path, process::Command};

use halite_backends::{Accelerator, CompileCacheOptions, OpenOptions};
use halite_core::{
    Arg, Array, Client, CompileOptions, DType, DeviceId, FlagValue, HostArray, Program, Sharding,
    Signature, TensorType,
};
use halite_fetch::Bar;
use halite_pjrt::{LoadOptions, Plugin};
use halite_telemetry::ClientMetrics;

/// `(x + c) - c`: at 1 and 1e10 it is 0 in IEEE arithmetic, and 1 where XLA may reorder sums.
const CODE: &str = "module @reorder {
  func.func public @main(%x: tensor<2xf32>) -> tensor<1xf32> {
    %a = stablehlo.slice %x [0:1] : (tensor<2xf32>) -> tensor<1xf32>
    %c = stablehlo.slice %x [1:2] : (tensor<2xf32>) -> tensor<1xf32>
    %0 = stablehlo.add %a, %c : tensor<1xf32>
    %1 = stablehlo.subtract %0, %c : tensor<1xf32>
    return %1 : tensor<1xf32>
  }
}
";
const FAST: &str = "--xla_cpu_enable_fast_math=true";
const EXACT: &str = "--xla_cpu_enable_fast_math=false";

fn client(programs: &Path) -> Client {
    let cache = CompileCacheOptions {
        directory: Some(programs.into()),
        ..Default::default()
    };
    let options = OpenOptions {
        compile_cache: Some(cache),
        ..OpenOptions::default()
    };
    Accelerator::cpu()
        .open_with(&options, &mut Bar::default())
        .expect("the CPU plugin")
        .client
}

fn compute(client: &Client, options: &CompileOptions) -> f32 {
    let [pair, one] = [2, 1].map(|count| TensorType::new(DType::F32, [count]));
    let signature = Signature {
        inputs: vec![pair],
        outputs: vec![one],
        donated: vec![],
    };
    let program = Program {
        name: "reorder".into(),
        code: CODE.as_bytes().into(),
        signature,
        partitions: 1,
        replicas: 1,
    };
    let loaded = client.compile(&program, options).unwrap();
    let x = HostArray::from_slice(&[1f32, 1e10], [2]).unwrap();
    let x = Array::upload(client, &x, &Sharding::single(DeviceId(0))).unwrap();
    let outputs = loaded.launch(vec![Arg::Borrow(x.shards())]).unwrap();
    let mut bytes = [0; 4];
    outputs[0].first().read(&mut bytes).unwrap();
    f32::from_ne_bytes(bytes)
}

const CHILD: &str = "HALITE_TEST_FLAGS_CHILD";
const PROGRAMS: &str = "HALITE_TEST_FLAGS_PROGRAMS";

/// Not a test by itself: one process that compiles. Says the result, compiles and cache hits.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    if what == "fail" {
        let error = Accelerator::cpu().open().unwrap_err();
        return println!("\nsaid: {error}");
    }
    let client = client(Path::new(&std::env::var_os(PROGRAMS).unwrap()));
    let plain = CompileOptions::default();
    let mut result = 0.0;
    match &*what {
        "once" => result = compute(&client, &plain),
        // `set_var` is unsafe beside other threads; this sets a variable that is missing.
        "flags set later" => {
            let before = compute(&client, &plain);
            let environment = [("XLA_FLAGS", FAST)];
            let load = LoadOptions {
                environment: &environment,
                ..LoadOptions::default()
            };
            _ = Plugin::load_with(std::env::current_exe().unwrap(), &load);
            assert_eq!(std::env::var("XLA_FLAGS").as_deref(), Ok(FAST));
            result = compute(&client, &plain);
            assert_eq!(result, before, "XLA reads its flags once");
        }
        option => {
            let file = option.strip_prefix("option ").unwrap().to_owned();
            let flags = vec![(
                "xla_gpu_load_autotune_results_from".to_owned(),
                FlagValue::Str(file),
            )];
            result += compute(&client, &CompileOptions { flags, ..plain });
        }
    }
    let counted = client.counters().snapshot();
    println!(
        "\nsaid: {result} {} {}",
        counted.compiles, counted.cache_hits
    );
}

/// The result, compiles and cache hits of a process with these flags.
fn run(what: &str, programs: &Path, flags: Option<&str>) -> (f32, u64, u64) {
    let line = said(what, programs, flags);
    let words: Vec<_> = line.split(' ').collect();
    (
        words[0].parse().unwrap(),
        words[1].parse().unwrap(),
        words[2].parse().unwrap(),
    )
}

/// Output of a process with these flags.
fn said(what: &str, programs: &Path, flags: Option<&str>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "compiler_flags::child", "--nocapture"])
        .env(CHILD, what)
        .env(PROGRAMS, programs);
    command
        .env_remove("XLA_FLAGS")
        .envs(flags.map(|flags| ("XLA_FLAGS", flags)));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix("said: "));
    line.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
        .to_owned()
}

#[test]
fn missing_flags_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("missing");
    let error = said("fail", directory.path(), Some(file.to_str().unwrap()));
    assert!(
        error.contains("XLA_FLAGS is `") && error.contains("names a file of flags"),
        "{error}"
    );
}

#[test]
fn flags_in_a_file_are_part_of_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("flags");
    let flags = Some(file.to_str().unwrap());
    for (text, want) in [
        (FAST, (1.0, 1, 0)),
        (EXACT, (0.0, 1, 0)),
        (FAST, (1.0, 0, 1)),
        (EXACT, (0.0, 0, 1)),
    ] {
        fs::write(&file, format!("{text}\n")).unwrap();
        assert_eq!(run("once", directory.path(), flags), want, "{text}");
    }
    // The same flags, given in the variable itself.
    assert_eq!(run("once", directory.path(), Some(EXACT)), (0.0, 0, 1));
}

#[test]
fn flags_that_were_set_after_loading_are_not_in_a_key() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run("flags set later", directory.path(), None).0, 0.0);
    assert_eq!(run("once", directory.path(), Some(FAST)).0, 1.0);
}

#[test]
fn flags_without_effect_on_code_share_programs() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run("once", directory.path(), None), (0.0, 1, 0));
    let deadline = "--xla_cpu_collective_call_terminate_timeout_seconds=900";
    assert_eq!(run("once", directory.path(), Some(deadline)), (0.0, 0, 1));
    let both = format!("{EXACT} {deadline}");
    assert_eq!(run("once", directory.path(), Some(&both)), (0.0, 1, 0));
    assert_eq!(run("once", directory.path(), Some(EXACT)), (0.0, 0, 1));
}

#[test]
fn file_named_by_an_option_is_part_of_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("autotune.txt");
    let option = format!("option {}", file.display());
    for (text, want) in [("one", (1, 0)), ("two", (1, 0)), ("one", (0, 1))] {
        fs::write(&file, text).unwrap();
        let (_, compiles, hits) = run(&option, directory.path(), None);
        assert_eq!((compiles, hits), want, "{text}");
    }
}
