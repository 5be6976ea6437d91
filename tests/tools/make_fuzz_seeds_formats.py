"""Makes the seed corpora of the gguf and safetensors fuzz targets: small files, right ones and hostile ones.

Run: python tests/tools/make_fuzz_seeds_formats.py
"""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent.parent / "fuzz/corpus"


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(metadata=(), tensors=(), data=b"", version=3, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, kind, raw in metadata:
        out += string(key) + struct.pack("<I", kind) + raw
    for name, dims, kind, offset in tensors:
        out += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, offset)
    return out + b"\0" * (-len(out) % alignment) + data


def array(kind, count, raw):
    return struct.pack("<IQ", kind, count) + raw


def gguf_seeds():
    scalars = [(f"k{kind}", kind, b"\1" * size) for kind, size in
               [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8)]]
    blocks = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
              12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2)}
    tensors, data = [], b""
    for kind, (values, size) in blocks.items():
        tensors.append((f"t{kind}", [values, 2], kind, len(data)))
        data += bytes(i % 251 + 1 for i in range(2 * size))
        data += b"\0" * (-len(data) % 32)
    yield "scalars", gguf(scalars)
    yield "arrays", gguf([("s", 8, string("text")), ("a", 9, array(8, 2, string("x") + string("yy"))),
                          ("b", 9, array(5, 3, b"\1" * 12)), ("c", 9, array(7, 2, b"\1\0"))])
    yield "tensors", gguf([], tensors, data)
    yield "version2", gguf(scalars[:2], tensors[:1], data, version=2)
    yield "aligned", gguf([("general.alignment", 4, struct.pack("<I", 64))], tensors[:1], data, alignment=64)
    yield "split", gguf([("split.count", 2, struct.pack("<H", 3))])
    yield "long_key", gguf()[:16] + struct.pack("<Q", 1) + struct.pack("<Q", 2**48) + b"k" * 64
    yield "zero_dim", gguf([], [("t", [0, 32], 0, 0)], data)
    yield "nine_dims", gguf([], [("t", [1] * 9, 0, 0)], data)
    yield "product", gguf([], [("t", [2**33, 2**33], 0, 0)], data)
    yield "alignment_0", gguf([("general.alignment", 4, struct.pack("<I", 0))], tensors[:1], data)
    yield "alignment_2_30", gguf([("general.alignment", 4, struct.pack("<I", 2**30))], tensors[:1], data)
    yield "alignment_text", gguf([("general.alignment", 8, string("32"))], tensors[:1], data)
    yield "nested", gguf([("n", 9, array(9, 1, array(4, 1, b"\0" * 4)))])


def safetensors(header, data=b""):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode() + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    good = {"__metadata__": {"format": "pt"}, "a": tensor("F32", [2, 2], 0, 16), "b": tensor("BF16", [3], 16, 22),
            "c": tensor("F16", [1, 1], 22, 24), "d": tensor("I64", [1], 24, 32), "e": tensor("F8_E4M3", [4], 32, 36)}
    yield "good", safetensors(good, bytes(range(36)))
    yield "cut", safetensors(good, bytes(range(30)))
    yield "header_2_60", struct.pack("<Q", 2**60) + b"{}"
    yield "overlap", safetensors({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, bytes(12))
    yield "outside", safetensors({"a": tensor("F32", [2], 0, 2**63 - 1)}, bytes(8))
    yield "zero_dim", safetensors({"a": tensor("F32", [0, 4], 0, 0)})
    yield "dtype", safetensors({"a": tensor("F33", [1], 0, 4)}, bytes(4))
    yield "product", safetensors({"a": tensor("F32", [2**32, 2**32], 0, 4)}, bytes(4))
    yield "deep", safetensors("[" * 200)


def main():
    for name, seeds in {"gguf": gguf_seeds(), "safetensors": safetensors_seeds()}.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, content in seeds:
            (folder / seed).write_bytes(content)


if __name__ == "__main__":
    main()
