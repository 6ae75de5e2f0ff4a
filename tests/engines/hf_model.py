#!/usr/bin/env python3
"""Writes a Qwen3 model with random weights and its tokenizer as a Hugging Face folder.

    hf_model.py FOLDER [tiny|medium|small [SEED]]

The same folder every time; another seed gives other weights. The tokenizer is that of tiny_model.py;
the heads are as wide as vLLM's kernels for CPUs need them. Needs numpy, safetensors and what
tiny_model.py needs.
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import decoders

from tiny_model import CONTEXT, SPECIAL, TEMPLATE, WORDS, tokenizer

# Of the weights that servers start with.
SEED = 7
# Width, layers, heads, KV heads, width of a head, inner width.
SHAPES = {
    "tiny": (128, 2, 4, 2, 32, 256),
    "medium": (256, 4, 8, 2, 32, 768),
    "small": (512, 8, 8, 2, 64, 1536),
}


def config(shape):
    """What the model is."""
    width, layers, heads, kv_heads, head_width, inner = shape
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_width, "intermediate_size": inner,
        "vocab_size": WORDS, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False, "attention_bias": False,
        "eos_token_id": SPECIAL.index("<|im_end|>"), "pad_token_id": SPECIAL.index("<|endoftext|>"),
        "torch_dtype": "float32",
    }


def words():
    """How the tokenizer is to be used."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "bos_token": None, "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE,
    }


def weights(shape, seed):
    """Random matrices, scaled so that activations stay in range."""
    width, layers, heads, kv_heads, head_width, inner = shape
    random = np.random.default_rng(seed)

    def matrix(rows, columns, scale=None):
        values = random.standard_normal((rows, columns), dtype=np.float32)
        return values * np.float32(scale or columns ** -0.5)

    def ones(width):
        return np.ones(width, dtype=np.float32)

    head = matrix(WORDS, width)
    # Marks and single bytes are never the likeliest: a single byte may be invalid text.
    head[:len(SPECIAL) + 256] = 0
    made = {
        "model.embed_tokens.weight": matrix(WORDS, width, scale=1.0),
        "model.norm.weight": ones(width), "lm_head.weight": head,
    }
    for layer in range(layers):
        at = f"model.layers.{layer}."
        attention, inside = at + "self_attn.", at + "mlp."
        made |= {
            at + "input_layernorm.weight": ones(width),
            at + "post_attention_layernorm.weight": ones(width),
            attention + "q_norm.weight": ones(head_width),
            attention + "k_norm.weight": ones(head_width),
            attention + "q_proj.weight": matrix(heads * head_width, width),
            attention + "k_proj.weight": matrix(kv_heads * head_width, width),
            attention + "v_proj.weight": matrix(kv_heads * head_width, width),
            attention + "o_proj.weight": matrix(width, heads * head_width),
            inside + "gate_proj.weight": matrix(inner, width),
            inside + "up_proj.weight": matrix(inner, width),
            inside + "down_proj.weight": matrix(width, inner),
        }
    return made


def main():
    folder, shape = sys.argv[1], SHAPES[sys.argv[2] if len(sys.argv) > 2 else "tiny"]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else SEED
    os.makedirs(folder, exist_ok=True)
    at = lambda name: os.path.join(folder, name)
    made = tokenizer()
    # Engines write the text of tokens with it; llama.cpp has its own.
    made.decoder = decoders.ByteLevel()
    made.save(at("tokenizer.json"))
    for name, page in [("config.json", config(shape)), ("tokenizer_config.json", words())]:
        with open(at(name), "w") as file:
            json.dump(page, file, indent=1)
    save_file(weights(shape, seed), at("model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main()
