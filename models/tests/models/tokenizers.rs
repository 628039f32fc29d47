//! Tokenizers of published models, against `golden/tokens.json` (`golden/tokens.py`).

use halite_data::text::Tokenizer;
use halite_models::Pretrained;
use serde_json::Value;

use crate::packages::{minilm, smollm2};

/// Compares the ids of all texts.
#[track_caller]
fn check(tokenizer: &Tokenizer, model: &str) {
    let golden: Value = serde_json::from_str(include_str!("../golden/tokens.json")).unwrap();
    let texts = golden["texts"].as_array().unwrap();
    for (text, ids) in texts.iter().zip(golden[model].as_array().unwrap()) {
        let text = text.as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
        assert_eq!(tokenizer.encode_input(text, None).unwrap(), ids, "{text:?}");
    }
}

#[test]
fn ids_of_minilm_are_those_of_transformers() {
    let source = Pretrained::open(minilm()).unwrap();
    let tokenizer = source.open_tokenizer().unwrap();
    check(&tokenizer, "minilm");
    tokenizer.check_vocabulary(30_522).unwrap();
}

#[test]
fn vocabulary_in_gguf_is_that_of_smollm2() {
    let source = Pretrained::open(smollm2()).unwrap();
    let tokenizer = source.open_tokenizer().unwrap();
    check(&tokenizer, "smollm2");
    tokenizer.check_vocabulary(49_152).unwrap();
    assert_eq!(tokenizer.token_id("<|im_end|>"), Some(2));
    let text = "I'll say it's 3rd: na\u{ef}ve \u{1f600}\n";
    let tokens = tokenizer.encode(&format!("<|im_start|>{text}")).unwrap();
    assert_eq!(tokenizer.decode(&tokens), text);
}

#[test]
fn input_is_cut_between_its_special_tokens() {
    let tokenizer = Tokenizer::open(minilm()).unwrap();
    let text = "The quick brown fox";
    assert_eq!(
        tokenizer.encode_input(text, Some(4)).unwrap(),
        [101, 1996, 4248, 102]
    );
    assert_eq!(tokenizer.encode_input(text, Some(2)).unwrap(), [101, 102]);
    let error = tokenizer
        .encode_input(text, Some(1))
        .unwrap_err()
        .to_string();
    assert!(error.contains("the 2 special tokens do not fit"), "{error}");
}
