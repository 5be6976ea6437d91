"""Shared by every Python test: where the binaries and the test model are."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def bin_dir():
    """The folder of the built binaries (PENSTOCK_BIN_DIR, else build/dev/bin)."""
    path = pathlib.Path(os.environ.get("PENSTOCK_BIN_DIR", ROOT / "build/dev/bin"))
    if not path.is_dir():
        pytest.fail(f"no binaries in {path}: build first (tests/run.sh cpp) or set PENSTOCK_BIN_DIR")
    return path


@pytest.fixture(scope="session")
def test_model():
    """The default model's GGUF file (PENSTOCK_TEST_MODEL)."""
    path = os.environ.get("PENSTOCK_TEST_MODEL")
    if not path:
        pytest.skip("PENSTOCK_TEST_MODEL is not set (tests/run.sh sets it)")
    return pathlib.Path(path)
