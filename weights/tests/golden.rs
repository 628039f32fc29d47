//! Files of PyTorch, NumPy, safetensors and gguf (`golden/make.py`), read to the bit, and saved so
//! that those read them.

use std::{fs, path::PathBuf, sync::Arc};

use halite_core::{
    Array, Client, DType, HostArray, Mesh, PartitionSpec, Result, Sharding, TensorType, Tree,
};
use halite_embedded::{Embedded, Options};
use halite_nn::{BatchNorm, Conv2d, Linear, Model, Param, Tensor, jit_like};
use halite_weights::{
    Below, Format, LoadedModel, NameMap, TensorSource, WeightFile, WeightLoader, WeightSaver, open,
};
use safetensors::SafeTensors;
use serde_json::json;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn client(devices: u32) -> Client {
    let options = Options {
        devices,
        ..Options::default()
    };
    Client::new(Embedded::new(&options).unwrap())
}

/// Compares all tensors of a file with what its package reads from it.
#[track_caller]
fn check(file: &str, expected: &str, format: Format) {
    let file = open(golden(file)).unwrap();
    assert_eq!(file.format(), format);
    same(&file, &fs::read(golden(expected)).unwrap());
}

/// Compares with a file that the crate `safetensors` reads.
#[track_caller]
fn same(file: &impl TensorSource, expected: &[u8]) {
    let expected = SafeTensors::deserialize(expected).unwrap();
    let mut names: Vec<&str> = file.tensors().iter().map(|tensor| &*tensor.name).collect();
    let mut wanted = expected.names();
    names.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    for name in names {
        let (read, view) = (file.read(name).unwrap(), expected.tensor(name).unwrap());
        assert_eq!(read.ty().dims(), view.shape(), "{name}");
        assert!(read.bytes() == view.data(), "{name} {}", read.ty());
    }
}

#[test]
fn state_dicts_of_pytorch_are_read() {
    let expected = "resnet.safetensors";
    check("resnet.pth", expected, Format::Torch);
    check("resnet_legacy.pth", expected, Format::Torch);
    check("resnet.safetensors", expected, Format::Safetensors);
}

/// The crate `zip` guesses a wrong offset of an archive whose names have these lengths.
#[test]
fn archive_with_a_stem_of_21_letters_is_read() {
    let file = open(golden("resnet18-finetuned-v2.pth")).unwrap();
    assert_eq!(file.tensors()[0].name, "fc.bias");
    assert_eq!(
        file.read("fc.bias").unwrap().as_slice::<f32>().unwrap(),
        [1.0; 3]
    );
}

#[test]
fn checkpoints_of_pytorch_are_read() {
    check("types.pt", "types.expected.safetensors", Format::Torch);
    check(
        "types_legacy.pt",
        "types_legacy.expected.safetensors",
        Format::Torch,
    );
}

#[test]
fn arrays_of_numpy_are_read() {
    check("arrays.npz", "arrays.expected.safetensors", Format::Npz);
    check(
        "arrays_compressed.npz",
        "arrays.expected.safetensors",
        Format::Npz,
    );
}

/// All element types, C and Fortran order, 0-d and empty (`golden/numpy_types.py`).
#[test]
fn element_types_of_numpy_are_read() {
    let text = fs::read_to_string(golden("numpy_types.json")).unwrap();
    let expected: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let file = open(golden("numpy_types.npz")).unwrap();
    assert_eq!(file.tensors().len(), expected.len());
    for (name, expected) in &expected {
        let array = file.read(name).unwrap();
        let hex: String = array
            .bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(json!(array.ty().dims()), expected["dims"], "{name}");
        assert_eq!(json!(hex), expected["hex"], "{name}");
    }
    let file = open(golden("numpy_version2.npy")).unwrap();
    let array = file.read("numpy_version2").unwrap();
    assert_eq!(array.as_slice::<i16>().unwrap(), [0, 1, 2]);
}

#[test]
fn blocks_of_gguf_are_unpacked() {
    check("blocks.gguf", "blocks.expected.safetensors", Format::Gguf);
    let file = open(golden("blocks.gguf")).unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata["general.architecture"].as_str(), Some("llama"));
    assert_eq!(metadata["llama.context_length"].as_usize(), Some(2048));
    assert_eq!(metadata["halite.number"].as_f64(), Some(0.5));
    let tokens = metadata["tokenizer.ggml.tokens"].as_array().unwrap();
    assert_eq!(tokens[2].as_str(), Some("\u{e9}"));
}

#[test]
fn ranges_are_parts_of_the_whole() {
    for (file, name) in [
        ("blocks.gguf", "Q4_K"),
        ("blocks.gguf", "Q4_1"),
        ("types.pt", "state_dict.transposed"),
        ("arrays_compressed.npz", "rows"),
    ] {
        let file = open(golden(file)).unwrap();
        let whole = file.read(name).unwrap();
        let dims = whole.ty().dims().to_vec();
        let ranges = [1..2, 1..dims[1] - 1];
        let part = file.read_range(name, &ranges).unwrap();
        assert_eq!(part.ty().dims(), [1, dims[1] - 2]);
        let size = whole.ty().dtype().size();
        let start = (dims[1] + 1) * size;
        assert_eq!(
            part.bytes(),
            &whole.bytes()[start..start + (dims[1] - 2) * size],
            "{name}"
        );
        assert!(file.read_range(name, &[0..3, 0..dims[1] + 1]).is_err());
    }
}

#[test]
fn tensors_below_a_prefix_have_its_names() {
    let file = Below::new(open(golden("types.pt")).unwrap(), "state_dict").unwrap();
    assert_eq!(file.read("scalar").unwrap(), HostArray::scalar(2.5f32));
    let error = Below::new(file, "model").unwrap_err().to_string();
    assert!(error.contains("no tensor below `model`"), "{error}");
}

#[test]
fn directory_of_pytorch_files_is_one_source() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = std::collections::BTreeMap::new();
    for (file, copy) in [
        ("resnet.pth", "pytorch_model-00001-of-00002.bin"),
        ("types.pt", "pytorch_model-00002-of-00002.bin"),
    ] {
        fs::copy(golden(file), dir.path().join(copy)).unwrap();
        for tensor in open(golden(file)).unwrap().tensors() {
            files.insert(tensor.name.clone(), copy);
        }
    }
    // What other programs leave beside them.
    fs::write(dir.path().join("training_args.bin"), "").unwrap();
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    let index = serde_json::json!({ "weight_map": files });
    let path = dir.path().join("pytorch_model.bin.index.json");
    fs::write(path, index.to_string()).unwrap();
    let all = open(dir.path()).unwrap();
    assert_eq!(
        (all.tensors().len(), all.format()),
        (files.len(), Format::Torch)
    );
    for (file, name) in [("resnet.pth", "fc.bias"), ("types.pt", "new.float8")] {
        let alone = open(golden(file)).unwrap();
        assert_eq!(all.read(name).unwrap(), alone.read(name).unwrap());
    }
}

#[derive(Tree, Clone, Debug)]
struct ConvNorm<L> {
    conv: Conv2d<L>,
    norm: BatchNorm<L>,
}

#[derive(Tree, Clone, Debug)]
struct ResNet<L> {
    stem: ConvNorm<L>,
    stages: Vec<Vec<ConvNorm<L>>>,
    head: Linear<L>,
}

impl ResNet<Param> {
    fn new(classes: usize) -> Self {
        let block = || ConvNorm {
            conv: Conv2d::new(4, 4, 3).padding(1).without_bias(),
            norm: BatchNorm::new(4),
        };
        ResNet {
            stem: ConvNorm {
                conv: Conv2d::new(3, 4, 5).without_bias(),
                norm: BatchNorm::new(4),
            },
            stages: vec![vec![block(), block()], vec![block()]],
            head: Linear::new(4, classes),
        }
    }
}

impl<'t> ResNet<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let layer =
            |layer: &ConvNorm<Tensor<'t>>, x| layer.norm.forward(layer.conv.forward(x)).relu();
        let x = layer(&self.stem, x);
        let x = self
            .stages
            .iter()
            .flatten()
            .fold(x, |x, block| x + layer(block, x));
        self.head.forward(x.global_avg_pool())
    }
}

/// torchvision's names.
fn names() -> NameMap {
    NameMap::torch()
        .rename("stem.conv", "conv1")
        .rename("stem.norm", "bn1")
        .rename("stages.{s}.{b}.conv", "layer{s+1}.{b}.conv1")
        .rename("stages.{s}.{b}.norm", "layer{s+1}.{b}.bn1")
        .rename("head", "fc")
}

fn load(file: &str, client: &Client) -> ResNet<Array> {
    let file = open(golden(file)).unwrap();
    WeightLoader::new(&file, &names())
        .load(client, &ResNet::new(7))
        .unwrap()
        .model
}

/// Halite's forward pass of PyTorch's weights on PyTorch's input.
#[test]
fn outputs_are_those_of_pytorch() {
    let client = client(1);
    let expected = open(golden("resnet.expected.safetensors")).unwrap();
    let [x, y] = ["x", "y"].map(|name| expected.read(name).unwrap());
    for file in ["resnet.pth", "resnet_legacy.pth", "resnet.safetensors"] {
        let model = load(file, &client);
        let device = Sharding::single(client.local_devices()[0]);
        let input = Array::upload(&client, &x, &device).unwrap();
        let forward = jit_like(&client, (&model, &input), |cx, (model, x)| {
            cx.set_mode(false, None);
            [model.forward(x)]
        });
        let [found] = forward.run((&model, &input)).unwrap();
        let found = found.to_vec::<f32>().unwrap();
        for (found, expected) in found.iter().zip(y.as_slice::<f32>().unwrap()) {
            assert!(
                (found - expected).abs() <= 1e-6,
                "{file}: {found} and {expected}"
            );
        }
    }
}

/// All parameters of a model, read.
fn values(model: &ResNet<Array>) -> Vec<HostArray> {
    model
        .leaves()
        .iter()
        .map(|array| array.read().unwrap())
        .collect()
}

#[test]
fn shards_have_their_parts_of_the_file() {
    let client = client(4);
    let mesh = Arc::new(Mesh::new([("rows", 2), ("columns", 2)], client.local_devices()).unwrap());
    let file = open(golden("resnet.pth")).unwrap();
    let names = names();
    // The last dimension over both axes where it divides, else the first over one.
    let sharding = |_: &str, ty: &TensorType| -> Result<Arc<Sharding>> {
        let rank = ty.rank();
        let last = |dim: usize| {
            if dim + 1 == rank {
                vec!["rows"]
            } else {
                vec![]
            }
        };
        let spec = match ty.dims() {
            [.., 4] => PartitionSpec::new((0..rank).map(last)),
            [4, _] => PartitionSpec::first("columns"),
            _ => PartitionSpec::replicated(),
        };
        Sharding::new(&mesh, spec)
    };
    let loaded = WeightLoader::new(&file, &names)
        .sharded(sharding)
        .load(&client, &ResNet::new(7))
        .unwrap();
    assert_eq!(values(&loaded.model), values(&load("resnet.pth", &client)));
    let shards = loaded.model.head.weight.shards();
    assert_eq!(shards.first().tensor_type().dims(), [2, 7]);
    assert_eq!(shards.len(), 4);
}

#[test]
fn floats_are_converted_to_the_parameters_type() {
    let client = client(1);
    let file = open(golden("resnet.pth")).unwrap();
    let narrow = ResNet::new(7).map_leaves(|_, param: Param| param.with_dtype(DType::Bf16));
    let loaded = WeightLoader::new(&file, &names())
        .load(&client, &narrow)
        .unwrap();
    let stored = WeightLoader::new(&file, &names())
        .stored_as(DType::Bf16)
        .load(&client, &ResNet::new(7));
    let stored = stored.unwrap().model;
    for ((exact, narrow), stored) in values(&load("resnet.pth", &client))
        .iter()
        .zip(values(&loaded.model))
        .zip(stored.leaves())
    {
        assert_eq!(narrow, exact.to_float(DType::Bf16).unwrap());
        assert_eq!(
            (stored.ty().dtype(), stored.stored()),
            (DType::F32, DType::Bf16)
        );
        assert_eq!(stored.read().unwrap(), narrow.to_float(DType::F32).unwrap());
    }
}

#[test]
fn saved_models_have_the_original_tensors() {
    let client = client(1);
    let model = load("resnet.pth", &client);
    let kept = std::env::var_os("HALITE_SAVED").map(PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let dir = kept.as_deref().unwrap_or(temporary.path());
    let (description, names) = (ResNet::new(7), names());
    let path = dir.join("resnet.safetensors");
    WeightSaver::new(&names)
        .save(&description, &model, &path)
        .unwrap();
    let sharded = dir.join("sharded");
    WeightSaver::new(&names)
        .file_bytes(600)
        .save_directory(&description, &model, &sharded)
        .unwrap();

    // All but the counts of batches, which halite does not have.
    let original = open(golden("resnet.pth")).unwrap();
    let is_kept = |name: &str| !name.ends_with("num_batches_tracked");
    for path in [path, sharded] {
        let saved = open(&path).unwrap();
        let count = original
            .tensors()
            .iter()
            .filter(|tensor| is_kept(&tensor.name))
            .count();
        assert_eq!(saved.tensors().len(), count);
        for tensor in saved.tensors() {
            assert_eq!(
                saved.read(&tensor.name).unwrap(),
                original.read(&tensor.name).unwrap()
            );
        }
        let again = WeightLoader::new(&saved, &names)
            .load(&client, &description)
            .unwrap();
        assert_eq!(values(&again.model), values(&model));
    }
    // The independent reader accepts it.
    let bytes = fs::read(dir.join("resnet.safetensors")).unwrap();
    same(&open(dir.join("resnet.safetensors")).unwrap(), &bytes);
}

#[test]
fn replaced_head_alone_is_reported() {
    let client = client(1);
    let file: WeightFile = open(golden("resnet.pth")).unwrap();
    let (names, model) = (names(), ResNet::new(3));
    let lists = |loaded: &LoadedModel<ResNet<Array>>| loaded.report.to_string();
    let loaded = WeightLoader::new(&file, &names)
        .replace("head")
        .seed(5)
        .load(&client, &model)
        .unwrap();
    let expected = "replaced:\n  \
                    `head.weight`: `fc.weight` f32[3, 4], the file has f32[7, 4]\n  \
                    `head.bias`: `fc.bias` f32[3], the file has f32[7]\n";
    assert_eq!(lists(&loaded), expected);
    let new = model.initialize(&client, 5).unwrap();
    assert_eq!(
        loaded.model.head.weight.read().unwrap(),
        new.head.weight.read().unwrap()
    );
    let whole = load("resnet.pth", &client);
    assert_eq!(values(&loaded.model)[0], values(&whole)[0]);

    let lenient = WeightLoader::new(&file, &names)
        .lenient()
        .load(&client, &model)
        .unwrap();
    assert_eq!(
        lists(&lenient),
        expected.replace("replaced", "shape mismatch")
    );

    let error = WeightLoader::new(&file, &names)
        .replace("heed")
        .load(&client, &model)
        .unwrap_err();
    assert!(error.to_string().contains("did you mean `head."), "{error}");
}
