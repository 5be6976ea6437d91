"""What a newcomer's client sees of the server that deploy/quickstart.sh starts: the real model on the CPU engine."""

import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import time

import httpx2 as httpx
import numpy as np
import openai
import pytest

from quickstart_server import MODEL, ROOT, get
from reference_model import ReferenceModel

STREAMS = json.loads((ROOT / "tests/data/model/smollm2_streams.json").read_text())
EOS = 2  # <|im_end|>
NEAR_TIE = 0.02  # where the reference's best two logits are closer, either may win


def chat(client, text, **options):
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **options)


def parallel(jobs):
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


class TestFirstAnswers:
    def test_a_streamed_chat_answer(self, client):
        chunks = list(chat(client, "What is the capital of France?", stream=True, temperature=0, max_tokens=40,
                           stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert "Paris" in text
        assert len(chunks) > 5, "the answer came in one lump"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        usage = chunks[-1].usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.completion_tokens > 5

    def test_whole_answer_equals_the_stream(self, client):
        whole = chat(client, "Name a colour.", temperature=0, max_tokens=24)
        stream = chat(client, "Name a colour.", temperature=0, max_tokens=24, stream=True)
        assert whole.choices[0].message.content == "".join(c.choices[0].delta.content or "" for c in stream)
        assert whole.usage.completion_tokens <= 24

    def test_completion_with_echo_logprobs_and_several_choices(self, client):
        answer = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=6, temperature=0.8, n=3,
                                           seed=5, logprobs=2)
        assert len({c.text for c in answer.choices}) > 1
        for choice in answer.choices:
            assert len(choice.logprobs.tokens) == 6
            assert all(value <= 0 for value in choice.logprobs.token_logprobs)
        echo = client.completions.create(model=MODEL, prompt="One, two, three,", max_tokens=4, echo=True, temperature=0)
        assert echo.choices[0].text.startswith("One, two, three,")

    def test_a_stop_string_ends_the_answer_and_is_not_shown(self, client):
        answer = client.completions.create(model=MODEL, prompt="1, 2, 3, 4,", max_tokens=40, temperature=0, stop=["7"])
        assert answer.choices[0].finish_reason == "stop"
        assert "6" in answer.choices[0].text and "7" not in answer.choices[0].text

    def test_models(self, client):
        assert [m.id for m in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).object == "model"


class TestErrors:
    def test_unknown_model(self, client):
        with pytest.raises(openai.NotFoundError) as error:
            client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])
        assert error.value.code == "model_not_found" and MODEL in error.value.message

    @pytest.mark.parametrize("field, value", [("temperature", 9), ("max_tokens", 0), ("top_p", 1.5), ("n", 0),
                                              ("logit_bias", {"abc": 1})])
    def test_bad_values_name_the_field(self, client, field, value):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, "hi", extra_body={field: value})
        assert error.value.param == field

    def test_a_prompt_longer_than_the_context(self, client):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, "word " * 20_000)
        assert error.value.code == "context_length_exceeded"

    def test_what_is_not_there_says_so(self, client):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, "hi", response_format={"type": "json_object"})
        assert "not" in error.value.message and error.value.param == "response_format"


class TestRightAnswers:
    """Greedy streams against the reference's: equal up to a near tie of the reference."""

    @staticmethod
    def expected(entry):
        stream = entry["stream"]
        return stream[:stream.index(EOS)] if EOS in stream else stream

    def check(self, entry, ids, model_path):
        expected = self.expected(entry)
        ids = [i for i in ids if i != EOS]
        first = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), None)
        if first is None:
            assert len(ids) == len(expected), "ended elsewhere than the reference"
            return
        logits = ReferenceModel(model_path).logits(entry["prompt"] + expected[:first],
                                                   len(entry["prompt"]) + first - 1)[-1]
        best, second = np.sort(logits)[[-1, -2]]
        assert best - second < NEAR_TIE, f"another token at position {first}: {ids[first]}, not {expected[first]}"

    def test_completions_of_ids(self, client, test_model):
        def run(entry):
            return client.completions.create(model=MODEL, prompt=entry["prompt"], max_tokens=64, temperature=0,
                                             extra_body={"return_token_ids": True})
        for entry, answer in zip(STREAMS, parallel([lambda e=e: run(e) for e in STREAMS])):
            self.check(entry, answer.choices[0].token_ids, test_model)

    def test_chat_renders_and_tokenizes_as_the_reference(self, client, test_model):
        for entry in [e for e in STREAMS if e["kind"] == "chat"]:
            question = entry["text"].split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
            ids, prompt = [], None
            for chunk in chat(client, question, temperature=0, max_tokens=64, stream=True,
                              extra_body={"return_token_ids": True}):
                prompt = prompt or getattr(chunk, "prompt_token_ids", None) or getattr(
                    chunk.choices[0], "prompt_token_ids", None)
                ids += getattr(chunk.choices[0], "token_ids", None) or []
            assert prompt == entry["prompt"]
            self.check(entry, ids, test_model)


class TestTogether:
    def test_32_streams_say_what_each_says_alone(self, client, server):
        """Half greedy, half seeded, of different lengths."""
        def run(i):
            sampling = {"temperature": 0} if i % 2 else {"temperature": 0.9, "top_p": 0.95, "seed": i}
            stream = client.completions.create(model=MODEL, prompt=STREAMS[i % 20]["text"], max_tokens=16 + i,
                                               stream=True, **sampling)
            return "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
        together = parallel([lambda i=i: run(i) for i in range(32)])
        alone = [run(i) for i in range(32)]
        assert together == alone
        assert len(set(together)) > 20
        assert server.gauge("penstock_requests_running") == 0

    def test_closing_a_stream_frees_the_engine(self, client, server):
        streams = [chat(client, f"Tell a long story about {i} cats.", stream=True, max_tokens=1500,
                        extra_body={"ignore_eos": True}) for i in range(4)]
        for stream in streams:
            next(iter(stream))
        server.wait_for("vllm:num_requests_running", 4)
        for stream in streams:
            stream.close()
        server.wait_for("vllm:num_requests_running", 0)
        server.wait_for("vllm:num_requests_waiting", 0)

    def test_a_client_that_gives_up_frees_the_engine(self, server):
        with httpx.Client(timeout=0.7) as http, pytest.raises(httpx.ReadTimeout):
            http.post(server.url + "/v1/completions",
                      json={"model": MODEL, "prompt": "la " * 50, "max_tokens": 2000, "ignore_eos": True})
        server.wait_for("vllm:num_requests_running", 0)


class TestOperation:
    def test_metrics_are_as_prometheus_likes_them(self, server):
        promtool = shutil.which("promtool")
        if not promtool:
            pytest.skip("promtool is not installed (package prometheus)")
        done = subprocess.run([promtool, "check", "metrics"], input=get(server.url + "/metrics"), text=True,
                              capture_output=True)
        # 3: parsed, with advice. The colon of vLLM's names is all that there may be to say.
        assert done.returncode in (0, 3), done.stdout + done.stderr
        advice = (done.stdout + done.stderr).splitlines()
        assert not [line for line in advice if not line.endswith("metric names should not contain ':'")], advice

    def test_the_log_tells_what_is_served(self, server):
        log = pathlib.Path(server.log).read_text()
        for words in ["SmolLM2", "kv cache", "curl"]:
            assert words in log, log

    def test_streams_pass_through_nginx_event_by_event(self, server, nginx):
        url, connect = nginx

        def largest_gap():
            """Of the whole stream's time. In lumps, most gaps would be nothing and one nearly all."""
            arrivals = []
            for chunk in chat(client, "Count to twenty.", stream=True, temperature=0, max_tokens=60):
                if chunk.choices and chunk.choices[0].delta.content:
                    arrivals.append(time.monotonic())
            assert len(arrivals) > 20
            return np.diff(arrivals).max() / (arrivals[-1] - arrivals[0])

        with server.client(url, http_client=connect()) as client:
            # The best of three: a busy machine may stall one, a buffering proxy spoils each.
            assert min(largest_gap() for _ in range(3)) < 0.3

    def test_metrics_are_not_shown_through_nginx(self, nginx):
        url, connect = nginx
        with connect() as http:
            assert http.get(url + "/metrics").status_code == 403
            assert http.get(url + "/health").status_code == 200
