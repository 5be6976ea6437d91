"""A penstock-worker process for Python tests, and the stubs to call it."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = ["penstock/v1/generation.proto", "penstock/v1/worker.proto"]


def make_stubs(folder):
    """Makes the Python stubs as docs/examples/grpc_client.py says."""
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}",
         f"--python_out={folder}", f"--grpc_python_out={folder}", *PROTOS],
        check=True,
    )  # fmt: skip


class Worker:
    """A worker process on a Unix socket in a short-named folder of its own."""

    def __init__(self, bin_dir, model, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="w")
        self.address = f"unix:{self.folder.name}/w.sock"
        notify = f"{self.folder.name}/notify"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(notify)
        listener.settimeout(120)
        self.process = subprocess.Popen(
            [bin_dir / "penstock-worker", "--model", str(model), "--listen", self.address, *flags],
            env={**os.environ, "NOTIFY_SOCKET": notify},
        )
        while b"READY=1" not in listener.recv(4096):
            assert self.process.poll() is None, "the worker ended while starting"
        listener.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.folder.cleanup()
        return code
