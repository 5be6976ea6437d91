"""SIGTERM at the router (field case 69): not ready first, running streams end whole, new work is refused,
exit 0; at the deadline what is left gets an error."""

import json
import signal
import threading
import time
import urllib.error
import urllib.request

import pytest

from .conftest import router_for

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "max_tokens": 400}


def stream(server, results):
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(BODY).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        results.append(response.read().decode())


@pytest.mark.parametrize("timeout, whole", [("30", True), ("1", False)])
def test_streams_and_the_deadline(bin_dir, worker, tmp_path, timeout, whole):
    def script(_submit):
        for _ in range(30):
            yield ("tokens", [97])
            yield ("sleep", 0.1)
        yield ("finish", "LENGTH")
    worker.script = script
    results = []
    with router_for(bin_dir, tmp_path, [worker.address], "--served-model-name", "tiny",
                    "--shutdown-timeout", timeout) as server:
        before = len(worker.submits)
        threads = [threading.Thread(target=stream, args=(server, results)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert worker.wait_for(lambda: len(worker.submits) == before + 4)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5
        while server.get("/ready")[0] != 503:
            assert time.monotonic() < deadline
        with pytest.raises(urllib.error.HTTPError) as refused:
            stream(server, [])
        assert refused.value.code == 503
        assert int(refused.value.headers["Retry-After"]) >= 1
        assert refused.value.headers["Connection"] == "close"
        for thread in threads:
            thread.join(40)
        assert server.process.wait(20) == 0
    assert len(results) == 4
    for text in results:
        assert text.endswith("data: [DONE]\n\n")
        if whole:
            assert text.count('"content":"a"') == 30 and '"finish_reason":"length"' in text
        else:
            error = json.loads(text.split("\n\n")[-3][len("data: "):])["error"]
            assert error["type"] == "service_unavailable"
