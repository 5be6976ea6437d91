"""jinja2 set up as transformers sets it up for chat templates: the reference of the Jinja tests."""

import json
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %}: a call block whose body is printed."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _print(self, context, caller):
        return caller()


class DictFactory:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class CheckedNamespace(jinja2.utils.Namespace):
    """A namespace without attributes that begin with an underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            CheckedNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        CheckedNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"attribute {name!r}")


def environment(clock=None):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(format):
        now = datetime.fromisoformat(clock) if clock else datetime.now()
        return now.strftime(format)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["dict"] = DictFactory()
    env.globals["namespace"] = CheckedNamespace
    return env


def render(template, variables, clock=None):
    """{"text": ...} or {"error": kind, "message": ..., "line": ...}."""
    try:
        return {"text": environment(clock).from_string(template).render(**variables)}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"error": "syntax", "message": e.message, "line": e.lineno}
    except jinja2.exceptions.TemplateError as e:
        kind = "raised" if type(e) is jinja2.exceptions.TemplateError else type(e).__name__
        return {"error": kind, "message": str(e.message), "line": _line(e)}
    except Exception as e:  # pylint: disable=broad-except
        return {"error": type(e).__name__, "message": str(e), "line": _line(e)}


def _line(error):
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
