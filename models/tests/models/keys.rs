//! Keys in the files of other programs: those of published models are known, others are refused.

use halite_core::Result;
use halite_data::images::{Filter, Framing};
use halite_models::{
    BertConfig, Classifier, Gpt2, Llama, Normalization, Preparation, Pretrained, open_decoder,
};
use halite_weights::{Config, KeyTable, keys};
use serde_json::{Value, json};

use crate::{common::golden, decoders::edited};

/// Configurations of published models, by family or file.
fn published(family: &str) -> Vec<(String, Value)> {
    let text = std::fs::read(golden("published.json")).unwrap();
    let all: Value = serde_json::from_slice(&text).unwrap();
    let models = all[family].as_object().unwrap().clone();
    models.into_iter().collect()
}

/// Reads `fields` as those of a published model.
#[track_caller]
fn accepted(family: &str, known: &'static KeyTable, read: impl Fn(Config<'_>) -> Result<()>) {
    for (name, fields) in published(family) {
        let config = Config::new(&name, &fields).known(known, &[]);
        read(config).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn published_configurations_are_known() {
    let config = &keys::CONFIG;
    accepted("llama", config, |fields| Llama::config(fields).map(drop));
    accepted("gpt2", config, |fields| Gpt2::config(fields).map(drop));
    accepted("bert", config, |fields| {
        BertConfig::from_config(fields).map(drop)
    });
}

#[test]
fn published_settings_are_known() {
    accepted(
        "generation_config.json",
        &keys::GENERATION_CONFIG,
        |mut config| {
            assert!(!config.tokens("eos_token_id").is_empty());
            config.finish()
        },
    );
    accepted("tokenizer_config.json", &keys::TOKENIZER_CONFIG, |config| {
        for name in [
            "do_lower_case",
            "strip_accents",
            "tokenize_chinese_chars",
            "add_prefix_space",
            "add_bos_token",
            "add_eos_token",
            "added_tokens_decoder",
        ] {
            config.value(name);
        }
        config.finish()
    });
    accepted(
        "sentence_bert_config.json",
        &keys::SENTENCE_BERT,
        |config| {
            for name in [
                "max_seq_length",
                "do_lower_case",
                "modality_config.text.method",
                "modality_config.text.method_output_name",
            ] {
                config.value(name);
            }
            config.finish()
        },
    );
    accepted(
        "config_sentence_transformers.json",
        &keys::SENTENCE_TRANSFORMERS,
        |config| config.finish(),
    );
}

fn opened(dir: &tempfile::TempDir, ignored: &[&str]) -> Result<(), String> {
    let source = Pretrained::open(dir.path()).unwrap();
    let source = source.ignore_keys(ignored.iter().copied());
    open_decoder(source)
        .map(drop)
        .map_err(|error| error.to_string())
}

#[test]
fn unknown_keys_are_refused_by_name() {
    let fields = json!({
        "per_layer_config": { "0": { "num_attention_heads": 2 } },
        "residual_multiplier": 0.22,
        "is_encoder_decoder": true,
        "head_scale": null,
    });
    for model in ["llama3", "mistral", "qwen2", "gpt2"] {
        let dir = edited(model, fields.clone());
        let error = opened(&dir, &[]).unwrap_err();
        for part in [
            "config.json",
            "`residual_multiplier` is 0.22, which halite does not know",
            "`per_layer_config` is {\"0\":",
            "`is_encoder_decoder` is true; supported: false",
            "`--ignore-key NAME`",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("head_scale"), "{error}");
        let error = opened(&dir, &["residual_multiplier", "is_encoder_decoder"]).unwrap_err();
        assert!(!error.contains("residual_multiplier"), "{error}");
        opened(
            &dir,
            &[
                "residual_multiplier",
                "is_encoder_decoder",
                "per_layer_config",
            ],
        )
        .unwrap();
    }
}

/// The fields inside of an object that is read are checked one by one.
#[test]
fn unknown_keys_of_rotary_positions_are_refused() {
    let scaling = json!({ "rope_type": "linear", "factor": 2.0, "attention_factor": 0.5 });
    let dir = edited(
        "qwen2",
        json!({ "rope_parameters": null, "rope_scaling": scaling }),
    );
    let error = opened(&dir, &[]).unwrap_err();
    let part = "`rope_scaling.attention_factor` is 0.5, which halite does not know";
    assert!(error.contains(part), "{error}");
    opened(&dir, &["rope_scaling.attention_factor"]).unwrap();
    // A key that is read counts as missing, too.
    let dir = edited("qwen2", json!({ "quantization_config": { "bits": 4 } }));
    assert!(opened(&dir, &[]).unwrap_err().contains("GGUF"));
    opened(&dir, &["quantization_config"]).unwrap();
}

#[test]
fn settings_of_generation_are_refused_by_name() {
    let dir = edited("llama3", json!({}));
    let write = |fields: Value| {
        let path = dir.path().join("generation_config.json");
        std::fs::write(path, fields.to_string()).unwrap();
        let source = Pretrained::open(dir.path()).unwrap();
        source.stop_tokens().map_err(|error| error.to_string())
    };
    let fields =
        json!({ "eos_token_id": 5, "temperature": 0.6, "num_beams": 1, "stop_strings": [] });
    assert_eq!(write(fields).unwrap(), [5]);
    for (fields, part) in [
        (json!({ "num_beams": 4 }), "`num_beams` is 4; supported: 1"),
        (
            json!({ "suppress_tokens": [1] }),
            "`suppress_tokens` is [1]",
        ),
        (
            json!({ "stop_strings": "end" }),
            "`stop_strings` is \"end\"",
        ),
        (
            json!({ "entropy": 1 }),
            "`entropy` is 1, which halite does not know",
        ),
    ] {
        let error = write(fields).unwrap_err();
        assert!(
            error.contains(part) && error.contains("generation_config.json"),
            "{error}"
        );
    }
}

/// Writes a tokenizer of words that lowercases, and its settings, beside a model.
fn tokenizer(dir: &tempfile::TempDir, settings: Value) -> Result<(), String> {
    tokenizer_of(dir, settings, true)
}

fn tokenizer_of(dir: &tempfile::TempDir, settings: Value, lowercase: bool) -> Result<(), String> {
    let parts = json!({
        "version": "1.0",
        "added_tokens": [
            { "id": 3, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
              "normalized": false, "special": true },
        ],
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                        "strip_accents": null, "lowercase": lowercase },
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                           "use_regex": true },
        "model": { "type": "WordLevel", "vocab": { "<unk>": 0, "a": 1, "b": 2, "<s>": 3 },
                   "unk_token": "<unk>" },
    });
    let write = |name: &str, value: &Value| {
        std::fs::write(dir.path().join(name), value.to_string()).unwrap();
    };
    write("tokenizer.json", &parts);
    write("tokenizer_config.json", &settings);
    let source = Pretrained::open(dir.path()).unwrap();
    source
        .open_tokenizer()
        .map(drop)
        .map_err(|error| error.to_string())
}

#[test]
fn settings_that_contradict_the_tokenizer_are_refused() {
    let dir = edited("llama3", json!({}));
    let agreed = json!({
        "do_lower_case": true, "strip_accents": null, "tokenize_chinese_chars": true,
        "add_prefix_space": false, "bos_token": { "content": "<s>" }, "add_bos_token": false,
        "add_eos_token": true, "model_max_length": 1e30, "chat_template": "{{ messages }}",
        "added_tokens_decoder": { "3": { "content": "<s>" } },
    });
    tokenizer(&dir, agreed).unwrap();
    for (settings, part) in [
        (
            json!({ "do_lower_case": false }),
            "`do_lower_case` is false, and true by tokenizer.json",
        ),
        (
            json!({ "strip_accents": false }),
            "`strip_accents` is false, and true",
        ),
        (
            json!({ "tokenize_chinese_chars": false }),
            "`tokenize_chinese_chars` is false, and true",
        ),
        (
            json!({ "add_prefix_space": true }),
            "`add_prefix_space` is true, and false",
        ),
        (
            json!({ "bos_token": "<s>", "add_bos_token": true }),
            "`add_bos_token` is true, and false by tokenizer.json",
        ),
        (
            json!({ "added_tokens_decoder": { "4": { "content": "<|end|>" } } }),
            "the added token `<|end|>` has not the id 4 in tokenizer.json",
        ),
        (
            json!({ "split_special_tokens": true }),
            "`split_special_tokens` is true; supported: false",
        ),
        (
            json!({ "byte_shift": 1 }),
            "`byte_shift` is 1, which halite does not know",
        ),
    ] {
        let error = tokenizer(&dir, settings).expect_err(part);
        assert!(
            error.contains(part) && error.contains("tokenizer_config.json"),
            "{error}"
        );
    }
}

/// transformers changes a tokenizer of BERT by the defaults of its class.
#[test]
fn defaults_of_bert_that_contradict_the_tokenizer_are_refused() {
    let dir = edited("llama3", json!({}));
    let class = |name: &str| json!({ "tokenizer_class": name });
    for name in ["BertTokenizer", "BertTokenizerFast"] {
        tokenizer_of(&dir, class(name), true).unwrap();
        let error = tokenizer_of(&dir, class(name), false).unwrap_err();
        let part = "`do_lower_case` is true, and false by tokenizer.json";
        assert!(error.contains(part), "{error}");
        let given = json!({ "tokenizer_class": name, "do_lower_case": false });
        tokenizer_of(&dir, given, false).unwrap();
    }
    tokenizer_of(&dir, class("PreTrainedTokenizerFast"), false).unwrap();
    // Without a class, that of the model.
    let config = json!({ "model_type": "bert" });
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    assert!(tokenizer_of(&dir, json!({}), false).is_err());
    std::fs::remove_file(dir.path().join("tokenizer_config.json")).unwrap();
    let source = Pretrained::open(dir.path()).unwrap();
    let error = source.open_tokenizer().unwrap_err().to_string();
    assert!(error.contains("`do_lower_case` is true"), "{error}");
}

/// `config.json` of timm's `vit_small_patch16_224.augreg_in21k_ft_in1k`, and others.
#[test]
fn images_are_prepared_as_timm_describes() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = |fields: Value| {
        std::fs::write(dir.path().join("config.json"), fields.to_string()).unwrap();
        let prepared = Classifier::VitS16.preparation(dir.path().join("model.safetensors"), &[]);
        prepared.map_err(|error| error.to_string())
    };
    let plain = Preparation {
        framing: Framing::new(224),
        normalization: None,
    };
    assert_eq!(prepared(json!({ "model_type": "vit" })).unwrap(), plain);
    let fields = json!({
        "architecture": "vit_small_patch16_224", "num_classes": 1000, "num_features": 384,
        "global_pool": "token",
        "pretrained_cfg": {
            "tag": "augreg_in21k_ft_in1k", "custom_load": false, "input_size": [3, 224, 224],
            "fixed_input_size": true, "interpolation": "bicubic", "crop_pct": 0.9,
            "crop_mode": "center", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5],
            "num_classes": 1000, "pool_size": null, "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
    });
    let read = prepared(fields.clone()).unwrap();
    assert_eq!(
        read.framing,
        Framing::new(224).crop(0.9).filter(Filter::Bicubic)
    );
    assert_eq!(read.normalization, Some(Normalization::HALF));
    for (name, value, part) in [
        (
            "crop_mode",
            json!("squash"),
            "`pretrained_cfg.crop_mode` is \"squash\"; supported: center",
        ),
        ("input_size", json!([3, 224, 160]), "is not [3, side, side]"),
        (
            "interpolation",
            json!("random"),
            "`pretrained_cfg.interpolation` is `random`",
        ),
        (
            "gamma",
            json!(2),
            "`pretrained_cfg.gamma` is 2, which halite does not know",
        ),
    ] {
        let mut fields = fields.clone();
        fields["pretrained_cfg"][name] = value;
        let error = prepared(fields).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
