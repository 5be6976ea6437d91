"""Makes the seed corpus of tokenizer_json_fuzz: small tokenizer.json files, between them with every kind of step.

Run: python tests/tools/make_fuzz_seeds_tokenizer.py
"""

import json
import pathlib

OUT = pathlib.Path(__file__).parent.parent / "fuzz/corpus/tokenizer_json"


def added(id_, content, **flags):
    return {"id": id_, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | flags


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def split(pattern, behavior="Isolated", **more):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False} | more


def template(*items, **tokens):
    return {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}} if item == "A" else {"SpecialToken": {"id": item, "type_id": 0}}
                       for item in items],
            "pair": [], "special_tokens": {name: {"id": name, "ids": ids, "tokens": [name]} for name, ids in tokens.items()}}


def numbered(pieces):
    return {piece: i for i, piece in enumerate(pieces)}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
BYTES = [f"<0x{b:02X}>" for b in (0x0A, 0x41, 0x61, 0xE2, 0x82, 0xAC)]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SEEDS = {
    "byte_level": {
        "added_tokens": [added(9, "<s>"), added(10, "</s>", special=False, rstrip=True)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, split({"Regex": LLAMA3}),
                                  {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}),
        "post_processor": sequence("processors", BYTE_LEVEL, template("<s>", "A", **{"<s>": [9]})),
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "ignore_merges": True, "vocab": numbered(["a", "b", "l", "o", "Ġ", "ll", "llo", "Ġa", "Ã"]),
                  "merges": [["l", "l"], ["ll", "o"], ["Ġ", "a"]]}},
    "byte_fallback": {
        "added_tokens": [added(0, "<unk>"), added(99, "<s>", normalized=True, lstrip=True), added(5, "tok", single_word=True)],
        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                               {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                               {"type": "Replace", "pattern": {"Regex": "e{2,}"}, "content": "e"}),
        "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": numbered(["<unk>", *BYTES, "▁", "a", "o", "▁a"]), "merges": ["▁ a"]}},
    "unigram": {
        "normalizer": sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}),
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 2], "trim_offsets": True,
                           "add_prefix_space": True},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                  "vocab": [["<unk>", 0.0], ["</s>", 0.0], ["<s>", 0.0], ["▁", -2.5], ["a", -3], ["lo", -1e3], ["▁w", -4.25]]}},
    "charsmap": {  # a trie of no nodes
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -3]]}},
    "word_piece": {
        "added_tokens": [added(0, "[UNK]"), added(1, "[CLS]"), added(2, "[SEP]"), added(3, "[MASK]", lstrip=True)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20,
                  "vocab": numbered(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "w", "##o", "##rld", "##r", ","])}},
    "word_level": {
        "normalizer": sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                               {"type": "Strip", "strip_left": True, "strip_right": False}),
        "pre_tokenizer": sequence("pretokenizers", {"type": "Whitespace"}, {"type": "Punctuation", "behavior": "MergedWithNext"},
                                  {"type": "UnicodeScripts"}, {"type": "CharDelimiterSplit", "delimiter": "l"}),
        "decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": numbered(["[UNK]", "he", "o", "12345"])}},
    "suffix": {
        "normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "ByteLevel"}),
        "pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "FixedLength", "length": 3},
                                  split({"String": "a"}, "MergedWithPrevious", invert=True), split({"Regex": r"\w+|[^\w\s]+"}, "Removed", invert=True)),
        "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        "model": {"type": "BPE", "unk_token": "<unk>", "end_of_word_suffix": "</w>", "continuing_subword_prefix": "@@",
                  "vocab": numbered(["<unk>", "a</w>", "a", "@@a", "aa", "@@a</w>", "aa</w>"]), "merges": ["a @@a", "a @@a</w>"]}},
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, parts in SEEDS.items():
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                 "post_processor": None, "decoder": None} | parts
        (OUT / f"{name}.json").write_text(json.dumps(whole, ensure_ascii=False))


if __name__ == "__main__":
    main()
