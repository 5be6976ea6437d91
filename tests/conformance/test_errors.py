"""Every kind of error as the openai client reads it (field case 55): the right class, and message,
type, param and code where it looks for them."""

import time

import grpc
import openai
import pytest

from .conftest import router_for

USER = [{"role": "user", "content": "hi"}]
CHAT = "/chat/completions"


def ask(client, **body):
    return client.post(CHAT, body={"model": "tiny", "messages": USER, **body}, cast_to=object)


def check(caught, status, kind, param, code):
    error = caught.value
    assert error.status_code == status
    assert error.response.headers["Content-Type"].startswith("application/json")
    assert set(error.body) == {"message", "type", "param", "code"}
    assert isinstance(error.body["message"], str) and error.body["message"]
    assert (error.type, error.param, error.code) == (kind, param, code)


@pytest.mark.parametrize("body, param, code", [
    ({"messages": None}, "messages", None),
    ({"temperature": "hot"}, "temperature", None),
    ({"messages": [{"role": "user", "content": "a" * 5000}]}, "messages", "context_length_exceeded"),
])
def test_validation_is_a_bad_request(client, body, param, code):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **body)
    check(caught, 400, "invalid_request_error", param, code)


def test_bad_json(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(CHAT, content=b"{", options={"headers": {"Content-Type": "application/json"}},
                    cast_to=object)
    check(caught, 400, "invalid_request_error", None, "invalid_json")


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model="other")
    check(caught, 404, "not_found_error", "model", "model_not_found")


def test_unknown_path(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.post("/nowhere", body={}, cast_to=object)
    check(caught, 404, "not_found_error", None, "unknown_url")


def test_wrong_method(client):
    with pytest.raises(openai.APIStatusError) as caught:
        client.get(CHAT, cast_to=object)
    check(caught, 405, "invalid_request_error", None, "method_not_allowed")


def test_what_the_worker_says(worker, client):
    worker.script = lambda submit: iter([("error", grpc.StatusCode.INTERNAL, "a fault")])
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    check(caught, 500, "server_error", None, None)
    worker.script = lambda submit: iter([
        ("refuse", grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")])
    with pytest.raises(openai.RateLimitError) as caught:
        ask(client)
    check(caught, 429, "rate_limit_error", None, "queue_full")
    assert int(caught.value.response.headers["Retry-After"]) >= 1


def test_key_size_and_no_worker(bin_dir, tmp_path):
    with router_for(bin_dir, tmp_path, ["127.0.0.1:9"], "--api-key", "k", "--max-body-size", "2000",
                    ready=False) as server:
        for _ in range(200):
            try:
                server.get("/health")
                break
            except OSError:
                assert server.process.poll() is None, server.log()
                time.sleep(0.05)
        with pytest.raises(openai.AuthenticationError) as caught:
            ask(server.client(api_key="wrong"))
        check(caught, 401, "authentication_error", None, "invalid_api_key")
        with pytest.raises(openai.APIStatusError) as caught:
            ask(server.client(api_key="k"), user="a" * 3000)
        check(caught, 413, "invalid_request_error", None, caught.value.code)
        with pytest.raises(openai.InternalServerError) as caught:
            ask(server.client(api_key="k"))
        check(caught, 503, "service_unavailable", None, "not_ready")
        assert int(caught.value.response.headers["Retry-After"]) >= 1
