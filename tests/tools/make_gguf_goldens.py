"""Makes tests/data/formats/oracle.gguf with the `gguf` package, and oracle.json with what is in it.

Run: python tests/tools/make_gguf_goldens.py
"""

import json
import pathlib

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).parent.parent / "data/formats"

SCALARS = {
    "u8": ("add_uint8", 255), "i8": ("add_int8", -128), "u16": ("add_uint16", 65535),
    "i16": ("add_int16", -32768), "u32": ("add_uint32", 2**32 - 1), "i32": ("add_int32", -2**31),
    "u64": ("add_uint64", 2**64 - 1), "i64": ("add_int64", -2**63), "f32": ("add_float32", 0.1),
    "f64": ("add_float64", 0.1), "yes": ("add_bool", True), "no": ("add_bool", False),
    "text": ("add_string", "h\u00e9llo \u2581 \U0001f999\n\"quoted\""),
}
ARRAYS = {
    "strings": ["a", "", "\u2581the", "\U0001f999"], "ints": [0, 1, -5, 2**31 - 1],
    "floats": [0.5, -1.25, 3.0], "bools": [True, False, True],
}
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(FOLDER / "oracle.gguf", "test")
    writer.add_custom_alignment(64)
    expected = {"general.architecture": "test", "general.alignment": 64}
    for name, (method, value) in SCALARS.items():
        getattr(writer, method)(f"test.{name}", value)
        expected[f"test.{name}"] = float(np.float32(value)) if name == "f32" else value
    for name, values in ARRAYS.items():
        writer.add_array(f"test.{name}", values)
        expected[f"test.{name}"] = values
    tensors = []
    for i, name in enumerate(TYPES):
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        shape = (3, 2, 256) if i % 2 else (5, 256)
        data = rng.integers(0, 256, size=(*shape[:-1], shape[-1] // block * size), dtype=np.uint8)
        if name == "F32":
            writer.add_tensor(f"t.{name}", data.view(np.float32))
        elif name == "F16":
            writer.add_tensor(f"t.{name}", data.view(np.float16))
        else:
            writer.add_tensor(f"t.{name}", data, raw_dtype=kind)
        weights = np.arange(1, data.size + 1, dtype=np.uint64)
        tensors.append({"name": f"t.{name}", "type": name,
                        "shape": "[" + ", ".join(map(str, shape)) + "]",
                        "checksum": int((weights * data.reshape(-1)).sum())})
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    text = json.dumps({"metadata": expected, "tensors": tensors}, indent=1, ensure_ascii=False)
    (FOLDER / "oracle.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
