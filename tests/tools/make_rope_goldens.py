"""Writes tests/data/model/rope.json: rotary frequencies of every scaling kind as transformers
computes them (needs torch and transformers; made once, the file is committed).

Usage: python tests/tools/make_rope_goldens.py
"""

import json
import pathlib

import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUT = pathlib.Path(__file__).parent.parent / "data" / "model" / "rope.json"

BASE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 256,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
PAIRS = 32
SHORT = [1.0 + 0.01 * i for i in range(PAIRS)]
LONG = [1.0 + 0.75 * i for i in range(PAIRS)]
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

# name, changes to BASE, sequence length
CASES = [
    ("default", {}, 4096),
    ("default_theta", {"rope_theta": 500000.0, "head_dim": 128}, 4096),
    ("null_scaling", {"rope_scaling": None}, 4096),
    ("linear_type", {"rope_scaling": {"type": "linear", "factor": 4.0}}, 4096),
    ("linear_rope_type", {"rope_scaling": {"rope_type": "linear", "factor": 2}}, 4096),
    ("dynamic_short", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 10),
    ("dynamic_at_original", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 4096),
    ("dynamic_long", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 16384),
    ("llama3_8b", {"rope_theta": 500000.0, "head_dim": 128, "max_position_embeddings": 131072,
                   "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 131072),
    ("llama3_1b", {"rope_theta": 500000.0, "max_position_embeddings": 131072,
                   "rope_scaling": {"rope_type": "llama3", **LLAMA3, "factor": 32.0}}, 131072),
    ("yarn", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, 16384),
    ("yarn_original", {"rope_theta": 1000000.0, "max_position_embeddings": 131072, "head_dim": 128,
                       "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                        "original_max_position_embeddings": 32768}}, 131072),
    ("yarn_attention_factor", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                "attention_factor": 0.75}}, 16384),
    ("yarn_mscale", {"rope_scaling": {"rope_type": "yarn", "factor": 40.0, "mscale": 0.707,
                                      "mscale_all_dim": 0.5, "beta_fast": 24,
                                      "beta_slow": 2}}, 16384),
    ("yarn_no_truncate", {"rope_scaling": {"rope_type": "yarn", "factor": 32.0,
                                           "truncate": False}}, 16384),
    ("longrope_short", {"max_position_embeddings": 16384, "rope_scaling": {
        "type": "longrope", "short_factor": SHORT, "long_factor": LONG,
        "original_max_position_embeddings": 4096}}, 4096),
    ("longrope_long", {"max_position_embeddings": 16384, "rope_scaling": {
        "rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
        "original_max_position_embeddings": 4096}}, 16384),
    ("longrope_attention_factor", {"max_position_embeddings": 16384, "rope_scaling": {
        "rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "factor": 8.0,
        "attention_factor": 1.5, "original_max_position_embeddings": 4096}}, 16384),
    ("parameters_default", {"rope_theta": None,
                            "rope_parameters": {"rope_type": "default", "rope_theta": 25000.0}},
     4096),
    ("parameters_llama3", {"rope_theta": None, "max_position_embeddings": 131072,
                           "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0,
                                               **LLAMA3}}, 131072),
    ("parameters_yarn", {"rope_theta": None,
                         "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0,
                                             "factor": 4.0,
                                             "original_max_position_embeddings": 1024}}, 4096),
]


def frequencies(config, seq_len):
    rope_type = config.rope_parameters["rope_type"]
    if rope_type == "default":
        return LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    return ROPE_INIT_FUNCTIONS[rope_type](config, None, seq_len=seq_len)


def main():
    cases = []
    for name, changes, seq_len in CASES:
        config = {k: v for k, v in {**BASE, **changes}.items()
                  if v is not None or k == "rope_scaling"}
        parsed = LlamaConfig(**json.loads(json.dumps(config)))
        inv_freq, attention_factor = frequencies(parsed, seq_len)
        cases.append({"name": name, "config": config, "served_len": seq_len,
                      "inv_freq": inv_freq.double().tolist(),
                      "attention_factor": float(attention_factor)})
    OUT.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUT.write_text('{"transformers": "%s", "cases": [\n%s\n]}\n' % (transformers.__version__, lines))


if __name__ == "__main__":
    main()
