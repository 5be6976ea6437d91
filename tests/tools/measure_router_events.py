"""Measures what an SSE event and a request cost the router: real binaries, the fake runner, many streams.

    tests/tools/measure_router_events.py [--bin build/release/bin] [--streams 256] [--tokens 2000]

The client is loadtest/event_load.cc (build penstock-router, penstock-worker and event_load). Prints
events per second of wall time and per second of the router's CPU time (user and system time of its
process; client and worker not counted), and the same for short requests that are not streamed.
With --perf FILE the router is profiled while it streams.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """(user, system) time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def wait_ready(port):
    for _ in range(1200):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).status == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the router did not get ready")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Measured:
    """CPU time of some processes while the client runs."""

    def __init__(self, client, port, processes):
        self.client, self.port, self.processes = client, port, processes

    def run(self, mode, connections, amount):
        before = {name: cpu_seconds(pid) for name, pid in self.processes.items()}
        out = subprocess.run([self.client, str(self.port), mode, str(connections), str(amount)],
                             check=True, capture_output=True, text=True).stdout.split()
        spent = {}
        for name, pid in self.processes.items():
            spent[name] = [b - a for a, b in zip(before[name], cpu_seconds(pid))]
        count, seconds = int(out[1]), float(out[3])
        user, system = spent["router"]
        used = max(user + system, 1 / TICKS)
        print(f"{connections:5d} {mode}: {count} {out[0]} in {seconds:.2f} s = {count / seconds:,.0f}/s;  "
              f"{count / used:,.0f} per second of the router's CPU time "
              f"({user:.2f} s user, {system:.2f} s system);  worker {sum(spent['worker']):.2f} s",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--model", default=os.environ.get("PENSTOCK_TEST_MODEL"))
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--step-us", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="of requests")
    parser.add_argument("--perf", help="profile the router's streams into this file (perf record)")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    worker = subprocess.Popen(
        [f"{args.bin}/penstock-worker", "--backend", "fake", "--model", args.model, "--listen",
         f"unix:{folder}/w.sock", "--max-num-seqs", str(args.streams), "--fake",
         f"step-us={args.step_us}"], stderr=subprocess.DEVNULL)
    port = free_port()
    router = subprocess.Popen(
        [f"{args.bin}/penstock-router", "--port", str(port), "--worker", f"unix:{folder}/w.sock",
         "--threads", "1"], stderr=subprocess.DEVNULL)
    try:
        wait_ready(port)
        measured = Measured(f"{args.bin}/event_load", port, {"router": router.pid, "worker": worker.pid})
        measured.run("streams", 8, 50)  # warm-up
        profile = subprocess.Popen(["perf", "record", "-q", "-g", "-o", args.perf, "-p",
                                    str(router.pid)]) if args.perf else None
        for _ in range(args.repeat):
            measured.run("streams", args.streams, args.tokens)
        if profile:
            profile.terminate()
            profile.wait()
        for connections in (1, 32):
            measured.run("requests", connections, args.seconds)
    finally:
        router.terminate()
        worker.terminate()


if __name__ == "__main__":
    main()
