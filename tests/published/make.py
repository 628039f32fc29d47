"""Small random models in the forms of Hugging Face, peft, sentence-transformers and llama.cpp, with what these packages
compute: the cases of the command `published` of `halite-tests`.

usage: published.py OUT [--cases N] [--seed SEED] [FAMILY ...]

Writes OUT/FAMILY/NUMBER: `model`, a directory or a file `model.gguf`; `adapters`, if there are any; `expected.safetensors`,
with the inputs and the results in f64; and `case.json`, with what was drawn and the texts of a sentence encoder. Settings
are drawn among those that change results and those that do not, supported or not. Where the packages refuse what was drawn,
another case is drawn in its place.

python -m pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 sentence-transformers==6.2.0 gguf==0.19.0
"""
import argparse, json, logging, os, pathlib, random, shutil, sys, warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "critical"}
warnings.filterwarnings("ignore")

import numpy as np
import torch
from safetensors.torch import load_file, save_file

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)

ABSENT = object()
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "on", "a", "mat", "query", ":", "Cat", "The",
         "ran", ".", "##s", "very", "old", "é", "e", "caf", "##e"]
TEXTS = ["the cat sat on a mat", "very old dog", "Cat", "The dogs ran.", "", "a a a a a a a a a a a a", "café the old mats :"]


def draw(rng, rare, settings, fields):
    """Sets fields: with the chance `rare`, each to one of its values; a field of several keys has dictionaries."""
    drawn = {}
    for name, values in settings.items():
        if rng.random() >= rare:
            continue
        value = rng.choice(values)
        changes = value if isinstance(name, tuple) else {name: value}
        for key, one in changes.items():
            drawn[key] = "absent" if one is ABSENT else one
            if one is ABSENT:
                fields.pop(key, None)
            else:
                fields[key] = one
    return drawn


def randomize(model, rng, scale=0.3):
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = parameter.dim() == 1 and name.endswith(("weight", "gamma")) or "magnitude" in name
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1.0 * is_scale + scale * (3 if "embed" in name or "wte" in name else 1) * noise)


def save_state(model, path, rename=lambda name: name):
    """The parameters, each once; a tied head is the embedding."""
    seen, tensors = {}, {}
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen:
            seen[value.data_ptr()] = name
            tensors[rename(name)] = value.detach().contiguous().clone()
    save_file(tensors, path, metadata={"format": "pt"})


# Decoders.

ROPE = [
    {"rope_theta": 100.0}, {"rope_theta": 1000000}, {"rope_theta": ABSENT},
    {"rope_scaling": None}, {"partial_rotary_factor": 0.5}, {"partial_rotary_factor": 1.0},
    *[{"rope_scaling": {key: kind, **rest}} for key in ("type", "rope_type") for kind, rest in [
        ("default", {}), ("default", {"factor": 4.0}), ("linear", {"factor": 2.0}), ("linear", {"factor": 8}),
        ("linear", {"factor": 2.0, "original_max_position_embeddings": 16}), ("dynamic", {"factor": 2.0}),
        ("dynamic", {"factor": 2.0, "original_max_position_embeddings": 8}),
        ("yarn", {"factor": 4.0, "original_max_position_embeddings": 16}), ("yarn", {"factor": 4.0, "attention_factor": 0.5}),
        ("longrope", {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 2.0}),
        ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
        ("llama3", {"factor": 2.0, "low_freq_factor": 2.0, "high_freq_factor": 3.0, "original_max_position_embeddings": 64}),
        ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    ]],
    *[{"rope_theta": outer, "rope_parameters": inner} for outer in (ABSENT, 50.0) for inner in [
        {"rope_type": "default", "rope_theta": 200.0}, {"rope_theta": 300.0}, {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}, {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
        {"rope_type": "linear", "factor": 3.0}, {"factor": 3.0}, {"rope_type": "proportional", "rope_theta": 100.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 16, "rope_theta": 100.0},
        {"full_attention": {"rope_type": "default", "rope_theta": 100.0}},
    ]],
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default", "rope_theta": 70.0}},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 70.0}},
    {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}},
    {"rope_scaling": {"factor": 2.0}},
    {"rotary_pct": 0.5}, {"rotary_emb_base": 100}, {"rope_interleaved": True}, {"original_max_position_embeddings": 16},
]

LLAMA = {
    "num_key_value_heads": [ABSENT, None, 1, 2, 4],
    "hidden_act": ["gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "swish", ABSENT, "silu"],
    "max_position_embeddings": [16, 64, 200, ABSENT],
    "rms_norm_eps": [0.3, 1e-2, 1e-5, 1, ABSENT, "1e-2"],
    "tie_word_embeddings": [True, False, ABSENT, None],
    ("rope",): ROPE,
    "attention_bias": [True, False, ABSENT],
    "mlp_bias": [True, False, ABSENT],
    ("biases",): [{"attention_bias": True, "mlp_bias": True}],
    "head_dim": [ABSENT, None, 4, 6, 8],
    "sliding_window": [None, 8, 40, 0],
    "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 2, 28],
    "layer_types": [["full_attention"] * 2, ["sliding_attention", "full_attention"], ["sliding_attention"] * 2, ["full_attention"]],
    "attention_dropout": [0.5], "initializer_range": [0.5], "pretraining_tp": [1, 2], "use_cache": [False],
    "attention_multiplier": [0.25], "final_logit_softcapping": [5.0], "attn_logit_softcapping": [2.0], "logit_scale": [0.5],
    "embedding_multiplier": [2.0], "residual_multiplier": [0.5], "query_pre_attn_scalar": [4], "scale_attn_weights": [False],
    "use_qk_norm": [True, False], "is_decoder": [True], "is_causal": [True, False], "hidden_activation": ["gelu"],
    "num_local_experts": [2], "torch_dtype": ["bfloat16", "float32"], "quantization_config": [{}, None],
    "chunk_size_feed_forward": [4], "pruned_heads": [{}, {"0": [1]}], "bos_token_id": [1], "eos_token_id": [2, [2, 3], None],
    "pad_token_id": [0, None, 3], "no_rope_layers": [[1, 0]], "add_cross_attention": [True], "is_encoder_decoder": [True, False],
    "attn_implementation": ["eager"], "unknown_key": [1, None, {}],
}

GPT2 = {
    "n_inner": [None, 24, 40, ABSENT],
    "activation_function": ["gelu", "relu", "silu", "tanh", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", ABSENT],
    "layer_norm_epsilon": [0.3, 1e-2, 1e-5, ABSENT],
    "scale_attn_weights": [True, False, None],
    "scale_attn_by_inverse_layer_idx": [True, False],
    "reorder_and_upcast_attn": [True, False],
    "tie_word_embeddings": [True, False, None, ABSENT],
    "add_cross_attention": [True, False], "n_ctx": [8, 64], "is_causal": [True, False], "is_decoder": [True],
    "resid_pdrop": [0.5], "embd_pdrop": [0.5], "attn_pdrop": [0.5], "initializer_range": [0.5], "summary_type": ["mean"],
    "hidden_size": [16, 32], "max_position_embeddings": [64, 16], "num_attention_heads": [4, 2], "num_hidden_layers": [2, 1],
    "hidden_act": ["relu"], "layer_norm_eps": [0.5], "intermediate_size": [24],
    "rope_theta": [100.0], "use_cache": [False], "pad_token_id": [0, 3], "pruned_heads": [{"0": [1]}], "n_embd": [32, 8],
    "unknown_key": [1], "attn_logit_softcapping": [2.0], "position_embedding_type": ["absolute", "relative_key"],
    "sliding_window": [8], "residual_in_fp32": [True], "chunk_size_feed_forward": [4],
}


def decoder_fields(rng, family):
    if family == "gpt2":
        fields = dict(model_type="gpt2", vocab_size=20, n_embd=16, n_layer=2, n_head=4, n_positions=64)
        return fields, draw(rng, 0.05, GPT2, fields)
    heads = rng.choice([2, 4])
    fields = dict(
        model_type=family, vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=rng.choice([1, 2, heads]), max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=False)
    if family != "qwen2":
        fields["head_dim"] = 8
    if family != "llama":
        fields["sliding_window"] = None
    return fields, draw(rng, 0.04, LLAMA, fields)


def save_decoder(rng, directory, fields, rename=None):
    """Writes a model of random weights; returns the reference's own reading of it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(fields, indent=1))
    config = AutoConfig.from_pretrained(directory)
    config.torch_dtype = config.dtype = torch.float32
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    randomize(model, rng)
    save_state(model, directory / "model.safetensors", rename or (lambda name: name))
    return model


def load_decoder(directory):
    """The model of a directory, all of whose weights are in its file."""
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    check_loaded(info)
    return model


def check_loaded(info):
    lost = [name for name in info["missing_keys"]] + [name for name in info["mismatched_keys"]]
    lost += [name for name in info["unexpected_keys"] if not name.endswith(("inv_freq", "attn.bias", "position_ids"))]
    if lost:
        raise ValueError(f"weights are missing, of other dimensions or not used: {sorted(map(str, lost))[:4]}")


def run_decoder(model, tokens):
    model = model.double().eval()
    with torch.no_grad():
        return model(torch.tensor(tokens), use_cache=False).logits


def decoder(rng, case, family):
    fields, drawn = decoder_fields(rng, family)
    prefix = rng.random() < 0.3 and family == "gpt2"
    rename = (lambda name: name.removeprefix("transformer.")) if prefix else None
    save_decoder(rng, case / "model", fields, rename)
    model = load_decoder(case / "model")
    longest = min(int(fields.get("max_position_embeddings", 64)), int(fields.get("n_positions", 64)), 48)
    # Within the window, attention is that to all tokens.
    window = fields.get("sliding_window", 4096)
    longest = min(longest, window if isinstance(window, int) and window > 0 else longest)
    tokens = drawn_tokens(rng, longest, model.config.vocab_size)
    return drawn, {"kind": "decoder"}, {"tokens": tokens}, run_decoder(model, tokens)


def drawn_tokens(rng, longest, vocab=20):
    length = rng.choice([longest, rng.randint(1, longest)])
    return [[rng.randrange(vocab) for _ in range(length)] for _ in range(2)]


# Encoders.

BERT = {
    "hidden_act": ["gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "silu", "tanh", "gelu_fast", "quick_gelu", ABSENT, "swish",
                   "gelu_python", "relu2", "leaky_relu"],
    "layer_norm_eps": [0.3, 1e-2, 1e-12, 0, ABSENT],
    "type_vocab_size": [1, 2, 3, ABSENT],
    "position_embedding_type": ["absolute", "relative_key", "relative_key_query", None],
    "is_decoder": [True, False], "is_causal": [True, False], "add_cross_attention": [True, False],
    "pad_token_id": [0, 1, None], "chunk_size_feed_forward": [0, 4], "embedding_size": [16, 8], "tie_word_embeddings": [False],
    "hidden_dropout_prob": [0.5, 0], "attention_probs_dropout_prob": [0.5], "classifier_dropout": [0.5],
    "initializer_range": [0.5], "use_cache": [False], "head_dim": [8], "num_key_value_heads": [1], "pruned_heads": [{"0": [1]}],
    "max_position_embeddings": [12, 64], "unknown_key": [1], "pooler_type": ["first_token_transform", "mean"],
    "layer_norm_epsilon": [0.5], "hidden_activation": ["relu"], "scale_attn_weights": [False], "rope_theta": [100.0],
    "emb_pooler": ["cls"], "sliding_window": [4], "attention_bias": [False], "intermediate_size": [20, 40],
    "num_attention_heads": [1, 2, 4], "norm_type": ["rms"], "residual_multiplier": [0.5],
}


def bert_fields(rng, vocab):
    fields = dict(model_type="bert", vocab_size=vocab, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                  intermediate_size=24, hidden_act="gelu", max_position_embeddings=32, type_vocab_size=2, layer_norm_eps=1e-12)
    return fields, draw(rng, 0.045, BERT, fields)


def save_bert(rng, directory, fields, rename=lambda name: name):
    from transformers import AutoConfig, BertModel

    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(fields, indent=1))
    model = BertModel(AutoConfig.from_pretrained(directory), add_pooling_layer=rng.random() < 0.8)
    randomize(model, rng)
    save_state(model, directory / "model.safetensors", rename)


def load_bert(directory):
    from transformers import BertModel

    has_pooler = any("pooler" in name for name in load_file(directory / "model.safetensors"))
    model, info = BertModel.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32,
                                            output_loading_info=True, add_pooling_layer=has_pooler)
    check_loaded(info)
    return model


def run_bert(model, tokens, mask):
    with torch.no_grad():
        result = model.double().eval()(torch.tensor(tokens), attention_mask=torch.tensor(mask))
    return result.last_hidden_state * torch.tensor(mask).unsqueeze(2).double()


def bert_inputs(rng, model):
    length = rng.randint(2, min(model.config.max_position_embeddings, 24))
    tokens = [[rng.randrange(1, model.config.vocab_size) for _ in range(length)] for _ in range(2)]
    return {"tokens": tokens, "mask": [[1] * length, [1] * (length // 2) + [0] * (length - length // 2)]}


def bert(rng, case, family):
    fields, drawn = bert_fields(rng, 20)
    style = rng.choice(["plain", "plain", "bert.", "gamma"])
    rename = {"plain": lambda name: name, "bert.": lambda name: "bert." + name, "gamma": lambda name: (
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"))}[style]
    save_bert(rng, case / "model", fields, rename)
    model = load_bert(case / "model")
    inputs = bert_inputs(rng, model)
    return {**drawn, "names": style}, {"kind": "encoder"}, inputs, run_bert(model, inputs["tokens"], inputs["mask"])


FLAGS = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
POOLING = [
    *[{f"pooling_mode_{flag}": True} for flag in FLAGS], {}, {"pooling_mode_mean_tokens": False},
    {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
    *[{"pooling_mode": mode} for mode in ("cls", "mean", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")],
    {"pooling_mode": ["cls", "mean"]}, {"pooling_mode": ["max"]}, {"pooling_mode": "cls", "pooling_mode_mean_tokens": True},
    {"pooling_mode": None}, {"pooling_mode": "CLS"}, {"pooling_mode": "cls", "include_prompt": False},
    {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "include_prompt": False},
]
SENTENCE = {
    "max_seq_length": [4, 8, 30, 32, None, ABSENT], "do_lower_case": [True, False, None],
    "transformer_task": ["feature-extraction"], "tokenizer_args": [{}, {"model_max_length": 6}], "model_args": [{}],
    "processing_kwargs": [{}, {"text": {"max_length": 5}}, {"text": {"truncation": True}}], "query_length": [3],
    "document_length": [3], "unpad_inputs": [False, True], "config_args": [{"layer_norm_eps": 0.5}],
}
TOP = {
    "prompts": [{}, {"query": "query : "}, {"query": "query : ", "document": ""}, {"": "the "}],
    "default_prompt_name": [None, "query"], "similarity_fn_name": ["cosine", "dot"], "truncate_dim": [None, 4, 16],
    "model_type": ["SentenceTransformer"],
}


def tokenizer_json(rng):
    parts = {
        "lowercase": rng.random() < 0.6, "strip_accents": rng.choice([None, None, True, False]),
        "truncation": rng.choice([None, None, {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0},
                                  {"direction": "Left", "max_length": 6, "strategy": "LongestFirst", "stride": 0}]),
        "padding": rng.choice([None, {"strategy": {"Fixed": 10}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                                      "pad_type_id": 0, "pad_token": "[PAD]"}]),
    }
    special = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    file = dict(
        version="1.0", truncation=parts["truncation"], padding=parts["padding"],
        added_tokens=[dict(id=i, content=WORDS[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                      for i in range(5)],
        normalizer=dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=parts["strip_accents"],
                        lowercase=parts["lowercase"]),
        pre_tokenizer=dict(type="BertPreTokenizer"),
        post_processor=dict(
            type="TemplateProcessing", single=[special("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]")],
            pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            special_tokens={name: dict(id=name, ids=[WORDS.index(name)], tokens=[name]) for name in ("[CLS]", "[SEP]")}),
        decoder=dict(type="WordPiece", prefix="##", cleanup=True),
        model=dict(type="WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100,
                   vocab={word: place for place, word in enumerate(WORDS)}))
    return file, {f"tokenizer.json {key}": value for key, value in parts.items() if value not in (None, True)}


TOKENIZER_CONFIG = {
    "do_lower_case": [True, False], "strip_accents": [True, False, None], "tokenize_chinese_chars": [False, True],
    "model_max_length": [6, 32, 1000000000000000019884624838656], "max_length": [5], "truncation_side": ["left", "right"],
    "padding_side": ["left", "right"], "do_basic_tokenize": [True, False], "never_split": [None, ["cat"]],
    "truncation_strategy": ["longest_first"], "stride": [0, 2], "add_prefix_space": [True], "split_special_tokens": [True, False],
    "pad_to_multiple_of": [8], "tokenizer_class": ["BertTokenizerFast", "PreTrainedTokenizerFast", "RobertaTokenizer"],
    "model_input_names": [["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]],
    "unk_token": ["[MASK]"], "cls_token": ["[MASK]"], "additional_special_tokens": [["cat"]],
}


def sentence(rng, case, family):
    from sentence_transformers import SentenceTransformer

    model = case / "model"
    fields, drawn = bert_fields(rng, len(WORDS)) if rng.random() < 0.2 else (None, {})
    plain = dict(model_type="bert", vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=24, hidden_act="gelu", max_position_embeddings=32, type_vocab_size=2, layer_norm_eps=1e-12)
    save_bert(rng, model, fields or plain)
    file, parts = tokenizer_json(rng)
    (model / "tokenizer.json").write_text(json.dumps(file))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]",
                "sep_token": "[SEP]", "mask_token": "[MASK]"}
    drawn |= parts | {f"tokenizer_config {key}": value for key, value in draw(rng, 0.03, TOKENIZER_CONFIG, settings).items()}
    if rng.random() < 0.9:
        (model / "tokenizer_config.json").write_text(json.dumps(settings))
    pooling = {**rng.choice(POOLING), rng.choice(["word_embedding_dimension", "embedding_dimension"]): 16}
    drawn["pooling"] = pooling
    kinds = rng.choice([["Transformer", "Pooling", "Normalize"]] * 4 + [["Transformer", "Pooling"]] * 3 + [
        ["Transformer", "Pooling", "Dense"], ["Transformer", "Pooling", "Dense", "Normalize"], ["Transformer", "Normalize"],
        ["Transformer", "Pooling", "LayerNorm"], ["Transformer", "Pooling", "Dropout"], ["Transformer"],
        ["Transformer", "Pooling", "Normalize", "Normalize"]])
    drawn["modules"] = kinds
    style = rng.choice(["old", "new"])
    places = {"Transformer": ("models", "base.modules.transformer"), "Pooling": ("models", "sentence_transformer.modules.pooling"),
              "Normalize": ("models", "sentence_transformer.modules.normalize")}
    modules = []
    for index, kind in enumerate(kinds):
        path = "" if kind == "Transformer" else f"{index}_{kind}"
        where = places.get(kind, ("models", "models"))[style == "new"]
        modules.append(dict(idx=index, name=str(index), path=path, type=f"sentence_transformers.{where}.{kind}"))
        if path:
            (model / path).mkdir()
        if kind == "Pooling":
            (model / path / "config.json").write_text(json.dumps(pooling))
        if kind == "Dense":
            config = dict(in_features=16, out_features=6, bias=True, activation_function="torch.nn.modules.activation.Tanh")
            (model / path / "config.json").write_text(json.dumps(config))
            weights = {"linear.weight": torch.randn(6, 16), "linear.bias": torch.randn(6)}
            save_file(weights, model / path / "model.safetensors")
        if kind == "LayerNorm":
            (model / path / "config.json").write_text(json.dumps({"dimension": 16}))
            save_file({"norm.weight": torch.rand(16), "norm.bias": torch.rand(16)}, model / path / "model.safetensors")
        if kind == "Dropout":
            (model / path / "config.json").write_text(json.dumps({"dropout": 0.5}))
    (model / "modules.json").write_text(json.dumps(modules))
    bert_settings = {"max_seq_length": 30, "do_lower_case": False}
    drawn |= {f"sentence_bert {key}": value for key, value in draw(rng, 0.05, SENTENCE, bert_settings).items()}
    if rng.random() < 0.9:
        (model / "sentence_bert_config.json").write_text(json.dumps(bert_settings))
    else:
        drawn["sentence_bert"] = "absent"
    top = {"__version__": {"sentence_transformers": "5.0.0"}}
    drawn |= {f"top {key}": value for key, value in draw(rng, 0.08, TOP, top).items()}
    if rng.random() < 0.8:
        (model / "config_sentence_transformers.json").write_text(json.dumps(top))
    return drawn, {"kind": "sentence", "texts": TEXTS}, {}, run_sentence(model)


def run_sentence(model):
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    return torch.stack([encoder.encode(text, convert_to_tensor=True) for text in TEXTS]).double()


# Adapters.

def adapters(rng, case, family):
    from peft import AdaLoraConfig, IA3Config, LoHaConfig, LoKrConfig, LoraConfig, OFTConfig, PeftModel, VeraConfig, get_peft_model

    base = family.removeprefix("adapters-")
    model_dir = case / "model"
    if base == "bert":
        save_bert(rng, model_dir, dict(model_type="bert", vocab_size=20, hidden_size=16, num_hidden_layers=2, intermediate_size=24,
                                       num_attention_heads=4, max_position_embeddings=32))
        load, targets, layers = load_bert, ["query", "key", "value", "attention.output.dense", "intermediate.dense",
                                            "output.dense"], "encoder.layer"
        head, embedding, extra = "pooler.dense", "word_embeddings", "LayerNorm"
    elif base == "gpt2":
        save_decoder(rng, model_dir, dict(model_type="gpt2", vocab_size=20, n_embd=16, n_layer=2, n_head=4, n_positions=64))
        load, targets, layers = load_decoder, ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj", "c_proj"], "transformer.h"
        head, embedding, extra = "lm_head", "wte", "ln_f"
    else:
        tied = rng.random() < 0.3
        save_decoder(rng, model_dir, dict(
            model_type=base, vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied))
        load, layers = load_decoder, "model.layers"
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        head, embedding, extra = "lm_head", "embed_tokens", "norm"
    chosen = rng.sample(targets, rng.randint(1, len(targets)))
    rank = rng.randint(1, 5)
    fields = dict(r=rank, lora_alpha=rng.choice([1, 4, 16, 2.5]), target_modules=chosen)
    first = chosen[0].split(".")[-1]
    full = f"{layers}.0."
    drawn = draw(rng, 0.06, {
        "use_rslora": [True, False], "use_dora": [True, False], "bias": ["none", "all", "lora_only"], "lora_bias": [True],
        "modules_to_save": [[head], [embedding], [extra], []], "fan_in_fan_out": [True, False], "lora_dropout": [0.5],
        "init_lora_weights": [True, False, "gaussian", "pissa", "pissa_niter_2", "olora", "orthogonal"],
        "rank_pattern": [{first: 2}, {f"^{full}.*": 3}, {f".*{first}": 2}, {chosen[0]: 1, chosen[-1]: 4}, {f"0.+{first}": 2},
                         {f"{first[1:]}": 3}, {f"{first}$": 3}],
        "alpha_pattern": [{first: 8}, {f".*\\.{first}": 32}, {chosen[-1]: 3}, {f"^{first}": 7}],
        ("layers",): [{"layers_to_transform": 0}, {"layers_to_transform": [1]}, {"layers_to_transform": [0, 1]},
                      {"layers_to_transform": [1], "layers_pattern": layers.split(".")[-1]}],
        "exclude_modules": [[first], f".*\\.0\\..*", []], "layer_replication": [[[0, 2], [1, 2]]],
        ("targets",): [{"target_modules": "all-linear"}, {"target_modules": f".*\\.1\\..*{first}"},
                       {"target_modules": chosen + [embedding]}, {"target_modules": chosen + [head]}],
        "trainable_token_indices": [[1, 2]], "ensure_weight_tying": [True, False], "use_qalora": [False],
        "target_parameters": [[]], "revision": ["main"], "inference_mode": [True, False],
    }, fields)
    kind = LoraConfig
    if rng.random() < 0.08:
        kind = rng.choice([IA3Config, LoHaConfig, LoKrConfig, AdaLoraConfig, VeraConfig, OFTConfig])
        drawn = {"kind": kind.__name__}
        fields = dict(target_modules=chosen) | ({"feedforward_modules": []} if kind is IA3Config else {})
        fields |= {"total_step": 10} if kind is AdaLoraConfig else {}
    fields.setdefault("fan_in_fan_out", base == "gpt2") if kind is LoraConfig else None
    model = get_peft_model(load(model_dir), kind(**fields))
    trained = {name: one for name, one in model.named_parameters()
               if any(part in name for part in ("lora_", "modules_to_save", "trainable_tokens", "hada", "lokr", "ia3", "oft", "vera_"))
               or (one.requires_grad and name.endswith("bias"))}
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    with torch.no_grad():
        for name, parameter in trained.items():
            noise = torch.randn(parameter.shape, generator=generator) * 0.3
            parameter.copy_(parameter + noise if "modules_to_save" in name or "magnitude" in name or "tokens" in name else noise)
    model.save_pretrained(case / "adapters")
    for name in ("README.md",):
        (case / "adapters" / name).unlink(missing_ok=True)
    drawn |= edited_adapters(rng, case / "adapters")
    loaded = PeftModel.from_pretrained(load(model_dir), case / "adapters")
    if base == "bert":
        inputs = bert_inputs(rng, loaded.base_model.model)
        values = run_bert(loaded, inputs["tokens"], inputs["mask"])
        return drawn | {"targets": fields.get("target_modules")}, {"kind": "encoder"}, inputs, values
    inputs = {"tokens": drawn_tokens(rng, 32)}
    return drawn | {"targets": fields.get("target_modules")}, {"kind": "decoder"}, inputs, run_decoder(loaded, inputs["tokens"])


def edited_adapters(rng, directory):
    """Changes what peft wrote, as other programs write it."""
    path = directory / "adapter_config.json"
    fields, drawn = json.loads(path.read_text()), {}
    if rng.random() < 0.15 and fields["peft_type"] == "LORA":
        edit = rng.choice([{"lora_alpha": None}, {"r": fields.get("r", 1) + 1}, {"use_rslora": None}, {"lora_alpha": "16"}, {"lora_alpha": 0},
                           {"fan_in_fan_out": not fields.get("fan_in_fan_out")}, {"bias": None}, {"unknown": 2}, {"use_dora": None},
                           {"alpha_pattern": None}, {"target_modules": None}, {"lora_alpha": -3}])
        fields |= edit
        drawn = {f"edited {key}": value for key, value in edit.items()}
        path.write_text(json.dumps(fields))
    return drawn


# GGUF.

def gguf(rng, case, family):
    """A file of llama.cpp. The reference is transformers' model of the same weights as they are in the file."""
    from gguf import GGMLQuantizationType as Kind, GGUFWriter
    from gguf.quants import dequantize, quantize

    architecture = family.removeprefix("gguf-")
    fields = dict(
        model_type=architecture, vocab_size=24, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=rng.choice([1, 2, 4]), max_position_embeddings=64, rms_norm_eps=rng.choice([1e-5, 1e-2, 0.3]),
        rope_theta=rng.choice([10000.0, 100.0, 1e6]), tie_word_embeddings=rng.random() < 0.4)
    head = 16
    drawn, refused = {}, []
    if architecture == "llama" and rng.random() < 0.3:
        head = fields["head_dim"] = rng.choice([8, 32])
    scaling = rng.choice([None, None, None, "linear", "scale_linear", "none", "yarn", "factor"])
    factor = rng.choice([2.0, 4.0])
    if scaling in ("linear", "scale_linear", "factor"):
        fields["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    (case / "reference").mkdir(parents=True)
    model = save_decoder(rng, case / "reference" / "hf", fields)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = dict(input_layernorm="attn_norm", post_attention_layernorm="ffn_norm", q_proj="attn_q", k_proj="attn_k", v_proj="attn_v",
                 o_proj="attn_output", gate_proj="ffn_gate", up_proj="ffn_up", down_proj="ffn_down")
    (case / "model").mkdir()
    writer = GGUFWriter(case / "model" / "model.gguf", architecture)
    key = lambda name: f"{architecture}.{name}"
    numbers = {"context_length": 64, "embedding_length": 64, "block_count": 2, "feed_forward_length": 96, "attention.head_count": 4,
               "attention.head_count_kv": fields["num_key_value_heads"]}
    if rng.random() < 0.2 and fields["num_key_value_heads"] == 4:
        numbers.pop("attention.head_count_kv")
        drawn["head_count_kv"] = "absent"
    if head != 16 or rng.random() < 0.5:
        numbers |= {"attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head}
    wrong = rng.random()
    if wrong < 0.05:
        numbers["rope.dimension_count"] = head // 2
        refused.append(key("rope.dimension_count"))
    elif wrong < 0.1:
        numbers["attention.value_length"] = head * 2
        refused.append(key("attention.value_length"))
    for name, value in numbers.items():
        writer.add_uint32(key(name), value)
    writer.add_float32(key("attention.layer_norm_rms_epsilon"), fields["rms_norm_eps"])
    if fields["rope_theta"] != 10000.0 or rng.random() < 0.5:
        writer.add_float32(key("rope.freq_base"), fields["rope_theta"])
    if scaling == "scale_linear":
        writer.add_float32(key("rope.scale_linear"), factor)
    elif scaling is not None:
        if scaling != "factor":
            writer.add_string(key("rope.scaling.type"), scaling)
        writer.add_float32(key("rope.scaling.factor"), factor)
    if scaling == "yarn":
        refused.append("yarn")
    drawn["scaling"] = scaling
    neutral = [("attention.causal", "bool", True), ("expert_count", "uint32", 0), ("logit_scale", "float32", 0.0),
               ("attention.sliding_window", "uint32", 64), ("pooling_type", "uint32", 0), ("rope.scaling.attn_factor", "float32", 1.0),
               ("attention.clamp_kqv", "float32", 0.0), ("vocab_size", "uint32", 24), ("use_parallel_residual", "bool", False)]
    changing = [("attention.causal", "bool", False), ("expert_count", "uint32", 2), ("logit_scale", "float32", 0.5),
                ("pooling_type", "uint32", 1), ("rope.scaling.attn_factor", "float32", 0.5), ("attention.scale", "float32", 0.5),
                ("attention.clamp_kqv", "float32", 1.0), ("use_parallel_residual", "bool", True), ("embedding_scale", "float32", 2.0),
                ("residual_scale", "float32", 0.5), ("final_logit_softcapping", "float32", 5.0), ("unknown", "uint32", 1),
                ("attn_logit_softcapping", "float32", 5.0), ("rope.dimension_sections", "uint32", 2)]
    for name, kind, value in neutral:
        if rng.random() < 0.1:
            getattr(writer, f"add_{kind}")(key(name), value)
            drawn[name] = value
    if rng.random() < 0.25:
        name, kind, value = rng.choice(changing)
        if name not in drawn:
            getattr(writer, f"add_{kind}")(key(name), value)
            drawn[name] = value
            refused.append(key(name))
    choices = rng.choice([[Kind.F32], [Kind.F16], [Kind.BF16], [Kind.Q8_0], [Kind.Q4_0, Kind.Q8_0], [Kind.Q4_1, Kind.Q5_0, Kind.Q5_1],
                          [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0]])
    drawn["types"] = [kind.name for kind in choices]
    state = {name: tensor for name, tensor in model.state_dict().items()}
    for name, tensor in list(state.items()):
        stem, end = name.rsplit(".", 1)
        if stem == "lm_head" and fields["tie_word_embeddings"]:
            continue
        kind = rng.choice(choices) if tensor.dim() == 2 else Kind.F32
        new = names.get(stem) or "blk.{}.{}".format(stem.split(".")[2], parts[stem.split(".")[-1]])
        values = tensor
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            heads = 4 if stem.endswith("q_proj") else fields["num_key_value_heads"]
            values = tensor.view(heads, 2, head // 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
        raw = quantize(values.detach().contiguous().numpy(), kind)
        writer.add_tensor(f"{new}.{end}", raw, raw_dtype=kind)
        back = torch.tensor(dequantize(raw, kind).reshape(tuple(tensor.shape)).astype(np.float32))
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            back = back.view(heads, head // 2, 2, *back.shape[1:]).transpose(1, 2).reshape(back.shape)
        with torch.no_grad():
            tensor.copy_(back)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shutil.rmtree(case / "reference")
    tokens = drawn_tokens(rng, 48)
    return drawn, {"kind": "decoder", "must_refuse": refused}, {"tokens": tokens}, run_decoder(model, tokens)


FAMILIES = {
    "llama": decoder, "mistral": decoder, "qwen2": decoder, "gpt2": decoder, "bert": bert, "sentence": sentence,
    "adapters-llama": adapters, "adapters-gpt2": adapters, "adapters-bert": adapters, "gguf-llama": gguf, "gguf-qwen2": gguf,
}


def write(case, family, rng):
    drawn, about, inputs, values = FAMILIES[family](rng, case, family)
    if not torch.isfinite(values).all():
        raise ValueError("the results are not finite")
    tensors = {name: torch.tensor(value, dtype=torch.int32) for name, value in inputs.items()}
    save_file({**tensors, "values": values.detach().contiguous().clone()}, case / "expected.safetensors")
    (case / "case.json").write_text(json.dumps({"drawn": drawn, **about}, indent=1))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments.add_argument("--cases", type=int, default=10)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    reasons = {}
    for family in options.families:
        number = attempt = 0
        while number < options.cases:
            case = options.out / family / f"{number:04}"
            attempt += 1
            try:
                write(case, family, random.Random(f"{options.seed} {family} {attempt}"))
                number += 1
            except Exception as error:
                shutil.rmtree(case, ignore_errors=True)
                reason = f"{family}: {type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
                reasons[reason] = reasons.get(reason, 0) + 1
                if attempt > 50 + 4 * options.cases:
                    sys.exit(f"{family}: {reasons}")
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:40]:
        print(f"refused {count} times by the reference: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
