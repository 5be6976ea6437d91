"""Bytes on a socket: framing, sizes, types and encodings (field cases 42 to 51). After each the server
answers a normal request."""

import gzip
import json
import socket
import time

import pytest

from .conftest import router_for

BODY = json.dumps({"model": "tiny", "max_tokens": 1,
                   "messages": [{"role": "user", "content": "hi"}]}).encode()
PATH = b"/v1/chat/completions"


def exchange(server, data, timeout=10, half_close=False):
    """Sends bytes, reads until the server closes or the response is complete: (status, headers, body)."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as s:
        try:
            s.sendall(data)
        except OSError:
            pass  # the server may answer and close before it has read everything
        if half_close:
            s.shutdown(socket.SHUT_WR)
        received = b""
        while True:
            try:
                piece = s.recv(65536)
            except (ConnectionResetError, socket.timeout):
                break
            if not piece:
                break
            received += piece
            head, found, rest = received.partition(b"\r\n\r\n")
            if found:
                length = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                          if line.startswith(b"content-length:")]
                if length and len(rest) >= length[0]:
                    break
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1."), f"no HTTP answer: {received[:200]!r}"
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(lines[0].split(" ")[1]), headers, body


def post(body=BODY, *headers, length=True, version=b"1.1"):
    lines = [b"POST " + PATH + b" HTTP/" + version, b"Host: test", *headers]
    if not any(h.lower().startswith(b"content-type") for h in headers):
        lines.append(b"Content-Type: application/json")
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def assert_error(result, *statuses):
    status, headers, body = result
    assert status in statuses, (status, body[:300])
    assert headers["content-type"].startswith("application/json")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    json.dumps(error).encode("utf-8")
    return error


class TestFraming:
    """Case 51: what two parsers could read differently is refused, and the connection closed."""

    @pytest.mark.parametrize("headers, body", [
        ([b"Content-Length: 5", b"Transfer-Encoding: chunked"], b"0\r\n\r\n"),
        ([b"Transfer-Encoding: chunked", b"Content-Length: 5"], b"0\r\n\r\n"),
        ([b"Transfer-Encoding: gzip", b"Content-Length: 2"], b"{}"),
        ([b"Transfer-Encoding: chunked, gzip"], b"0\r\n\r\n"),
        ([b"Content-Length: 0", b"Transfer-Encoding: chunked"], b"0\r\n\r\n"),
        ([b"Content-Length: 2", b"Content-Length: 3"], b"{} "),
        ([b"Content-Length: +2"], b"{}"), ([b"Content-Length: 2, 2"], b"{}"),
        ([b"Content-Length: -2"], b"{}"), ([b"Content-Length: 0x2"], b"{}"),
        ([b"Content-Length: "], b""), ([b"Content-Length : 2"], b"{}"),
        ([b"Content-Length: 2", b"Host: other"], b"{}"),
        ([b"Content-Length: 99999999999999999999"], b"{}"),
        ([b"Content-Length: 2", b" folded: x"], b"{}"),
        ([b"Content-Length: 2", b"X-A: a\x00b"], b"{}"),
    ])
    def test_refused_and_closed(self, router, headers, body):
        data = b"\r\n".join([b"POST " + PATH + b" HTTP/1.1", b"Host: test", *headers]) + b"\r\n\r\n" + body
        with socket.create_connection(("127.0.0.1", router.port), timeout=10) as s:
            s.sendall(data)
            received = b""
            while piece := s.recv(65536):  # ends only because the server closes
                received += piece
        assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 501")), received[:200]
        assert received.count(b"HTTP/1.1") == 1, "leftover bytes were read as another request"

    @pytest.mark.parametrize("data", [
        b"POST /v1/chat/completions HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}",
        b"GARBAGE\r\n\r\n", b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon here\r\n\r\n", b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    ])
    def test_no_http(self, router, data):
        status, _, _ = exchange(router, data)
        assert status in (400, 505)

    def test_huge_head(self, router):
        data = b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n"
        assert exchange(router, data)[0] in (400, 431)

    def test_pipelined_requests_are_answered_in_order(self, router):
        one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        two = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", router.port), timeout=10) as s:
            s.sendall(one + two)
            received = b""
            while piece := s.recv(65536):
                received += piece
        assert received.find(b"200 OK") < received.find(b"404")

    def test_keep_alive_and_close(self, router):
        with socket.create_connection(("127.0.0.1", router.port), timeout=10) as s:
            for _ in range(3):
                s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"200" in s.recv(4096)
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            received = b""
            while piece := s.recv(4096):
                received += piece
            assert b"200" in received

    def test_http_1_0(self, router):
        with socket.create_connection(("127.0.0.1", router.port), timeout=10) as s:
            s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            received = b""
            while piece := s.recv(4096):
                received += piece
        assert b" 200 " in received

    def test_expect_continue(self, router):
        with socket.create_connection(("127.0.0.1", router.port), timeout=10) as s:
            s.sendall(post(b"", b"Expect: 100-continue", b"Content-Length: %d" % len(BODY), length=False))
            assert s.recv(4096).startswith(b"HTTP/1.1 100")
            s.sendall(BODY)
            assert b"200 OK" in s.recv(65536)

    def test_head(self, router):
        status, _, body = exchange(router, b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (status, body) == (200, b"")

    def test_a_slow_sender_harms_nobody(self, router):
        with socket.create_connection(("127.0.0.1", router.port), timeout=10) as slow:
            slow.sendall(post()[:40])
            assert exchange(router, post())[0] == 200
            slow.sendall(post()[40:])
            assert b"200" in slow.recv(65536)


class TestSizes:
    """Case 42: no default limit of a library's; over ours a 413 that can be read."""

    @pytest.fixture(scope="class")
    def small(self, bin_dir, worker, tmp_path_factory):
        with router_for(bin_dir, tmp_path_factory.mktemp("small"), [worker.address],
                        "--served-model-name", "tiny", "--max-body-size", "2000000") as server:
            yield server

    @staticmethod
    def padded(size):
        body = BODY[:-1] + b',"user":"' + b"a" * (size - len(BODY) - 10) + b'"}'
        return body + b" " * (size - len(body))

    @pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2_000_000])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_within(self, small, size, chunked):
        assert exchange(small, self.framed(self.padded(size), chunked))[0] == 200

    @pytest.mark.parametrize("size", [2_000_001, 16_000_000])
    @pytest.mark.parametrize("chunked", [False, True])
    def test_beyond(self, small, size, chunked):
        assert_error(exchange(small, self.framed(self.padded(size), chunked)), 413)

    def test_a_claimed_terabyte(self, small):
        assert_error(exchange(small, post(b"", b"Content-Length: 1000000000000", length=False)), 413)

    def test_sixteen_megabytes_by_default(self, router):
        assert exchange(router, self.framed(self.padded(16 << 20), False), timeout=30)[0] == 200

    def test_a_compressed_bomb(self, small):
        bomb = gzip.compress(b" " * 50_000_000)
        assert_error(exchange(small, post(bomb, b"Content-Encoding: gzip")), 413)

    @staticmethod
    def framed(body, chunked):
        if not chunked:
            return post(body)
        pieces = [body[i:i + 60_000] for i in range(0, len(body), 60_000)]
        data = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
        return post(data, b"Transfer-Encoding: chunked", length=False)


class TestContent:
    """Cases 43, 44 and 49."""

    @pytest.mark.parametrize("body", [
        b"", b"null", b"[]", b'"x"', b"{}", b"{", BODY + b"x", b"\xef\xbb\xbf" + BODY,
        BODY.replace(b"hi", b"\xe5"), BODY.replace(b'"hi"', '"你"'.encode("gbk")),
        BODY.replace(b"hi", b"\\ud800"), BODY.replace(b"hi", b"a\x01b"),
        b'{"model":"\xff"}', b'{"model":"tiny","tools":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b"[" * 100_000 + b"]" * 100_000, b'{"model":"tiny","model":"other","messages":[]}',
        BODY[:-1] + b',"seed":' + b"1" * 100_000 + b"}", BODY[:-1] + b',"temperature":NaN}',
        BODY[:-1] + b',"temperature":Infinity}', BODY[:-1] + b",}",
    ])
    def test_bad_json_is_a_400(self, router, body):
        assert_error(exchange(router, post(body)), 400)

    @pytest.mark.parametrize("content_type, status", [
        (b"application/json", 200), (b"application/json; charset=utf-8", 200),
        (b"APPLICATION/JSON", 200), (b"application/x-www-form-urlencoded", 200), (b"", 200),
        (b"text/plain", 415), (b"multipart/form-data; boundary=x", 415), (b"image/png", 415)])
    def test_content_types(self, router, content_type, status):
        result = exchange(router, post(BODY, b"Content-Type: " + content_type))
        assert result[0] == status
        if status != 200:
            assert_error(result, status)

    def test_gzip_and_zstd(self, router):
        assert exchange(router, post(gzip.compress(BODY), b"Content-Encoding: gzip"))[0] == 200
        assert_error(exchange(router, post(b"no gzip", b"Content-Encoding: gzip")), 400)
        assert_error(exchange(router, post(BODY, b"Content-Encoding: br")), 415)

    def test_a_hundred_thousand_messages(self, router):
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x"}] * 100_000})
        assert_error(exchange(router, post(body.encode()), timeout=60), 400)

    def test_a_megabyte_of_one_letter(self, router):
        started = time.monotonic()
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "a" * 1_000_000}]})
        error = assert_error(exchange(router, post(body.encode()), timeout=60), 400)
        assert error["code"] == "context_length_exceeded"
        assert time.monotonic() - started < 10


class TestCors:
    """Case 46."""

    PREFLIGHT = (b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: http://app.example\r\n"
                 b"Access-Control-Request-Method: POST\r\n"
                 b"Access-Control-Request-Headers: authorization,content-type\r\n\r\n")

    def test_off_by_default(self, router):
        assert "access-control-allow-origin" not in exchange(router, self.PREFLIGHT)[1]

    def test_preflight_and_errors(self, bin_dir, worker, tmp_path):
        with router_for(bin_dir, tmp_path, [worker.address], "--api-key", "k",
                        "--allowed-origins", "http://app.example") as server:
            status, headers, _ = exchange(server, self.PREFLIGHT)
            assert status in (200, 204)
            assert headers["access-control-allow-origin"] == "http://app.example"
            assert "authorization" in headers["access-control-allow-headers"].lower()
            assert "POST" in headers["access-control-allow-methods"]
            status, headers, _ = exchange(server, post(BODY, b"Origin: http://app.example"))
            assert status == 401
            assert headers["access-control-allow-origin"] == "http://app.example"
