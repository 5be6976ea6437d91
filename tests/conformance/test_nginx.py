"""Behind a real nginx with its default buffering (field case 5): every event arrives on its own, and a
client that leaves is noticed through it."""

import getpass
import json
import shutil
import socket
import time
import urllib.request

import pytest

from .conftest import free_port, running

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")

CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; user {user}; worker_processes 1;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; }} }}
}}
"""


@pytest.fixture(scope="module")
def nginx(shared_router, tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    (folder / "nginx.conf").write_text(CONFIG.format(
        folder=folder, user=getpass.getuser(), port=port, upstream=shared_router.port))
    with running(["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"],
                 folder / "out.log") as process:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "out.log").read_text()
                time.sleep(0.05)
        yield port


def body(**fields):
    return json.dumps({"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hi"}],
                       **fields}).encode()


def test_events_arrive_one_by_one(worker, router, nginx):
    def script(_submit):
        for _ in range(10):
            yield ("tokens", [97])
            yield ("sleep", 0.1)
        yield ("finish", "LENGTH")
    worker.script = script
    request = urllib.request.Request(
        f"http://127.0.0.1:{nginx}/v1/chat/completions", body(max_tokens=10),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        times = [time.monotonic() for line in response if b'"content":"a"' in line]
    assert len(times) == 10
    assert times[-1] - times[0] > 0.6, "the stream came in one lump"


def test_a_client_that_leaves_is_noticed(worker, router, nginx):
    def script(_submit):
        yield ("tokens", [97])
        yield ("wait_cancel",)
    worker.script = script
    cancelled = len(worker.cancels)
    data = body(max_tokens=100)
    with socket.create_connection(("127.0.0.1", nginx)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(data) + data)
        assert b"200 OK" in s.recv(4096)
    assert worker.wait_for(lambda: len(worker.cancels) > cancelled)
