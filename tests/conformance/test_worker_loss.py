"""The only worker goes and comes back (field case 57): what runs ends with an error at once, nothing
waits for ever, and /health tells."""

import json
import threading
import time
import urllib.error
import urllib.request

from .conftest import router_for
from .scripted_worker import ScriptedWorker

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 400}


def send(server, stream):
    """(status, text) of a chat."""
    request = urllib.request.Request(server.url + "/v1/chat/completions",
                                     json.dumps({**BODY, "stream": stream}).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def becomes(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_loss_and_return(bin_dir, tiny_folder, tmp_path):
    def script(submit):
        if submit.params.sampling.seed % 2:  # queued for ever
            yield ("wait_cancel",)
        for _ in range(1000):
            yield ("tokens", [97])
            yield ("sleep", 0.05)

    results = []
    with ScriptedWorker(tiny_folder) as lost:
        lost.script = script
        with router_for(bin_dir, tmp_path, [lost.address], "--served-model-name", "tiny") as server:
            threads = [threading.Thread(target=lambda s=i % 2 == 0: results.append((s, *send(server, s))))
                       for i in range(10)]
            for thread in threads:
                thread.start()
            assert lost.wait_for(lambda: len(lost.submits) == 10)
            time.sleep(0.3)
            lost.stop()
            began = time.monotonic()
            for thread in threads:
                thread.join(20)
            assert time.monotonic() - began < 10, "a request waited for a worker that is gone"
            assert len(results) == 10
            for streamed, status, text in results:
                if streamed:
                    events = [e for e in text.split("\n\n") if e.startswith("data: ")]
                    assert status == 200 and events[-1] == "data: [DONE]"
                    assert json.loads(events[-2][6:])["error"]["type"] == "service_unavailable"
                else:
                    assert status == 503
                    assert json.loads(text)["error"]["type"] == "service_unavailable"
            assert becomes(lambda: server.get("/health")[0] == 503)
            assert server.get("/ready")[0] == 503
            assert send(server, True)[0] == 503
            with ScriptedWorker(tiny_folder, port=lost.port):
                assert becomes(lambda: server.get("/health")[0] == 200)
                assert becomes(lambda: server.get("/ready")[0] == 200)
                assert send(server, False)[0] == 200
