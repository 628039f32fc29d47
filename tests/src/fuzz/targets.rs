//! The targets: one for each parser.

use std::{fmt::Display, path::Path, str::FromStr};

use halite::{
    DTypePolicy, MeshShape, PartitionSpec,
    backends::{self, Accelerator, CompileCacheOptions, cuda::CudaAllocator},
    data::{self, Mnist},
    exchange, fetch,
    nn::TransformerConfig,
    train::{self, Pattern, Strategy},
    weights,
};
use halite_pjrt::fuzz as pjrt;
use halite_stablehlo::{Module, Version};

/// A parser with valid inputs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Parses an input and panics if a property does not hold. Returns whether it was accepted.
    pub run: fn(&[u8]) -> bool,
    /// Valid inputs to mutate.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of the format.
    pub dictionary: &'static [&'static str],
}

/// All targets.
pub fn targets() -> &'static [Target] {
    TARGETS
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

const JSON: &[&str] = &[
    "{", "}", "[", "]", ":", ",", "true", "1e400", "\"a\"", "\\u0000", "\\ud800",
];

const PICKLE: &[&str] = &[
    "ctorch\nFloatStorage\n",
    "ctorch._utils\n_rebuild_tensor_v2\n",
    "ccollections\nOrderedDict\n",
    "cos\nsystem\n",
    "X\u{1}\0\0\0a",
    "K\0",
    "h\0",
    "q\0",
    "(",
    "]",
    "}",
    "tR",
    "PK\u{1}\u{2}",
];

const TARGETS: &[Target] = &[
    Target {
        name: "idx",
        run: data::fuzz::idx,
        seeds: data::fuzz::idx_seeds,
        dictionary: &[],
    },
    Target {
        name: "idx_gzip",
        run: data::fuzz::idx_gzip,
        seeds: data::fuzz::idx_gzip_seeds,
        dictionary: &[],
    },
    Target {
        name: "image",
        run: data::fuzz::image,
        seeds: data::fuzz::image_seeds,
        dictionary: &["IHDR", "IDAT", "PLTE", "tRNS", "eXIf", "IEND"],
    },
    Target {
        name: "table",
        run: data::fuzz::table,
        seeds: data::fuzz::table_seeds,
        dictionary: &["\"", "\"\"", ",", "\r\n", "\u{feff}"],
    },
    Target {
        name: "example",
        run: data::fuzz::example,
        seeds: data::fuzz::example_seeds,
        dictionary: &["\n", "\x12", "\x1a"],
    },
    Target {
        name: "array_file",
        run: data::fuzz::array_file,
        seeds: data::fuzz::array_file_seeds,
        dictionary: &["NUMPY", "'shape': (", "True", "\"shape\":[", "PK\u{1}\u{2}"],
    },
    Target {
        name: "json_lines",
        run: data::fuzz::json_lines,
        seeds: data::fuzz::json_lines_seeds,
        dictionary: JSON,
    },
    Target {
        name: "transforms",
        run: data::fuzz::transforms,
        seeds: data::fuzz::transforms_seeds,
        dictionary: &["flip=", "crop=", "blur=", "..", ",", "erase="],
    },
    Target {
        name: "tokenizer",
        run: data::fuzz::tokenizer,
        seeds: data::fuzz::tokenizer_seeds,
        dictionary: &[
            "{",
            "\"tokenizer\"",
            "\"characters\"",
            "\"bytes\"",
            "\"gpt2\"",
            "\\u0041",
            "\\ud83d\\ude00",
        ],
    },
    Target {
        name: "byte_pairs",
        run: data::fuzz::byte_pairs,
        seeds: data::fuzz::byte_pairs_seeds,
        dictionary: &[
            "#version",
            "\u{120}",
            "a a\naa aa\naaaa aaaa\n",
            "\0",
            " ",
            "\n",
        ],
    },
    Target {
        name: "checkpoint_manifest",
        run: train::fuzz::manifest,
        seeds: train::fuzz::manifest_seeds,
        dictionary: JSON,
    },
    Target {
        name: "checkpoint_arrays",
        run: |data| with_scratch(|scratch| train::fuzz::safetensors(data, scratch)),
        seeds: || with_scratch(train::fuzz::safetensors_seeds),
        dictionary: &[
            "\"dtype\":\"F32\"",
            "\"F64\"",
            "\"BOOL\"",
            "\"I64\"",
            "\"shape\":[0]",
            "data_offsets",
            "__metadata__",
        ],
    },
    Target {
        name: "metrics_table",
        run: train::fuzz::metrics_table,
        seeds: train::fuzz::metrics_table_seeds,
        dictionary: &[
            "train",
            "validation",
            "test",
            "step,epoch,seconds,split",
            ",",
            "\r\n",
            "\"\"",
            "\"",
            "inf",
            "-0",
        ],
    },
    Target {
        name: "package_marker",
        run: |data| fetch::fuzz::marker(data, Mnist::Digits.package()),
        seeds: || {
            vec![
                fetch::fuzz::marker_seed(Mnist::Digits.package()),
                fetch::fuzz::marker_seed(&cpu_plugin().package),
            ]
        },
        dictionary: JSON,
    },
    Target {
        name: "program_entry",
        run: backends::fuzz::program_entry,
        seeds: backends::fuzz::program_entry_seeds,
        dictionary: &["HALITEPC"],
    },
    Target {
        name: "program_frame",
        run: pjrt::frame,
        seeds: pjrt::frame_seeds,
        dictionary: &["HALITEXE"],
    },
    Target {
        name: "optimized_program",
        run: pjrt::hlo,
        seeds: pjrt::hlo_seeds,
        dictionary: &["while", "call", "all-gather"],
    },
    Target {
        name: "compile_options",
        run: pjrt::compile_options,
        seeds: pjrt::compile_options_seeds,
        dictionary: &["xla_"],
    },
    Target {
        name: "program_text",
        run: pjrt::program_text,
        seeds: pjrt::program_text_seeds,
        dictionary: &[
            "loc(",
            "#loc = ",
            "sdy.",
            "\"",
            "\\\"",
            "//",
            "mhlo.sharding",
            "@",
            "%",
            ")",
            "\n",
            "ML\u{ef}R",
        ],
    },
    Target {
        name: "stablehlo_text",
        run: stablehlo_text,
        seeds: || words(STABLEHLO),
        dictionary: &[
            "loc(",
            "#a = ",
            "dense<",
            "tensor<2x3xf32>",
            "stablehlo.",
            "\"stablehlo.",
            "({",
            "^bb0(",
            "<{",
            "-> ",
            "%0",
            "#1",
            "@",
            "0x",
            "dims = [",
        ],
    },
    Target {
        name: "npy",
        run: exchange::fuzz::npy,
        seeds: exchange::fuzz::npy_seeds,
        dictionary: &[
            "'descr'",
            "'<f4'",
            "'|b1'",
            "True",
            "'shape': (",
            "(2, 3)",
            ",",
            "}",
        ],
    },
    Target {
        name: "jax_artifact",
        run: exchange::fuzz::artifact,
        seeds: exchange::fuzz::artifact_seeds,
        dictionary: &[
            "ML\u{ef}R",
            "stablehlo.",
            "\0\0\0\u{4}",
            "func.func",
            "main",
        ],
    },
    Target {
        name: "stablehlo_bytecode",
        run: stablehlo_bytecode,
        seeds: || STABLEHLO_BYTECODE.map(<[u8]>::to_vec).to_vec(),
        dictionary: &[
            "ML\u{ef}R",
            "StableHLO_v",
            "_v1",
            "_v2",
            "vhlo",
            "sdy",
            "builtin",
        ],
    },
    Target {
        name: "safetensors",
        run: weights::fuzz::file,
        seeds: weights::fuzz::safetensors_seeds,
        dictionary: &[
            "\"data_offsets\":",
            "\"shape\":",
            "\"dtype\":",
            "\"F32\"",
            "\"BOOL\"",
            "__metadata__",
            "[0,8]",
            "18446744073709551615",
        ],
    },
    Target {
        name: "pickle",
        run: weights::fuzz::pickle,
        seeds: weights::fuzz::pickle_seeds,
        dictionary: PICKLE,
    },
    Target {
        name: "torch",
        run: weights::fuzz::file,
        seeds: weights::fuzz::torch_seeds,
        dictionary: PICKLE,
    },
    Target {
        name: "gguf",
        run: weights::fuzz::file,
        seeds: weights::fuzz::gguf_seeds,
        dictionary: &["GGUF", "general.alignment", "\0\0\0\0\0\0\0\u{7f}"],
    },
    Target {
        name: "run_program",
        run: super::run::run_program,
        seeds: super::run::seeds,
        dictionary: &[
            "tensor<2x3xf32>",
            "tensor<f32>",
            "f64",
            "bf16",
            "i1",
            "ui4",
            "complex<f32>",
            "0x",
            "x0x",
            "dims = [",
            "stablehlo.",
            "maximum",
            "-1",
        ],
    },
    Target {
        name: "accelerator",
        run: |data| survives_printing::<Accelerator>(data),
        seeds: || {
            words(&[
                "auto",
                "cpu",
                "cpu:8",
                "cuda:[0,3]",
                "tpu:2",
                "plugin:/x.so",
            ])
        },
        dictionary: &["cpu:", "cuda:", "tpu:", "plugin:", ",", "[", "]"],
    },
    Target {
        name: "compile_target",
        run: compile_target,
        seeds: || {
            words(&[
                "cpu:8",
                "cuda:h100:1x8",
                "cuda:h200",
                "tpu:v5e:4x4",
                "tpu:v4:4x4x4,megacore",
                "tpu:v6e:16x16,slices=4",
            ])
        },
        dictionary: &[
            "tpu:",
            "cuda:",
            "v2",
            "v3",
            "v4",
            "v5p",
            "v5e",
            "v6e",
            ",slices=",
            ",megacore",
            "x",
            "b200",
            "a100",
        ],
    },
    Target {
        name: "mesh_axes",
        run: |data| {
            text(data)
                .and_then(parse::<MeshShape>)
                .is_some_and(|axes| axes.size() != 0)
                && survives_printing::<MeshShape>(data)
        },
        seeds: || words(&["data=2,model=4", "a=1", "data=2, fsdp = 3"]),
        dictionary: &["=", ",", "None", "data"],
    },
    Target {
        name: "partition_spec",
        run: |data| survives_printing::<PartitionSpec>(data),
        seeds: || {
            words(&[
                "(data, None, model)",
                "()",
                "None, (model, fsdp)",
                "((a, b))",
            ])
        },
        dictionary: &["(", ")", ",", "None", " "],
    },
    Target {
        name: "strategy",
        run: |data| survives_printing::<Strategy>(data),
        seeds: || words(&["dp", "fsdp+tp", "dp+tp"]),
        dictionary: &["dp", "fsdp", "tp", "+"],
    },
    Target {
        name: "pattern",
        run: pattern,
        seeds: || {
            words(&[
                "**.attention.query|key.weight",
                "hidden.<odd>.*",
                "a.**.c",
                "conv*.<index>",
                "**.**.**.x",
                "*a*a*a*a*b",
            ])
        },
        dictionary: &[
            "**.", ".**", "*", "|", ".", "<even>", "<odd>", "<index>", "<name>", "<", ">",
        ],
    },
    Target {
        name: "precision",
        run: |data| survives_printing::<DTypePolicy>(data),
        seeds: || {
            words(&[
                "f32",
                "tf32",
                "bf16-mixed",
                "f16-mixed",
                "bf16",
                "use-bf16",
                "downcast-bf16",
            ])
        },
        dictionary: &["bf16", "-mixed", "f16"],
    },
    Target {
        name: "model",
        run: |data| {
            text(data)
                .and_then(parse::<TransformerConfig>)
                .is_some_and(|config| config.parameters().is_ok())
        },
        seeds: || {
            TransformerConfig::NAMES
                .iter()
                .map(|name| name.as_bytes().to_vec())
                .collect()
        },
        dictionary: &["gpt2-", "llama-"],
    },
    Target {
        name: "data_set",
        run: |data| survives_printing::<Mnist>(data),
        seeds: || words(&["mnist", "fashion"]),
        dictionary: &["mnist", "fashion"],
    },
    Target {
        name: "compile_cache",
        run: |data| text(data).and_then(parse::<CompileCacheOptions>).is_some(),
        seeds: || words(&["on", "off", "readonly:./a", "/mnt/programs", "readonly"]),
        dictionary: &["readonly:", "/", "./", ".."],
    },
    Target {
        name: "cache_size",
        run: backends::fuzz::cache_size,
        seeds: || words(&["0", "512K", "500M", "2GiB", "1 TB"]),
        dictionary: &["K", "M", "G", "T", "iB", "B", " "],
    },
    Target {
        name: "library_needs",
        run: backends::fuzz::library_needs,
        seeds: backends::fuzz::library_needs_seeds,
        dictionary: &["$ORIGIN", "${ORIGIN}", "$LIB", ":", ".."],
    },
    Target {
        name: "cuda_allocator",
        run: |data| survives_printing::<CudaAllocator>(data),
        seeds: || words(&["default", "platform", "bfc", "cuda_async"]),
        dictionary: &["default"],
    },
];

/// Programs that JAX printed.
const STABLEHLO: &[&str] = &[
    include_str!("../../../core/stablehlo/tests/data/control.mlir"),
    include_str!("../../../core/stablehlo/tests/data/conv_gradient.mlir"),
    include_str!("../../../core/stablehlo/tests/data/custom_call.mlir"),
    include_str!("../../../core/stablehlo/tests/data/gather_scatter.mlir"),
    include_str!("../../../core/stablehlo/tests/data/narrow.mlir"),
    include_str!("../../../core/stablehlo/tests/data/scan.mlir"),
    include_str!("../../../core/stablehlo/tests/data/shard_map.mlir"),
    include_str!("../../../core/stablehlo/tests/data/top_k.mlir"),
];

/// A program that is read is printed so that it is read as the same program.
fn stablehlo_text(data: &[u8]) -> bool {
    let Some(Ok(program)) = text(data).map(Module::parse) else {
        return false;
    };
    let printed = program.to_string();
    let again = Module::parse(&printed).expect("a printed program is read");
    assert_eq!(again.to_string(), printed);
    true
}

const STABLEHLO_BYTECODE: [&[u8]; 8] = [
    include_bytes!("../../../core/stablehlo/tests/data/training_step.0.9.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/training_step.1.17.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/control_flow.1.17.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/gather_scatter.1.17.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/constants.1.17.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/custom_call.1.17.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/shard_map.1.17.0.mlir.bc"),
    include_bytes!("../../../core/stablehlo/tests/data/sharded.1.17.0.mlir.bc"),
];

/// What is read can be written, unless it is refused, and is then read as the same program.
fn stablehlo_bytecode(data: &[u8]) -> bool {
    let module = match Module::from_bytecode(data) {
        Ok(module) => module,
        Err(error) => {
            assert!(error.message().starts_with("byte "), "{error}");
            return false;
        }
    };
    let version = Version::new(1, 17, 0);
    if let Ok(written) = module.to_bytecode(version) {
        let again = Module::from_bytecode(&written).expect("what was written is read");
        let again = again
            .to_bytecode(version)
            .expect("what was written is written again");
        assert!(
            again == written,
            "a program changes when it is written and read"
        );
    }
    true
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

fn parse<T: FromStr<Err = halite::Error>>(text: &str) -> Option<T> {
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.message().is_empty(), "an error has a message");
            None
        }
    }
}

/// `parse(print(parse(x))) == parse(x)`.
fn survives_printing<T: FromStr<Err = halite::Error> + Display + PartialEq>(data: &[u8]) -> bool {
    let Some(value) = text(data).and_then(parse::<T>) else {
        return false;
    };
    let printed = value.to_string();
    match printed.parse::<T>() {
        Ok(again) => assert!(
            again == value,
            "`{printed}` parses as another value, `{again}`"
        ),
        Err(error) => panic!("a printed value does not parse: {error}"),
    }
    true
}

fn compile_target(data: &[u8]) -> bool {
    if !survives_printing::<backends::Target>(data) {
        return false;
    }
    let target = text(data)
        .and_then(parse::<backends::Target>)
        .expect("it was parsed before");
    assert!(
        target.device_count() > 0
            && target.slices() > 0
            && target.slices() <= target.device_count(),
        "{target}"
    );
    let _ = (target.spec(), target.crosses_network());
    true
}

/// Matching must not take exponential time in the length of the pattern.
fn pattern(data: &[u8]) -> bool {
    if !survives_printing::<Pattern>(data) {
        return false;
    }
    let text = text(data).expect("it was parsed before");
    let pattern = parse::<Pattern>(text).expect("it was parsed before");
    let plain = !text.contains(['*', '<', '|']);
    assert!(
        pattern.matches(text) || !plain,
        "a path without wildcards matches itself"
    );
    let long = "a.".repeat(60) + &"a".repeat(60);
    for path in ["", "hidden.1.bias", "blocks.3.attention.key.weight", &long] {
        pattern.matches(path);
    }
    true
}

fn cpu_plugin() -> &'static backends::KnownPlugin {
    backends::plugin("cpu").expect("the table has the CPU plugin")
}

/// A directory that only this thread uses, in memory if the system has such a place.
fn with_scratch<R>(run: impl FnOnce(&Path) -> R) -> R {
    thread_local! {
        static SCRATCH: tempfile::TempDir = {
            let memory = Path::new("/dev/shm");
            let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
            made.expect("a temporary directory can be created")
        };
    }
    SCRATCH.with(|scratch| run(scratch.path()))
}
