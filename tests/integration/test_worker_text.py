"""docs/examples/grpc_client.py against a worker: text and chat in, text out."""

import json
import os
import subprocess
import sys

import grpc
import pytest
from grpc_worker import ROOT, Worker


@pytest.fixture(scope="module")
def worker(bin_dir, test_model):
    """The real tokenizer, made-up tokens: `echo` answers with the prompt itself."""
    running = Worker(bin_dir, test_model, "--backend", "fake", "--fake", "mode=echo,eos-id=2")
    yield running
    assert running.stop() == 0


def run_example(stubs, *args):
    return subprocess.run(
        [sys.executable, ROOT / "docs/examples/grpc_client.py", *args],
        env={**os.environ, "PYTHONPATH": str(stubs)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_example_text_in_text_out(stubs, worker):
    prompt = "Zürich, 東京 and 🙂 are words. Once upon a time"
    done = run_example(stubs, worker.address, "text", prompt, "--max-tokens", "200")
    assert done.returncode == 0, done.stderr
    assert done.stdout == prompt + "\n"
    assert "[stop:" in done.stderr


def test_example_stop_string(stubs, worker):
    done = run_example(stubs, worker.address, "text", "one two three four", "--stop", "three")
    assert done.stdout == "one two \n", done.stderr


def test_example_chat_in_text_out(stubs, worker):
    done = run_example(stubs, worker.address, "chat", "What is a penstock?", "--max-tokens", "300")
    assert done.returncode == 0, done.stderr
    # The echo ends with the first turn (the template's own system message), whose end is an EOS id.
    assert done.stdout.startswith("system\nYou are a helpful AI assistant")
    assert "<|im_start|>" not in done.stdout and "<|im_end|>" not in done.stdout
    assert "[stop:" in done.stderr


def test_chat_renders_the_template(stubs, worker):
    from penstock.v1 import worker_pb2, worker_pb2_grpc

    with grpc.insecure_channel(worker.address) as channel:
        request = worker_pb2.GenerateRequest(return_text=True, keep_special_tokens=True)
        request.chat.messages_json = json.dumps([{"role": "user", "content": "What is é?"}])
        request.chat.add_generation_prompt = True
        request.params.ignore_eos = True
        request.params.max_tokens = 1
        stub = worker_pb2_grpc.WorkerStub(channel)
        prompt = list(stub.Generate(request, timeout=60))[0].prompt_token_ids
        request.params.max_tokens = len(prompt)
        text = "".join(r.text for r in stub.Generate(request, timeout=60))
        assert text.endswith(
            "<|im_start|>user\nWhat is é?<|im_end|>\n<|im_start|>assistant\n"
        ), text


def test_example_shows_refusals(stubs, worker):
    done = run_example(stubs, worker.address, "text", "hello", "--temperature", "nan")
    assert done.returncode == 1
    assert done.stderr.startswith("INVALID_ARGUMENT: temperature")


def test_control_tokens_in_user_text_are_text(stubs, worker):
    from penstock.v1 import worker_pb2, worker_pb2_grpc

    with grpc.insecure_channel(worker.address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)

        def prompt_ids(content):
            request = worker_pb2.GenerateRequest()
            request.chat.messages_json = json.dumps([{"role": "user", "content": content}])
            request.params.max_tokens = 1
            return next(iter(stub.Generate(request, timeout=60))).prompt_token_ids

        im_end = 2
        assert list(prompt_ids("a<|im_end|>b")).count(im_end) == list(prompt_ids("ab")).count(im_end)


def test_bad_chat_is_refused(stubs, worker):
    from penstock.v1 import worker_pb2, worker_pb2_grpc

    with grpc.insecure_channel(worker.address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        for bad in ["", "{", "[]", '[{"role": 5}]', '"text"']:
            request = worker_pb2.GenerateRequest()
            request.chat.messages_json = bad
            with pytest.raises(grpc.RpcError) as error:
                list(stub.Generate(request, timeout=60))
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, bad
