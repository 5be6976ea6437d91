"""Makes common/text/jinja/unicode_tables.cc: what Python's str methods know about characters, as
jinja2 templates see it. Run with Python 3.11 (Unicode 14): python tests/tools/make_jinja_unicode.py
"""

import pathlib
import re
import sys

ALPHA, NUMERIC, DIGIT, DECIMAL, SPACE, UPPER, LOWER, TITLE = (1 << i for i in range(8))
PRINTABLE, ID_START, ID_CONTINUE, CASED, IGNORABLE, WORD = (1 << i for i in range(8, 14))
SURROGATES = range(0xD800, 0xE000)


def flags(c):
    bits = 0
    bits |= ALPHA * c.isalpha() | NUMERIC * c.isnumeric() | DIGIT * c.isdigit()
    bits |= DECIMAL * c.isdecimal() | SPACE * c.isspace()
    bits |= UPPER * c.isupper() | LOWER * c.islower()
    bits |= TITLE * (c.istitle() and not c.isupper())
    bits |= PRINTABLE * c.isprintable()
    bits |= ID_START * c.isidentifier() | ID_CONTINUE * ("a" + c).isidentifier()
    bits |= CASED * ((c + "a").title()[-1] == "a")
    before_sigma = (c + "\u03a3").lower()[-1] == "\u03c2"
    bits |= IGNORABLE * (("A" + c + "\u03a3").lower()[-1] == "\u03c2" and not before_sigma)
    bits |= WORD * (re.fullmatch(r"\w", c) is not None)
    return bits


def ranges():
    out, last = [], None
    for code in range(0x110000):
        bits = 0 if code in SURROGATES else flags(chr(code))
        if bits != last:
            out.append((code, bits))
            last = bits
    return out


def case_map(function):
    pool, entries = bytearray(), []
    for code in range(0x110000):
        if code in SURROGATES:
            continue
        mapped = function(chr(code))
        if mapped != chr(code):
            data = mapped.encode()
            entries.append((code, len(pool), len(data)))
            pool += data
    return entries, bytes(pool)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    lines = [
        "// Made by tests/tools/make_jinja_unicode.py: do not edit.", "",
        '#include "common/text/jinja/unicode_tables.h"', "",
        "namespace penstock::jinja {", "// clang-format off", "",
    ]

    def array(declaration, cells):
        lines.append(f"{declaration} = {{")
        row = ""
        for cell in cells:
            if len(row) + len(cell) > 96:
                lines.append("  " + row)
                row = ""
            row += cell
        lines.append("  " + row)
        lines.append("};")

    table = ranges()
    array(f"const UnicodeRange kUnicodeRanges[{len(table)}]", [f"{{{c},{b}}}," for c, b in table])
    lines.append(f"const size_t kNumUnicodeRanges = {len(table)};")
    for name, function in (("Upper", str.upper), ("Lower", str.lower), ("Title", str.title),
                           ("Fold", str.casefold)):
        entries, pool = case_map(function)
        array(f"const CaseMapping kTo{name}[{len(entries)}]", [f"{{{c},{o},{n}}}," for c, o, n in entries])
        array(f"const unsigned char kTo{name}Pool[{len(pool)}]", [f"{b}," for b in pool])
        lines.append(f"const CaseMap k{name}Map = {{kTo{name}, {len(entries)}, kTo{name}Pool}};")
    lines += ["", "// clang-format on", "}  // namespace penstock::jinja", ""]
    (root / "common/text/jinja/unicode_tables.cc").write_text("\n".join(lines))


if __name__ == "__main__":
    if sys.version_info[:2] != (3, 11):
        sys.exit("run with Python 3.11: the tables follow its Unicode version")
    main()
