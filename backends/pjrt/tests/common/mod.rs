//! The real CPU plugin, and small programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use halite_core::{
    Arg, Backend, Buffer, Code, CompileOptions, DType, DeviceId, Element, Executable, HostArray,
    HostBytes, Launch, Program, Signature, TensorType,
};
use halite_pjrt::{Pjrt, PjrtBuffer, PjrtExecutable, Plugin};
use tempfile::TempDir;

/// The CPU plugin that the tests run on: that of `HALITE_CPU_PLUGIN`, or the pinned one, installed
/// if it is missing.
pub(crate) fn cpu_plugin() -> PathBuf {
    let cache = halite_fetch::Cache::open(None).unwrap();
    halite_backends::Search::cpu(&cache)
        .ensure(&mut halite_fetch::Quiet)
        .unwrap()
        .path
}

/// The CPU plugin with the functions `replaced` by others. `code` is C that defines
/// `static void replace(void** table)`, which writes functions into the table at the index of their
/// name, and may call the plugin's own by `REAL(name)`.
pub(crate) fn shim(directory: &Path, name: &str, replaced: &[&str], code: &str) -> &'static Plugin {
    let number = |name: &&str| {
        let slot = halite_pjrt_sys::SLOTS
            .iter()
            .find(|slot| slot.name == *name)
            .unwrap();
        format!("#define {name} {}\n", slot.offset / size_of::<usize>())
    };
    let numbers: String = replaced.iter().map(number).collect();
    let plugin = cpu_plugin();
    let code = format!(
        r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        {numbers}
        typedef void* (*function)(void*);
        static void* real[600];
        static void* table[600];
        #define REAL(name) ((function)real[name])
        {code}
        void* GetPjrtApi(void) {{
            void* library = dlopen("{}", RTLD_NOW | RTLD_LOCAL);
            if (!library) return 0;
            void* (*get)(void) = (void* (*)(void))dlsym(library, "GetPjrtApi");
            size_t* from = get();
            if (*from > sizeof table) return 0;
            memcpy(real, from, *from);
            memcpy(table, from, *from);
            replace(table);
            return table;
        }}
        "#,
        plugin.display()
    );
    Plugin::load(build(directory, name, &code)).unwrap()
}

/// A temporary directory that executables can be loaded from.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Compiles C code as a shared library.
pub(crate) fn build(directory: &Path, name: &str, code: &str) -> PathBuf {
    let (source, library) = (
        directory.join(format!("{name}.c")),
        directory.join(format!("{name}.so")),
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

/// A client of the CPU plugin with `devices` devices.
pub(crate) fn cpu(devices: i64) -> Pjrt {
    let plugin = Plugin::load(cpu_plugin()).unwrap();
    plugin
        .client(vec![("cpu_device_count".into(), devices.into())])
        .unwrap()
}

pub(crate) fn ty(dtype: DType, dims: &[usize]) -> TensorType {
    TensorType::new(dtype, dims)
}

pub(crate) fn f32s(dims: &[usize]) -> TensorType {
    ty(DType::F32, dims)
}

/// A program of one partition: `inputs` and `outputs` must be those of the text.
pub(crate) fn program(
    code: &str,
    inputs: &[TensorType],
    outputs: &[TensorType],
    donated: &[usize],
) -> Program {
    Program {
        name: Arc::from("test"),
        code: Code::from(code.as_bytes()),
        signature: Signature {
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            donated: donated.to_vec(),
        },
        partitions: 1,
        replicas: 1,
    }
}

/// `(a, b) -> a + b` on vectors of `n` floats; `donate` donates `a`.
pub(crate) fn add(n: usize, donate: bool) -> Program {
    let attribute = if donate {
        " {tf.aliasing_output = 0 : i32}"
    } else {
        ""
    };
    let code = format!(
        "module @add {{
  func.func public @main(%a: tensor<{n}xf32>{attribute}, %b: tensor<{n}xf32>) -> tensor<{n}xf32> {{
    %0 = stablehlo.add %a, %b : tensor<{n}xf32>
    return %0 : tensor<{n}xf32>
  }}
}}"
    );
    program(
        &code,
        &[f32s(&[n]), f32s(&[n])],
        &[f32s(&[n])],
        if donate { &[0] } else { &[] },
    )
}

/// A program over `devices` devices: `x: f32[2 * devices, 4]`, sharded by rows and donated, gives
/// `2 x`, sharded alike, and the replicated sum of `x`.
pub(crate) fn sharded(devices: usize) -> Program {
    let rows = 2 * devices;
    let code = format!(
        r#"module @sharded {{
  sdy.mesh @mesh = <["data"={devices}]>
  func.func public @main(%x: tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>, tf.aliasing_output = 0 : i32}})
      -> (tensor<{rows}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
          tensor<f32> {{sdy.sharding = #sdy.sharding<@mesh, []>}}) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %twice = stablehlo.add %x, %x : tensor<{rows}x4xf32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<{rows}x4xf32>, tensor<f32>) -> tensor<f32>
    return %twice, %sum : tensor<{rows}x4xf32>, tensor<f32>
  }}
}}"#
    );
    let mut program = program(&code, &[f32s(&[2, 4])], &[f32s(&[2, 4]), f32s(&[])], &[0]);
    program.partitions = devices;
    program
}

pub(crate) fn compile(client: &Pjrt, program: &Program) -> PjrtExecutable {
    client.compile(program, &CompileOptions::default()).unwrap()
}

pub(crate) fn upload<T: Element>(
    client: &Pjrt,
    values: &[T],
    dims: &[usize],
    device: u32,
) -> PjrtBuffer {
    let host = HostArray::from_slice(values, dims).unwrap();
    client
        .upload(
            HostBytes::Borrowed(host.bytes()),
            host.ty(),
            DeviceId(device).into(),
        )
        .unwrap()
}

pub(crate) fn read<T: Element>(buffer: &PjrtBuffer) -> Vec<T> {
    let mut host = HostArray::zeros(buffer.tensor_type().clone());
    buffer.read(host.bytes_mut()).unwrap();
    host.as_slice().unwrap().to_vec()
}

/// Launches on one device and returns the results.
pub(crate) fn run(
    executable: &PjrtExecutable,
    args: Vec<Arg<'_, PjrtBuffer>>,
) -> halite_core::Result<Vec<PjrtBuffer>> {
    Ok(executable
        .launch(Launch { args: vec![args] })?
        .outputs
        .remove(0))
}
