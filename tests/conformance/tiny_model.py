"""A model folder small enough to read: byte-level BPE over the 256 bytes, a few merges, ChatML."""

import json

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("B", "C"), ("D", "E"), ("DE", "F")]
MAX_MODEL_LEN = 512


def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in printable}
    for index, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + index)
    return table


def vocabulary():
    """Piece -> id: byte b has id b, then the merges, then the special tokens."""
    alphabet = byte_alphabet()
    vocab = {alphabet[b]: b for b in range(256)}
    for left, right in MERGES:
        vocab[left + right] = len(vocab)
    return vocab


VOCAB = vocabulary()
SPECIAL_IDS = {text: len(VOCAB) + i for i, text in enumerate(SPECIALS)}
VOCAB_SIZE = len(VOCAB) + len(SPECIALS)
EOS = SPECIAL_IDS["<|im_end|>"]


def piece_id(text):
    """The id of a piece of ASCII text that is one token."""
    return VOCAB[text]


def byte_ids(data):
    """One id a byte."""
    return list(data)


def begins_with(token):
    """A post-processor that puts a token before every text."""
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [SPECIAL_IDS[token]], "tokens": [token]}}}


def write(folder, eos=("<|im_end|>", "<|endoftext|>"), chat_template=CHAT_TEMPLATE, bos=None):
    """Writes the model's text files; no weights. bos: a token that begins every text."""
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for text, i in SPECIAL_IDS.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": begins_with(bos) if bos else None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": VOCAB, "merges": [" ".join(pair) for pair in MERGES]},
    }
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB_SIZE,
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "torch_dtype": "float32",
        "eos_token_id": SPECIAL_IDS[eos[0]],
    }
    tokenizer_config = {"eos_token": eos[0], "bos_token": bos or "<|im_start|>",
                        "tokenizer_class": "PreTrainedTokenizerFast"}
    if chat_template is not None:
        tokenizer_config["chat_template"] = chat_template
    generation = {"eos_token_id": [SPECIAL_IDS[name] for name in eos]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("tokenizer.json", tokenizer), ("config.json", config),
                          ("tokenizer_config.json", tokenizer_config),
                          ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder
