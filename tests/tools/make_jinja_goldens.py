"""Makes tests/data/jinja/*.json: templates, variables, and what jinja2 3.1.6 makes of them as
transformers configures it. Run: python tests/tools/make_jinja_goldens.py

A case has `text`, or `error` (jinja2's kind; "raised" for raise_exception), `message` and `line`.
"""

import json
import pathlib
import sys

import jinja2

import jinja_oracle

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "jinja"
CLOCK = "2026-03-05T14:07:09"

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather <b> & 'x' — 日本 /p\nof a place.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "Town, \"quoted\""},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "box": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]},
    }, "required": ["place"]}, "return": {"type": "string"}}}
CLOCK_TOOL = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": "  You are terse.\n"}
USER = {"role": "user", "content": "Hi there <|im_end|> {{ 1 }}\n  "}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {
        "place": "Zürich", "z": 1.0, "a": [1, 2.5, None, True], "big": 12345678901234567890123}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "content": "rain\nall day"}
ANSWER = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nIt rains. 🌧"}
PLAIN = {"role": "assistant", "content": " Sure.  "}
MORE = {"role": "user", "content": "And tomorrow?"}
THOUGHT = {"role": "assistant", "content": "42", "reasoning_content": "\n6*7\n", "thinking": "6*7"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "B "}]}

CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, PLAIN, MORE],
    "tools": [SYSTEM, USER, CALL, RESULT, ANSWER, MORE],
    "call_last": [USER, CALL],
    "results": [USER, CALL, RESULT, RESULT],
    "thought": [USER, THOUGHT],
    "thought_earlier": [USER, THOUGHT, MORE],
    "parts": [PARTS],
    "wrong_order": [PLAIN, USER],
    "lone_result": [USER, RESULT],
    "no_content": [{"role": "user", "content": None}],
    "empty": [],
}


def family_cases():
    for path in sorted((DATA / "templates").glob("*.jinja")):
        for name, chat in CHATS.items():
            for extra_name, extra in (
                    ("", {"add_generation_prompt": True}),
                    ("+tools", {"add_generation_prompt": True, "tools": [WEATHER, CLOCK_TOOL]}),
                    ("+options", {"add_generation_prompt": False, "enable_thinking": False, "date_string": "today",
                                  "tools_in_user_message": False, "tools": [WEATHER], "controls": {"b": 1, "a": "x"},
                                  "documents": [{"title": "T & <i>", "text": "one\ntwo\n\nthree"}, {"text": "é"}]})):
                variables = {"messages": chat, "tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", **extra}
                yield {"name": f"{path.stem}/{name}{extra_name}", "template_file": path.name, "vars": variables}


VARS = {
    "s": "Hello, Wörld", "t": "  pad\t\n", "n": 7, "f": 2.5, "none_": None, "yes": True, "no": False, "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"], "d": {"b": 1, "a": "x", "items": 5}, "nested": {"k": {"k2": [1, {"q": "deep"}]}},
    "big": 123456789012345678901234567890, "u": "ßΣΑΣ ǆ İi 日本 😊", "html": "<a href=\"x\">'&'</a>",
    "people": [{"name": "Bo", "age": 30, "x": None}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30}],
    "m": {"z1": "é", "a": 1},
}

CONSTRUCTS = {
    "whitespace": [
        "a\n", "a\n\n", "a\r\nb\rc\n", "\n", "", "{% if yes %}\na\n{% endif %}\nb", "  {% if yes %}  \n  a\n  {% endif %}\nb",
        "x  {%- if yes -%}  a  {%- endif -%}  y", "x  {%+ if yes +%}\n a {% endif %}", "  {{ n }}  \n  {{- n -}}  \n z",
        "{% if false %}a{% else %}b{% endif %}\n{% if true %}\nc\n  {% endif %}  d\n", "a\n  {# c #}\nb", "a {#- c -#} b", "a\n  {#+ c +#}\nb",
        "{% raw %}\n{{ x }} {% y %}\n{% endraw %}\nz", "a {%- raw -%} {{ x }} {%- endraw -%} b", "  {% raw %} x {% endraw %}\n",
        "{%- for i in l %}\n  {{ i }}\n{%- endfor %}", "{% for i in l %}\n  {{ i }}\n{% endfor %}", "{% set a = 1 %}\n\n{{ a }}",
        "\t{% set a = 1 %}\t\n{{ a }}", "x {% set a = 1 %}\ny", "{{ n }}\n\n{{ n }}\n", "{{ '{{' }}{{ '%}' }}", "{ {{ '}' }} }", "{{ {'a': {'b': 1}}}}",
        "a{##}b", "{% if yes %}{# x #}\n{% endif %}|", "\u2003{%- if yes %}x{% endif %}", "x{% if yes -%}\n\n  y{% endif %}",
    ],
    "literals": [
        "{{ none }}|{{ undef }}|{{ true }}|{{ 1.0 }}|{{ 1e16 }}|{{ 1e-5 }}|{{ 7/2 }}|{{ -7//2 }}|{{ -7%3 }}",
        "{{ [1,'a',none,true] }}{{ {'b':'x\\'y'} }}{{ ('a',) }}", "{{ [] }}{{ {} }}{{ () }}{{ (1,2,) }}{{ [1,] }}{{ {'a':1,} }}",
        "{{ 'a' 'b' \"c\" }}", "{{ '\\n\\t\\\\ \\' \\x41 \\u00e9 \\U0001F600 \\101 \\q' }}", "{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5e1 }}",
        "{{ 123456789.123456789 }} {{ 1e22 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e300 }} {{ 5e-324 }} {{ -0.0 }} {{ 100000.0 }}",
        "{{ 'it\\'s' }} {{ [\"it's\", 'q\"', 'b\\'\"', '\\n\\x00\\x7f\\u200b\\xe9'] }}", "{{ True }} {{ False }} {{ None }}", "{{ [u, s] }}", "{{ {1: 2, true: 3, 1.0: 4, 'a': 5} }}",
        "{{ big }} {{ [big] }} {{ big == big }} {{ big > 1 }}", "{{ 1, 2 }}", "{% set x = 1, 2 %}{{ x }}", "{{ 1.e5 }}", "{{ 012 }}", "{{ 'open }}", "{{ '\\x4' }}", "{{ a.0.1 }}",
    ],
    "operators": [
        "{{ 1 + 2 * 3 - 4 / 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 // 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 5 % -3 }}",
        "{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }}", "{{ 1 ~ 2 + 3 }}", "{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 2 }} {{ [0] * 3 }} {{ 'x' * -1 }}",
        "{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ (1,) == [1] }} {{ 1 == true }}",
        "{{ 1 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ 'a' in d }} {{ 1 in undef }}", "{{ not yes }} {{ not not n }} {{ yes and 0 or 'x' }} {{ none_ or undef or 'y' }} {{ l and s }}",
        "{{ 'y' if yes else 'n' }} {{ 'y' if no else 'n' }} {{ 'y' if no }}| {{ 'a' if no else 'b' if no else 'c' }}", "{{ true + true }} {{ -true }} {{ +n }} {{ true is number }}",
        "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 'a' < 1 }}", "{{ none < 1 }}", "{{ 1 in 'a' }}", "{{ 1 in 2 }}", "{{ -'a' }}", "{{ undef + 1 }}",
        "{{ 'a' * 1.5 }}", "{{ [] < {} }}", "{{ -2 ** n }} {{ (0 - 2) ** n }} {{ -f ** 2 }}", "{{ '%s is %d and %.2f%%' % ('x', 3.9, 2.5) }}", "{{ '%(a)s-%(z1)s' % m }}", "{{ '%5s|%-5s|%05d|%+d|%x|%X|%o|%e|%g|%r|%c' % ('a','b',42,7,255,255,8,12345.678,0.0001,'q',65) }}",
        "{{ '%s' % l }} {{ '%s %s' % (1, 2) }}", "{{ '%s %s' % 1 }}", "{{ '%d' % 'a' }}", "{{ 'no' % 1 }}", "{{ 0.1 + 0.2 }} {{ 1e308 * 10 }} {{ 3.0 * 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 10 ** 15 }}",
    ],
    "lookups": [
        "{{ d.a }} {{ d['a'] }} {{ d.items is callable }} {{ d['items'] }} {{ d.nope }}| {{ d['nope'] }}| {{ d.get('nope') }} {{ d.get('nope', 3) }}", "{{ nested.k.k2.1.q }} {{ nested['k']['k2'][1]['q'] }} {{ nested.k.k2[-1].q }}",
        "{{ l.0 }} {{ l[-1] }} {{ l[9] }}| {{ s[0] }} {{ s[-1] }} {{ s[99] }}|", "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[-2:] }} {{ l[5:] }} {{ l[:] }}", "{{ s[7:] }} {{ s[::-1] }} {{ s[1:-1:2] }} {{ u[::-1] }} {{ u[2:5] }} {{ s[:100] }} {{ s[-3:] }}",
        "{{ (1,2,3)[1:] }} {{ range(10)[2:8:3] | list }}", "{{ undef.foo }}", "{{ undef['foo'] }}", "{{ undef() }}", "{{ d.nope.deeper }}", "{{ none_.x }}|{{ n.x }}|", "{{ s.x.y }}", "{{ m.items is defined }}{{ m['x'] is undefined }}{{ m.get('z') }}",
        "{{ ''.__class__ }}|{{ ''.__class__.__mro__ }}", "{{ d.__init__() }}", "{{ [].append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ l.append is defined }}", "{{ l.sort() }}", "{{ s() }}", "{{ l[0]() }}", "{{ l['a'] }}|{{ d[l] }}|", "{{ n[0] }}|", "{{ n[1:] }}", "{{ l[1.0] }}|",
        "{{ l[none:2] }} {{ l['a':] }}", "{{ l[::0] }}", "{{ d['upper'] }}|{{ s['upper']() }}", "{{ s | attr('upper') is callable }} {{ d | attr('a') }}|", "{{ d._x }}|{{ d['_x'] }}|",
    ],
    "statements": [
        "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
        "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}",
        "{% for i in l if i > 1 %}{{ loop.index }}{{ i }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}", "{% for i in [] %}x{% else %}empty{% endfor %}", "{% for i in undef %}x{% else %}empty{% endfor %}", "{% for i in none_ %}{% endfor %}", "{% for i in n %}{% endfor %}",
        "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{% if j == i %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% for i in l %}{% break %}{% else %}else{% endfor %}", "{% break %}", "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
        "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% for i in l %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y }}{% endfor %}{{ y }}",
        "{% if no %}{% set q = 1 %}{% elif yes %}{% set q = 2 %}{% else %}{% set q = 3 %}{% endif %}{{ q }}", "{% if undef %}a{% elif none_ %}b{% elif '' %}c{% elif [] %}d{% else %}e{% endif %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = [1, 2] %}{% set a, b = a %}{{ a }}", "{% set c %}  x{{ n }}  {% endset %}[{{ c }}]", "{% set c | trim | upper %}  x{{ n }}  {% endset %}[{{ c }}]", "{% set ns = namespace(a=1, b=[2]) %}{{ ns }}{{ ns.a }}{{ ns.c }}|{% set ns.c = 3 %}{{ ns.c }}{{ ns['a'] }}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{{ namespace(_a=1) }}", "{{ namespace({'a': 1}, b=2) }}",
        "{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}|", "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter indent(2) | upper %}a\nb{% endfilter %}", "{% filter length %}abc{% endfilter %}", "{% generation %}x{{ n }}{% set g = 1 %}{% endgeneration %}{{ g }}|", "{% for i in l %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% print n, s %}", "{% block b %}x{{ n }}{{ i }}{% endblock %}{% set i = 1 %}", "{% for i in l %}{% block c %}{{ i }}|{% endblock %}{% endfor %}", "{% autoescape false %}{{ html }}{% endautoescape %}", "{% for loop in l %}{% endfor %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}", "{% set true = 1 %}", "{% set 1 = 2 %}",
        "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% nosuch %}", "{% if yes %}", "{% for i in l %}{% endif %}", "{% endfor %}", "{{ n", "{% if %}x{% endif %}", "{{ }}", "{{ 1 2 }}", "{# open", "a{#", "a{% raw %}", "{% raw %}x", "{{ n ! }}", "{{ (1 }}", "{{ 1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}",
    ],
    "macros": [
        "{% macro f(a, b='q') %}{{ a }}{{ b }}{{ varargs }}{% endmacro %}{{ f(1,2,3) }}{{ f() }}{{ f(b=1, a=2) }}", "{% macro f(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ f(1, x=2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=1) }}", "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f(a=b, b=2) %}{{ a }}|{{ b }}{% endmacro %}{{ f() }}", "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}", "{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f() %}{% set z = 5 %}{{ z }}{% endmacro %}{{ f() }}{{ z }}|", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{{ n }}{% endcall %}", "{% macro f(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i=0) f(l) %}{{ v }}:{{ i }} {% endcall %}", "{% macro f() %}{{ kwargs }}{% endmacro %}{% call f(a=1, **m) %}{% endcall %}", "{% macro f() %}{{ caller }}|{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f is callable }}{{ f.name }}|{{ f }}", "{% macro f(x) %} {{- x -}} {% endmacro %}[{{ f('a') | upper }}]{{ [f('b')] }}", "{% if yes %}{% macro g() %}G{% endmacro %}{% endif %}{{ g() }}", "{% macro outer(a) %}{% macro inner(b) %}{{ a }}{{ b }}{% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer(2) }}", "{{ f() }}{% macro f() %}{% endmacro %}", "{% macro f(caller) %}{{ caller() }}{% endmacro %}",
    ],
    "filters": [
        "{{ 'hello wORLD'|capitalize }} {{ 'x'|int }} {{ 3.7|int }} {{ 3.5|round }} {{ 'a\\nb'|indent(2) }}", "{{ undef|default('d') }} {{ none|default('d') }} {{ ''|default('d',true) }} {{ undef|length }}", "{{ ['b','A']|sort }} {{ m|dictsort }} {{ m|items|list }}", "{{ u|upper }} {{ u|lower }} {{ u|title }} {{ u|capitalize }}", "{{ 'a-b (c) [d] it\\'s o\\'neil'|title }}", "{{ t|trim }}| {{ 'xxaxx'|trim('x') }}", "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 'abc'|replace('', '-') }} {{ 121|replace(1, 3) }}", "{{ l|join }} {{ l|join(', ') }} {{ people|join(';', attribute='name') }} {{ [1, none, true, 'x']|join('-') }}", "{{ l|first }} {{ l|last }} {{ []|first }}| {{ []|last }}| {{ s|first }}{{ s|last }}", "{{ l|length }} {{ s|count }} {{ d|length }}", "{{ n|length }}", "{{ l|map('string')|list }} {{ ls|map('upper')|join }} {{ people|map(attribute='name')|list }} {{ people|map(attribute='x', default='D')|list }}", "{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '']|select|list }} {{ people|selectattr('x')|list }} {{ people|selectattr('age', 'eq', 30)|map(attribute='name')|list }} {{ people|rejectattr('x', 'defined')|list }}", "{{ l|map('nosuch')|list }}", "{{ l|nosuch }}", "{% if no %}{{ l|nosuch }}{% endif %}ok", "{% if yes %}{{ l|nosuch }}{% endif %}", "{{ l|sum }} {{ people|sum(attribute='age') }} {{ l|sum(start=10) }}", "{{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ ls|sort(reverse=true) }} {{ people|sort(attribute='age,name')|map(attribute='name')|list }}", "{{ [1, 'a']|sort }}", "{{ l|min }} {{ l|max }} {{ ls|min }} {{ people|max(attribute='age') }} {{ []|min }}|", "{{ [1, 1, 2, 'a', 'A']|unique|list }} {{ people|unique(attribute='age')|list }}", "{{ l|reverse|list }} {{ s|reverse }}", "{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}", "{{ people|groupby('age')|list }} {% for age, group in people|groupby('age') %}{{ age }}:{{ group|map(attribute='name')|join(',') }};{% endfor %}{% for g in people|groupby('age') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}", "{{ '12'|int }} {{ '1_0'|int }} {{ ' 7 '|int }} {{ '0x1f'|int(base=16) }} {{ 'z'|int(-1) }} {{ '3.9'|int }} {{ none|int }} {{ 1e3|int }}", "{{ '1.5'|float }} {{ 'x'|float }} {{ '1e3'|float }} {{ 2|float }} {{ none|float(9.5) }}", "{{ -3|abs }} {{ -2.5|abs }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ 42.1|round(0, 'ceil') }} {{ 1234|round(-2) }} {{ 7|round }}", "{{ html|e }} {{ html|safe }} {{ html|escape|e }} {{ (html|safe) + '<' }} {{ '<' ~ (html|safe) }} {{ html|forceescape }}", "{{ 'one two  three'|wordcount }} {{ u|wordcount }}", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11, false, '..', 0) }}", "{{ 'a\\n\\nb'|indent }}|{{ 'a\\n\\nb'|indent(2, true, true) }}|{{ 'a\\nb'|indent('> ') }}", "{{ 'a'|center(5) }}|", "{{ '%s-%s'|format(1, 'a') }} {{ '%(x)s'|format(x=3) }}", "{{ 'a b/c&é'|urlencode }} {{ {'a b': 'c&d'}|urlencode }}", "{{ {'a': 1, 'b': none, 'c': '<'}|xmlattr }}", "{{ 1000|filesizeformat }} {{ 123456789|filesizeformat }} {{ 2048|filesizeformat(true) }} {{ 1|filesizeformat }}", "{{ s|list }} {{ d|list }}", "{{ ls|map('replace', 'a', 'z')|list }}", "{{ d|items|length }}", "{{ l|join(1, 2, 3) }}", "{{ none|upper }} {{ 12|string + 'x' }}", "{{ l|map(attribute='x')|list }}", "{{ nested|map(attribute='k')|list }}", "{{ undef|join }}|{{ undef|list }}|{{ undef|upper }}|{{ undef|items|list }}", "{{ undef|int }}", "{{ [[1, 2], [3]]|sum(start=[]) }}",
    ],
    "tojson": [
        "{{ m|tojson }}{{ m|tojson(indent=2) }}{{ '<é>'|tojson }}{{ [1e20,1e-7]|tojson }}", "{{ [1.0, 1e100, -0.0, 1, true, none, 'x']|tojson }}", "{{ big|tojson }} {{ {'n': big}|tojson }}", "{{ {'b': 1, 'a': {'d': [], 'c': {}}}|tojson(sort_keys=true) }}", "{{ {'b': [1, [2, {'x': 3}]], 'e': [], 'o': {}}|tojson(indent=4) }}", "{{ {'a': [1, 2]}|tojson(separators=(',', ':')) }} {{ {'a': [1, 2]}|tojson(indent=2, separators=(',', ': ')) }}", "{{ u|tojson }} {{ u|tojson(ensure_ascii=true) }}", "{{ '\\n\\t\\r\\b\\f\\x01\\x7f\"\\\\/'|tojson }}", "{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ undef|tojson }}", "{{ range(2)|tojson }}", "{{ (1, 'a')|tojson }}", "{{ l|map('string')|tojson }}", "{{ m|tojson(indent=0) }} {{ m|tojson(indent='\\t') }}", "{{ m|tojson(4) }}", "{{ m|tojson(nosuch=1) }}", "{{ html|tojson|e }}",
    ],
    "tests": [
        "{% for x in [none_, yes, n, f, s, l, d, undef, range(2)] %}{{ x is defined }}{{ x is none }}{{ x is boolean }}{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is string }}{{ x is mapping }}{{ x is iterable }}{{ x is sequence }}{{ x is true }}{{ x is false }};{% endfor %}", "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}", "{{ 1 is eq 1 }}{{ 1 is equalto(1) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is gt 1 }}{{ 1 is le 1 }}{{ 1 is ge 2 }}{{ 1 is in [1] }}{{ 1 is not in [1] }}", "{{ none is sameas none }}{{ 1 is sameas true }}{{ yes is sameas true }}", "{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ 'aB' is lower }}{{ '12' is upper }}", "{{ 'upper' is filter }}{{ 'nosuch' is filter }}{{ 'odd' is test }}{{ 'nosuch' is test }}", "{{ range is callable }}{{ s is callable }}{{ s.upper is callable }}{{ undef is callable }}", "{{ (s|safe) is escaped }}{{ s is escaped }}", "{{ n is nosuch }}", "{{ 'x' if n is nosuch }}", "{{ 'a' is odd }}", "{{ undef is undefined and undef is not defined }}", "{{ n is not none and n is not string }}", "{{ not n is odd }}", "{{ n is odd is even }}", "{{ d.a is string and d.b is not string }}",
    ],
    "methods": [
        "{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}{{ 'a b c'.split(none, 1) }}{{ 'a b c'.split(maxsplit=1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b '.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}", "{{ t.strip() }}|{{ t.lstrip() }}|{{ t.rstrip() }}|{{ 'xyaxy'.strip('yx') }}|{{ 'aab'.lstrip('a') }}|{{ 'x\\n\\n'.rstrip('\\n') }}", "{{ s.upper() }}{{ s.lower() }}{{ s.title() }}{{ s.capitalize() }}{{ s.swapcase() }}{{ u.casefold() }}", "{{ u.upper() }}{{ u.lower() }}{{ u.title() }}{{ u.swapcase() }}{{ 'ŉ ﬁ'.upper() }}{{ 'ΑΣ. ΑΣΑ'.lower() }}", "{{ s.startswith('He') }}{{ s.startswith(('x', 'H')) }}{{ s.endswith('ld') }}{{ s.startswith('l', 2) }}{{ s.endswith('o', 0, 5) }}", "{{ s.find('l') }}{{ s.find('z') }}{{ s.rfind('l') }}{{ s.index('o') }}{{ s.count('l') }}{{ s.find('l', 3) }}{{ s.find('d') }}", "{{ s.index('z') }}", "{{ s.replace('l', '') }}{{ s.replace('l', 'L', 1) }}{{ s.removeprefix('He') }}{{ s.removesuffix('ld') }}", "{{ 'a\\nb\\r\\nc\\x0bd\\u2028e'.splitlines() }}{{ 'a\\n'.splitlines(true) }}", "{{ ','.join(ls) }}{{ ''.join(s) }}", "{{ ','.join(l) }}", "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'x'.partition('=') }}", "{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}{{ 'ab'.center(5, '*') }}{{ '-7'.zfill(4) }}{{ 'a\\tb'.expandtabs(4) }}", "{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'A'.isupper() }}{{ 'a'.islower() }}{{ 'Ab C'.istitle() }}{{ '½'.isnumeric() }}{{ '²'.isdecimal() }}{{ '²'.isdigit() }}{{ 'a b'.isidentifier() }}{{ u.isascii() }}{{ ''.isalpha() }}", "{{ '{} {1}'.format(1) }}", "{{ '{} {}'.format(1, 'a') }}{{ '{0}{1}{0}'.format('x', 'y') }}{{ '{a} {b[0]} {c.a}'.format(a=1, b=l, c=d) }}", "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:,}|{:.2f}|{:x}|{:#x}|{:%}|{:e}|{!r}|{:*^7}'.format('a', 'b', 'c', 42, 1234567, 3.14159, 255, 255, 0.25, 12345.678, 'q', 'mid') }}", "{{ '{{}}'.format() }}{{ '{'.format() }}", "{{ d.keys() }}{{ d.values() }}{{ d.items() }}{{ d.keys()|list }}{{ d.copy() }}", "{{ d.items() | first }}{{ 'a' in d.keys() }}{{ d.values()|list|length }}{{ d.keys()|length }}", "{{ l.index(1) }}{{ l.count(3) }}{{ (1, 2).index(2) }}", "{{ l.index(9) }}", "{{ s.nosuch() }}", "{{ s.upper(1) }}", "{{ s.split('') }}", "{{ s.strip(1) }}", "{{ (5).bit_length() }}{{ (2.0).is_integer() }}", "{{ range(3) }}{{ range(1, 7, 2)|list }}{{ range(3, 0, -1)|list }}{{ range(0)|list }}", "{{ range(1000000) }}", "{{ range('a') }}", "{{ dict(a=1, b=2) }}{{ dict([['x', 1]]) }}{{ dict({'a': 1}, b=2) }}{{ dict.fromkeys(['a', 'b'], 0) }}", "{% set j = joiner('; ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{{ strftime_now('%d %b %Y, %H:%M:%S %j %A %p %y %-d %%') }}", "{{ strftime_now('%f|%z|%Z') }}", "{{ raise_exception('No: ' ~ s) }}", "{{ raise_exception() }}", "a\nb\n{% if yes %}\n{{ raise_exception('line four') }}{% endif %}", "\n\n{% set x = 1 / 0 %}", "{% for i in l %}\n  {% if i == 1 %}\n    {{ nosuch.x }}\n  {% endif %}\n{% endfor %}",
    ],
}


def construct_cases():
    for group, templates in CONSTRUCTS.items():
        for number, template in enumerate(templates, 1):
            yield group, {"name": f"{group}/{number}", "template": template, "vars": VARS}


def answer(case):
    template = case.get("template")
    if template is None:
        template = (DATA / "templates" / case["template_file"]).read_text()
    result = jinja_oracle.render(template, json.loads(json.dumps(case["vars"])), CLOCK)
    assert " at 0x" not in result.get("text", ""), case
    if "error" in result and result["error"] != "raised":
        result["message"] = result["message"][:120]
    if result.get("error") == "RecursionError":  # where depends on the caller's own depth
        result.update(message="", line=0)
    return result


def write(name, cases):
    shared = {}
    out = {"clock": CLOCK, "vars": shared, "cases": []}
    for case in cases:
        key = json.dumps(case["vars"], ensure_ascii=False)
        index = next((k for k, v in shared.items() if json.dumps(v, ensure_ascii=False) == key), None)
        if index is None:
            index = f"v{len(shared)}"
            shared[index] = case["vars"]
        entry = {k: v for k, v in case.items() if k != "vars"}
        out["cases"].append({**entry, "vars": index, **answer(case)})
    (DATA / f"{name}.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")
    return len(out["cases"])


def main():
    if jinja2.__version__ != "3.1.6":
        sys.exit(f"jinja2 3.1.6 is the reference, not {jinja2.__version__}")
    print(write("families", family_cases()), "renderings of whole templates")
    print(write("constructs", [case for _, case in construct_cases()]), "constructs")


if __name__ == "__main__":
    main()
