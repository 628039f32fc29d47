//! Low-rank adapters, against peft (`golden/bert.py`).

use halite_core::{
    Array, Client, DType, HostArray, Sharding, Tree,
    tree::{Empty, Leaf},
};
use halite_ir::Dot;
use halite_models::{Bert, BertConfig};
use halite_nn::{Adapted, Adapters, Jit, Linear, Lora, Param, Tensor, Trace, grad};
use halite_weights::{
    AdapterConfig, TensorSource, WeightFile, WeightLoader, load_adapters, open, save_adapters,
};
use serde_json::json;

use crate::{
    bert::{distance, golden},
    common::clients,
};

type Model = Adapted<Bert<()>, ()>;
type Program = Jit<Empty<()>, (Model, [Leaf<()>; 2]), (Leaf<()>, Adapters<()>)>;

/// Features, and the gradients by the adapters of the sum of their squares and sines.
fn program(client: &Client) -> Program {
    Jit::function(
        client,
        |cx, (adapted, inputs): (Adapted<Bert<Tensor<'_>>, Tensor<'_>>, _)| {
            let [Leaf(tokens), Leaf(mask)]: [Leaf<Tensor<'_>>; 2] = inputs;
            cx.set_mode(false, None);
            let features = adapted.model().forward(tokens, mask);
            let loss = features.square().sum_all() + features.sin().sum_all();
            (Leaf(features), grad(loss, &adapted.adapters))
        },
    )
}

/// The small model in `f64`.
fn small() -> Bert<Param> {
    let opened = Bert::from_pretrained(golden("bert")).unwrap();
    opened
        .model
        .map_leaves(|_, param| param.with_dtype(DType::F64))
}

/// The small model with the adapters that peft saved.
fn adapted(client: &Client) -> (Adapters<Param>, Adapted<Bert<Array>, Array>) {
    let (model, weights) = (small(), open(golden("bert")).unwrap());
    let names = model.names();
    let base = WeightLoader::new(&weights, &names)
        .load(client, &model)
        .unwrap()
        .model;
    let (description, adapters) = load_adapters(client, &names, model, golden("lora")).unwrap();
    (description, Adapted { base, adapters })
}

fn inputs(client: &Client, expected: &WeightFile) -> [Leaf<Array>; 2] {
    let sharding = Sharding::single(client.local_devices()[0]);
    let tokens = expected.read("tokens").unwrap();
    let mask = HostArray::from_slice(&[true; 21], [3, 7]).unwrap();
    [tokens, mask].map(|array| Leaf(Array::upload(client, &array, &sharding).unwrap()))
}

#[test]
fn adapters_of_peft_have_its_features_in_f64() {
    let expected = open(golden("lora.safetensors")).unwrap();
    for client in clients() {
        let (description, adapted) = adapted(client);
        assert_eq!(description.list().len(), 4);
        assert_eq!(description.scale(), 2.5);
        let inputs = inputs(client, &expected);
        let run = |model: &Adapted<Bert<Array>, Array>| {
            let leaves = (Tree::leaf_refs(model), Tree::leaf_refs(&inputs));
            program(client).run_with(leaves).unwrap()
        };
        let (Leaf(features), gradients) = run(&adapted);
        let features = features.read().unwrap();
        let far = distance(&features, &expected.read("features").unwrap());
        assert!(far < 1e-12, "{far}");
        let names = small().names().adapters();
        let slopes = WeightLoader::new(&expected, &names).lenient();
        let slopes = slopes.load(client, &description).unwrap();
        assert!(slopes.report.missing.is_empty(), "{}", slopes.report);
        for ((path, gradient), slope) in gradients.named().into_iter().zip(slopes.model.leaves()) {
            let far = distance(&gradient.read().unwrap(), &slope.read().unwrap());
            assert!(far < 1e-10, "{path}: {far}");
        }
        // The same features with the adapters in the weights.
        let merged = adapted.merged(client).unwrap();
        let zeros = Lora::new(1).adapt(small()).unwrap().adapters;
        let adapters = halite_nn::Model::initialize(&zeros, client, 0).unwrap();
        let (Leaf(again), _) = run(&Adapted {
            base: merged,
            adapters,
        });
        let far = distance(&again.read().unwrap(), &features);
        assert!(far < 1e-12, "merged: {far}");
    }
}

#[test]
fn saved_adapters_are_those_of_peft() {
    let client = clients()[1];
    let dir = tempfile::tempdir().unwrap();
    let (description, Adapted { adapters, .. }) = adapted(client);
    let names = small().names();
    save_adapters(&names, &description, &adapters, Some("bert"), dir.path()).unwrap();
    let [saved, expected] = [dir.path(), &golden("lora")]
        .map(|dir| open(dir.join("adapter_model.safetensors")).unwrap());
    assert_eq!(saved.tensors().len(), expected.tensors().len());
    for info in expected.tensors() {
        let (saved, expected) = (saved.read(&info.name), expected.read(&info.name));
        assert_eq!(saved.unwrap(), expected.unwrap(), "{}", info.name);
    }
    let config = std::fs::read(dir.path().join("adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(
        (&config["r"], &config["lora_alpha"]),
        (&2.into(), &5.0.into())
    );
    let targets = config["target_modules"].as_array().unwrap();
    assert_eq!(
        (targets.len(), &targets[0]),
        (8, &"encoder.layer.0.attention.output.dense".into())
    );
    let (again, _) = load_adapters(client, &names, small(), dir.path()).unwrap();
    assert_eq!(again, description);
}

/// The error of peft's files with other fields in the configuration, for this model.
fn refused(fields: serde_json::Value, model: Bert<Param>) -> String {
    let dir = tempfile::tempdir().unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(golden("lora").join(name), dir.path().join(name)).unwrap();
    }
    let path = dir.path().join("adapter_config.json");
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    std::fs::write(&path, config.to_string()).unwrap();
    let loaded = load_adapters(clients()[1], &model.names(), model.clone(), dir.path());
    loaded.unwrap_err().to_string()
}

#[test]
fn adapters_of_another_kind_are_one_error() {
    let error = refused(
        json!({ "use_dora": true, "bias": "all", "alora_invocation_tokens": [1] }),
        small(),
    );
    for part in [
        "`use_dora` is true; supported: false",
        "`bias` is \"all\"; supported: none",
        "`alora_invocation_tokens` is [1]",
        "`--ignore-key NAME`",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = refused(json!({ "peft_type": "LOHA", "scaled": 1 }), small());
    assert!(
        error.contains("`peft_type` is `LOHA`; supported: `LORA`"),
        "{error}"
    );
    assert!(
        error.contains("`scaled` is 1, which halite does not know"),
        "{error}"
    );
}

#[test]
fn adapters_that_change_the_base_are_refused() {
    for kind in ["pissa", "pissa_niter_16", "olora", "corda", "loftq"] {
        let error = refused(json!({ "init_lora_weights": kind }), small());
        let part = format!("`init_lora_weights` is \"{kind}\"");
        assert!(error.contains(&part), "{error}");
    }
}

#[test]
fn ignored_keys_of_adapters_count_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("adapter_config.json");
    for (fields, alpha) in [
        (
            json!({ "init_lora_weights": "gaussian", "use_rslora": false }),
            5.0,
        ),
        (
            json!({ "init_lora_weights": "eva", "use_rslora": false }),
            5.0,
        ),
        (
            json!({ "init_lora_weights": "pissa", "use_rslora": true }),
            5.0,
        ),
    ] {
        let mut config = json!({ "peft_type": "LORA", "r": 4, "lora_alpha": alpha });
        for (key, value) in fields.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(&path, config.to_string()).unwrap();
        let ignored = ["init_lora_weights", "use_rslora"].map(str::to_owned);
        let read = AdapterConfig::open_ignoring(dir.path(), &ignored).unwrap();
        assert_eq!((read.rank, read.alpha), (4, alpha));
        let is_refused = AdapterConfig::open(dir.path()).is_err();
        assert_eq!(is_refused, config["init_lora_weights"] == "pissa");
    }
}

#[test]
fn adapters_of_another_rank_are_one_error() {
    for rank in [3, 1u64 << 60, u64::MAX] {
        let error = refused(json!({ "r": rank }), small());
        // Each of 16 tensors.
        assert!(
            error.contains("16 mismatches; nothing was loaded"),
            "{error}"
        );
        let part = format!("f64[{rank}, 12], the file has f64[2, 12]");
        assert!(error.contains(&part), "{error}");
    }
}

#[test]
fn adapters_of_another_base_are_one_error() {
    let config = BertConfig {
        layers: 1,
        mlp_size: 24,
        ..small().config
    };
    let error = refused(json!({}), Bert::new(&config).unwrap());
    for part in [
        "9 mismatches; nothing was loaded",
        "f32[24, 2], the file has f64[20, 2]",
        "`base_model.model.encoder.layer.1.intermediate.dense.lora_B.weight` f64[20, 2]",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn targets_that_match_no_layer_are_named() {
    let lora = Lora::new(2).target("blocks.attention.query").unwrap();
    let error = lora.adapt(small()).unwrap_err().to_string();
    assert!(
        error.contains("`blocks.attention.query` matches no dense layer"),
        "{error}"
    );
    assert!(
        Lora::new(0)
            .adapt(small())
            .unwrap_err()
            .to_string()
            .contains("rank 0")
    );
}

/// The gradient by a weight would be as much work as the forward pass, and an array of its size.
#[test]
fn no_gradient_of_a_whole_weight_is_computed() {
    let client = clients()[1];
    let (_, adapted) = adapted(client);
    let expected = open(golden("lora.safetensors")).unwrap();
    let inputs = inputs(client, &expected);
    let refs = (Tree::leaf_refs(&adapted), Tree::leaf_refs(&inputs));
    let specs = refs.map_leaves(|_, array| halite_nn::ArraySpec::of(array));
    let lowered = program(client).lower(&Empty::new(), &specs).unwrap();
    let text = String::from_utf8_lossy(&lowered.program.code).into_owned();
    let products = |ty: &str| {
        let code = |line: &'_ str| line.split(" loc(").next().unwrap_or_default().to_owned();
        let lines = text.lines().map(code);
        let is_product = |line: &String| line.contains("dot_general") && line.ends_with(ty);
        lines.filter(is_product).count()
    };
    assert!(text.contains("dot_general"), "{text}");
    for weight in ["12x3x4", "3x4x12", "12x20"] {
        for layers in ["", "2x"] {
            assert_eq!(
                products(&format!("-> tensor<{layers}{weight}xf64>")),
                0,
                "{weight}"
            );
        }
    }
}

/// A product with a batch for each output of the weight, of which there are as many as the rank.
#[test]
fn products_in_batches_are_of_the_whole_weight() {
    let client = clients()[1];
    type Layer = Adapted<Linear<()>, ()>;
    let program = Jit::<Empty<()>, (Layer, Leaf<()>), [Leaf<()>; 2]>::function(
        client,
        |_: &Trace, (adapted, Leaf(x)): (Adapted<Linear<Tensor<'_>>, Tensor<'_>>, _)| {
            let weight = adapted.model().weight;
            let dot = || Dot {
                left_batch: vec![0],
                right_batch: vec![1],
                left_contract: vec![1],
                right_contract: vec![0],
                result: DType::F32,
            };
            let copy = weight * 1.0;
            [weight, copy].map(|weight| Leaf(x.dot_general(weight, dot())))
        },
    );
    let description = Lora::new(2).adapt(Linear::new(3, 2)).unwrap();
    let values = description.leaves().into_iter().enumerate();
    let values = values.map(|(number, param)| {
        let values: Vec<f32> = (0..param.ty.elements())
            .map(|at| (at + number) as f32)
            .collect();
        Array::from_slice(client, &values, param.ty.dims()).unwrap()
    });
    let adapted = description.rebuild(values.collect::<Vec<_>>());
    let x = Leaf(Array::from_slice(client, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap());
    let leaves = (Tree::leaf_refs(&adapted), Tree::leaf_refs(&x));
    let [Leaf(product), Leaf(expected)] = program.run_with(leaves).unwrap();
    let [product, expected] = [product, expected].map(|array| array.to_vec::<f32>().unwrap());
    assert_eq!(product, expected);
}
