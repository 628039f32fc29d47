//! BERT and sentence encoders, against `transformers` (`golden/bert.py`).

use std::path::PathBuf;

use halite_core::{
    Array, Client, DType, HostArray, Tree,
    tree::{Empty, Leaf},
};
use halite_models::{Bert, EmbedOptions, Pooling, SentenceEncoder};
use halite_nn::{Jit, Param, Tensor, grad};
use halite_weights::{Below, TensorSource, WeightFile, WeightLoader, open};

use crate::{common::clients, packages::minilm};

/// A file of `golden/`.
pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Largest distance of two arrays of `f64`.
#[track_caller]
pub(crate) fn distance(a: &HostArray, b: &HostArray) -> f64 {
    assert_eq!(a.ty(), b.ty());
    let (a, b) = (a.as_slice::<f64>().unwrap(), b.as_slice::<f64>().unwrap());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

type Results = (Leaf<()>, Leaf<()>, Bert<()>);
type Program = Jit<Empty<()>, (Bert<()>, [Leaf<()>; 3]), Results>;

/// Features at tokens, pooled features, and the gradients of the sum of squares of the first plus
/// the sum of the second.
fn program(client: &Client) -> Program {
    Jit::function(client, |cx, (model, inputs): (Bert<Tensor<'_>>, _)| {
        let [Leaf(tokens), Leaf(types), Leaf(mask)]: [Leaf<Tensor<'_>>; 3] = inputs;
        cx.set_mode(false, None);
        let features = model.forward_pair(tokens, types, mask);
        let kept = mask.unsqueeze(2).broadcast_to(features.dims());
        let kept = kept.select(features, features.zeros_like());
        let pooled = model.pooled(features).expect("it has a pooler");
        let loss = kept.square().sum_all() + pooled.sum_all();
        let gradients = grad(loss, &model);
        (Leaf(kept), Leaf(pooled), gradients)
    })
}

/// The description in `f64`.
fn small() -> (Bert<Param>, WeightFile) {
    let opened = Bert::from_pretrained(golden("bert")).unwrap();
    let model = opened
        .model
        .map_leaves(|_, param| param.with_dtype(DType::F64));
    (model, open(golden("bert.safetensors")).unwrap())
}

#[test]
fn features_are_those_of_transformers_in_f64() {
    let (model, expected) = small();
    let names = model.names();
    let weights = open(golden("bert")).unwrap();
    let slopes = Below::new(open(golden("bert.safetensors")).unwrap(), "gradient").unwrap();
    for client in clients() {
        let loaded = WeightLoader::new(&weights, &names)
            .load(client, &model)
            .unwrap()
            .model;
        let input = |name: &str| {
            let read = expected.read(name).unwrap();
            let device = client.local_devices()[0];
            Array::upload(client, &read, &halite_core::Sharding::single(device)).unwrap()
        };
        let inputs = ["tokens", "types", "mask"].map(|name| Leaf(input(name)));
        let (Leaf(features), Leaf(pooled), gradients) = program(client)
            .run_with((Tree::leaf_refs(&loaded), Tree::leaf_refs(&inputs)))
            .unwrap();
        for (name, array) in [("features", &features), ("pooled", &pooled)] {
            let distance = distance(&array.read().unwrap(), &expected.read(name).unwrap());
            assert!(distance < 1e-12, "{name}: {distance}");
        }
        let slopes = WeightLoader::new(&slopes, &names)
            .load(client, &model)
            .unwrap()
            .model;
        for ((path, gradient), slope) in gradients.named().into_iter().zip(slopes.leaves()) {
            let distance = distance(&gradient.read().unwrap(), &slope.read().unwrap());
            assert!(distance < 1e-10, "{path}: {distance}");
        }
    }
}

#[test]
fn embeddings_of_minilm_are_those_of_transformers() {
    let file = open(golden("minilm.safetensors")).unwrap();
    let texts: Vec<String> =
        serde_json::from_str(file.metadata()["texts"].as_str().unwrap()).unwrap();
    let expected = file.read("embeddings").unwrap();
    let expected = expected.as_slice::<f32>().unwrap();
    for client in clients() {
        let encoder = SentenceEncoder::from_pretrained(client, minilm()).unwrap();
        // All in one batch, of other lengths; one alone.
        let embeddings = encoder.embed(&texts).unwrap();
        let embeddings = embeddings.as_slice::<f32>().unwrap();
        let differences = embeddings.iter().zip(expected).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        assert!(largest < 1e-5, "{client:?}: {largest}");
        let alone = encoder.embed(&texts[1..2]).unwrap();
        let alone = alone.as_slice::<f32>().unwrap();
        let differences = embeddings[384..768]
            .iter()
            .zip(alone)
            .map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        assert!(
            largest < 1e-6,
            "{client:?}: a text alone differs by {largest}"
        );
    }
}

#[test]
fn config_that_contradicts_the_weights_is_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(golden("bert/config.json")).unwrap();
    let config = config
        .replace("\"hidden_size\": 12", "\"hidden_size\": 24")
        .replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    std::fs::copy(
        golden("bert/model.safetensors"),
        dir.path().join("model.safetensors"),
    )
    .unwrap();
    let error = Bert::from_pretrained(dir.path()).unwrap_err().to_string();
    for part in [
        "encoder.layer.2.output.dense.weight",
        "f32[29, 24]",
        "[29, 12]",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn pooling_leaves_out_padding() {
    let client = clients()[1];
    let program = Jit::<Empty<()>, [Leaf<()>; 2], [Leaf<()>; 2]>::function(
        client,
        |_, [Leaf(features), Leaf(mask)]: [Leaf<Tensor<'_>>; 2]| {
            [Pooling::Mean, Pooling::Cls].map(|pooling| Leaf(pooling.pool(features, mask)))
        },
    );
    let features = [1.0f32, 3.0, 5.0, f32::NAN, 2.0, 4.0, f32::NAN, f32::NAN];
    let mask = [true, true, true, false, true, true, false, false];
    let features = Leaf(Array::from_slice(client, &features, [2, 4, 1]).unwrap());
    let mask = Leaf(Array::from_slice(client, &mask, [2, 4]).unwrap());
    let inputs = [features, mask];
    let [Leaf(mean), Leaf(first)] = program.run_with(Tree::leaf_refs(&inputs)).unwrap();
    assert_eq!(mean.to_vec::<f32>().unwrap(), [3.0, 3.0]);
    assert_eq!(first.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn other_modules_of_a_sentence_encoder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden("bert").join(name), path(name)).unwrap();
    }
    std::fs::create_dir(path("1_Pooling")).unwrap();
    let options = |modules: &[&str], pooling: &str| {
        let modules = modules.iter().map(|name| {
            format!(r#"{{"path": "", "type": "sentence_transformers.models.{name}"}}"#)
        });
        let modules = modules.collect::<Vec<_>>().join(", ");
        std::fs::write(path("modules.json"), format!("[{modules}]")).unwrap();
        std::fs::write(path("1_Pooling/config.json"), pooling).unwrap();
        let source = Bert::from_pretrained(dir.path()).unwrap().source;
        EmbedOptions::of(&source, 16).map_err(|error| error.to_string())
    };
    let usual = ["Transformer", "Pooling", "Normalize"];
    let mean = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}"#;
    let cls = r#"{"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true}"#;
    let read = |modules, pooling| options(modules, pooling).unwrap();
    assert_eq!(read(&usual, mean).pooling, Pooling::Mean);
    assert_eq!(read(&usual, cls).pooling, Pooling::Cls);
    assert!(read(&usual, mean).normalize && !read(&usual[..2], mean).normalize);
    let max = mean.replace("cls_token\": false", "max_tokens\": true");
    for (modules, pooling, part) in [
        (
            &usual[..],
            &*max,
            "`pooling_mode_max_tokens`, `pooling_mode_mean_tokens` in 1_Pooling",
        ),
        (
            &["Transformer", "Pooling", "Dense"],
            mean,
            "`Dense` in modules.json",
        ),
    ] {
        let error = options(modules, pooling).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn mean_of_f16_does_not_overflow() {
    let client = clients()[1];
    let program = Jit::<Empty<()>, [Leaf<()>; 2], Leaf<()>>::function(
        client,
        |_, [Leaf(features), Leaf(mask)]: [Leaf<Tensor<'_>>; 2]| {
            let mean = Pooling::Mean.pool(features.convert(DType::F16), mask);
            Leaf(mean.convert(DType::F32))
        },
    );
    let features = Leaf(Array::from_slice(client, &[300.0f32; 300], [1, 300, 1]).unwrap());
    let mask = Leaf(Array::from_slice(client, &[true; 300], [1, 300]).unwrap());
    let Leaf(mean) = program
        .run_with(Tree::leaf_refs(&[features, mask]))
        .unwrap();
    assert_eq!(mean.to_vec::<f32>().unwrap(), [300.0]);
}
