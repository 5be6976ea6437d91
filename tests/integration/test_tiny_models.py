"""Small random models of each family on the CPU engine: the logits that HF transformers computes, within 1e-4 of the
largest, and the same bits for any chunk of prefill, number of threads and instruction set.
(tests/tools/make_tiny_models.py makes models and goldens.)"""

import pathlib
import struct

import numpy as np
import pytest

from test_right_answers import engine_logits

ROOT = pathlib.Path(__file__).parent.parent / "data/model/tiny"
POSITIONS = (1, 17, 300)
# Not llama_dynamic: its frequencies depend on the served length, which model_check takes from the model.
FAMILIES = ["llama", "llama_bias", "llama_linear", "llama_llama3", "llama_longrope", "llama_yarn", "mistral_window",
            "qwen2", "qwen3", "smollm"]


def read_golden(folder):
    data = (folder / "golden.bin").read_bytes()
    count, vocab = struct.unpack_from("<II", data)
    ids = np.frombuffer(data, "<i4", count, 8)
    return ids.tolist(), np.frombuffer(data, "<f4", -1, 8 + 4 * count).reshape(len(POSITIONS), vocab)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_transformers(bin_dir, family):
    ids, golden = read_golden(ROOT / family)
    sequences = [(position, ids[:position + 1]) for position in POSITIONS]

    def run(*flags):
        return np.concatenate(engine_logits(bin_dir, ROOT / family, sequences, golden.shape[1], *flags))

    whole = run("--chunk", "512", "--threads", "1")
    for position, ours, theirs in zip(POSITIONS, whole, golden):
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max(), f"position {position}"
    for flags in (["--chunk", "48", "--threads", "2"], ["--chunk", "16"], ["--chunk", "512", "--isa", "scalar"]):
        assert np.array_equal(run(*flags).view(np.uint32), whole.view(np.uint32)), flags
