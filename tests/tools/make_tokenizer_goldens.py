#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small tokenizers, trained here on the text below, and what the
package `tokenizers` does with them (goldens.jsonl). Between them they use every normaliser,
pre-tokenizer, model, post-processor and decoder. Run again with tokenizers==0.23.3; training differs
from run to run, so the files and their goldens change together."""

import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tokenizer_diff  # noqa: E402
import tokenizer_strings  # noqa: E402

OUT = pathlib.Path(__file__).parents[1] / "data" / "tokenizers"
CORPUS = [" ".join(random.Random(i).choices(tokenizer_strings.WORDS, k=12)) + "." for i in range(400)] + [
    "Café déjà vu — 123 tokens, 4567 more!", "don't we'll it's I'm they've", "Привет, мир", "你好世界 こんにちは", "naïve façade coöperate",
    "    indented\n\ttabs\n\n", "snake_case CamelCase kebab-case", "https://example.com/a?b=1", "😊👍🏽"] * 3
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ODD = r"[A-Za-z]+['’]?|\p{N}|\W\w{2,3}+|\s+(?!\S)"  # no scanner knows it
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def byte_level(pattern=None, steps=(), **kwargs):
    t = Tokenizer(models.BPE(**kwargs))
    pre = list(steps)
    if pattern:
        pre.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    pre.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    t.pre_tokenizer = pre_tokenizers.Sequence(pre)
    t.decoder = decoders.ByteLevel()
    return t, trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def make():
    for name, pattern in (("gpt2", None), ("llama3", LLAMA3), ("o200k", O200K), ("odd_regex", ODD)):
        t, trainer = byte_level(pattern)
        if name == "llama3":
            t.normalizer = normalizers.NFC()
        yield name, t, trainer
    t, trainer = byte_level(None, [pre_tokenizers.Digits(individual_digits=True)])
    yield "smollm", t, trainer

    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    yield "llama2", t, trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, max_token_length=12)

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    yield "unigram", t, trainers.UnigramTrainer(vocab_size=400, show_progress=False, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"])

    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    yield "bert", t, trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"])

    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.UnicodeScripts()])
    yield "wordlevel", t, trainers.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"])

    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.FixedLength(7)])
    t.decoder = decoders.BPEDecoder()
    yield "clip", t, trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], end_of_word_suffix="</w>")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    records = []
    for name, t, trainer in make():
        t.train_from_iterator(CORPUS, trainer)
        t.add_special_tokens([tokenizers.AddedToken("<|end|>", special=True), tokenizers.AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
        t.add_tokens([tokenizers.AddedToken("tok", single_word=True), tokenizers.AddedToken("Éclair", normalized=True), tokenizers.AddedToken("<think>", normalized=False)])
        end = t.token_to_id("<|end|>")
        t.post_processor = processors.TemplateProcessing(single="<|end|> $A <mask>", pair="$A $B", special_tokens=[("<|end|>", end), ("<mask>", t.token_to_id("<mask>"))])
        path = OUT / f"{name}.json"
        t.save(str(path), pretty=False)
        t = Tokenizer.from_file(str(path))
        extra = sorted({a.content for a in t.get_added_tokens_decoder().values()} - set(BYTES))
        for text in tokenizer_strings.generate(170, 7, extra[:8]):
            text = text[:300]
            ids = t.encode(text, add_special_tokens=False).ids
            records.append({"file": path.name, "text": text, "ids": ids, "with_special": t.encode(text).ids,
                            "decoded": t.decode(ids), "decoded_all": t.decode(ids, skip_special_tokens=False),
                            "deltas": tokenizer_diff.deltas(t, ids)})
    with open(OUT / "goldens.jsonl", "w") as out:
        for record in records:
            out.write(json.dumps(record) + "\n")
    print(len(records), "goldens")


if __name__ == "__main__":
    main()
