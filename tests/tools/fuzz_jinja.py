"""Compares the Jinja engine with jinja2 over random templates, until they differ or time is up.

    python tests/tools/fuzz_jinja.py build/dev/bin/template_lines [--seconds 60] [--seed 1]

Every difference is printed, with the template and both answers.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time

import warnings

import jinja_oracle

warnings.simplefilter("ignore")

VARIABLES = {
    "s": "Hello, Wörld", "t": "  a<b> & 'c' \"d\"\n\tx  ", "u": "ßΣΑΣ ǆ İi 日本 😊", "e": "", "w": "one two  three\nfour",
    "n": 7, "z": 0, "m": -3, "f": 2.5, "g": 1e16, "h": -0.1, "b": True, "c": False, "x": None,
    "big": 123456789012345678901234567890,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "ll": [[1, 2], [3, 4]], "le": [], "mix": [1, "a", None, 2.5, True, [1]],
    "d": {"b": 1, "a": "x", "items": 5, "Z": None}, "de": {}, "dn": {"k": {"k2": [1, {"q": "deep"}]}},
    "ms": [{"role": "user", "content": "hi", "n": 3}, {"role": "assistant", "content": "yo", "n": 1},
           {"role": "user", "content": "bye", "n": 2, "x": None}],
}
NAMES = list(VARIABLES) + ["nope", "l", "ls", "d", "ms", "s", "n"]
STRINGS = ["''", "'a'", "'b'", '"it\'s"', "'x,y,z'", "'\\n'", "'role'", "'k'", "'é'", "'%s-%d'", "'{}:{:>5}'", "' '",
           "'A b-c'", "'12'", "'3.7'", "'0x1f'", "'\\u00e9\\x41'", "'%5.2f|'", "'{0}{a}'", "'1e3'", "'a\\tb'"]
NUMBERS = ["0", "1", "2", "3", "-1", "10", "2.5", "1e3", "0.1", "1_000", "0x1F", "100", "1e-7", "3.0"]
FILTERS = [
    "abs", "attr('items')", "attr('x')", "batch(2)|list", "batch(3, 'z')|list", "capitalize", "center(9)", "count",
    "d('D')", "default('D', true)", "default", "dictsort", "dictsort(true)", "dictsort(by='value')",
    "dictsort(reverse=true)", "e", "escape", "filesizeformat", "filesizeformat(true)", "first", "float", "float(1.5)",
    "forceescape", "format(1, 'a')", "format('q')", "groupby('role')", "groupby(0)|list", "indent", "indent(2, true)",
    "indent(width='> ', blank=true)", "int", "int(9)", "int(base=16)", "items|list", "join", "join(', ')",
    "join('-', attribute='role')", "join(attribute='n')", "last", "length", "list", "lower", "map('upper')|list",
    "map(attribute='role')|list", "map(attribute='zz', default='Q')|list", "map('default', 'r')|list", "max", "min",
    "max(attribute='n')", "min(case_sensitive=true)", "reject('odd')|list", "reject|list", "rejectattr('x')|list",
    "rejectattr('role', 'eq', 'user')|list", "replace('a', 'bb')", "replace('', '-')", "replace('l', 'L', 1)",
    "reverse|list", "reverse", "round", "round(1)", "round(-1)", "round(1, 'floor')", "round(0, 'ceil')", "safe",
    "select|list", "select('string')|list", "select('gt', 1)|list", "selectattr('role', 'equalto', 'user')|list",
    "selectattr('x', 'defined')|list", "selectattr('n')|map(attribute='content')|join(' ')", "slice(2)|list",
    "slice(3, 0)|list", "sort", "sort(reverse=true)", "sort(attribute='n')", "sort(attribute='role,n')",
    "sort(case_sensitive=true)", "string", "sum", "sum(start=1)", "sum(attribute='n')", "title", "tojson",
    "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))",
    "tojson(indent=1, separators=(', ', ' : '))", "trim", "trim('a ')", "truncate(5)", "truncate(5, true, '', 0)", "unique|list",
    "unique(attribute='role')|list", "upper", "urlencode", "wordcount", "xmlattr", "nosuch", "map('nosuch')|list",
    "select('nosuch')|list", "map|list", "selectattr|list", "tojson(bad=1)", "join(1, 2, 3)",
]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "iterable", "sequence",
         "boolean", "true", "false", "odd", "even", "lower", "upper", "callable", "escaped", "divisibleby 2",
         "divisibleby(3)", "eq 1", "equalto 'a'", "ne none", "gt 1", "lt 'b'", "ge 2", "le 2.5", "in [1, 'a', 7]",
         "in 'abc'", "sameas none", "sameas true", "filter", "test", "nosuch", "greaterthan 2", "in s"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()", "strip('a')",
           "lstrip(' H')", "rstrip('d\\n')", "split()", "split(',')", "split(' ', 1)", "split(none, 1)", "rsplit('o', 1)",
           "rsplit(maxsplit=1)", "splitlines()", "splitlines(true)", "replace('a', 'b')", "replace('l', '', 1)", "startswith('H')",
           "startswith(('a', 'H'))", "endswith('d')", "find('l')", "find('l', 3)", "rfind('l')", "index('l')", "rindex('z')", "count('l')",
           "count('')", "join(ls)", "join(l)", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()",
           "istitle()", "isnumeric()", "isdecimal()", "isidentifier()", "isascii()", "isprintable()", "removeprefix('He')", "removesuffix('ld')",
           "partition('o')", "rpartition('o')", "ljust(8, '.')", "rjust(8)", "center(9, '*')", "zfill(6)", "expandtabs(4)",
           "format(1, 2)", "format(n, a='z')", "keys()", "values()", "items()", "items()|list", "keys()|list", "get('a')", "get('q', 'def')",
           "get('b', 1) + 1", "copy()", "append(1)", "pop()", "update({})", "clear()", "sort()", "index(1)", "count(1)", "nosuch()",
           "__class__", "__len__", "_private", "items", "upper", "get", "a", "role", "0", "1", "k.k2", "real", "bit_length()",
           "setdefault('a', 1)", "insert(0, 1)", "startswith(1)", "split('')", "find(1)", "join(1)"]


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, items):
        return self.rng.choice(items)

    def atom(self):
        kind = self.rng.random()
        if kind < 0.5:
            return self.pick(NAMES)
        if kind < 0.65:
            return self.pick(STRINGS)
        if kind < 0.8:
            return self.pick(NUMBERS)
        return self.pick(["true", "false", "none", "[]", "{}", "()", "range(3)", "range(1, 6, 2)", "range(5)[::-1]", "namespace(a=1)",
                          "dict(a=1, b=2)", "dict([('x', 1)])", "[1, 2, 3,]", "('a', 1)", "{'a': 1, 'b': [2]}", "('x',)",
                          "cycler(1, 2).next()", "joiner()()", "namespace(a=2).a", "loop", "loop.index"])

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        kind = self.rng.randrange(17)
        sub = lambda: self.expr(depth - 1 - self.rng.randrange(2))
        if kind == 0:
            return f"{sub()} {self.pick(['+', '-', '*', '/', '//', '%', '**', '~'])} {sub()}"
        if kind == 1:
            return f"({sub()} {self.pick(['+', '-', '*', '%', '~', 'and', 'or'])} {sub()})"
        if kind == 2:
            return f"{sub()} {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {sub()}"
        if kind == 3:
            return f"({sub()} < {sub()} {self.pick(['<', '==', '>=', 'in'])} {sub()})"
        if kind == 4:
            return f"({sub()} if {sub()} else {sub()})"
        if kind == 5:
            return f"({sub()} if {sub()})"
        if kind in (6, 7, 8):
            return f"{self.paren(sub())}|{self.pick(FILTERS)}"
        if kind in (9, 10):
            return f"({sub()} is {self.pick(['', 'not '])}{self.pick(TESTS)})"
        if kind in (11, 12):
            return f"{self.paren(sub())}.{self.pick(METHODS)}"
        if kind == 13:
            return f"{self.paren(sub())}[{self.index()}]"
        if kind == 14:
            return f"[{sub()}, {sub()}]" if self.rng.random() < 0.5 else f"{{{sub()}: {sub()}}}"
        if kind == 15:
            return f"{self.pick(['not ', '-', '+'])}{self.paren(sub())}"
        return f"({sub()})"

    def paren(self, text):
        return text if re.fullmatch(r"\w+", text) and not text[0].isdigit() else f"({text})"

    def index(self):
        return self.pick(["0", "-1", "1", "'a'", "'items'", "1:", ":2", ":-1", "::-1", "::2", "-2:", "1:2", "5:1:-1", "n", "'role'",
                          "'upper'", ":", "100", "-100:", "2::-1", "none:1", "true", "1.0", "x", "nope", "s"])

    def data(self):
        return self.pick(["a", " ", "\n", "  \n  ", "x y\n", "\n\n", "", "é", "\t", "{", "}", "#", "\r\n", " b "])

    def signs(self, begin, end):
        return (begin + self.pick(["", "", "", "-", "+"]), self.pick(["", "", "", "-"] + (["+"] if end == "%}" else [])) + end)

    def tag(self, text):
        begin, end = self.signs("{%", "%}")
        return f"{begin} {text} {end}"

    def body(self, depth, in_loop=False):
        return "".join(self.statement(depth, in_loop) for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth, in_loop=False):
        kind = self.rng.randrange(15) if depth > 0 else self.rng.randrange(3)
        name = self.pick(["a1", "a2", "s", "n", "i", "ns"])
        if kind == 0:
            return self.data()
        if kind in (1, 2):
            begin, end = self.signs("{{", "}}")
            return f"{self.data()}{begin} {self.expr(2)} {end}{self.data()}"
        body = lambda loop=in_loop: self.body(depth - 1, loop)
        if kind == 3:
            return self.tag(f"if {self.expr(1)}") + body() + self.pick(["", self.tag(f"elif {self.expr(1)}") + body()]) + \
                self.pick(["", self.tag("else") + body()]) + self.tag("endif")
        if kind in (4, 5):
            target = self.pick(["i", "i", "a1", "i, a2", "(i, a1)"])
            return self.tag(f"for {target} in {self.pick(['l', 'ls', 'ms', 'd.items()', 'll', 's', 'range(3)', self.expr(1)])}" +
                            self.pick(["", "", f" if {self.expr(1)}"])) + body(True) + \
                self.pick(["", "", self.tag(f"if {self.expr(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")]) + \
                self.pick(["{{ loop.index }}", "{{ loop.last }}{{ loop.revindex }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "",
                           "{{ loop.cycle('p', 'q') }}", "{{ loop.changed(i) }}", "{{ loop.length }}{{ loop.first }}{{ loop.depth }}"]) + \
                self.pick(["", self.tag("else") + body()]) + self.tag("endfor")
        if kind == 6:
            return self.tag(f"set {name} = {self.expr(2)}")
        if kind == 7:
            return self.tag(f"set {name}{self.pick(['', ' | upper', ' | trim | length'])}") + body(False) + self.tag("endset")
        if kind == 8:
            return self.tag(f"set {self.pick(['ns.v', 'ns.w', 'a1, a2', 'n, ns.v'])} = {self.expr(1)}")
        if kind == 9:
            args = self.pick(["", "p", "p, q='Q'", "p=n, q=p", "i"])
            calls = self.pick(["mm()", "mm(1)", "mm(1, 2)", "mm(1, 2, 3)", "mm(q=5)", "mm(z=1)", "mm(*l)", "mm(**d)"])
            special = self.pick(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ p }}{{ q }}"])
            return self.tag(f"macro mm({args})") + body(False) + special + self.tag("endmacro") + \
                self.pick([f"{{{{ {calls} }}}}", self.tag(f"call {calls}") + body(False) + self.tag("endcall")])
        if kind == 10:
            return self.tag(f"with a1 = {self.expr(1)}, a2 = a1") + body() + self.tag("endwith")
        if kind == 11:
            return self.tag(f"filter {self.pick(['upper', 'trim', 'indent(2)', 'replace(s, e)', 'length'])}") + body() + self.tag("endfilter")
        if kind == 12:
            return self.pick(["{# c #}", "{#- c -#}\n", "{% raw %} {{ x }} {% endraw %}", "{%- raw -%} {% a %} {%- endraw -%}\n", "{#+ x +#}\n",
                              self.tag("generation") + body(False) + self.tag("endgeneration")])
        if kind == 13:
            return self.tag("set ns = namespace(v=0, w=[])") + body()
        return self.tag("for i in ll recursive") + "{{ i if i is not iterable else loop(i) }}" + body(True) + self.tag("endfor")

    def template(self):
        if self.rng.random() < 0.6:
            return "{{ " + self.expr(self.rng.randrange(1, 4)) + " }}"
        return self.body(2) + self.body(2)


def differs(mine, theirs):
    if "text" in theirs:
        # addresses, and Python's own hash order, are no answers
        if "0x7" in theirs["text"] or " at 0x" in theirs["text"] or "<generator" in theirs["text"] or "<bound method" in theirs["text"] or "built-in" in theirs["text"]:
            return False
        return mine.get("text") != theirs["text"]
    if theirs.get("error") == "raised":
        return mine.get("error") != theirs["message"]
    return "error" not in mine


def known(mine, theirs):
    """Differences by design: integers beyond 64 bits, and what is refused when a template is loaded."""
    message = mine.get("error", "")
    if ("is not subscriptable" in message or "unhashable type: 'slice'" in message) and theirs.get("text") is not None:
        return True  # jinja2 folds a slice of a literal that has none to nothing
    if "bit_length" in message or "No filter named 'nosuch'" in message or "No test named 'nosuch'" in message:
        return True  # big integers' methods; folded away by jinja2 before it looks for the name
    if "unhashable" in theirs.get("message", ""):
        return True  # found by jinja2 in a branch that is not taken, as it folds constants
    return "64 bits" in message or "complex number" in message or "not supported" in message


class Engine:
    """The program that answers one JSON line with another."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(self, template, variables):
        self.process.stdin.write(json.dumps({"template": template, "vars": variables}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the engine died on {template!r}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def differences(engine, templates):
    """Yields (template, mine, theirs, is it by design) for every template."""
    for template in templates:
        mine, theirs = engine.render(template, VARIABLES), jinja_oracle.render(template, VARIABLES)
        different = differs(mine, theirs)
        yield template, mine, theirs, different, different and known(mine, theirs)


def random_templates(seed):
    generator = Generator(random.Random(seed))
    while True:
        yield generator.template()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=40)
    options = parser.parse_args()
    begin, count, bad, skipped, answered = time.time(), 0, 0, 0, 0
    for template, mine, theirs, different, by_design in differences(Engine(options.binary),
                                                                    random_templates(options.seed)):
        count += 1
        answered += "text" in theirs
        skipped += by_design
        if different and not by_design:
            bad += 1
            if bad <= options.show:
                print(json.dumps(template, ensure_ascii=False))
                print("   mine  ", json.dumps(mine, ensure_ascii=False)[:300])
                print("   jinja2", json.dumps(theirs, ensure_ascii=False)[:300])
        if time.time() - begin > options.seconds:
            break
    print(f"{count} templates ({answered} render), {bad} differ, {skipped} differ by design")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
