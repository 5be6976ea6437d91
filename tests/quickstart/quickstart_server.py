"""A running server, as the tests of this folder use it."""

import pathlib
import socket
import time
import urllib.request

import openai

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "SmolLM2-135M-Instruct"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, **options):
    with urllib.request.urlopen(url, timeout=10, **options) as response:
        return response.read().decode()


class Quickstart:
    def __init__(self, port, log):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def client(self, url=None, **options):
        return openai.OpenAI(base_url=(url or self.url) + "/v1", api_key="none", max_retries=0, timeout=300, **options)

    def gauge(self, name):
        """Sum of a metric's samples."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in get(self.url + "/metrics").splitlines()
                   if line.startswith((name + "{", name + " ")))

    def wait_for(self, name, value):
        """Until the gauge has the value: workers report theirs every second."""
        end = time.monotonic() + 10
        while time.monotonic() < end and self.gauge(name) != value:
            time.sleep(0.05)
        assert self.gauge(name) == value, name
