"""Token ids of MiniLM and SmolLM2 for the tests of tokenizers, by Hugging Face's Python packages.

usage: tokens.py MINILM_DIRECTORY SMOLLM2_GGUF > tokens.json
MiniLM by `transformers`; SmolLM2 by `tokenizers` with the vocabulary of the GGUF file and the splitting of
its published tokenizer.json (digits, then byte level).
"""
import json
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

TEXTS = [
    "Hello world",
    "The quick brown fox jumps over the lazy dog.",
    "  two  spaces\n\n\tand tabs ",
    "I'll say it's 3rd: they've $1,234.50 (don't!)",
    "na\u00efve caf\u00e9 \u2014 \u65e5\u672c\u8a9e \U0001f600",
    "antidisestablishmentarianism aaaaaaaaaaaa",
    "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n[MASK] it",
    "",
]


def minilm(directory):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    return [tokenizer(text)["input_ids"] for text in TEXTS]


def smollm2(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return [tokenizer.encode(text).ids for text in TEXTS]


json.dump({"texts": TEXTS, "minilm": minilm(sys.argv[1]), "smollm2": smollm2(sys.argv[2])}, sys.stdout)
print()
