//! Arguments that are invalid, or do not fit each other, the data or the devices.

use std::fs;

use super::support::{assert_contains, fails, halite, halite_alone, run};

const RUN: &str = "train mnist --model mlp --limit 640 --batch-size 64 --epochs 1";

/// Checks that each of these arguments is an error of one line with these parts, before anything is
/// written.
fn assert_errors(cases: &[(&str, &[&str])]) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    for (arguments, parts) in cases {
        let command = format!("train mnist --model mlp --epochs 1 {arguments} --out");
        let error = fails(halite(&command).arg(&out));
        assert_contains(&error, parts);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!out.exists());
}

#[test]
fn impossible_batch_sizes_are_errors() {
    assert_errors(&[
        (
            "--limit 63 --batch-size 64",
            &["63 samples", "batch of 64", "at most 63"],
        ),
        (
            "--batch-size 18446744073709551615",
            &["60000 samples", "batch of 18446744073709551615"],
        ),
        (
            "--accelerator cpu:3 --batch-size 64",
            &["64 is not divisible by 3 devices", "63 and 66 would be"],
        ),
    ]);
}

#[test]
fn too_few_devices_are_errors() {
    assert_errors(&[
        (
            "--accelerator cpu --devices 9999",
            &["`9999`", "from 1 to 1024"],
        ),
        (
            "--accelerator cpu --devices 5000000000",
            &["`5000000000`", "from 1 to 1024"],
        ),
        (
            "--devices 4 --accelerator cpu:2",
            &["--devices 4", "cpu:2 has 2"],
        ),
        (
            "--mesh data=2,model=4 --accelerator cpu:2",
            &["--mesh data=2,model=4", "cpu:2 has 2"],
        ),
        (
            "--devices 8",
            &[
                "--devices 8: accelerator auto is cpu, which has 1 device; tpu: ",
                "; cuda: ",
                "; use --accelerator cpu:8 for virtual CPU devices",
            ],
        ),
        (
            "--mesh data=2,fsdp=2",
            &[
                "--mesh data=2,fsdp=2: accelerator auto is cpu, which has 1 device; ",
                "--accelerator cpu:4",
            ],
        ),
    ]);
}

#[test]
fn mesh_must_match_devices_with_strategy() {
    assert_errors(&[
        (
            "--mesh data=2,model=4 --accelerator cpu:8",
            &[
                "`dp` splits nothing over the axis `model`",
                "`tp` splits parameters over it",
            ],
        ),
        (
            "--mesh data=2 --accelerator cpu --devices 4",
            &["mesh(data=2) needs 2 devices, but 4 were given"],
        ),
        (
            "--strategy dp+tp --accelerator cpu:4",
            &["`dp+tp` on 4 devices needs a mesh", "--mesh data=2,model=2"],
        ),
    ]);
}

/// The command ends before anything is fetched or opened: there is no cache.
#[test]
fn invalid_values_of_flags_name_valid_ones() {
    for option in [
        "max-epochs",
        "batch-size",
        "limit",
        "devices",
        "checkpoint-every",
    ] {
        for number in ["0", "-1", "two"] {
            let ended = run(&mut halite_alone(&format!(
                "train mnist --{option} {number}"
            )));
            assert_eq!(ended.status.code(), Some(2), "{ended:?}");
            assert_contains(
                &ended.stderr,
                &[
                    &format!("invalid value '{number}' for '--{option} <N>'"),
                    "expected a whole number of at least 1",
                ],
            );
        }
    }
    for rate in ["nan", "inf", "0", "-1"] {
        let ended = run(&mut halite_alone(&format!(
            "train mnist --learning-rate {rate}"
        )));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert_contains(&ended.error(), &["expected a positive number"]);
    }
}

#[test]
fn unavailable_accelerators_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "not a library").unwrap();
    let text = format!("plugin:{}", text.display());
    let out = dir.path().join("run");
    for (accelerator, parts) in [
        (
            "tpu",
            vec!["accelerator tpu: no TPU devices were found", "/dev/accel"],
        ),
        (
            "cuda",
            vec!["accelerator cuda: no NVIDIA driver", "install driver"],
        ),
        (
            "plugin:/nonexistent",
            vec![
                "/nonexistent",
                "No such file",
                "give the path of a PJRT plugin",
            ],
        ),
        (
            &text,
            vec!["is not a shared library (13 bytes, no ELF header)"],
        ),
    ] {
        let error =
            fails(halite_alone(&format!("{RUN} --accelerator {accelerator} --out")).arg(&out));
        assert_contains(&error, &parts);
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for (accelerator, parts) in [
        ("abacus", vec!["expected one of auto, cpu, ", "plugin:PATH"]),
        ("cpu:0", vec!["from 1 to 1024"]),
        ("cuda:1,1", vec!["device 1 is named twice"]),
        ("plugin:", vec!["expected plugin:/path/to/plugin.so"]),
    ] {
        // An invalid value is a mistake in the command line, with exit code 2.
        let ended =
            run(halite_alone(&format!("{RUN} --accelerator {accelerator} --out")).arg(&out));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert_contains(&ended.error(), &parts);
    }
    assert!(!out.exists());
}

#[test]
fn output_directory_below_a_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    for out in [&file, &file.join("run")] {
        let error = fails(halite(&format!("{RUN} --out")).arg(out));
        assert_contains(
            &error,
            &[
                "cannot create the directory",
                "there is a file where a directory is needed",
                "another output directory",
            ],
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}
