#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face's on hostile strings: ids, decodes, stream deltas.

  tokenizer_diff.py FILTER tokenizer.json... [--count N] [--seed S]

FILTER speaks JSON lines (`penstock text --jsonl`, or the test binary text_jsonl). Needs the package
`tokenizers`. Ends with 1 when anything differs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tokenizer_strings  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers.decoders import DecodeStream  # noqa: E402


class Filter:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask_all(self, requests):
        """Answers in order; writes in slices so that neither pipe fills up."""
        answers = []
        for i in range(0, len(requests), 8):
            part = requests[i:i + 8]
            self.process.stdin.write(b"".join(json.dumps(r).encode() + b"\n" for r in part))
            self.process.stdin.flush()
            answers += [json.loads(self.process.stdout.readline()) for _ in part]
        return answers

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def deltas(reference, ids):
    """What DecodeStream hands out, the rest of decode() last; None where it refuses an id."""
    stream = DecodeStream(skip_special_tokens=True)
    out = []
    for i in ids:
        try:
            out.append(stream.step(reference, i) or "")
        except Exception:
            return None
    whole, sent = reference.decode(ids), "".join(out)
    return out + [whole[len(sent):]] if whole.startswith(sent) else None


def compare(filter_, path, count, seed, limit=8):
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.no_padding()
    reference.no_truncation()
    answer = filter_.ask_all([{"op": "load", "path": str(path)}])[0]
    if answer != {"ok": True}:
        print(f"{path}: does not load: {answer}")
        return 1
    extra = sorted({t.content for t in reference.get_added_tokens_decoder().values()})
    rng = random.Random(seed)
    if len(extra) > 24:
        extra = rng.sample(extra, 24)
    texts = tokenizer_strings.generate(count, seed, extra)
    failures = 0

    def report(kind, text, ours, theirs):
        nonlocal failures
        failures += 1
        if failures <= limit:
            print(f"{path}: {kind} differ for {text!r:.300}\n   ours {ours!r:.400}\n  theirs {theirs!r:.400}")

    wanted = []
    for text in texts:
        for special in (False, True):
            try:
                ids = reference.encode(text, add_special_tokens=special).ids
            except BaseException as error:  # a Rust panic is no Exception
                ids = f"error: {error}"
            wanted.append((text, special, ids))
    got = filter_.ask_all([{"op": "encode", "text": t, "add_special": s} for t, s, _ in wanted])
    for (text, special, ids), answer in zip(wanted, got):
        if isinstance(ids, str):
            if "error" not in answer:
                report(f"encode errors (special={special})", text, answer, ids)
        elif answer.get("ids") != ids:
            report(f"ids (special={special})", text, answer, ids)

    size = reference.get_vocab_size()
    lists = [ids for _, special, ids in wanted if special and not isinstance(ids, str)]
    lists += [[rng.randrange(size) for _ in range(rng.choice([1, 2, 5, 20]))] for _ in range(count // 2)]
    lists = [ids[:400] for ids in lists]
    requests, expected = [], []
    for ids in lists:
        for skip in (True, False):
            requests.append({"op": "decode", "ids": ids, "skip_special": skip})
            expected.append({"text": reference.decode(ids, skip_special_tokens=skip)})
        steps = deltas(reference, ids)
        if steps is not None:
            requests.append({"op": "stream", "ids": ids})
            expected.append({"deltas": steps})
    for request, ours, theirs in zip(requests, filter_.ask_all(requests), expected):
        if ours != theirs:
            report(request["op"], request["ids"][:60], ours, theirs)
    print(f"{path}: {len(texts)} strings, {len(requests)} decodes and streams: {failures} differences")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("filter", nargs=1)
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    filter_ = Filter(args.filter)
    failures = sum(compare(filter_, path, args.count, args.seed) for path in args.tokenizers)
    return 1 if failures or filter_.close() != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
