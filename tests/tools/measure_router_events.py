"""Measures what an SSE event costs the router: real binaries, the fake runner, many streams.

    tests/tools/measure_router_events.py [--bin build/release/bin] [--streams 256] [--tokens 2000]

Prints events per second of wall time, events per second of the router's CPU time (utime + stime of
its process, client and worker not counted), and requests per second of short non-streamed requests.
"""

import argparse
import json
import os
import pathlib
import selectors
import socket
import subprocess
import tempfile
import time
import urllib.request

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def wait_ready(port):
    for _ in range(600):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).status == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the router did not get ready")


def request(stream, tokens):
    body = json.dumps({"prompt": [5, 6, 7], "stream": stream, "max_tokens": tokens,
                       "ignore_eos": True}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body)


def run_streams(port, streams, tokens):
    """(events, seconds from the first event to the last)"""
    selector = selectors.DefaultSelector()
    for _ in range(streams):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(request(True, tokens))
        s.setblocking(False)
        selector.register(s, selectors.EVENT_READ, b"")
    events, open_streams, first = 0, streams, None
    while open_streams:
        for key, _ in selector.select():
            piece = key.fileobj.recv(1 << 20)
            if first is None and b"data: " in piece:
                first = time.monotonic()
            events += piece.count(b"data: ")
            tail = key.data + piece[-32:]
            if not piece or b"[DONE]" in tail:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_streams -= 1
            else:
                selector.modify(key.fileobj, selectors.EVENT_READ, tail[-32:])
    return events, time.monotonic() - first


def run_requests(port, count):
    s = socket.create_connection(("127.0.0.1", port))
    data = request(False, 1)
    begin = time.monotonic()
    for _ in range(count):
        s.sendall(data)
        received = b""
        while b'"usage"' not in received:
            received += s.recv(65536)
    return count / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--model", default=os.environ.get("PENSTOCK_TEST_MODEL"))
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--step-us", type=int, default=1000)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    worker = subprocess.Popen(
        [f"{args.bin}/penstock-worker", "--backend", "fake", "--model", args.model, "--listen",
         f"unix:{folder}/w.sock", "--max-num-seqs", str(args.streams), "--fake",
         f"step-us={args.step_us}"], stderr=subprocess.DEVNULL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    router = subprocess.Popen(
        [f"{args.bin}/penstock-router", "--port", str(port), "--worker", f"unix:{folder}/w.sock",
         "--threads", "1"], stderr=subprocess.DEVNULL)
    try:
        wait_ready(port)
        run_streams(port, 8, 50)  # warm-up
        before = cpu_seconds(router.pid)
        events, seconds = run_streams(port, args.streams, args.tokens)
        spent = cpu_seconds(router.pid) - before
        print(f"events {events}  seconds {seconds:.2f}  events/s {events / seconds:,.0f}  "
              f"router CPU s {spent:.2f}  events per router CPU second {events / spent:,.0f}")
        print(f"non-streamed requests/s, one connection: {run_requests(port, 500):,.0f}")
    finally:
        router.terminate()
        worker.terminate()


if __name__ == "__main__":
    main()
