"""The CPU engine against the numpy reference: SmolLM2-135M-Instruct, 20 prompts x 64 positions, teacher-forced
along the reference's greedy stream."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tools"))
from reference_model import ReferenceModel  # noqa: E402

STREAMS = json.loads((pathlib.Path(__file__).parent.parent / "data/model/smollm2_streams.json").read_text())
NEAR_TIE = 0.02  # where the reference's best two logits are closer, either may win
TOLERANCE = 1e-3


def engine_logits(bin_dir, model, sequences, vocab, *flags):
    """Per sequence (first position, ids): logits [len(ids) - first, vocab] of the CPU engine."""
    lines = "".join(f"{first} {' '.join(map(str, ids))}\n" for first, ids in sequences)
    done = subprocess.run([bin_dir / "model_check", model, *flags], input=lines.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    flat = np.frombuffer(done.stdout, np.float32).reshape(-1, vocab)
    counts = [len(ids) - first for first, ids in sequences]
    assert len(flat) == sum(counts)
    return np.split(flat, np.cumsum(counts)[:-1])


def compare(reference, engine, what):
    difference = np.abs(reference - engine).max()
    assert difference <= TOLERANCE, f"{what}: a logit is off by {difference}"
    best_two = np.sort(reference, axis=1)[:, -2:]
    clear = best_two[:, 1] - best_two[:, 0] >= NEAR_TIE
    wrong = clear & (reference.argmax(1) != engine.argmax(1))
    assert not wrong.any(), f"{what}: another token at positions {np.flatnonzero(wrong)}"
    return difference


@pytest.fixture(scope="module")
def reference(test_model):
    return ReferenceModel(test_model)


def test_teacher_forced_logits(bin_dir, test_model, reference):
    sequences = [(len(s["prompt"]) - 1, s["prompt"] + s["stream"][:-1]) for s in STREAMS]
    assert len(sequences) == 20 and all(len(ids) - first == 64 for first, ids in sequences)
    engine = engine_logits(bin_dir, test_model, sequences, len(reference.head))
    worst = 0
    for entry, (first, ids), ours in zip(STREAMS, sequences, engine):
        theirs = reference.logits(ids, first)
        worst = max(worst, compare(theirs, ours, entry["text"][-40:]))
        clear = np.diff(np.sort(theirs, axis=1)[:, -2:])[:, 0] >= NEAR_TIE
        assert (theirs.argmax(1) == entry["stream"])[clear].all(), "the committed stream is not the reference's"
    print(f"max logit difference {worst:.2e}")


def test_long_context(bin_dir, test_model, reference):
    """600 positions: many attention tiles, prefilled in chunks of 48 and of 128."""
    ids = (np.arange(600) * 7919 % 40000 + 100).tolist()
    theirs = reference.logits(ids, 590)
    compare(theirs, engine_logits(bin_dir, test_model, [(590, ids)], len(reference.head), "--chunk", "48")[0], "48")
    compare(theirs, engine_logits(bin_dir, test_model, [(590, ids)], len(reference.head), "--chunk", "128")[0], "128")
