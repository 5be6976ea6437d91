"""The server that the README's first command starts, for the tests of this folder. Not collected by default: they need
a release build and the default model, and belong to the step 'quickstart' of tests/run.sh."""

import contextlib
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

import httpx2 as httpx
import pytest

from quickstart_server import ROOT, Quickstart, free_port

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / "tools")]
BUILD_TIMEOUT_S = 1800  # quickstart.sh builds what is not built yet


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("quickstart") / "log"
    port = free_port()
    with open(log, "wb") as out:
        process = subprocess.Popen(["bash", ROOT / "deploy/quickstart.sh", "--port", str(port)], stdout=out, stderr=out,
                                   cwd="/", start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + BUILD_TIMEOUT_S
    ready = False
    while not ready and process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            ready = urllib.request.urlopen(url + "/ready", timeout=2).status == 200
        time.sleep(0.1)
    if not ready:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        pytest.fail("deploy/quickstart.sh does not serve:\n" + log.read_text(errors="replace")[-4000:])
    yield Quickstart(port, log)
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(30) == 0, log.read_text(errors="replace")[-4000:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def client(server):
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def nginx(server, tmp_path_factory):
    """(base URL, function that makes an httpx client) of nginx with TLS in front, by the site file that we ship."""
    folder = tmp_path_factory.mktemp("nginx")
    port = free_port()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    site = (ROOT / "deploy/nginx/penstock.conf").read_text()
    for old, new in [("127.0.0.1:8000", f"127.0.0.1:{server.port}"), ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
                     ("llm.example.org;", "localhost;"), ("/etc/ssl/llm.example.org.pem", str(certificate)),
                     ("/etc/ssl/llm.example.org.key", str(key))]:
        assert old in site
        site = site.replace(old, new)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n"
                        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (folder / "nginx.conf").write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{site}\n}}\n")
    process = subprocess.Popen(["/usr/sbin/nginx", "-p", folder, "-c", folder / "nginx.conf"])
    trusted = ssl.create_default_context(cafile=certificate)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.1)
        yield f"https://localhost:{port}", lambda: httpx.Client(verify=trusted, timeout=300)
    finally:
        process.terminate()
        process.wait(10)
