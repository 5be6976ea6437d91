"""GGUF, SentencePiece, tiktoken and tekken vocabularies against the libraries they belong to: ids, text and
stream deltas over hostile strings."""

import base64
import json
import os
import pathlib
import random
import sys
import unicodedata

import pytest
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/tools"))
import make_vocabulary_gguf  # noqa: E402
import tokenizer_diff  # noqa: E402
import vocabularies  # noqa: E402
from hostile_strings import hostile_strings  # noqa: E402
from text_filter import TextFilter  # noqa: E402

# Strings for each vocabulary. 2,000 take six minutes with the sanitizers' build.
STRINGS = int(os.environ.get("PENSTOCK_TEST_STRINGS", "600"))
MAX_HELD = 64  # tokens that the stream holds back at most

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@pytest.fixture(scope="module")
def folder():
    path = vocabularies.folder()
    if path is None:
        pytest.skip("PENSTOCK_TEST_VOCABULARIES is not set (tests/run.sh sets it)")
    return path


@pytest.fixture(scope="module")
def text(bin_dir):
    filter_ = TextFilter(bin_dir)
    yield filter_
    filter_.close()


def reference_deltas(decode, ids):
    """What a stream may hand out after each id, and at the end: text that is no longer going to change."""
    deltas, shown, held = [], "", 0
    for i in range(1, len(ids) + 1):
        now = decode(ids[:i])
        held += 1
        if now.endswith("\ufffd") and held <= MAX_HELD or not now.startswith(shown):
            deltas.append("")
            continue
        deltas.append(now[len(shown):])
        shown, held = now, 0
    deltas.append(decode(ids)[len(shown):])
    return deltas


class Differences:
    """Collects; a failure shows the first few of each kind."""

    def __init__(self):
        self.found = []

    def check(self, kind, string, got, expected):
        if got != expected:
            self.found.append((kind, string, got, expected))

    def report(self):
        lines = [f"{kind} {string[:80]!r}\n   got      {str(got)[:200]}\n   expected {str(expected)[:200]}"
                 for kind, string, got, expected in self.found[:8]]
        assert not self.found, f"{len(self.found)} differences\n" + "\n".join(lines)


def compare(text, strings, encode, decode, plain=None, num_ids=None, streams=400):
    """encode(string) and decode(ids) are the reference; plain(string) encodes without control tokens."""
    checks = []  # (kind, string, request, key of the answer, expected)
    random_ = random.Random(5)
    for i, string in enumerate(strings):
        ids = encode(string)
        checks.append(("ids", string, {"op": "encode", "text": string}, "ids", ids))
        if plain is not None:
            checks.append(("plain", string, {"op": "encode", "text": string, "plain": True}, "ids", plain(string)))
        if num_ids is not None and i % 4 == 0:  # ids that no encoder makes: broken characters
            ids = [random_.randrange(num_ids) for _ in range(random_.randint(1, 12))]
        checks.append(("text", string, {"op": "decode", "ids": ids, "skip_special": False}, "text", decode(ids)))
    differences = Differences()
    answers = text.ask_all([request for _, _, request, _, _ in checks])
    for (kind, string, _, key, expected), answer in zip(checks, answers):
        differences.check(kind, string, answer.get(key, answer), expected)
    # All that a stream hands out is what the whole text is (specials left out).
    lists = [request["ids"] for kind, _, request, _, _ in checks if kind == "text" and len(request["ids"]) <= 120][:streams]
    for ids, deltas, whole in zip(lists, text.ask_all([{"op": "stream", "ids": ids} for ids in lists]),
                                  text.ask_all([{"op": "decode", "ids": ids} for ids in lists])):
        differences.check("whole stream", str(ids), "".join(deltas["deltas"]), whole["text"])
    differences.report()


def compare_stream(text, strings, encode, decode):
    differences = Differences()
    lists = [encode(string)[:60] for string in strings]
    for string, ids, answer in zip(strings, lists, text.ask_all([{"op": "stream", "ids": ids} for ids in lists])):
        differences.check("deltas", string, answer["deltas"], reference_deltas(decode, ids))
    differences.report()


# ---- SentencePiece ----

@pytest.mark.parametrize("name", ["mistral_v1", "mistral_v2", "mistral_v3", "mistral_v7", "botchan_bpe", "botchan_unigram",
                                  "kyoto_unigram"])
def test_sentencepiece(text, folder, name):
    path = folder / f"{name}.model"
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    text.load(path)
    strings = hostile_strings(STRINGS)
    compare(text, strings, reference.encode, reference.decode, num_ids=reference.vocab_size())
    compare_stream(text, strings[:300], reference.encode, reference.decode)
    bos = [reference.bos_id()] if reference.bos_id() >= 0 else []
    assert text.encode("Hello", add_special=True) == bos + reference.encode("Hello")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Small SentencePiece models with every flag the other way round."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    corpus = folder / "corpus.txt"
    lines = [" ".join(hostile_strings(20, seed=seed)).replace("\n", " ").replace("\x00", "") for seed in range(60)]
    corpus.write_text("\n".join(lines) + "\n" + (ROOT / "README.md").read_text() * 3)
    made = {}

    def make(name, **options):
        options = {"vocab_size": 900, "hard_vocab_limit": False, "character_coverage": 0.98, "minloglevel": 2} | options
        sentencepiece.SentencePieceTrainer.train(input=str(corpus), model_prefix=str(folder / name), **options)
        made[name] = folder / f"{name}.model"

    make("bpe_fallback", model_type="bpe", byte_fallback=True, split_digits=True)
    make("bpe_identity", model_type="bpe", normalization_rule_name="identity", add_dummy_prefix=False,
         remove_extra_whitespaces=False)
    make("bpe_user", model_type="bpe", user_defined_symbols=["<turn>", "[INST]", "\u2581\u2581", "ab"], control_symbols=["<ctl>"])
    make("unigram_fallback", model_type="unigram", byte_fallback=True, normalization_rule_name="nfkc_cf")
    make("unigram_user", model_type="unigram", user_defined_symbols=["<turn>", "don't", "\u2581the"], remove_extra_whitespaces=False)
    make("unigram_suffix", model_type="unigram", treat_whitespace_as_suffix=True)
    make("unigram_plain", model_type="unigram", escape_whitespaces=True, add_dummy_prefix=False, bos_id=-1, eos_id=-1)
    return made


@pytest.mark.parametrize("name", ["bpe_fallback", "bpe_identity", "bpe_user", "unigram_fallback", "unigram_user", "unigram_suffix",
                                  "unigram_plain"])
def test_trained_sentencepiece(text, trained, name):
    reference = sentencepiece.SentencePieceProcessor(model_file=str(trained[name]))
    text.load(trained[name])
    strings = hostile_strings(STRINGS, ["<turn>", "<ctl>", "ab", "don't", " the"])
    compare(text, strings, reference.encode, reference.decode, num_ids=reference.vocab_size())


# ---- tiktoken and tekken ----

def tiktoken_ranks(path):
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in path.read_bytes().splitlines() if line)}


def whisper_specials(first):
    languages = json.loads((ROOT / "tests/data/text/whisper_languages.json").read_text())
    names = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev", "nospeech",
             "notimestamps", *[f"{i * 0.02:.2f}" for i in range(1501)]]
    return {f"<|{name}|>": first + i for i, name in enumerate(names)}


def tiktoken_reference(folder, name):
    import tiktoken_ext.openai_public as public
    ranks = tiktoken_ranks(folder / f"{name}.tiktoken")
    if name in ("cl100k", "o200k", "p50k"):
        public.load_tiktoken_bpe = lambda *_args, **_named: ranks
        made = getattr(public, f"{name}_base")()
        return tiktoken.Encoding(name, pat_str=made["pat_str"], mergeable_ranks=ranks, special_tokens=made["special_tokens"])
    if name == "qwen":
        specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
        return tiktoken.Encoding(name, pat_str=QWEN2, mergeable_ranks=ranks,
                                 special_tokens={token: 151643 + i for i, token in enumerate(specials)})
    return tiktoken.Encoding(name, pat_str=GPT2, mergeable_ranks=ranks, special_tokens=whisper_specials(len(ranks)))


@pytest.mark.parametrize("name", ["gpt2", "whisper", "cl100k", "o200k", "p50k", "qwen"])
def test_tiktoken(text, folder, name):
    reference = tiktoken_reference(folder, name)
    text.load(folder / f"{name}.tiktoken")
    prepare = (lambda string: unicodedata.normalize("NFC", string)) if name == "qwen" else (lambda string: string)

    def encode(string):
        return reference.encode(prepare(string), allowed_special="all", disallowed_special=())

    def plain(string):
        return reference.encode_ordinary(prepare(string))

    def decode(ids):
        known = []
        for id_ in ids:
            try:
                reference.decode_single_token_bytes(id_)
                known.append(id_)
            except KeyError:
                pass
        return reference.decode(known)

    specials = set(reference._special_tokens.values())
    strings = hostile_strings(STRINGS, sorted(reference.special_tokens_set)[:40])
    compare(text, strings, encode, decode, plain, num_ids=reference.n_vocab)
    compare_stream(text, strings[:300], encode, lambda ids: decode([id_ for id_ in ids if id_ not in specials]))


@pytest.mark.parametrize("name", ["tekken_240718", "tekken_240911"])
def test_tekken(text, folder, name):
    file = json.loads((folder / f"{name}.json").read_text())
    specials = file["config"]["default_num_special_tokens"]
    size = file["config"]["default_vocab_size"] - specials
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in file["vocab"] if entry["rank"] < size}
    model = tiktoken.Encoding(name, pat_str=file["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    text.load(folder / f"{name}.json")

    def encode(string):  # as mistral-common: a control token typed in text is text
        return [id_ + specials for id_ in model.encode(string)]

    def decode(ids):
        return model.decode([id_ - specials for id_ in ids])

    strings = hostile_strings(STRINGS)
    compare(text, strings, encode, decode, encode)
    compare_stream(text, strings[:300], encode, decode)
    assert text.encode("Hello", add_special=True) == [1] + encode("Hello")
    assert text.decode([1, *encode("Hi"), 2]) == "Hi"
    assert text.decode([1, *encode("Hi"), 2], skip_special=False) == "<s>Hi</s>"


# ---- GGUF ----

def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(tokenizers.Regex(pattern), behavior)


def plain_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def gpt2_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# name -> (steps, normaliser, ignore_merges)
PRE = {
    "gpt-2": ([gpt2_bytes()], None, False),
    "olmo": ([gpt2_bytes()], normalizers.NFC(), False),
    "smollm": ([pre_tokenizers.Digits(individual_digits=True), gpt2_bytes()], None, False),
    "command-r": ([pre_tokenizers.Digits(individual_digits=True), gpt2_bytes()], normalizers.NFC(), False),
    "llama-bpe": ([split(LLAMA3), plain_bytes()], None, True),
    "qwen2": ([split(QWEN2), plain_bytes()], normalizers.NFC(), False),
    "gpt-4o": ([split(O200K), plain_bytes()], None, True),
    "tekken": ([split(O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")), plain_bytes()], None, True),
    "deepseek-v3": ([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
                     split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                           " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), plain_bytes()], None, False),
    "deepseek-coder": ([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
                        pre_tokenizers.Digits(individual_digits=True), plain_bytes()], None, False),
    "falcon": ([pre_tokenizers.Punctuation("contiguous"), gpt2_bytes(), pre_tokenizers.Digits(individual_digits=False),
                split("[0-9][0-9][0-9]")], None, False),
    "bloom": ([split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), plain_bytes()], None, False),
}


def byte_level_reference(vocab, merges, pre, added):
    steps, normalizer, ignore_merges = PRE[pre]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    for content, special in added:
        token = tokenizers.AddedToken(content, special=special, normalized=False)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    return tokenizer


def reference_functions(tokenizer):
    return (lambda string: tokenizer.encode(string, add_special_tokens=False).ids,
            lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def test_default_model(text, test_model):
    import gguf
    fields = gguf.GGUFReader(test_model).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    added = [(token, type_ == 3) for token, type_ in zip(tokens, types) if type_ in (3, 4)]
    reference = byte_level_reference({token: i for i, token in enumerate(tokens)}, merges, "smollm", added)
    text.load(test_model)
    strings = hostile_strings(STRINGS, [token for token, _ in added])
    encode, decode = reference_functions(reference)
    compare(text, strings, encode, decode, num_ids=len(tokens))
    compare_stream(text, strings[:400], encode, lambda ids: reference.decode(ids))
    # Bytes that the vocabulary lacks are dropped, and never become a control token.
    assert text.encode("\x04a\x1d") == encode("a")
    assert 1 not in text.encode("<|im_start|>", plain=True)


@pytest.fixture(scope="module")
def gpt2_bpe(folder):
    return make_vocabulary_gguf.bpe_from_ranks(tiktoken_ranks(folder / "gpt2.tiktoken"))


@pytest.mark.parametrize("pre", sorted(PRE))
def test_gguf_pre_tokenizers(text, gpt2_bpe, pre, tmp_path):
    vocab, merges = gpt2_bpe
    added = [("<|endoftext|>", True), ("<think>", False), ("[INST]", True)]
    path = tmp_path / "vocab.gguf"
    make_vocabulary_gguf.write_bpe(path, vocab, merges, pre, added)
    reference = byte_level_reference(vocab, [tuple(merge) for merge in merges], pre, added)
    text.load(path)
    strings = hostile_strings(STRINGS, [token for token, _ in added])
    encode, decode = reference_functions(reference)
    compare(text, strings, encode, decode, num_ids=len(vocab) + len(added))


@pytest.mark.parametrize("name", ["mistral_v1", "botchan_bpe", "kyoto_unigram"])
def test_gguf_sentencepiece(text, folder, name, tmp_path):
    path = folder / f"{name}.model"
    made = tmp_path / "vocab.gguf"
    make_vocabulary_gguf.write_sentencepiece(made, path)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    text.load(made)
    strings = [string for string in hostile_strings(STRINGS) if not any(s in string for s in ("<s>", "</s>"))]
    compare(text, strings, reference.encode, reference.decode)
    # Unlike in a bare .model, the control tokens of a template are found.
    assert text.encode("<s>")[-1] == reference.piece_to_id("<s>")
    assert reference.piece_to_id("<s>") not in text.encode("<s>", plain=True)


def test_gguf_wordpiece(text, folder, tmp_path):
    reference = tokenizers.Tokenizer.from_file(str(folder / "minilm.json"))
    reference.no_padding()
    reference.no_truncation()
    path = tmp_path / "vocab.gguf"
    make_vocabulary_gguf.write_wordpiece(path, json.loads((folder / "minilm.json").read_text()))
    text.load(path)
    encode, decode = reference_functions(reference)
    compare(text, hostile_strings(STRINGS), encode, decode, num_ids=reference.get_vocab_size(), streams=0)
    assert text.encode("Hello", add_special=True) == reference.encode("Hello").ids


def test_unknown_pre_tokenizer_is_refused(text, gpt2_bpe, tmp_path):
    path = tmp_path / "vocab.gguf"
    vocab = {piece: i for piece, i in gpt2_bpe[0].items() if i < 256}
    make_vocabulary_gguf.write_bpe(path, vocab, [], "surprise", [])
    answer = text.ask(op="load", path=str(path))
    assert "surprise" in answer["error"] and "llama-bpe" in answer["error"]


def test_tiktoken_needs_its_config(text, tmp_path):
    path = tmp_path / "small.tiktoken"
    path.write_text("".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)))
    assert "pat_str" in text.ask(op="load", path=str(path))["error"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pat_str": GPT2, "special_tokens": {"<|endoftext|>": 256}}))
    text.load(path)
    assert text.encode("é<|endoftext|>") == [0xC3, 0xA9, 256]


# ---- tokenizer.json ----

@pytest.mark.parametrize("name", ["deepseek", "anthropic", "minilm", "moonshine"])
def test_tokenizer_json(text, folder, name):
    reference = tokenizers.Tokenizer.from_file(str(folder / f"{name}.json"))
    reference.no_padding()
    reference.no_truncation()
    text.load(folder / f"{name}.json")
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    strings = hostile_strings(STRINGS, added)
    encode, decode = reference_functions(reference)
    compare(text, strings, encode, decode, num_ids=reference.get_vocab_size(), streams=0)
    differences = Differences()
    for string in strings[:300]:
        whole = reference.encode(string).ids
        differences.check("with specials", string, text.encode(string, add_special=True), whole)
        deltas = tokenizer_diff.deltas(reference, whole)
        if deltas is not None:  # None: the reference takes text back
            differences.check("deltas", string, text.stream(whole), deltas)
    differences.report()
