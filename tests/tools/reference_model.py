"""The whole model in numpy over the `gguf` package's dequantisation: the oracle for the CPU engine.

A llama-type GGUF (Llama, Mistral, SmolLM; q and k rows in llama.cpp's order, so RoPE turns neighbouring
pairs), f32 throughout. Checked once against HF transformers (check_reference_model.py beside this file): max
logit difference 1.4e-4 over 3, 40 and 300 random ids of SmolLM2-135M-Instruct Q4_1, whose logits reach 34
(transformers 5.24, torch 2.15, 2026-12-01).
"""

import gguf
import numpy as np


class ReferenceModel:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        arch = str(reader.fields["general.architecture"].contents())
        value = lambda key: reader.fields[f"{arch}.{key}"].contents()
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1])
                  for t in reader.tensors}
        self.layers, self.heads = value("block_count"), value("attention.head_count")
        self.kv_heads, self.eps = value("attention.head_count_kv"), value("attention.layer_norm_rms_epsilon")
        self.dim = self.w["blk.0.attn_q.weight"].shape[0] // self.heads
        theta = value("rope.freq_base")
        self.inv_freq = 1.0 / theta ** (np.arange(0, self.dim, 2, dtype=np.float32) / np.float32(self.dim))
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.eps)) * self.w[name]

    def rope(self, x):  # [tokens, heads, dim], pairs (2i, 2i + 1)
        angle = (np.arange(len(x), dtype=np.float32)[:, None] * self.inv_freq)[:, None]
        cos, sin, even, odd = np.cos(angle), np.sin(angle), x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)

    def logits(self, ids, first=0):
        """Logits [len(ids) - first, vocabulary] of the positions from `first`."""
        h, n = self.w["token_embd.weight"][np.asarray(ids)], len(ids)
        mask = np.triu(np.full((n, n), -np.inf, np.float32), 1)
        for i in range(self.layers):
            at = lambda name: self.w[f"blk.{i}.{name}.weight"]
            x = self.norm(h, f"blk.{i}.attn_norm.weight")
            q = self.rope((x @ at("attn_q").T).reshape(n, self.heads, self.dim))
            k = self.rope((x @ at("attn_k").T).reshape(n, self.kv_heads, self.dim))
            v = (x @ at("attn_v").T).reshape(n, self.kv_heads, self.dim)
            k, v = (np.repeat(t, self.heads // self.kv_heads, axis=1) for t in (k, v))
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(np.float32(self.dim)) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            h = h + np.einsum("hqk,khd->qhd", scores, v).reshape(n, -1) @ at("attn_output").T
            x = self.norm(h, f"blk.{i}.ffn_norm.weight")
            gate = x @ at("ffn_gate").T
            h = h + (gate / (1 + np.exp(-gate)) * (x @ at("ffn_up").T)) @ at("ffn_down").T
        return self.norm(h[first:], "output_norm.weight") @ self.head.T
