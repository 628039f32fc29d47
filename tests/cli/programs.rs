//! `halite run` and `halite convert`.

use std::{fs, path::Path};

use expect_test::expect;
use halite::{DType, HostArray, exchange::npy};
use halite_tests::process::Ended;

use super::support::{assert_contains, fails, halite_alone, succeeds};

const LAYER: &str = "\
func.func @main(%w: tensor<2x3xf32>, %x: tensor<2xf32>, %i: tensor<i32>) -> (tensor<3xf32>, tensor<i32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0] : (tensor<2xf32>, tensor<2x3xf32>) -> tensor<3xf32>
  %1 = stablehlo.add %i, %i : tensor<i32>
  return %0, %1 : tensor<3xf32>, tensor<i32>
}
";

/// A directory with the program and arrays for it.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let save = |name: &str, array: halite::Result<HostArray>| {
        fs::write(dir.path().join(name), npy::write(&array.unwrap())).unwrap();
    };
    save(
        "w.npy",
        HostArray::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]),
    );
    save("x.npy", HostArray::from_slice(&[1.0f32, -1.0], [2]));
    save("i.npy", Ok(HostArray::scalar(21i32)));
    fs::write(dir.path().join("layer.mlir"), LAYER).unwrap();
    dir
}

fn run(dir: &Path, arguments: &str) -> Ended {
    succeeds(halite_alone(arguments).current_dir(dir))
}

fn error(dir: &Path, arguments: &str) -> String {
    fails(halite_alone(arguments).current_dir(dir))
}

const EMBEDDED: &str = "--accelerator embedded";

#[test]
fn program_runs_on_arrays_of_files() {
    let dir = files();
    let inputs = "-i ./w.npy -i ./x.npy -i ./i.npy --output ./out";
    let ended = run(dir.path(), &format!("run ./layer.mlir {inputs} {EMBEDDED}"));
    let (first, results) = ended.stdout.split_once('\n').unwrap();
    assert_contains(first, &["main on ", ": compiled in ", ", ran in "]);
    expect![[r#"
        0: f32[3] = [-3.0000, -3.0000, -3.0000]
        1: s32[] = 42
    "#]]
    .assert_eq(results);
    let saved = npy::read(&fs::read(dir.path().join("out/0.npy")).unwrap()).unwrap();
    assert_eq!(saved.as_slice::<f32>().unwrap(), [-3.0, -3.0, -3.0]);
}

#[test]
fn last_generator_gives_all_arguments() {
    let dir = files();
    let zeros = run(dir.path(), &format!("run ./layer.mlir -i zeros {EMBEDDED}"));
    assert_contains(
        &zeros.stdout,
        &["0: f32[3] = [0.0000, 0.0000, 0.0000]", "1: s32[] = 0"],
    );
    let random = |seed| {
        let ended = run(
            dir.path(),
            &format!("run ./layer.mlir -i random:{seed} {EMBEDDED}"),
        );
        ended.stdout.lines().nth(1).unwrap().to_owned()
    };
    assert_eq!(random(1), random(1));
    assert_ne!(random(1), random(2));
}

#[test]
fn description_lists_arguments() {
    let dir = files();
    expect![[r#"
        program    main
        argument   0: f32[2, 3]
        argument   1: f32[2]
        argument   2: s32[]
        result     0: f32[3]
        result     1: s32[]
    "#]]
    .assert_eq(&run(dir.path(), "run ./layer.mlir --describe").stdout);
}

#[test]
fn wrong_inputs_are_errors() {
    let dir = files();
    for (arguments, parts) in [
        (
            "",
            &["no --input for 3 of 3 arguments: 0: f32[2, 3], 1: f32[2]"][..],
        ),
        (
            "-i ./w.npy",
            &["no --input for 2 of 3 arguments: 1: f32[2], 2: s32[]"],
        ),
        (
            "-i ./x.npy -i zeros",
            &["argument `0` is f32[2, 3]", "x.npy", "is f32[2]"],
        ),
        (
            "-i zeros -i zeros -i zeros -i zeros",
            &["given 4 times", "3 arguments"],
        ),
        ("-i ./missing.npy", &["cannot read missing.npy"]),
        ("-i ./layer.mlir", &["FILE.npy"]),
    ] {
        let command = format!("run ./layer.mlir {arguments} {EMBEDDED}");
        let ended = super::support::run(halite_alone(&command).current_dir(dir.path()));
        assert!(!ended.succeeded(), "{arguments}");
        assert_contains(&ended.stderr, parts);
    }
}

#[test]
fn files_that_are_no_programs_are_errors() {
    let dir = files();
    assert_contains(
        &error(dir.path(), "run ./missing.mlir"),
        &["cannot read missing.mlir"],
    );
    assert_contains(
        &error(dir.path(), "run ./w.npy"),
        &["neither MLIR bytecode nor text", "w.npy"],
    );
    fs::write(dir.path().join("empty.mlir"), "\n").unwrap();
    assert_contains(
        &error(dir.path(), "run ./empty.mlir"),
        &["the program is empty (1 bytes)", "empty.mlir"],
    );
    fs::write(dir.path().join("zeros.jax"), [0; 100]).unwrap();
    assert_contains(
        &error(dir.path(), "run ./zeros.jax"),
        &["jax.export", "zeros.jax"],
    );
}

#[test]
fn bytecode_converts_back_to_the_same_text() {
    let dir = files();
    run(dir.path(), "convert ./layer.mlir ./first.mlir");
    run(dir.path(), "convert ./layer.mlir ./layer.mlirbc");
    run(dir.path(), "convert ./layer.mlirbc ./second.mlir");
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("first.mlir"), read("second.mlir"));
    assert_eq!(
        run(dir.path(), "convert ./layer.mlirbc -").stdout,
        read("second.mlir")
    );
}

#[test]
fn target_version_is_that_of_the_bytecode() {
    let dir = files();
    run(
        dir.path(),
        "convert ./layer.mlir ./a.mlirbc --target-version 1.12.0",
    );
    let bytes = fs::read(dir.path().join("a.mlirbc")).unwrap();
    assert_contains(
        &bytes[..24].escape_ascii().to_string(),
        &["StableHLO_v1.12.0"],
    );
    for (arguments, parts) in [
        ("./a.mlirbc --target-version 9.0.0", &["9.0.0"][..]),
        (
            "./a.mlir --target-version 1.0.0",
            &["--target-version 1.0.0", "a.mlir"],
        ),
        ("./a.txt", &["a.txt", "`.mlirbc`"]),
    ] {
        let error = error(dir.path(), &format!("convert ./layer.mlir {arguments}"));
        assert_contains(&error, parts);
    }
}

/// The identity on a tensor of this element type.
fn identity(element: &str) -> String {
    format!(
        "func.func @main(%x: tensor<2x3x{element}>) -> tensor<2x3x{element}> {{
           return %x : tensor<2x3x{element}>
         }}"
    )
}

#[test]
fn results_of_all_types_are_read_again() {
    let dir = files();
    for (element, dtype) in [
        ("complex<f32>", DType::C64),
        ("complex<f64>", DType::C128),
        ("f8E4M3FN", DType::F8E4M3Fn),
        ("f8E5M2", DType::F8E5M2),
        ("f8E8M0FNU", DType::F8E8M0Fnu),
        ("bf16", DType::Bf16),
        ("i1", DType::Bool),
    ] {
        fs::write(dir.path().join("same.mlir"), identity(element)).unwrap();
        let read = |name: &str| {
            let bytes = fs::read(dir.path().join(name)).unwrap();
            npy::read_as(&bytes, dtype).unwrap()
        };
        run(
            dir.path(),
            &format!("run ./same.mlir -i random:1 -o ./first {EMBEDDED}"),
        );
        let first = read("first/0.npy");
        assert_eq!(first.ty().dtype(), dtype);
        run(
            dir.path(),
            &format!("run ./same.mlir -i ./first/0.npy -o ./second {EMBEDDED}"),
        );
        assert!(read("second/0.npy") == first, "{element}");
    }
}

#[test]
fn complex_result_of_a_transform_is_written() {
    let dir = files();
    let text = "func.func @main(%x: tensor<8xf32>) -> tensor<5xcomplex<f32>> {
      %y = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<8xf32>) -> tensor<5xcomplex<f32>>
      return %y : tensor<5xcomplex<f32>>
    }";
    fs::write(dir.path().join("fft.mlir"), text).unwrap();
    run(
        dir.path(),
        &format!("run ./fft.mlir -i zeros -o ./out {EMBEDDED}"),
    );
    let bytes = fs::read(dir.path().join("out/0.npy")).unwrap();
    assert_contains(&bytes[..64].escape_ascii().to_string(), &["<c8"]);
    assert_eq!(npy::read(&bytes).unwrap().bytes(), [0; 40]);
}

#[test]
fn calls_that_double_are_an_error_at_once() {
    let dir = files();
    let mut text =
        "func.func @f0(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }".to_owned();
    for level in 1..40 {
        let (name, last) = (format!("f{level}"), level - 1);
        text += &format!(
            "\nfunc.func @{name}(%x: tensor<f32>) -> tensor<f32> {{
               %0 = call @f{last}(%x) : (tensor<f32>) -> tensor<f32>
               %1 = call @f{last}(%0) : (tensor<f32>) -> tensor<f32>
               return %1 : tensor<f32>
             }}"
        );
    }
    text += "\nfunc.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = call @f39(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }";
    fs::write(dir.path().join("calls.mlir"), text).unwrap();
    assert_contains(
        &error(dir.path(), &format!("run ./calls.mlir -i zeros {EMBEDDED}")),
        &[
            "those of the functions that it calls included",
            "at most 1048576 are supported",
        ],
    );
}
