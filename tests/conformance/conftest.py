"""Starts a router in front of a scripted worker, and the real worker with the fake backend."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest

from . import tiny_model
from .scripted_worker import ScriptedWorker


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running router: where it is, how to talk to it, how to stop it."""

    def __init__(self, process, port, log_path):
        self.process = process
        self.port = port
        self.log_path = log_path
        self.url = f"http://127.0.0.1:{port}"

    def client(self, **options):
        options.setdefault("api_key", "none")
        options.setdefault("max_retries", 0)
        options.setdefault("timeout", 30)
        return openai.OpenAI(base_url=self.url + "/v1", **options)

    def get(self, path, headers=None):
        """(status, headers, text) of a GET."""
        request = urllib.request.Request(self.url + path, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def metric(self, name):
        """Sum of a metric's samples on /metrics."""
        total = 0.0
        for line in self.get("/metrics")[2].splitlines():
            if line.startswith((name + "{", name + " ")):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")


def wait_ready(url, process, log_path, timeout=60):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(url + "/ready", timeout=2).status == 200:
                return
        time.sleep(0.05)
    raise AssertionError(
        f"server did not get ready: {pathlib.Path(log_path).read_text(errors='replace')[-3000:]}")


@contextlib.contextmanager
def running(argv, log_path, env=None):
    """A child process that is stopped at the end; it must end by itself on SIGTERM."""
    with open(log_path, "ab") as log:
        process = subprocess.Popen([str(a) for a in argv], stdout=log, stderr=log,
                                   env={**os.environ, **(env or {})})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def router_for(bin_dir, tmp_path, workers, *flags, env=None, ready=True):
    port = free_port()
    log_path = tmp_path / f"router-{port}.log"
    argv = [bin_dir / "penstock-router", "--host", "127.0.0.1", "--port", port,
            *(f"--worker={w}" for w in workers), *flags]
    with running(argv, log_path, env) as process:
        server = Server(process, port, log_path)
        if ready:
            wait_ready(server.url, process, log_path)
        yield server


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def worker(tiny_folder):
    with ScriptedWorker(tiny_folder) as scripted:
        yield scripted


@pytest.fixture(scope="session")
def shared_router(bin_dir, worker, tmp_path_factory):
    with router_for(bin_dir, tmp_path_factory.mktemp("router"), [worker.address],
                    "--served-model-name", "tiny") as server:
        yield server


@pytest.fixture()
def router(shared_router, worker):
    """The router before the scripted worker, with the default script, and healthy afterwards."""
    from . import scripted_worker
    worker.script = scripted_worker.echo_budget
    yield shared_router
    assert shared_router.process.poll() is None, shared_router.log()[-3000:]
    deadline = time.monotonic() + 10  # a test may have broken the worker's session: it comes back
    while shared_router.get("/health")[0] != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert shared_router.get("/health")[0] == 200


@pytest.fixture()
def client(router):
    return router.client()
