//! Low-rank adapters, against peft (`golden/bert.py`).

use halite_core::{
    Array, Client, DType, HostArray, Sharding, Tree,
    tree::{Empty, Leaf},
};
use halite_ir::DotAttributes;
use halite_models::{Bert, BertConfig, Gpt2};
use halite_nn::{Adapted, Adapters, Jit, Linear, Lora, Param, Tensor, Trace, grad};
use halite_weights::{
    AdapterConfig, SafetensorsWriter, TensorInfo, TensorSource, WeightFile, WeightLoader,
    WeightSaver, check_adapters, load_adapters, open, save_adapters,
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
    for rank in [3, (1u64 << 31) - 1] {
        let error = refused(json!({ "r": rank }), small());
        // Each of 16 tensors.
        assert!(
            error.contains("16 mismatches; nothing was loaded"),
            "{error}"
        );
        let part = format!("f64[{rank}, 12], the file has f64[2, 12]");
        assert!(error.contains(&part), "{error}");
    }
    for rank in [1u64 << 31, 1 << 60, u64::MAX] {
        let error = refused(json!({ "r": rank }), small());
        let part = format!("`r` is {rank}; expected an integer of 1 to 2147483647");
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
    let text = String::from_utf8_lossy(lowered.program.code.bytes()).into_owned();
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
            let dot = || DotAttributes {
                lhs_batching: vec![0],
                rhs_batching: vec![1],
                lhs_contracting: vec![1],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            };
            let copy = weight * 1.0;
            [weight, copy].map(|weight| Leaf(x.dot_general(weight, dot(), DType::F32)))
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

/// What adapters add to GPT-2's `c_attn` of each layer, `[in, out]`, by the merged weights.
fn added(client: &Client, adapters: Adapters<Array>) -> [Vec<f32>; 2] {
    let published = Gpt2::from_pretrained(golden("gpt2")).unwrap();
    let base = published.load(client).unwrap();
    let merged = Adapted { base, adapters }.merged(client).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("merged.safetensors");
    let saver = WeightSaver::new(&published.names);
    saver.save(&published.model, &merged, &path).unwrap();
    let file = open(&path).unwrap();
    [0, 1].map(|layer| {
        let name = format!("transformer.h.{layer}.attn.c_attn.weight");
        let [merged, base] =
            [&file, published.source.weights()].map(|file| file.read(&name).unwrap());
        let values = merged.as_slice::<f32>().unwrap().iter();
        let values = values.zip(base.as_slice::<f32>().unwrap());
        values.map(|(merged, base)| merged - base).collect()
    })
}

/// `scale · (b a)` transposed, by the tensors of a file: what peft adds to a `Conv1D`.
fn product(file: &WeightFile, layer: usize, scale: f32) -> Vec<f32> {
    let read = |end: &str| {
        let name = format!("base_model.model.transformer.h.{layer}.attn.c_attn.{end}.weight");
        file.read(&name).unwrap()
    };
    let [a, b] = ["lora_A", "lora_B"].map(read);
    let (&[rank, inputs], &[outputs, _]) = (a.ty().dims(), b.ty().dims()) else {
        panic!("{} and {}", a.ty(), b.ty())
    };
    let [a, b] = [&a, &b].map(|array| array.as_slice::<f32>().unwrap());
    let element = |place: usize| {
        let (input, output) = (place / outputs, place % outputs);
        let terms = (0..rank).map(|k| b[output * rank + k] * a[k * inputs + input]);
        scale * terms.sum::<f32>()
    };
    (0..inputs * outputs).map(element).collect()
}

#[track_caller]
fn near(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    assert!(one.iter().any(|value| value.abs() > 0.01));
    for (one, other) in one.iter().zip(other) {
        assert!((one - other).abs() < 1e-5, "{one} is not {other}");
    }
}

/// One adapter in the file for queries, keys and values, as peft has it.
#[test]
fn adapters_of_a_fused_layer_are_one() {
    let client = clients()[1];
    let model = Gpt2::from_pretrained(golden("gpt2")).unwrap().model;
    let names = Gpt2::names("transformer.");
    let description = Lora::new(2)
        .alpha(6.0)
        .adapt(model.clone())
        .unwrap()
        .adapters;
    check_adapters(&names, &description).unwrap();
    let values = description.leaves().into_iter().enumerate();
    let values = values.map(|(number, param)| {
        let value = |at: usize| ((at * 7 + number * 3) % 11) as f32 / 11.0 - 0.4;
        let values: Vec<f32> = (0..param.ty.elements()).map(value).collect();
        Array::from_slice(client, &values, param.ty.dims()).unwrap()
    });
    let values = description.rebuild(values.collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    save_adapters(&names, &description, &values, None, dir.path()).unwrap();
    let file = open(dir.path().join("adapter_model.safetensors")).unwrap();
    // A and B of four layers in each of two blocks.
    assert_eq!(file.tensors().len(), 2 * 4 * 2);
    let config = AdapterConfig::open(dir.path()).unwrap();
    assert_eq!((config.rank, config.alpha), (2, 6.0));
    let expected = [0, 1].map(|layer| product(&file, layer, 3.0));
    let own = added(client, values);
    let (again, loaded) = load_adapters(client, &names, model.clone(), dir.path()).unwrap();
    let ranks: Vec<usize> = (again.list().iter())
        .map(|adapter| *adapter.a.ty.dims().last().unwrap())
        .collect();
    assert_eq!(ranks, [6, 6, 6, 2, 2, 2]);
    let loaded = added(client, loaded);
    for layer in 0..2 {
        near(&own[layer], &expected[layer]);
        near(&loaded[layer], &expected[layer]);
    }

    let lora = Lora::new(2).target("blocks.attention.q|v").unwrap();
    let adapters = lora.adapt(model).unwrap().adapters;
    let error = check_adapters(&names, &adapters).unwrap_err().to_string();
    assert!(
        error.contains("is of 3 parts, 2 of which have adapters"),
        "{error}"
    );
}

/// The default of peft for GPT-2: `c_attn`. Ranks and factors of a layer are those of its pattern.
#[test]
fn adapters_of_peft_for_a_fused_layer_are_split() {
    let client = clients()[1];
    let model = Gpt2::from_pretrained(golden("gpt2")).unwrap().model;
    let dir = tempfile::tempdir().unwrap();
    let name = |layer: usize, end: &str| {
        format!("base_model.model.transformer.h.{layer}.attn.c_attn.{end}.weight")
    };
    let tensors: Vec<(String, HostArray)> = (0..2)
        .flat_map(|layer| [(layer, "lora_A", [3, 16]), (layer, "lora_B", [48, 3])])
        .map(|(layer, end, dims)| {
            let value = |at: usize| ((at * 5 + layer) % 13) as f32 / 13.0 - 0.5;
            let values: Vec<f32> = (0..dims[0] * dims[1]).map(value).collect();
            (
                name(layer, end),
                HostArray::from_slice(&values, dims).unwrap(),
            )
        })
        .collect();
    let info = |(name, array): &(String, HostArray)| TensorInfo {
        name: name.clone(),
        ty: array.ty().clone(),
    };
    let infos: Vec<TensorInfo> = tensors.iter().map(info).collect();
    let path = dir.path().join("adapter_model.safetensors");
    let mut writer = SafetensorsWriter::create(&path, &infos, &Default::default()).unwrap();
    tensors
        .iter()
        .for_each(|(_, array)| writer.write(array).unwrap());
    writer.finish().unwrap();
    let file = open(&path).unwrap();
    for (fields, scale) in [
        (json!({ "r": 3, "lora_alpha": 6 }), 2.0),
        (
            json!({ "r": 3, "lora_alpha": 1, "alpha_pattern": { "c_attn": 9 } }),
            3.0,
        ),
        (
            json!({ "r": 8, "lora_alpha": 3, "rank_pattern": { "attn.c_attn": 3 } }),
            1.0,
        ),
        (
            json!({ "r": 8, "lora_alpha": 9, "use_rslora": true, "rank_pattern": { "c_attn": 3 } }),
            9.0 / 3f32.sqrt(),
        ),
    ] {
        let mut config = json!({ "peft_type": "LORA", "target_modules": ["c_attn"] });
        for (key, value) in fields.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(dir.path().join("adapter_config.json"), config.to_string()).unwrap();
        let names = Gpt2::names("transformer.");
        let (description, values) =
            load_adapters(client, &names, model.clone(), dir.path()).unwrap();
        assert_eq!(description.list().len(), 3, "{fields}");
        for (layer, added) in added(client, values).iter().enumerate() {
            near(added, &product(&file, layer, scale));
        }
    }
    // A factor of 0 adds nothing, and no NaN.
    let config =
        json!({ "peft_type": "LORA", "r": 3, "lora_alpha": 0, "target_modules": ["c_attn"] });
    std::fs::write(dir.path().join("adapter_config.json"), config.to_string()).unwrap();
    let names = Gpt2::names("transformer.");
    let (_, values) = load_adapters(client, &names, model.clone(), dir.path()).unwrap();
    for added in added(client, values) {
        assert!(added.iter().all(|value| *value == 0.0), "{added:?}");
    }
    for (fields, part) in [
        (
            json!({ "target_modules": null }),
            "`target_modules` is missing",
        ),
        (
            json!({ "target_modules": ["c_fc", "n"] }),
            "`target_modules` does not name `transformer.h.0.attn.c_attn`",
        ),
        (
            json!({ "target_modules": { "c_attn": true } }),
            r#"`target_modules` is {"c_attn":true}; expected names of layers"#,
        ),
        (
            json!({ "layers_to_transform": [0, 2] }),
            "`layers_to_transform` does not have the number of `transformer.h.1.attn.c_attn`",
        ),
        (
            json!({ "layers_to_transform": [0, 1, 2], "layers_pattern": "blocks" }),
            "`layers_to_transform` does not have the number of `transformer.h.0.attn.c_attn`",
        ),
        (
            json!({ "exclude_modules": ["h.1.attn.c_attn"] }),
            "`exclude_modules` names `transformer.h.1.attn.c_attn`",
        ),
        (
            json!({ "kasa_config": {} }),
            "`kasa_config` is {}; supported: null",
        ),
        (
            json!({ "lora_alpha": 0, "alpha_pattern": { "c_attn": 2 } }),
            "`transformer.h.0.attn.c_attn` has a factor of 0.66",
        ),
    ] {
        let mut config =
            json!({ "peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": "all-linear" });
        for (key, value) in fields.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(dir.path().join("adapter_config.json"), config.to_string()).unwrap();
        let names = Gpt2::names("transformer.");
        let error = load_adapters(client, &names, model.clone(), dir.path());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let config =
        json!({ "peft_type": "LORA", "r": 3, "lora_alpha": 1, "rank_pattern": { "c_.*": 3 } });
    std::fs::write(dir.path().join("adapter_config.json"), config.to_string()).unwrap();
    let error = AdapterConfig::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("`rank_pattern` has `c_.*`: 3; supported: names"),
        "{error}"
    );
}
