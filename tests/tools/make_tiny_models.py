"""Makes tests/data/model/tiny/NAME/: small random models of each family as transformers saves them, and the
logits that transformers computes for them in f32. Run by hand where torch and transformers are:
python tests/tools/make_tiny_models.py

golden.bin, little-endian: number of ids u32, vocabulary u32, ids i32[n], then per position of 1, 17 and 300 the
logits f32[vocabulary]. Weights are bf16 in the files; the goldens are f32 arithmetic on them.
"""

import json
import pathlib
import shutil
import struct

import numpy as np
import torch
import transformers
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

torch.set_num_threads(1)
VOCAB, LENGTH, POSITIONS = 160, 301, (1, 17, 300)
SIZES = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, attn_implementation="eager")


def rope(kind, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **parameters}}


HALF = 8  # head_dim 16
MODELS = {
    "llama": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=False)),
    "llama_bias": (LlamaConfig, LlamaForCausalLM, dict(attention_bias=True, mlp_bias=True, hidden_act="gelu")),
    "llama_linear": (LlamaConfig, LlamaForCausalLM, rope("linear", factor=4.0)),
    "llama_dynamic": (LlamaConfig, LlamaForCausalLM, dict(rope("dynamic", factor=4.0), max_position_embeddings=64)),
    "llama_llama3": (LlamaConfig, LlamaForCausalLM, rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                         original_max_position_embeddings=64)),
    "llama_yarn": (LlamaConfig, LlamaForCausalLM, rope("yarn", factor=8.0, original_max_position_embeddings=64)),
    "llama_longrope": (LlamaConfig, LlamaForCausalLM,
                       rope("longrope", factor=8.0, original_max_position_embeddings=64,
                            short_factor=[1.0 + 0.1 * i for i in range(HALF)],
                            long_factor=[1.0 + 0.7 * i for i in range(HALF)])),
    "mistral_window": (MistralConfig, MistralForCausalLM, dict(sliding_window=40, head_dim=16)),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=32, tie_word_embeddings=True)),
    "smollm": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=True, num_attention_heads=3,
                                                   num_key_value_heads=1, hidden_size=48, head_dim=16)),
}


def make(name, folder):
    config_class, model_class, changes = MODELS[name]
    torch.manual_seed(list(MODELS).index(name))
    model = model_class(config_class(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():  # far from the small, zero-bias start of training
            p.copy_((1 + 0.2 * torch.randn_like(p) if "norm" in key else 0.25 * torch.randn_like(p)).bfloat16())
    model.to(torch.bfloat16).save_pretrained(folder)
    model = model.float()
    # The buffers of RoPE are f32 from the start in a model loaded as f32: load it so.
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = [(i * 31 + i * i * 7) % VOCAB for i in range(LENGTH)]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    with open(folder / "golden.bin", "wb") as f:
        f.write(struct.pack("<II", LENGTH, VOCAB) + np.asarray(ids, "<i4").tobytes())
        for position in POSITIONS:
            f.write(logits[position].numpy().astype("<f4").tobytes())
    (folder / "generation_config.json").unlink(missing_ok=True)
    print(name, sum(p.stat().st_size for p in folder.iterdir()), float(logits.abs().max()))


def main():
    root = pathlib.Path(__file__).parent.parent / "data/model/tiny"
    shutil.rmtree(root, ignore_errors=True)
    for name in MODELS:
        (root / name).mkdir(parents=True)
        make(name, root / name)
    (root / "made_with.json").write_text(json.dumps({"transformers": transformers.__version__,
                                                     "torch": torch.__version__}) + "\n")


if __name__ == "__main__":
    main()
