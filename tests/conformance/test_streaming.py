"""Streams as the openai client sees them (field cases 1 to 9)."""

import json
import random
import socket
import threading
import time
import urllib.request

import grpc
import openai
import pytest

from . import tiny_model
from .scripted_worker import tokens_one_by_one

USER = [{"role": "user", "content": "hi"}]
EOS = tiny_model.EOS


def raw_events(server, path, body):
    """The data lines of a stream, as sent."""
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read().decode()
    return [block[len("data: "):] for block in text.split("\n\n") if block.startswith("data: ")]


def chat_text(client, **options):
    """(streamed text, finish reason) of a chat."""
    text, reason = "", None
    for chunk in client.chat.completions.create(model="tiny", messages=USER, stream=True, **options):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason


class TestUsageChunk:
    """Case 1: the usage chunk comes only when asked for, and has empty choices."""

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
    @pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
    def test_only_with_opt_in(self, router, path, options):
        body = {"model": "tiny", "stream": True, "max_tokens": 4}
        body.update({"messages": USER} if "chat" in path else {"prompt": "hi"})
        if options is not None:
            body["stream_options"] = options
        events = raw_events(router, path, body)
        assert events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        if options and options["include_usage"]:
            assert chunks[-1]["choices"] == []
            assert chunks[-1]["usage"]["completion_tokens"] == 4
            assert all(chunk["usage"] is None for chunk in chunks[:-1])
            chunks = chunks[:-1]
        else:
            assert all("usage" not in chunk for chunk in chunks)
        assert all(chunk["choices"] for chunk in chunks)

    def test_continuous_usage(self, router):
        events = raw_events(router, "/v1/chat/completions", {
            "model": "tiny", "messages": USER, "stream": True, "max_tokens": 3,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
        counts = [json.loads(event)["usage"]["completion_tokens"] for event in events[:-1]]
        assert counts == sorted(counts) and counts[-1] == 3


class TestSplitCharacters:
    """Case 2: a character over several tokens arrives whole, once; an incomplete one at the end as HF
    prints it."""

    @pytest.mark.parametrize("data, expected", [
        (b"\xf0\x9f\x98\x8a ok", "\U0001F60A ok"),
        ("A 世界b".encode(), "A 世界b"),
        (b"\xf0\x9f", "�"),
        (b"a\xff\xfeb", "a��b"),
        ("日本".encode()[:-1], "日�"),
    ])
    def test_deltas_join_to_the_text(self, worker, router, data, expected):
        worker.script = tokens_one_by_one(tiny_model.byte_ids(data))
        client = router.client()
        text, reason = chat_text(client, max_tokens=len(data))
        assert (text, reason) == (expected, "length")
        whole = client.chat.completions.create(model="tiny", messages=USER, max_tokens=len(data))
        assert whole.choices[0].message.content == expected


class TestClientGone:
    """Case 3: closing the connection cancels every choice, streaming or not, running or queued."""

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize("started", [True, False])
    def test_cancel_reaches_the_worker(self, worker, router, stream, started):
        def script(_submit):
            if started:
                yield ("tokens", [97])
            else:
                yield ("sleep_before_accept", 5)
            yield ("wait_cancel",)
        worker.script = script
        known, cancelled = len(worker.submits), len(worker.cancels)
        body = json.dumps({"model": "tiny", "messages": USER, "stream": stream, "n": 2,
                           "max_tokens": 100}).encode()
        with socket.create_connection(("127.0.0.1", router.port)) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert worker.wait_for(lambda: len(worker.submits) == known + 2)
            if stream and started:
                assert b"200 OK" in s.recv(4096)
        assert worker.wait_for(lambda: len(worker.cancels) >= cancelled + 2), "a choice ran on"
        assert worker.wait_for(lambda: not worker.running)
        deadline = time.monotonic() + 10
        while router.metric("penstock_router_requests_in_flight") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert router.metric("vllm:num_requests_running") == 0

    def test_many_abandoned(self, worker, router):
        """Case 60: nothing is left of requests whose clients leave at any moment."""
        def script(_submit):
            for _ in range(100):
                yield ("tokens", [97])
                yield ("sleep", 0.005)
        worker.script = script
        chance = random.Random(1)

        def abandon(delays):
            for delay in delays:
                body = json.dumps({"model": "tiny", "prompt": "x" * 400, "max_tokens": 100,
                                   "stream": delay > 0.02}).encode()
                with socket.create_connection(("127.0.0.1", router.port)) as s:
                    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                              b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                              % len(body) + body)
                    time.sleep(delay)
        threads = [threading.Thread(target=abandon, args=([chance.uniform(0, 0.05)
                                                           for _ in range(30)],)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert worker.wait_for(lambda: not worker.running, 30)
        deadline = time.monotonic() + 10
        while router.metric("penstock_router_requests_in_flight") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert router.metric("penstock_router_requests_in_flight") == 0
        assert router.metric("vllm:num_requests_waiting") == 0

    def test_openai_stream_close(self, worker, router):
        def script(_submit):
            for _ in range(1000):
                yield ("tokens", [97])
                yield ("sleep", 0.01)
        worker.script = script
        before = len(worker.cancels)
        stream = router.client().chat.completions.create(model="tiny", messages=USER, stream=True)
        next(iter(stream))
        stream.close()
        assert worker.wait_for(lambda: len(worker.cancels) > before)


class TestChunkShape:
    """Case 4: one role chunk per choice, one finish chunk of its own, nothing of the EOS token."""

    @pytest.mark.parametrize("n", [1, 2])
    def test_roles_and_finishes(self, worker, router, n):
        worker.script = tokens_one_by_one([97, 98, EOS], "EOS")
        events = raw_events(router, "/v1/chat/completions", {
            "model": "tiny", "messages": USER, "stream": True, "n": n, "max_tokens": 10})
        assert events[-1] == "[DONE]"
        by_choice = {i: [] for i in range(n)}
        for event in events[:-1]:
            for choice in json.loads(event)["choices"]:
                assert "finish_reason" in choice
                by_choice[choice["index"]].append(choice)
        for choices in by_choice.values():
            assert choices[0]["delta"]["role"] == "assistant"
            assert all("role" not in c["delta"] for c in choices[1:])
            assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1)
            assert choices[-1]["finish_reason"] == "stop"
            assert not choices[-1]["delta"].get("content")
            assert "".join(c["delta"].get("content") or "" for c in choices) == "ab"

    def test_one_token(self, worker, router):
        worker.script = tokens_one_by_one([97])
        assert chat_text(router.client(), max_tokens=1) == ("a", "length")

    def test_many_tokens_in_one_message(self, worker, router):
        worker.script = lambda submit: iter([("tokens", [97] * 50), ("finish", "LENGTH")])
        assert chat_text(router.client(), max_tokens=50) == ("a" * 50, "length")

    def test_eos_counts_but_prints_nothing(self, worker, router):
        worker.script = tokens_one_by_one([97, EOS], "EOS")
        answer = router.client().chat.completions.create(model="tiny", messages=USER)
        assert answer.choices[0].message.content == "a"
        assert answer.usage.completion_tokens == 2


class TestArrival:
    """Case 5: every event leaves on its own, with the headers that keep proxies from buffering."""

    def test_headers_and_times(self, worker, router):
        def script(_submit):
            for _ in range(5):
                yield ("tokens", [97])
                yield ("sleep", 0.1)
            yield ("finish", "LENGTH")
        worker.script = script
        body = json.dumps({"model": "tiny", "messages": USER, "stream": True, "max_tokens": 5})
        request = urllib.request.Request(router.url + "/v1/chat/completions", body.encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            assert "no-cache" in response.headers["Cache-Control"]
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Content-Encoding"] is None
            times = [time.monotonic() for line in response if b'"content":"a"' in line]
        assert len(times) == 5
        gaps = [b - a for a, b in zip(times, times[1:])]
        assert min(gaps) > 0.03, f"events came in lumps: {gaps}"


class TestFailureAfterTheFirstByte:
    """Case 6: errors before the 200 have a status; later ones are an error event, then [DONE]."""

    def test_error_in_mid_stream(self, worker, router):
        worker.script = lambda submit: iter([
            ("tokens", [97]), ("tokens", [98]),
            ("error", grpc.StatusCode.INTERNAL, "the step failed")])
        events = raw_events(router, "/v1/chat/completions",
                            {"model": "tiny", "messages": USER, "stream": True})
        error = json.loads(events[-2])["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert events[-1] == "[DONE]"
        with pytest.raises(openai.APIError):
            chat_text(router.client())

    def test_error_before_the_first_token_of_a_non_stream(self, worker, router):
        worker.script = lambda submit: iter([("error", grpc.StatusCode.INTERNAL, "no")])
        with pytest.raises(openai.InternalServerError):
            router.client().chat.completions.create(model="tiny", messages=USER)

    @pytest.mark.parametrize("stream", [True, False])
    def test_refusals_have_a_status(self, worker, router, stream):
        worker.script = lambda submit: iter([
            ("refuse", grpc.StatusCode.INVALID_ARGUMENT, "bad top_k", "top_k")])
        with pytest.raises(openai.BadRequestError) as caught:
            router.client().chat.completions.create(model="tiny", messages=USER, stream=stream)
        assert caught.value.param == "top_k"

    def test_invalid_request_with_stream_is_a_400(self, router):
        with pytest.raises(openai.BadRequestError) as caught:
            router.client().chat.completions.create(model="tiny", messages=USER, stream=True, n=0)
        assert caught.value.param == "n"


class TestStops:
    """Case 8: text strictly before the earliest match, the same in both modes."""

    PIECES = [b"A", b"BC", b"DEF", b"G", b"HI", b"J!"]

    @pytest.mark.parametrize("pieces, stop, expected, reason", [
        (PIECES, ["DEFGHIJ"], "ABC", "stop"),
        (PIECES, ["DEFX"], "ABCDEFGHIJ!", "length"),
        ([b"keep stop! gone"], ["stop"], "keep ", "stop"),
        (PIECES, ["HI", "CD"], "AB", "stop"),
        ([b"a", "é".encode()[:1], "é".encode()[1:], b"z"], ["é"], "a", "stop"),
    ])
    def test_text_before_the_match(self, worker, router, pieces, stop, expected, reason):
        steps = [tiny_model.byte_ids(piece) for piece in pieces]
        total = sum(len(step) for step in steps)
        worker.script = lambda submit: iter(
            [("tokens", step) for step in steps] + [("finish", "LENGTH")])
        client = router.client()
        assert chat_text(client, stop=stop, max_tokens=total) == (expected, reason)
        whole = client.chat.completions.create(model="tiny", messages=USER, stop=stop,
                                               max_tokens=total)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (expected, reason)

    def test_a_stop_ends_the_work_and_the_count(self, worker, router):
        def script(_submit):
            yield ("started", 4)
            yield ("tokens", tiny_model.byte_ids(b"abXcde"))
            yield ("wait_cancel",)
        worker.script = script
        before = len(worker.cancels)
        answer = router.client().chat.completions.create(
            model="tiny", messages=USER, stop=["X"], max_tokens=50, logprobs=False)
        assert answer.choices[0].message.content == "ab"
        assert answer.usage.completion_tokens == 3
        assert answer.usage.prompt_tokens_details.cached_tokens == 4
        assert worker.wait_for(lambda: len(worker.cancels) > before)

    def test_stop_is_reported(self, worker, router):
        worker.script = tokens_one_by_one(tiny_model.byte_ids(b"abX"))
        answer = router.client().chat.completions.create(model="tiny", messages=USER, stop="X")
        assert answer.choices[0].to_dict()["stop_reason"] == "X"

    def test_stop_included_on_demand(self, worker, router):
        worker.script = tokens_one_by_one(tiny_model.byte_ids(b"abXc"))
        answer = router.client().chat.completions.create(
            model="tiny", messages=USER, stop="X", extra_body={"include_stop_str_in_output": True})
        assert answer.choices[0].message.content == "abX"

    def test_a_special_token_as_stop(self, worker, router):
        """Case 9: the string of a control token stops although it is never printed."""
        def script(_submit):
            yield ("tokens", [97, tiny_model.SPECIAL_IDS["<|im_start|>"], 98])
            yield ("wait_cancel",)
        worker.script = script
        text, reason = chat_text(router.client(), stop=["<|im_start|>"], max_tokens=50)
        assert (text, reason) == ("a", "stop")


class TestSilence:
    """Case 7: headers leave at admission, comment lines while nothing happens."""

    def test_keep_alive_comments(self, bin_dir, worker, tmp_path):
        from .conftest import router_for
        def script(_submit):
            yield ("sleep", 2.5)
            yield ("tokens", [97])
            yield ("finish", "LENGTH")
        worker.script = script
        with router_for(bin_dir, tmp_path, [worker.address], "--served-model-name", "tiny",
                        "--sse-keep-alive-interval", "1") as server:
            body = json.dumps({"model": "tiny", "messages": USER, "stream": True}).encode()
            with socket.create_connection(("127.0.0.1", server.port)) as s:
                s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                          b"Content-Type: application/json\r\nConnection: close\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(body) + body)
                started, first, data = time.monotonic(), None, b""
                while piece := s.recv(65536):
                    first = first or time.monotonic() - started
                    data += piece
            assert first < 1.0, "headers waited for the first token"
            assert b"\n:" in data or b"\r\n:" in data
            assert b"[DONE]" in data


def test_parallel_streams_do_not_mix(worker, router):
    """Many streams at once, each with its own letters."""
    def script(submit):
        for _ in range(40):
            yield ("tokens", [submit.prompt_ids[-1]])
        yield ("finish", "LENGTH")
    worker.script = script
    client = router.client()
    results = {}

    def run(letter):
        text = ""
        for chunk in client.completions.create(model="tiny", prompt=f"x{letter}", stream=True,
                                               max_tokens=40):
            text += chunk.choices[0].text if chunk.choices else ""
        results[letter] = text
    threads = [threading.Thread(target=run, args=(chr(97 + i),)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {chr(97 + i): chr(97 + i) * 40 for i in range(24)}
