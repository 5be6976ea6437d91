"""Makes tests/data/model/smollm2_streams.json: 20 prompts, chat and plain, as ids, each with a greedy stream of
64 ids. The engine proposes the streams; test_right_answers.py accepts them only where the reference's own best
token, along the stream, is the stream's next: which makes each the reference's greedy stream.

python tests/tools/make_smollm2_streams.py build/dev/bin/model_check MODEL.gguf"""

import json
import pathlib
import subprocess
import sys

import gguf
import tokenizers

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHAT = ["What is the capital of France?", "Write a haiku about the sea.", "Explain how a bicycle stays upright.",
        "Translate 'good morning' into Spanish and German.", "List three uses of vinegar in a kitchen.",
        "What is 17 times 23? Show the steps.", "Give me a short JSON object with a name and an age.",
        "Who wrote Romeo and Juliet, and when?", "Summarise the water cycle in two sentences.",
        "Write a Python function that reverses a string."]
PLAIN = ["Once upon a time, in a village by the river,", "The three laws of thermodynamics state that",
         "def fibonacci(n):\n    ", "In 1969, the first humans landed on", "Dear Sir or Madam,\n\nI am writing to",
         "The quick brown fox", "# Installation\n\nTo install the package, run", "Ingredients:\n- 2 cups of flour\n-",
         "Q: Why is the sky blue?\nA:", "1, 1, 2, 3, 5, 8, 13,"]


def tokenizer(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    types = fields["tokenizer.ggml.token_type"].contents()
    t = tokenizers.Tokenizer(tokenizers.models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    pre = tokenizers.pre_tokenizers
    t.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    t.add_special_tokens([s for s, kind in zip(tokens, types) if kind == 3])
    return t


def main():
    model_check, path = sys.argv[1:]
    encode = tokenizer(path).encode
    texts = [("chat", f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
                      "<|im_start|>assistant\n") for text in CHAT] + [("plain", text) for text in PLAIN]
    prompts = [encode(text, add_special_tokens=False).ids for _, text in texts]
    lines = "".join(f"{len(ids) - 1} {' '.join(map(str, ids))}\n" for ids in prompts)
    done = subprocess.run([model_check, path, "--greedy", "64"], input=lines, capture_output=True, text=True, check=True)
    streams = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    entries = [{"kind": kind, "text": text, "prompt": prompt, "stream": stream}
               for (kind, text), prompt, stream in zip(texts, prompts, streams, strict=True)]
    target = pathlib.Path(__file__).parent.parent / "data/model/smollm2_streams.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")


if __name__ == "__main__":
    main()
