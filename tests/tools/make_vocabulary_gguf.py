"""Writes vocabularies of other kinds as GGUF files without tensors, as a converter would: for tests."""

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_alphabet():
    """GPT-2's byte -> printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


def bpe_from_ranks(ranks):
    """(vocab, merges) of a tiktoken rank table: each piece's last merge is what its ranks below it make of it."""
    alphabet = byte_alphabet()

    def write(piece):
        return "".join(alphabet[byte] for byte in piece)

    merges = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) == 1:
            continue
        parts = [piece[i:i + 1] for i in range(len(piece))]
        while len(parts) > 2:
            best, at = None, None
            for i in range(len(parts) - 1):
                pair = ranks.get(parts[i] + parts[i + 1])
                if pair is not None and pair < rank and (best is None or pair < best):
                    best, at = pair, i
            if at is None:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        assert len(parts) == 2, piece
        merges.append((write(parts[0]), write(parts[1])))
    return {write(piece): rank for piece, rank in ranks.items()}, merges


def _writer(path, model):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    return writer


def _finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_bpe(path, vocab, merges, pre, added):
    writer = _writer(path, "gpt2")
    writer.add_tokenizer_pre(pre)
    tokens = [piece for piece, _ in sorted(vocab.items(), key=lambda item: item[1])]
    types = [NORMAL] * len(tokens)
    for content, special in added:
        tokens.append(content)
        types.append(CONTROL if special else USER_DEFINED)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    _finish(writer)


def write_sentencepiece(path, model_path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model_path))
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model_path.read_bytes())
    unigram = proto.trainer_spec.model_type == 1
    writer = _writer(path, "t5" if unigram else "llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.piece for piece in proto.pieces])
    writer.add_token_scores([piece.score for piece in proto.pieces])
    writer.add_token_types([piece.type for piece in proto.pieces])
    writer.add_bos_token_id(processor.bos_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.add_unk_token_id(processor.unk_id())
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    if proto.normalizer_spec.precompiled_charsmap:
        writer.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    _finish(writer)


def write_wordpiece(path, file):
    """file: a parsed tokenizer.json with a WordPiece model."""
    writer = _writer(path, "bert")
    special = {token["content"] for token in file["added_tokens"]}
    tokens, types = [], []
    vocab = file["model"]["vocab"]
    for piece, _ in sorted(vocab.items(), key=lambda item: item[1]):
        if piece in special:
            tokens.append(piece)
            types.append(UNKNOWN if piece == "[UNK]" else CONTROL)
        else:
            tokens.append(piece[2:] if piece.startswith("##") else "\u2581" + piece)
            types.append(NORMAL)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_unk_token_id(vocab["[UNK]"])
    writer.add_bos_token_id(vocab["[CLS]"])
    writer.add_sep_token_id(vocab["[SEP]"])
    _finish(writer)
