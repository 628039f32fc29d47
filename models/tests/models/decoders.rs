//! Small decoders of `transformers` (`golden/decoders.py`): logits, loss and gradients, saving, and
//! errors of configurations.

use std::fs;

use halite_core::{
    Array, DType, HostArray, Result, TensorType, Tree,
    tree::{Empty, Leaf},
};
use halite_models::{Config, Gpt2, Llama, Pretrained, PretrainedModel};
use halite_nn::{Jit, Param, Positions, RotaryScaling, Transformer, cross_entropy, grad};
use halite_weights::{TensorSource, WeightSaver, open};
use serde_json::{Value, json};

use crate::common::{clients, golden};

type Opened = PretrainedModel<Transformer<Param>>;

/// Opens a model of either form.
fn opened(name: &str) -> Result<Opened> {
    match name {
        "gpt2" => Gpt2::from_pretrained(golden(name)),
        _ => Llama::from_pretrained(golden(name)),
    }
}

#[track_caller]
fn close(what: &str, ours: &HostArray, theirs: &HostArray) {
    assert_eq!(ours.ty(), theirs.ty(), "{what}");
    let (ours, theirs): (&[f32], &[f32]) = (ours.as_slice().unwrap(), theirs.as_slice().unwrap());
    let largest = theirs
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (ours, theirs) in ours.iter().zip(theirs) {
        let error = (ours - theirs).abs();
        assert!(
            error <= 1e-5 * largest.max(0.1),
            "{what}: {ours} is not {theirs}"
        );
    }
}

/// Logits, loss and gradients of both executors.
fn check(name: &str) {
    let published = opened(name).unwrap();
    let expected = open(golden(&format!("{name}.safetensors"))).unwrap();
    let tokens = expected.read("tokens").unwrap();
    let dir = tempfile::tempdir().unwrap();
    for client in clients() {
        let model = published.load(client).unwrap();
        let step = Jit::<
            Empty<()>,
            (Transformer<()>, Leaf<()>),
            (Leaf<()>, Leaf<()>, Transformer<()>),
        >::function(client, |cx, (model, Leaf(tokens))| {
            cx.set_mode(false, None);
            let length = tokens.dims()[1] - 1;
            let logits = model.forward(tokens.slice_dim(1, ..length));
            let loss = cross_entropy(logits, tokens.slice_dim(1, 1..)).mean_all();
            (Leaf(logits), Leaf(loss), grad(loss, &model))
        });
        let ids = tokens.as_slice::<i32>().unwrap();
        let given = Leaf(Array::from_slice(client, ids, [2, 33]).unwrap());
        let inputs = (model.leaf_refs(), given.leaf_refs());
        let (Leaf(logits), Leaf(loss), gradients) = step.run_with(inputs).unwrap();
        close(
            "logits",
            &logits.read().unwrap(),
            &expected.read("logits").unwrap(),
        );
        close(
            "loss",
            &loss.read().unwrap(),
            &expected.read("loss").unwrap(),
        );

        // Saved under the names of the model, gradients are beside its own.
        let path = dir.path().join("gradients.safetensors");
        let saver = WeightSaver::new(&published.names);
        saver.save(&published.model, &gradients, &path).unwrap();
        let gradients = open(&path).unwrap();
        let theirs = expected.tensors().iter();
        assert_eq!(gradients.tensors().len(), theirs.len() - 3);
        for info in theirs.filter(|info| info.name.starts_with("gradient.")) {
            let ours = gradients.read(&info.name["gradient.".len()..]).unwrap();
            close(&info.name, &ours, &expected.read(&info.name).unwrap());
        }
    }
}

#[test]
fn llama3_matches_transformers() {
    check("llama3");
}

#[test]
fn mistral_matches_transformers() {
    check("mistral");
}

#[test]
fn qwen2_matches_transformers() {
    check("qwen2");
}

#[test]
fn gpt2_matches_transformers() {
    check("gpt2");
}

#[test]
fn saved_weights_equal_the_published_file() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["llama3", "qwen2", "gpt2"] {
        let published = opened(name).unwrap();
        let model = published.load(clients()[1]).unwrap();
        let path = dir.path().join(name);
        let saver = WeightSaver::new(&published.names);
        saver.save(&published.model, &model, &path).unwrap();
        let (ours, theirs) = (open(&path).unwrap(), published.source.weights());
        for info in ours.tensors() {
            assert_eq!(
                ours.read(&info.name).unwrap(),
                theirs.read(&info.name).unwrap()
            );
        }
        assert_eq!(ours.tensors().len(), theirs.tensors().len(), "{name}");
    }
}

#[test]
fn weights_are_stored_in_bf16() {
    let published = opened("llama3").unwrap();
    let loader = published.loader().stored_as(DType::Bf16);
    let model = loader.load(clients()[0], &published.model).unwrap().model;
    assert_eq!(model.norm.scale.stored(), DType::Bf16);
    assert_eq!(model.norm.scale.ty().dtype(), DType::F32);
}

/// Copies a golden model, with fields of its configuration set, or removed by null.
pub(crate) fn edited(name: &str, fields: Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let weights = golden(name).join("model.safetensors");
    fs::copy(weights, dir.path().join("model.safetensors")).unwrap();
    let text = fs::read(golden(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        config[name] = value.clone();
    }
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

#[track_caller]
fn refused(name: &str, fields: Value, parts: &[&str]) {
    let dir = edited(name, fields);
    let error = match name {
        "gpt2" => Gpt2::from_pretrained(dir.path()),
        _ => Llama::from_pretrained(dir.path()),
    };
    let error = error.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn contradictions_of_config_are_one_error() {
    refused(
        "llama3",
        json!({ "vocab_size": 21, "num_hidden_layers": 3, "tie_word_embeddings": true }),
        &[
            "contradict each other",
            "`model.embed_tokens.weight` f32[21, 16], the file has f32[20, 16]",
            "`model.layers.2.mlp.up_proj.weight`",
        ],
    );
    refused(
        "mistral",
        json!({ "head_dim": 8 }),
        &["f32[32, 16], the file has f32[24, 16]"],
    );
}

#[test]
fn biases_of_other_types_are_refused_by_name() {
    for (name, field) in [("mistral", "attention_bias"), ("qwen2", "mlp_bias")] {
        let part = "`attention_bias` or `mlp_bias` is true; supported: false";
        refused(name, json!({ field: true }), &[part]);
    }
}

#[test]
fn unsupported_fields_are_one_error() {
    refused(
        "llama3",
        json!({
            "model_type": "mamba",
            "hidden_act": "relu",
            "num_attention_heads": null,
            "rope_scaling": { "rope_type": "yarn" },
            "quantization_config": {},
        }),
        &[
            "`mamba`",
            "`relu`",
            "`num_attention_heads` is missing",
            "`yarn`",
            "GGUF",
        ],
    );
    refused(
        "gpt2",
        json!({ "activation_function": "relu", "n_embd": -1 }),
        &["`relu`", "`n_embd` is -1"],
    );
    refused(
        "qwen2",
        json!({ "model_type": null }),
        &["`model_type` is missing"],
    );
}

#[test]
fn huge_config_is_refused() {
    for size in [1u64 << 31, 1 << 62, u64::MAX] {
        refused(
            "llama3",
            json!({ "vocab_size": size, "hidden_size": size }),
            &[],
        );
        refused("qwen2", json!({ "num_hidden_layers": size }), &[]);
        refused("gpt2", json!({ "n_embd": size, "n_positions": size }), &[]);
    }
}

#[test]
fn damaged_config_names_its_file() {
    let dir = edited("qwen2", json!({}));
    let path = dir.path().join("config.json");
    for (text, part) in [
        ("{\"a\": ", "is not valid JSON"),
        ("[]", "is not a JSON object"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Llama::from_pretrained(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("config.json") && error.contains(part),
            "{error}"
        );
    }
    fs::remove_file(&path).unwrap();
    let error = Llama::from_pretrained(dir.path()).unwrap_err().to_string();
    assert!(error.contains("no config.json in"), "{error}");
}

#[test]
fn window_of_attention_bounds_the_context() {
    let dir = edited("mistral", json!({ "sliding_window": 32 }));
    let published = Llama::from_pretrained(dir.path()).unwrap();
    assert_eq!(published.model.config.context_length, 32);
    let published = opened("mistral").unwrap();
    assert_eq!(published.model.config.context_length, 64);
    assert_eq!(published.model.config.head_size, Some(6));
}

#[test]
fn rope_scaling_is_read_from_both_forms() {
    let scaling = RotaryScaling::Linear { factor: 2.0 };
    for fields in [
        json!({ "rope_parameters": { "rope_type": "linear", "factor": 2.0, "rope_theta": 5e3 } }),
        json!({ "rope_parameters": null, "rope_theta": 5e3, "rope_scaling": { "type": "linear", "factor": 2.0 } }),
    ] {
        let dir = edited("qwen2", fields);
        let config = Llama::from_pretrained(dir.path()).unwrap().model.config;
        let expected = Positions::Rotary {
            theta: 5e3,
            scaling: Some(scaling),
        };
        assert_eq!(config.positions, expected);
    }
}

#[test]
fn stop_tokens_are_those_of_generation() {
    let dir = edited("llama3", json!({ "eos_token_id": 7 }));
    let stop = |dir: &tempfile::TempDir| Pretrained::open(dir.path()).unwrap().stop_tokens();
    assert_eq!(stop(&dir).unwrap(), [7]);
    let path = dir.path().join("generation_config.json");
    fs::write(&path, r#"{"eos_token_id": [3, 4]}"#).unwrap();
    assert_eq!(stop(&dir).unwrap(), [3, 4]);
    fs::write(&path, r#"{"eos_token_id": "x"}"#).unwrap();
    let error = stop(&dir).unwrap_err().to_string();
    assert!(error.contains("generation_config.json"), "{error}");
}

#[test]
fn types_of_the_cache_are_those_of_the_model() {
    let config = opened("mistral").unwrap().model.config;
    let expected = TensorType::new(DType::F32, [2, 3, 2, 10, 6]);
    assert_eq!(config.cache_type(DType::F32, 3, 10), expected);
}

#[test]
fn saved_directory_has_the_settings_of_the_loaded_one() {
    let dir = edited("gpt2", json!({ "eos_token_id": 7 }));
    let path = |name: &str| dir.path().join(name);
    fs::write(
        path("generation_config.json"),
        r#"{"eos_token_id": [3, 4]}"#,
    )
    .unwrap();
    fs::write(path("tokenizer_config.json"), r#"{"model_max_length": 9}"#).unwrap();
    fs::write(path("chat_template.jinja"), "{{ messages }}").unwrap();
    let published = Gpt2::from_pretrained(dir.path()).unwrap();
    published.check_save().unwrap();
    let values = published.load(clients()[1]).unwrap();
    let tokenizer = halite_data::text::Tokenizer::Bytes;
    let out = path("out");
    let names = published.saved_names();
    published.save(&names, &values, &tokenizer, &out).unwrap();
    for name in ["config.json", "generation_config.json"] {
        let [saved, loaded] = [&published.source, &Pretrained::open(&out).unwrap()]
            .map(|source| source.json(name).unwrap().unwrap());
        assert_eq!(saved, loaded, "{name}");
    }
    for name in ["tokenizer_config.json", "chat_template.jinja"] {
        assert_eq!(
            fs::read(out.join(name)).unwrap(),
            fs::read(path(name)).unwrap()
        );
    }
}

/// Defaults of fields that are left out, which are not those of `null`.
#[test]
fn defaults_of_mistral_are_those_of_transformers() {
    let text = fs::read(golden("mistral").join("config.json")).unwrap();
    let mut fields: Value = serde_json::from_slice(&text).unwrap();
    let object = fields.as_object_mut().unwrap();
    for name in [
        "num_key_value_heads",
        "sliding_window",
        "max_position_embeddings",
    ] {
        object.remove(name);
    }
    object["num_attention_heads"] = 16.into();
    let config = Llama::config(Config::new("config.json", &fields)).unwrap();
    assert_eq!((config.kv_heads, config.context_length), (8, 4096));
    fields["sliding_window"] = Value::Null;
    let config = Llama::config(Config::new("config.json", &fields)).unwrap();
    assert_eq!(config.context_length, 131_072);
}
