"""Fixtures of the Python integration tests."""

import sys

import pytest

from grpc_worker import make_stubs


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """The folder with the worker's Python stubs; also on sys.path."""
    folder = tmp_path_factory.mktemp("stubs")
    make_stubs(folder)
    sys.path.insert(0, str(folder))
    return folder
