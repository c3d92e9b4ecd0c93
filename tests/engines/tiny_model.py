#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a tiny Llama model folder (config + tokenizer, optionally weights): no download.

usage: make_tiny_model.py DIR [--weights] [--layers N] [--hidden N] [--heads N] [--kv-heads N] [--seed N]

Without --weights use load_format="dummy" (vLLM) or --load-format dummy (SGLang).
Dummy weights depend on each engine's own random fill; --weights writes one
safetensors file, so that two engines (or two versions) load the same numbers
and their outputs can be compared.
"""
import argparse
import json
import os


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--weights", action="store_true")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--max-len", type=int, default=4096)
    p.add_argument("--seed", type=int, default=7, help="of the weights")
    a = p.parse_args()
    os.makedirs(a.dir, exist_ok=True)

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # Byte-level vocabulary: 256 bytes and three specials; every text round-trips.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for ch in alphabet:
        vocab[ch] = len(vocab)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    )
    fast.save_pretrained(a.dir)

    vocab_size = 320
    cfg = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": a.hidden,
        "intermediate_size": 2 * a.hidden,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.hidden // a.heads,
        "max_position_embeddings": a.max_len,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": vocab_size,
        "torch_dtype": "bfloat16",
    }
    with open(os.path.join(a.dir, "config.json"), "w") as f:
        json.dump(cfg, f, indent=1)
    with open(os.path.join(a.dir, "generation_config.json"), "w") as f:
        json.dump({"bos_token_id": 1, "eos_token_id": 2}, f)

    if a.weights:
        import torch
        from safetensors.torch import save_file

        g = torch.Generator().manual_seed(a.seed)

        def w(*shape, s=0.15):
            return (torch.randn(*shape, generator=g) * s).to(torch.bfloat16)

        hd = a.hidden // a.heads
        t = {
            "model.embed_tokens.weight": w(vocab_size, a.hidden, s=1.0),
            "model.norm.weight": torch.ones(a.hidden, dtype=torch.bfloat16),
            "lm_head.weight": w(vocab_size, a.hidden, s=0.5),
        }
        for i in range(a.layers):
            b = f"model.layers.{i}."
            t[b + "self_attn.q_proj.weight"] = w(a.heads * hd, a.hidden)
            t[b + "self_attn.k_proj.weight"] = w(a.kv_heads * hd, a.hidden)
            t[b + "self_attn.v_proj.weight"] = w(a.kv_heads * hd, a.hidden)
            t[b + "self_attn.o_proj.weight"] = w(a.hidden, a.heads * hd)
            t[b + "mlp.gate_proj.weight"] = w(2 * a.hidden, a.hidden)
            t[b + "mlp.up_proj.weight"] = w(2 * a.hidden, a.hidden)
            t[b + "mlp.down_proj.weight"] = w(a.hidden, 2 * a.hidden)
            t[b + "input_layernorm.weight"] = torch.ones(a.hidden, dtype=torch.bfloat16)
            t[b + "post_attention_layernorm.weight"] = torch.ones(
                a.hidden, dtype=torch.bfloat16
            )
        save_file(t, os.path.join(a.dir, "model.safetensors"), {"format": "pt"})


if __name__ == "__main__":
    main()
