"""Compares reference_model.py with HF transformers (its weights: the GGUF dequantised). Run once, by hand, where
torch and transformers are installed: python tests/tools/check_reference_model.py MODEL.gguf"""

import sys

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from reference_model import ReferenceModel


def hf_model(ref):
    vocab, hidden = ref.w["token_embd.weight"].shape
    config = LlamaConfig(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=ref.layers,
                         intermediate_size=ref.w["blk.0.ffn_gate.weight"].shape[0],
                         num_attention_heads=ref.heads, num_key_value_heads=ref.kv_heads, rms_norm_eps=ref.eps,
                         max_position_embeddings=8192, tie_word_embeddings="output.weight" not in ref.w,
                         rope_theta=float(ref.inv_freq[1] ** (-ref.dim / 2.0)), attn_implementation="eager")
    model = LlamaForCausalLM(config).eval().float()
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    state = {"model.embed_tokens.weight": ref.w["token_embd.weight"], "model.norm.weight": ref.w["output_norm.weight"]}
    state["lm_head.weight"] = ref.head
    for i in range(ref.layers):
        for ours, theirs in names.items():
            w = ref.w[f"blk.{i}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):  # neighbouring pairs back to halves
                w = w.reshape(-1, ref.dim // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
            state[f"model.layers.{i}.{theirs}.weight"] = w
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()}, strict=False)
    return model


def main():
    ref = ReferenceModel(sys.argv[1])
    model = hf_model(ref)
    rng = np.random.default_rng(1)
    worst = 0.0
    for length in (3, 40, 300):
        ids = rng.integers(0, len(ref.head), length)
        with torch.no_grad():
            theirs = model(torch.from_numpy(ids)[None]).logits[0].numpy()
        difference = np.abs(theirs - ref.logits(ids)).max()
        worst = max(worst, difference)
        print(f"{length} tokens: max logit difference {difference:.2e}, largest logit {np.abs(theirs).max():.1f}")
    print(f"worst {worst:.2e}")


if __name__ == "__main__":
    main()
