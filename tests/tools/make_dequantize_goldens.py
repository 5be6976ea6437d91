"""Makes tests/data/formats/dequantize.bin: random blocks of every quantised type and the values that the
`gguf` package reads from them. Run: python tests/tools/make_dequantize_goldens.py

Layout, little-endian: per type: name length u8, name, number of blocks u32, block bytes u32, values per
block u32, the blocks, the f32 values.
"""

import pathlib
import struct

import gguf
import numpy as np

BLOCKS = 6
F16_FIELDS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
              "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def main():
    rng = np.random.default_rng(20261201)
    out = bytearray()
    for name, fields in F16_FIELDS.items():
        kind = gguf.GGMLQuantizationType[name]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, size=(BLOCKS, size), dtype=np.uint8)
        for offset in fields:
            scale = rng.normal(0, 0.1, size=(BLOCKS, 1)).astype(np.float16)
            blocks[:, offset:offset + 2] = scale.view(np.uint8)
        expected = gguf.quants.dequantize(blocks, kind).astype("<f4")
        out += struct.pack("<B", len(name)) + name.encode()
        out += struct.pack("<III", BLOCKS, size, values) + blocks.tobytes() + expected.tobytes()
    path = pathlib.Path(__file__).parent.parent / "data/formats/dequantize.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)


if __name__ == "__main__":
    main()
