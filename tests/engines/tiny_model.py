#!/usr/bin/env python3
"""Writes a tiny Qwen3 model with random weights and its tokenizer as one GGUF file.

    tiny_model.py FILE

The same file every time. Its words mean nothing; its tokens, caches and slots are real.
Needs gguf, numpy and tokenizers.
"""
import json
import sys

import gguf
import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

CONTEXT, WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_WIDTH, INNER, WORDS = 32768, 64, 2, 4, 2, 16, 128, 512
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# How Qwen cuts text before it merges bytes; llama.cpp has the same under the name qwen2.
CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    """A byte-level BPE trained on made-up words."""
    random = np.random.default_rng(1)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    text = [" ".join("".join(random.choice(syllables, 3)) for _ in range(40)) for _ in range(200)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CUT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False))
    assert made.get_vocab_size() == WORDS
    return made


def add_head(writer, made):
    """What the model is, and its words."""
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_WIDTH)
    writer.add_value_length(HEAD_WIDTH)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    words = {number: word for word, number in made.get_vocab().items()}
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([words[number] for number in range(WORDS)])
    writer.add_token_types(
        [kinds.CONTROL if words[n] in SPECIAL else kinds.NORMAL for n in range(WORDS)])
    merges = json.loads(made.to_str())["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(SPECIAL.index("<|im_end|>"))
    writer.add_pad_token_id(SPECIAL.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def add_weights(writer):
    """Random matrices, scaled so that activations stay in range."""
    random = np.random.default_rng(7)

    def matrix(name, rows, columns, scale=None, silent_rows=0):
        values = random.standard_normal((rows, columns), dtype=np.float32)
        values[:silent_rows] = 0
        writer.add_tensor(f"{name}.weight", values * np.float32(scale or columns ** -0.5))

    def ones(name, width):
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))

    matrix("token_embd", WORDS, WIDTH, scale=1.0)
    # Marks and single bytes are never the likeliest: a single byte may be invalid text.
    matrix("output", WORDS, WIDTH, silent_rows=len(SPECIAL) + 256)
    ones("output_norm", WIDTH)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        ones(at + "attn_norm", WIDTH)
        ones(at + "ffn_norm", WIDTH)
        ones(at + "attn_q_norm", HEAD_WIDTH)
        ones(at + "attn_k_norm", HEAD_WIDTH)
        matrix(at + "attn_q", HEADS * HEAD_WIDTH, WIDTH)
        matrix(at + "attn_k", KV_HEADS * HEAD_WIDTH, WIDTH)
        matrix(at + "attn_v", KV_HEADS * HEAD_WIDTH, WIDTH)
        matrix(at + "attn_output", WIDTH, HEADS * HEAD_WIDTH)
        matrix(at + "ffn_gate", INNER, WIDTH)
        matrix(at + "ffn_up", INNER, WIDTH)
        matrix(at + "ffn_down", WIDTH, INNER)


def main():
    writer = gguf.GGUFWriter(sys.argv[1], "qwen3")
    add_head(writer, tokenizer())
    add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
