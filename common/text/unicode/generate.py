#!/usr/bin/env python3
"""Writes unicode_data.cc next to this script: the character properties that tokenizers depend on.

Each consumer in Hugging Face's library follows another version of Unicode, found by asking it about
every code point:
  regular expressions (Oniguruma)              16.0
  char methods of Rust (numeric, lower case)   17.0
  NFC, NFD, NFKC, NFKD, StripAccents, scripts   9.0
  NFC of Python 3.11 (Qwen's .tiktoken)        14.0
  BertNormalizer, Punctuation                   8.0
  grapheme clusters                            16.0
An older version is the present data without what is younger (property Age), and with the few
categories that changed since. Needs: pip install unicodedataplus==16.0.0.post1
"""

import pathlib
import sys

import unicodedataplus as ud

assert ud.unidata_version == "16.0.0", ud.unidata_version
LIMIT = 0x110000
CODE_POINTS = [c for c in range(LIMIT) if not 0xD800 <= c <= 0xDFFF]
UNASSIGNED = 99.0


def age(c):
    try:
        return float(ud.age(chr(c)))
    except ValueError:
        return UNASSIGNED


AGE = {c: age(c) for c in CODE_POINTS}
CATEGORY = {c: ud.category(chr(c)) for c in CODE_POINTS}

FLAGS = ["Letter", "Number", "Mark", "Upper", "Lower", "Title", "ModifierLetter", "OtherLetter",
         "Punctuation", "Symbol", "Space", "RegexWord", "RustWord", "RustNumeric", "BertControl",
         "BertMark", "BertPunctuation", "CombiningMark", "DecimalNumber", "Han", "Pictographic"]
BIT = {name: 1 << i for i, name in enumerate(FLAGS)}

SPACE = {9, 10, 11, 12, 13, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
         0x202F, 0x205F, 0x3000}
# Other_Alphabetic that is no letter, mark or number: circled and squared Latin letters.
ALPHABETIC_SYMBOLS = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
                      *range(0x1F170, 0x1F18A)}
# Oniguruma's \w has these superscripts and fractions of Latin-1 too.
REGEX_WORD_EXTRA = {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}
JOIN_CONTROL = {0x200C, 0x200D}
NUMERIC_17 = {*range(0x11DE0, 0x11DEA), 0x16FF4, 0x16FF5, 0x16FF6}
ASCII_PUNCTUATION = {c for c in range(33, 127) if not chr(c).isalnum()}
BERT_MARK_CHANGES = {0x1734: True, 0x1885: False, 0x1886: False, 0xA9BD: False, 0x111C9: False,
                     0x1171E: True}
BERT_PUNCTUATION_CHANGES = {0x166D: True, 0x111C9: True}
COMBINING_MARK_CHANGES = {0x1CF2: True, 0x1CF3: True, 0x111C9: False}


def flags_of(c):
    category = CATEGORY[c]
    bits = 0

    def put(name, value):
        nonlocal bits
        if value:
            bits |= BIT[name]

    put("Letter", category[0] == "L")
    put("Number", category[0] == "N")
    put("Mark", category[0] == "M")
    put("Upper", category == "Lu")
    put("Lower", category == "Ll")
    put("Title", category == "Lt")
    put("ModifierLetter", category == "Lm")
    put("OtherLetter", category == "Lo")
    put("Punctuation", category[0] == "P")
    put("Symbol", category[0] == "S")
    put("Space", c in SPACE)
    word = category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in ALPHABETIC_SYMBOLS
    put("RegexWord", word or c in REGEX_WORD_EXTRA)
    put("RustWord", word or c in JOIN_CONTROL)
    put("RustNumeric", category[0] == "N" or c in NUMERIC_17)
    put("BertControl", category in ("Cc", "Cf", "Co") and AGE[c] <= 8.0 and c not in (9, 10, 13)
        or c == 0xFFFD)
    put("BertMark", BERT_MARK_CHANGES.get(c, category == "Mn" and AGE[c] <= 8.0))
    put("BertPunctuation", c in ASCII_PUNCTUATION or
        BERT_PUNCTUATION_CHANGES.get(c, category[0] == "P" and AGE[c] <= 8.0))
    put("CombiningMark", COMBINING_MARK_CHANGES.get(c, category[0] == "M" and AGE[c] <= 9.0))
    put("DecimalNumber", category == "Nd")
    put("Han", ud.script(chr(c)) == "Han")
    put("Pictographic", ud.is_extended_pictographic(chr(c)))
    return bits


BREAKS = ["Other", "CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend",
          "SpacingMark", "L", "V", "T", "LV", "LVT"]
CONJUNCT = ["None", "Consonant", "Extend", "Linker"]


def break_of(c):
    kind = BREAKS.index(ud.grapheme_cluster_break(chr(c)))
    conjunct = CONJUNCT.index(ud.indic_conjunct_break(chr(c)))
    return kind | conjunct << 4


def ranges(value_of):
    result, last = [], None
    for c in range(LIMIT):
        value = 0 if 0xD800 <= c <= 0xDFFF else value_of(c)
        if value != last:
            result.append((c, value))
            last = value
    return result


# Lower case: Python 3.11 knows Unicode 14; what came later.
LOWER_LATER = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3,
               0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B,
               **{0x10D50 + i: 0x10D70 + i for i in range(22)},
               **{0x16EA0 + i: 0x16EBB + i for i in range(25)}}


def lower_of(c):
    if c in LOWER_LATER:
        return chr(LOWER_LATER[c])
    return chr(c).lower()


def decomposition(c, compat):
    """Full decomposition by Unicode 9.0, or None."""
    if AGE[c] > 9.0 or 0xAC00 <= c <= 0xD7A3:
        return None
    text = ud.normalize("NFKD" if compat else "NFD", chr(c))
    return None if text == chr(c) else text


def compositions():
    result = []
    for c in CODE_POINTS:
        raw = ud.decomposition(chr(c)).split()
        if not raw or raw[0].startswith("<") or len(raw) != 2 or AGE[c] > 9.0:
            continue
        if ud.normalize("NFC", chr(c)) != chr(c):
            continue  # composition exclusion
        a, b = (int(x, 16) for x in raw)
        result.append((a, b, c))
    return sorted(result)


SCRIPT_MAX_AGE = 9.0


def emit(out, name, type_name, numbers, per_line=12):
    out.append(f"const {type_name} {name}[] = {{")
    for i in range(0, len(numbers), per_line):
        out.append("    " + ", ".join(f"{n:#x}" if n > 9 else str(n) for n in
                                       numbers[i:i + per_line]) + ",")
    out.append("};")
    out.append(f"const size_t {name}Size = {len(numbers)};")
    out.append("")


def main():
    out = ["// Written by generate.py; do not edit.", "// clang-format off", "",
           '#include "common/text/unicode/unicode_data.h"', "", "namespace penstock::unicode {", ""]
    flags = ranges(flags_of)
    emit(out, "kFlagRanges", "uint32_t", [n for pair in flags for n in pair])
    emit(out, "kBreakRanges", "uint32_t", [n for pair in ranges(break_of) for n in pair])
    combining = ranges(lambda c: ud.combining(chr(c)) if AGE[c] <= 9.0 else 0)
    emit(out, "kCombiningRanges", "uint32_t", [n for pair in combining for n in pair])
    combining = ranges(lambda c: ud.combining(chr(c)) if AGE[c] <= 14.0 else 0)
    emit(out, "kCombining14Ranges", "uint32_t", [n for pair in combining for n in pair])
    scripts = sorted({ud.script(chr(c)) for c in CODE_POINTS})
    scripts.remove("Unknown")
    scripts.insert(0, "Unknown")
    script_ranges = ranges(lambda c: scripts.index(ud.script(chr(c)))
                           if AGE[c] <= SCRIPT_MAX_AGE else 0)
    for name in ("Han", "Hiragana", "Katakana"):
        out.append(f"const uint32_t kScript{name} = {scripts.index(name)};")
    emit(out, "kScriptRanges", "uint32_t", [n for pair in script_ranges for n in pair])
    lower = []
    for c in CODE_POINTS:
        text = lower_of(c)
        if text != chr(c):
            assert len(text) <= 2
            lower += [c, ord(text[0]), ord(text[1]) if len(text) > 1 else 0]
    emit(out, "kLowerMap", "uint32_t", lower)
    # Decompositions: code point, offset << 8 | canonical length << 4 ... two tables, one text pool.
    pool, where = [], {}
    for name, compat in (("kCanonical", False), ("kCompatible", True)):
        entries = []
        for c in CODE_POINTS:
            text = decomposition(c, compat)
            if text is None or compat and text == decomposition(c, False):
                continue
            if text not in where:
                where[text] = len(pool)
                pool += [ord(x) for x in text]
            entries += [c, where[text] << 8 | len(text)]
        emit(out, name, "uint32_t", entries)
    emit(out, "kDecompositionPool", "uint32_t", pool)
    emit(out, "kCompositions", "uint32_t", [n for triple in compositions() for n in triple])
    out += ["}  // namespace penstock::unicode", ""]
    path = pathlib.Path(__file__).with_name("unicode_data.cc")
    path.write_text("\n".join(out))
    header = ["#pragma once", "",
              "// Written by generate.py; do not edit. Ranges are pairs (first code point, value), up to",
              "// the next pair's first code point.", "",
              "#include <cstddef>", "#include <cstdint>", "", "namespace penstock::unicode {", "",
              "enum Flag : uint32_t {"]
    header += [f"  k{name} = {BIT[name]:#x}," for name in FLAGS]
    header += ["};", "",
               "// Grapheme_Cluster_Break in the low four bits, Indic_Conjunct_Break above them.",
               "enum Break : uint8_t {"]
    header += [f"  kBreak{name.replace('_', '')} = {i}," for i, name in enumerate(BREAKS)]
    header += ["};", ""]
    for name in ("FlagRanges", "BreakRanges", "CombiningRanges", "Combining14Ranges", "ScriptRanges", "LowerMap",
                 "Canonical", "Compatible", "DecompositionPool", "Compositions"):
        header += [f"extern const uint32_t k{name}[];", f"extern const size_t k{name}Size;"]
    for name in ("Han", "Hiragana", "Katakana"):
        header.append(f"extern const uint32_t kScript{name};")
    header += ["", "}  // namespace penstock::unicode", ""]
    path.with_suffix(".h").write_text("\n".join(header))
    print(len(flags), "flag ranges,", path.stat().st_size, "bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
