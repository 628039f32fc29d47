//! GGUF files: defaults and keys are those of llama.cpp.

use std::path::Path;

use halite_models::{Llama, Pretrained, PretrainedModel};
use halite_nn::{Param, Positions, RotaryScaling, Transformer};
use serde_json::Value;

use crate::common::clients;

/// A value of metadata.
enum Field<'a> {
    Number(u32),
    Float(f32),
    Flag(bool),
    Text(&'a str),
    Texts(Vec<String>),
    Numbers(Vec<u32>),
}

use Field::{Flag, Float, Number, Numbers, Text, Texts};

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn field(bytes: &mut Vec<u8>, name: &str, value: &Field<'_>) {
    text(bytes, name);
    let mut kind = |kind: u32| bytes.extend(kind.to_le_bytes());
    match value {
        Number(number) => {
            kind(4);
            bytes.extend(number.to_le_bytes());
        }
        Float(number) => {
            kind(6);
            bytes.extend(number.to_le_bytes());
        }
        Flag(flag) => {
            kind(7);
            bytes.push((*flag).into());
        }
        Text(value) => {
            kind(8);
            text(bytes, value);
        }
        Texts(texts) => {
            kind(9);
            kind(8);
            bytes.extend((texts.len() as u64).to_le_bytes());
            texts.iter().for_each(|value| text(bytes, value));
        }
        Numbers(numbers) => {
            kind(9);
            kind(4);
            bytes.extend((numbers.len() as u64).to_le_bytes());
            (numbers.iter()).for_each(|number| bytes.extend(number.to_le_bytes()));
        }
    }
}

const TENSORS: &[(&str, &[u64])] = &[
    ("token_embd.weight", &[258, 8]),
    ("output.weight", &[258, 8]),
    ("output_norm.weight", &[8]),
    ("blk.0.attn_norm.weight", &[8]),
    ("blk.0.attn_q.weight", &[8, 8]),
    ("blk.0.attn_k.weight", &[8, 8]),
    ("blk.0.attn_v.weight", &[8, 8]),
    ("blk.0.attn_output.weight", &[8, 8]),
    ("blk.0.ffn_norm.weight", &[8]),
    ("blk.0.ffn_gate.weight", &[12, 8]),
    ("blk.0.ffn_up.weight", &[12, 8]),
    ("blk.0.ffn_down.weight", &[8, 12]),
];

/// The characters by which byte pairs write bytes, in the order of GPT-2.
fn byte_tokens() -> Vec<String> {
    let is_visible = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let visible = (0..256).filter(is_visible);
    let others = 256..256 + (256 - visible.clone().count() as u32);
    let characters = visible.chain(others).filter_map(char::from_u32);
    characters.map(String::from).collect()
}

/// Writes a Llama of zeros, and bytes as its vocabulary, with this metadata besides its sizes.
fn write(path: &Path, more: &[(&str, Field<'_>)]) {
    let mut tokens = byte_tokens();
    tokens.extend(["<|end|>", "<|begin|>"].map(String::from));
    let mut kinds = vec![1; 256];
    kinds.extend([3, 3]);
    let mut fields = vec![
        ("general.architecture", Text("llama")),
        ("llama.context_length", Number(32)),
        ("llama.embedding_length", Number(8)),
        ("llama.block_count", Number(1)),
        ("llama.feed_forward_length", Number(12)),
        ("llama.attention.head_count", Number(2)),
        ("llama.attention.layer_norm_rms_epsilon", Float(1e-5)),
        ("tokenizer.ggml.model", Text("gpt2")),
        ("tokenizer.ggml.tokens", Texts(tokens)),
        ("tokenizer.ggml.token_type", Numbers(kinds)),
        ("tokenizer.ggml.merges", Texts(vec![])),
        ("tokenizer.ggml.bos_token_id", Number(257)),
    ];
    if !more.iter().any(|(name, _)| *name == "tokenizer.ggml.pre") {
        fields.push(("tokenizer.ggml.pre", Text("smollm")));
    }
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((TENSORS.len() as u64).to_le_bytes());
    bytes.extend(((fields.len() + more.len()) as u64).to_le_bytes());
    for (name, value) in fields.iter().chain(more) {
        field(&mut bytes, name, value);
    }
    let mut offset = 0u64;
    for (name, dims) in TENSORS {
        text(&mut bytes, name);
        bytes.extend((dims.len() as u32).to_le_bytes());
        dims.iter()
            .rev()
            .for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset += (4 * dims.iter().product::<u64>()).next_multiple_of(32);
    }
    bytes.resize(bytes.len().next_multiple_of(32) + offset as usize, 0);
    std::fs::write(path, bytes).unwrap();
}

type Opened = PretrainedModel<Transformer<Param>>;

/// The model with this metadata.
fn opened(more: &[(&str, Field<'_>)]) -> (tempfile::TempDir, Result<Opened, String>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    write(&path, more);
    let opened = Llama::from_pretrained(&path).map_err(|error| error.to_string());
    (dir, opened)
}

#[track_caller]
fn refused(more: &[(&str, Field<'_>)], part: &str) {
    let error = opened(more).1.unwrap_err();
    assert!(error.contains(part), "{error}");
}

#[test]
fn rotary_factor_without_a_type_is_linear() {
    const FACTOR: &str = "llama.rope.scaling.factor";
    const TYPE: &str = "llama.rope.scaling.type";
    const OLD: &str = "llama.rope.scale_linear";
    let linear = |factor| Some(RotaryScaling::Linear { factor });
    for (more, expected) in [
        (vec![], None),
        (vec![(FACTOR, Float(4.0))], linear(4.0)),
        (vec![(OLD, Float(4.0))], linear(4.0)),
        (vec![(OLD, Float(4.0)), (FACTOR, Float(2.0))], linear(2.0)),
        (
            vec![(TYPE, Text("linear")), (FACTOR, Float(4.0))],
            linear(4.0),
        ),
        (vec![(TYPE, Text("linear"))], None),
        (vec![(TYPE, Text("none")), (FACTOR, Float(4.0))], None),
        (vec![(FACTOR, Float(0.0))], None),
        (vec![(FACTOR, Float(1.0))], None),
    ] {
        let model = opened(&more).1.unwrap().model;
        let Positions::Rotary { scaling, .. } = model.config.positions else {
            panic!("{}", model.config);
        };
        assert_eq!(scaling, expected);
    }
    refused(
        &[(TYPE, Text("yarn")), (FACTOR, Float(4.0))],
        "rotary scaling `yarn`",
    );
    refused(
        &[(FACTOR, Float(f32::NAN))],
        "`llama.rope.scaling.factor` is \"NaN\"",
    );
}

#[test]
fn unknown_metadata_is_refused_by_name() {
    for (name, value, part) in [
        (
            "llama.attention.temperature",
            Float(2.0),
            "is 2.0, which halite does not know",
        ),
        ("llama.expert_count", Number(8), "is 8; supported: 0"),
        (
            "llama.rope.scaling.attn_factor",
            Float(2.0),
            "is 2.0; supported: 1",
        ),
        (
            "llama.attention.value_length",
            Number(8),
            "is 8; supported: 4, the size of a head",
        ),
        (
            "llama.rope.dimension_count",
            Number(2),
            "is 2; supported: 4",
        ),
        (
            "general.type",
            Text("adapter"),
            "is \"adapter\"; supported: model",
        ),
    ] {
        refused(&[(name, value)], &format!("`{name}` {part}"));
    }
    let more = [
        ("general.name", Text("a model")),
        ("general.tags", Texts(vec!["tag".into()])),
        ("general.quantization_version", Number(2)),
        ("llama.vocab_size", Number(258)),
        ("llama.attention.head_count_kv", Numbers(vec![2, 2])),
        ("llama.attention.value_length", Number(4)),
        ("llama.attention.sliding_window", Number(16)),
        ("vendor.quantized_by", Text("someone")),
    ];
    let model = opened(&more).1.unwrap().model;
    assert_eq!(
        (model.config.kv_heads, model.config.context_length),
        (2, 16)
    );
    // Ignored, it counts as missing.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    write(&path, &[("llama.expert_count", Number(8))]);
    let source = Pretrained::open(&path).unwrap();
    Llama::of(source.ignore_keys(["llama.expert_count"])).unwrap();
}

#[test]
fn beginning_of_a_text_is_that_of_llama_cpp() {
    let tokens = |more: &[(&str, Field<'_>)]| {
        let tokenizer = opened(more).1.unwrap().source.open_tokenizer();
        let tokenizer = tokenizer.map_err(|error| error.to_string())?;
        Ok::<_, String>(tokenizer.encode_input("", None).unwrap())
    };
    const ADD: &str = "tokenizer.ggml.add_bos_token";
    const PRE: &str = "tokenizer.ggml.pre";
    assert_eq!(tokens(&[]).unwrap(), [0; 0]);
    assert_eq!(tokens(&[(ADD, Flag(true))]).unwrap(), [257]);
    assert_eq!(tokens(&[(PRE, Text("llama-bpe"))]).unwrap(), [257]);
    let more = [(PRE, Text("llama-bpe")), (ADD, Flag(false))];
    assert_eq!(tokens(&more).unwrap(), [0; 0]);
    for (name, value, part) in [
        (
            "tokenizer.ggml.add_eos_token",
            Flag(true),
            "is true; supported: false",
        ),
        (
            "tokenizer.ggml.lowercase",
            Flag(true),
            "is true, which halite does not know",
        ),
    ] {
        let error = tokens(&[(name, value)]).unwrap_err();
        assert!(error.contains(&format!("`{name}` {part}")), "{error}");
    }
}

#[test]
fn saved_model_has_what_the_metadata_has() {
    let more = [
        ("llama.rope.scaling.factor", Float(4.0)),
        ("tokenizer.ggml.eos_token_id", Number(65)),
        ("tokenizer.ggml.padding_token_id", Number(66)),
        ("tokenizer.chat_template", Text("{{ messages }}")),
    ];
    let (dir, published) = opened(&more);
    let published = published.unwrap();
    // `<|end|>` stops, whatever the metadata says.
    assert_eq!(published.source.stop_tokens().unwrap(), [65, 256]);
    published.check_save().unwrap();
    let tokenizer = published.source.open_tokenizer().unwrap();
    let values = published.load(clients()[1]).unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("chat_template.jinja"), "of another model").unwrap();
    let names = published.saved_names();
    published.save(&names, &values, &tokenizer, &out).unwrap();
    let again = Llama::from_pretrained(&out).unwrap();
    assert_eq!(again.model.config, published.model.config);
    assert_eq!(again.source.stop_tokens().unwrap(), [65, 256]);
    assert_eq!(again.source.open_tokenizer().unwrap().vocabulary(), 258);
    let read = |name: &str| again.source.json(name).unwrap().unwrap();
    let settings = read("tokenizer_config.json");
    assert_eq!(settings["chat_template"], "{{ messages }}");
    assert_eq!(settings["bos_token"], "<|begin|>");
    assert_eq!(read("generation_config.json")["pad_token_id"], 66);
    assert_eq!(
        read("config.json")["rope_scaling"]["factor"],
        Value::from(4.0)
    );
    assert!(!out.join("chat_template.jinja").exists());
}
