//! Keys in the files of other programs: which ones may be passed over.
//!
//! Readers ask for the keys that they understand ([`Config`](crate::Config)). A table lists, for a
//! family of files, the other keys that change no result, and for which values. Everything else is
//! refused by name.

use serde_json::Value;

use crate::problems::short;

/// Keys that no reader of a family of files needs, with their harmless values.
///
/// A row has values and the keys for which they are harmless, both separated by commas. `*` as the
/// values is any; without values, a key may be `null` or empty, which every key may be. Lists are
/// harmless if all their elements are. `*` in a key is any text. The first row that has a key
/// counts.
#[derive(Debug)]
pub struct KeyTable(&'static [(&'static str, &'static str)]);

impl KeyTable {
    /// What is wrong with a key that no reader asked for; `None` if it is harmless.
    pub(crate) fn problem(&self, name: &str, value: &Value) -> Option<String> {
        let has = |keys: &str| keys.split(", ").any(|key| matches(key, name));
        let values = self.0.iter().find(|(_, keys)| has(keys));
        match values {
            _ if value.is_null() => None,
            Some(("null", _)) => Some(format!("`{name}` is {}; supported: null", short(value))),
            _ if is_nothing(value) => None,
            None => Some(format!(
                "`{name}` is {}, which halite does not know",
                short(value)
            )),
            Some((values, _)) if is_among(values, value) => None,
            Some(("", _)) => Some(format!("`{name}` is {}; supported: null", short(value))),
            Some((values, _)) => Some(format!("`{name}` is {}; supported: {values}", short(value))),
        }
    }
}

/// Whether a key of a table, in which one `*` is any text, is that of a name.
fn matches(key: &str, name: &str) -> bool {
    match key.split_once('*') {
        None => key == name,
        Some((start, end)) => {
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_among(values: &str, value: &Value) -> bool {
    let mut values_of = values.split(", ");
    values == "*"
        || match value {
            Value::Bool(flag) => values_of.any(|one| one == flag.to_string()),
            Value::Number(number) => values_of.any(|one| one.parse().ok() == number.as_f64()),
            Value::String(text) => values_of.any(|one| one == text),
            Value::Array(elements) => elements.iter().all(|element| is_among(values, element)),
            Value::Null | Value::Object(_) => is_nothing(value),
        }
}

/// `config.json` of Hugging Face, for all models that are read.
///
/// Dropout, initialization and the sizes of heads that are not loaded belong to training; settings
/// of generation are options of the caller.
pub static CONFIG: KeyTable = KeyTable(&[
    // Where the model comes from, and how it is saved and run.
    (
        "*",
        "architectures, model_type, _name_or_path, name_or_path, transformers_version, \
         transformers.js_config, adapters_version, torch_dtype, dtype, use_bfloat16, torchscript, \
         _commit_hash, gradient_checkpointing, use_cache, output_past, attn_implementation, \
         _attn_implementation, _attn_implementation_autoset, _attn_implementation_internal, \
         _flash_attn_2_enabled, output_attentions, output_hidden_states, output_scores, \
         output_logits, return_dict, return_dict_in_generate, chunk_size_feed_forward, \
         pretraining_tp, unsloth_version, unsloth_fixed, xla_device, tf_legacy_loss, \
         keys_to_ignore_at_inference, is_llama_config, mlx_version, license",
    ),
    // Training, and heads of other tasks.
    (
        "*",
        "initializer_range, initializer_factor, attention_dropout, attention_probs_dropout_prob, \
         hidden_dropout_prob, hidden_dropout, resid_pdrop, embd_pdrop, attn_pdrop, \
         classifier_dropout, summary_*, id2label, label2id, num_labels, _num_labels, n_labels, \
         problem_type, finetuning_task, task_specific_params, loss_type, pooler_*, \
         predict_special_tokens, n_special, reorder_and_upcast_attn, sentence_transformers, \
         sbert_ce_default_activation_function, emb_size, pre_trained, training, structure, \
         tie_encoder_decoder, gradient_checkpointing_kwargs, router_aux_loss_coef, \
         tie_word_embeddings, tie_last_hidden_states",
    ),
    // Tokens and lengths that the tokenizer or the caller sets.
    (
        "*",
        "bos_token_id, eos_token_id, eos_token_ids, pad_token_id, unk_token_id, sep_token_id, \
         cls_token_id, mask_token_id, decoder_start_token_id, tokenizer_class, prefix, n_ctx, \
         seq_length, max_sequence_length, model_max_length, max_window_layers",
    ),
    ("full_attention, sliding_attention", "layer_types"),
    ("absolute", "position_embedding_type"),
    ("bidi", "directionality"),
    ("true", "scale_attn_weights"),
    (
        "false",
        "is_decoder, is_encoder_decoder, add_cross_attention, scale_attn_by_inverse_layer_idx, \
         use_mrope, rope_interleaved, use_qk_norm, qk_layernorm",
    ),
    (
        "",
        "pruned_heads, quantization_config, cross_attention_hidden_size, decoder, cell",
    ),
    GENERATION[0],
    GENERATION[1],
    GENERATION[2],
    GENERATION[3],
    GENERATION[4],
]);

/// `generation_config.json` of Hugging Face. How tokens are drawn, and how many, is an option of
/// the caller.
pub static GENERATION_CONFIG: KeyTable = KeyTable(&GENERATION);

const GENERATION: [(&str, &str); 5] = [
    (
        "*",
        "do_sample, temperature, top_k, top_p, min_p, top_h, typical_p, epsilon_cutoff, \
         eta_cutoff, repetition_penalty, max_length, max_new_tokens, max_time, use_cache, \
         cache_implementation, cache_config, max_cache_len, return_legacy_cache, early_stopping, \
         length_penalty, renormalize_logits, remove_invalid_values, output_attentions, \
         output_hidden_states, output_scores, output_logits, return_dict_in_generate, \
         pad_token_id, bos_token_id, decoder_start_token_id, num_assistant_tokens, \
         num_assistant_tokens_schedule, assistant_confidence_threshold, assistant_lookbehind, \
         assistant_early_exit, assistant_ensemble_weight, target_lookbehind, \
         prompt_lookup_num_tokens, max_matching_ngram_size, speculation_type, use_mtp, \
         compile_config, disable_compile, low_memory, prefill_chunk_size, \
         continuous_batching_config, transformers_version, _from_model_config, _commit_hash, \
         trust_remote_code, chat_format, max_window_size",
    ),
    (
        "0",
        "min_length, min_new_tokens, no_repeat_ngram_size, encoder_no_repeat_ngram_size, \
         diversity_penalty, penalty_alpha",
    ),
    (
        "1",
        "num_beams, num_beam_groups, num_return_sequences, encoder_repetition_penalty, \
         guidance_scale",
    ),
    ("false", "token_healing, is_assistant"),
    (
        "",
        "bad_words_ids, force_words_ids, constraints, forced_bos_token_id, forced_eos_token_id, \
         suppress_tokens, begin_suppress_tokens, sequence_bias, exponential_decay_length_penalty, \
         watermarking_config, dola_layers, stop_strings",
    ),
];

/// `tokenizer_config.json` of Hugging Face, beside a `tokenizer.json` that has the vocabulary, its
/// special tokens and the steps of tokenization.
pub static TOKENIZER_CONFIG: KeyTable = KeyTable(&[
    (
        "*",
        "tokenizer_class, name_or_path, auto_map, tokenizer_file, special_tokens_map_file, \
         vocab_file, merges_file, init_inputs, model_input_names, processor_class, backend, \
         is_local, local_files_only, use_fast, from_slow, trust_remote_code, chat_template, \
         response_schema, chat_template_*, use_default_system_prompt, legacy, legacy_behaviour, \
         sp_model_kwargs, errors, unk_id, transformers_version, return_token_type_ids, language, \
         tokenizer_type, model_type, vocab_size, use_auth_token, special_tokens_map",
    ),
    // Which tokens have which meaning; their ids are in the configuration of the model.
    (
        "*",
        "bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token, \
         additional_special_tokens, extra_special_tokens, model_specific_special_tokens, \
         *_token_id, *_token_type_id, *_token",
    ),
    // Lengths, padding and truncation are those of the caller. Cleaning is of decoded text.
    (
        "*",
        "model_max_length, max_length, max_len, stride, truncation, truncation_side, \
         truncation_strategy, pad_to_multiple_of, padding, padding_side, padding_strategy, \
         clean_up_tokenization_spaces, spaces_between_special_tokens, wordpieces_prefix, \
         trim_offsets",
    ),
    ("true", "do_basic_tokenize, clean_text"),
    (
        "false",
        "split_special_tokens, do_lowercase_and_remove_accent, ignore_merges",
    ),
    ("", "never_split"),
]);

/// `sentence_bert_config.json` of sentence-transformers.
pub static SENTENCE_BERT: KeyTable = KeyTable(&[
    ("feature-extraction", "transformer_task"),
    ("token_embeddings", "module_output_name"),
    (
        "*",
        "unpad_inputs, query_length, document_length, __version__",
    ),
    (
        "",
        "processing_kwargs, query_expansion, tokenizer_name_or_path, model_args, tokenizer_args, \
         config_args",
    ),
]);

/// `config_sentence_transformers.json`: prompts are part of the texts that the caller gives.
pub static SENTENCE_TRANSFORMERS: KeyTable = KeyTable(&[
    ("*", "__version__, prompts, similarity_fn_name"),
    ("SentenceTransformer", "model_type"),
    ("", "default_prompt_name, truncate_dim"),
]);

/// The elements of `modules.json` of sentence-transformers.
pub static MODULES: KeyTable = KeyTable(&[("*", "idx, name"), ("", "kwargs")]);

/// Configurations of the modules of sentence-transformers: pooling and normalization.
pub static MODULE: KeyTable = KeyTable(&[
    (
        "*",
        "word_embedding_dimension, embedding_dimension, include_prompt",
    ),
    (
        "sentence_embedding",
        "module_input_name, module_output_name",
    ),
]);

/// `adapter_config.json` of peft, for LoRA: how the adapters were made is in their values, unless
/// it changed the base as well.
pub static ADAPTER: KeyTable = KeyTable(&[
    (
        "*",
        "task_type, base_model_name_or_path, revision, inference_mode, peft_version, auto_mapping, \
         lora_dropout, fan_in_fan_out, megatron_core, qalora_group_size, runtime_config, eva_config, corda_config, \
         lora_ga_config, loftq_config, velora_config, lora_dtype, lorap_lr_ratio, lorap_emb_lr",
    ),
    // The base is as it was: `pissa`, `olora`, `corda` and `loftq` change it.
    (
        "true, false, gaussian, Gaussian, eva, orthogonal, mica, lora_ga",
        "init_lora_weights",
    ),
    ("none", "bias"),
    (
        "false",
        "use_dora, use_qalora, lora_bias, ensure_weight_tying, use_bdlora, merge_weights",
    ),
    (
        "",
        "modules_to_save, layer_replication, alora_invocation_tokens, megatron_config, \
         trainable_token_indices, target_parameters, enable_lora",
    ),
    // Empty ones count for peft.
    ("null", "kasa_config, arrow_config, monteclora_config"),
]);

/// `config.json` of timm, beside weights of image classifiers.
pub static TIMM: KeyTable = KeyTable(&[
    (
        "*",
        "architecture, num_classes, num_features, global_pool, label_names, label_descriptions, \
         pretrained_cfg.tag, pretrained_cfg.url, pretrained_cfg.file, pretrained_cfg.hf_hub_*, \
         pretrained_cfg.source, pretrained_cfg.custom_load, pretrained_cfg.fixed_input_size, \
         pretrained_cfg.min_input_size, pretrained_cfg.test_*, pretrained_cfg.num_classes, \
         pretrained_cfg.label_offset, pretrained_cfg.pool_size, pretrained_cfg.first_conv, \
         pretrained_cfg.classifier, pretrained_cfg.architecture, pretrained_cfg.license, \
         pretrained_cfg.origin_url, pretrained_cfg.paper_*, pretrained_cfg.notes",
    ),
    ("center", "pretrained_cfg.crop_mode"),
    ("", "model_args"),
]);

/// Metadata of GGUF files, for the architectures that are read, without those of the tokenizer.
pub static GGUF: KeyTable = KeyTable(&[
    ("model", "general.type"),
    ("2", "general.quantization_version"),
    // Those of the tokenizer are checked where it is opened.
    ("*", "general.*, split.no, split.tensors.count, tokenizer.*"),
    ("0, 1", "split.count"),
    // What llama.cpp does not read for these architectures, or only shows.
    (
        "*",
        "*.vocab_size, *.tensor_data_layout, *.attention.layer_norm_epsilon, \
         *.rope.scaling.finetuned, *.rope.scaling.original_context_length",
    ),
    ("true", "*.attention.causal"),
    ("false", "*.use_parallel_residual"),
    (
        "0",
        "*.expert_count, *.expert_used_count, *.expert_group_count, *.expert_group_used_count, \
         *.pooling_type, *.attention.max_alibi_bias, *.attention.clamp_kqv, *.attention.scale, \
         *.rope.scaling.alpha, *.rope.scaling.yarn_log_multiplier, *.leading_dense_block_count, \
         *.nextn_predict_layers, *.rope.dimension_sections",
    ),
    ("0, 1", "*.logit_scale, *.residual_scale, *.embedding_scale"),
    ("1", "*.rope.scaling.attn_factor"),
]);

/// Metadata of the tokenizer of a GGUF file, for vocabularies of byte pairs.
pub static GGUF_TOKENIZER: KeyTable = KeyTable(&[
    (
        "*",
        "tokenizer.chat_template*, tokenizer.huggingface.json, tokenizer.ggml.scores, \
         tokenizer.ggml.token_type_count, tokenizer.ggml.added_tokens, tokenizer.ggml.*_token_id, \
         tokenizer.ggml.add_space_prefix, tokenizer.ggml.remove_extra_whitespaces",
    ),
    (
        "false",
        "tokenizer.ggml.add_eos_token, tokenizer.ggml.add_sep_token",
    ),
]);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_harmless_by_their_value() {
        for (table, name, value) in [
            (&CONFIG, "architectures", json!(["LlamaForCausalLM"])),
            (&CONFIG, "summary_type", json!("cls_index")),
            (&CONFIG, "pruned_heads", json!({})),
            (&CONFIG, "anything", json!(null)),
            (&CONFIG, "num_beams", json!(1)),
            (
                &CONFIG,
                "layer_types",
                json!(["full_attention", "full_attention"]),
            ),
            (&ADAPTER, "init_lora_weights", json!(true)),
            (&GGUF, "general.base_model.0.name", json!("SmolLM2")),
            (&GGUF, "llama.rope.scaling.attn_factor", json!(1.0)),
            (
                &GGUF_TOKENIZER,
                "tokenizer.chat_template.tool_use",
                json!("x"),
            ),
        ] {
            assert_eq!(table.problem(name, &value), None, "{name}");
        }
        for (table, name, value, problem) in [
            (
                &CONFIG,
                "scale",
                json!(2),
                "`scale` is 2, which halite does not know",
            ),
            (
                &CONFIG,
                "is_decoder",
                json!(true),
                "`is_decoder` is true; supported: false",
            ),
            (
                &CONFIG,
                "pruned_heads",
                json!({"0": [1]}),
                "`pruned_heads` is {\"0\":[1]}; supported: null",
            ),
            (
                &CONFIG,
                "layer_types",
                json!(["full_attention", "conv"]),
                "`layer_types` is [\"full_attention\",\"conv\"]; supported: full_attention, \
                 sliding_attention",
            ),
            (
                &GENERATION_CONFIG,
                "num_beams",
                json!(4),
                "`num_beams` is 4; supported: 1",
            ),
            (
                &GGUF,
                "general.type",
                json!("adapter"),
                "`general.type` is \"adapter\"; supported: model",
            ),
        ] {
            assert_eq!(table.problem(name, &value).as_deref(), Some(problem));
        }
    }
}
