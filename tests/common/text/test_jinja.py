"""The Jinja engine against jinja2 itself: the goldens are current, and random templates agree."""

import itertools
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import fuzz_jinja  # noqa: E402
import jinja_oracle  # noqa: E402
import make_jinja_goldens  # noqa: E402

TEMPLATES_PER_SEED = 700


@pytest.fixture(scope="module")
def engine():
    binary = pathlib.Path(os.environ.get("PENSTOCK_BIN_DIR", "build/dev/bin")) / "template_lines"
    if not binary.exists():
        pytest.skip(f"{binary} is not built")
    engine = fuzz_jinja.Engine(str(binary))
    yield engine
    assert engine.close() == 0


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the goldens are Python 3.11's")
@pytest.mark.parametrize("name", ["constructs", "families"])
def test_goldens_are_what_jinja2_says(name):
    goldens = json.loads((make_jinja_goldens.DATA / f"{name}.json").read_text())
    for case in goldens["cases"]:
        fresh = make_jinja_goldens.answer({**case, "vars": goldens["vars"][case["vars"]]})
        assert {key: case[key] for key in fresh} == fresh, case["name"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_templates_agree(engine, seed):
    templates = itertools.islice(fuzz_jinja.random_templates(seed), TEMPLATES_PER_SEED)
    for template, mine, theirs, different, by_design in fuzz_jinja.differences(engine, templates):
        assert not different or by_design, (template, mine, theirs)


def test_sandbox_of_the_oracle():
    assert jinja_oracle.render("{{ [].append(1) }}", {})["error"] == "SecurityError"
