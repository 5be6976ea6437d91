"""A worker whose answers a test writes down: the Session protocol in Python, token by token.

A script is a function (submit) -> iterable of actions, run in a thread of its own for each Submit:
    ("tokens", [ids])       one Step message with these tokens
    ("started", cached)     how many prompt tokens were found cached, before the first token
    ("logprobs", [(id, logprob), ...])   of the next token, the sampled one first
    ("sleep", seconds)      stops early when the request is cancelled
    ("wait_cancel",)        until the request is cancelled
    ("finish", reason)      "EOS", "STOP_ID", "LENGTH", "DEADLINE"
    ("error", code, text)   Finish with ERROR and a gRPC code
    ("refuse", code, text, field)   the same without Accepted
    ("break",)              the session dies without a word
Whatever the script leaves open ends with LENGTH.
"""

import hashlib
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc

from . import tiny_model

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _load_protocol():
    out = pathlib.Path(tempfile.mkdtemp(prefix="penstock-proto-"))
    files = ["penstock/v1/generation.proto", "penstock/v1/worker.proto"]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={out}",
         f"--grpc_python_out={out}", *files], check=True)
    sys.path.insert(0, str(out))
    from penstock.v1 import generation_pb2, worker_pb2, worker_pb2_grpc
    return generation_pb2, worker_pb2, worker_pb2_grpc


generation_pb2, worker_pb2, worker_pb2_grpc = _load_protocol()


def tokens_one_by_one(ids, reason="LENGTH"):
    """A script that emits ids one step each and finishes."""
    def script(_submit):
        for token in ids:
            yield ("tokens", [token])
        yield ("finish", reason)
    return script


def echo_budget(submit):
    """The default: letters a, b, c... up to max_tokens."""
    for i in range(submit.params.max_tokens - len(submit.output_token_ids)):
        yield ("tokens", [97 + i % 26])
    yield ("finish", "LENGTH")


class _Broken(Exception):
    pass


class _Request:
    def __init__(self, submit):
        self.submit = submit
        self.cancelled = threading.Event()
        self.index = len(submit.output_token_ids)
        self.tokens_sent = 0


class ScriptedWorker(worker_pb2_grpc.WorkerServicer):
    """Use as a context manager; `address` is where the router finds it."""

    def __init__(self, model_folder, max_model_len=tiny_model.MAX_MODEL_LEN, name="scripted", port=0):
        self.script = echo_budget
        self.submits = []          # every Submit, in order
        self.cancels = []          # request ids
        self.running = set()
        self.changed = threading.Condition()
        self._folder = pathlib.Path(model_folder)
        self._max_model_len = max_model_len
        self._name = name
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=32),
                                   options=[("grpc.max_receive_message_length", 64 << 20),
                                            ("grpc.keepalive_permit_without_calls", 1),
                                            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
                                            ("grpc.http2.max_ping_strikes", 0)])
        worker_pb2_grpc.add_WorkerServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Every session breaks, as when the process dies."""
        self._server.stop(grace=0).wait()

    def wait_for(self, condition, timeout=10):
        """Waits until condition() holds; checked whenever something happened here."""
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    # ---- the service ----

    def GetModel(self, request, context):
        yield worker_pb2.GetModelResponse(info=worker_pb2.ModelInfo(
            name=self._name, model_fingerprint="scripted-fingerprint", worker_epoch=1,
            max_model_len=self._max_model_len, vocab_size=tiny_model.VOCAB_SIZE, block_size=16,
            max_num_seqs=64, eos_token_ids=sorted([tiny_model.SPECIAL_IDS["<|im_end|>"],
                                                   tiny_model.SPECIAL_IDS["<|endoftext|>"]]),
            format="scripted", device="none", num_kv_blocks=100, created=1700000000))
        for path in sorted(self._folder.iterdir()):
            data = path.read_bytes()
            for offset in range(0, max(len(data), 1), 1 << 19):
                yield worker_pb2.GetModelResponse(asset=worker_pb2.AssetPiece(
                    name=path.name, sha256=hashlib.sha256(data).hexdigest(), total_size=len(data),
                    offset=offset, data=data[offset:offset + (1 << 19)]))

    def WatchLoad(self, request, context):
        while context.is_active():
            yield self._load()
            threading.Event().wait(0.2)

    def Session(self, ups, context):
        out = queue.Queue()
        out.put(worker_pb2.SessionDown(hello=worker_pb2.Hello(
            protocol_version=1, worker_epoch=1, model_fingerprint="scripted-fingerprint",
            block_size=16, max_model_len=self._max_model_len, max_num_seqs=64,
            max_queued_requests=1000)))
        requests = {}
        threading.Thread(target=self._read, args=(ups, requests, out), daemon=True).start()
        heartbeat_due = time.monotonic()
        while context.is_active():
            # Whatever else is said: a router leaves a worker out that it has not heard of for 4 s.
            if time.monotonic() >= heartbeat_due:
                heartbeat_due = time.monotonic() + 0.3
                yield worker_pb2.SessionDown(heartbeat=self._load())
            try:
                message = out.get(timeout=max(0, heartbeat_due - time.monotonic()))
            except queue.Empty:
                continue
            if message is None:
                return
            if isinstance(message, _Broken):
                context.abort(grpc.StatusCode.UNAVAILABLE, "scripted break")
            yield message

    # ---- the rest ----

    def _load(self):
        return worker_pb2.Load(engine_age_ms=1, running=len(self.running), total_blocks=100,
                               free_blocks=100, steps=len(self.submits))

    def _read(self, ups, requests, out):
        try:
            for up in ups:
                if up.HasField("submit"):
                    request = requests[up.submit.request_id] = _Request(up.submit)
                    with self.changed:
                        self.submits.append(up.submit)
                        self.running.add(up.submit.request_id)
                        self.changed.notify_all()
                    threading.Thread(target=self._run, args=(request, out), daemon=True).start()
                elif up.HasField("cancel"):
                    with self.changed:
                        self.cancels.append(up.cancel.request_id)
                        self.changed.notify_all()
                    if up.cancel.request_id in requests:
                        requests[up.cancel.request_id].cancelled.set()
                elif up.HasField("ping"):
                    out.put(worker_pb2.SessionDown(pong=up.ping))
        except grpc.RpcError:
            pass
        for request in requests.values():
            request.cancelled.set()
        out.put(None)

    def _run(self, request, out):
        request_id = request.submit.request_id
        accepted = False
        finish = None
        for action in self.script(request.submit):
            kind = action[0]
            if kind != "refuse" and not accepted and kind != "sleep_before_accept":
                out.put(worker_pb2.SessionDown(
                    accepted=[worker_pb2.Accepted(request_id=request_id)]))
                accepted = True
            if request.cancelled.is_set():
                finish = self._finish(request, "CANCELLED")
                break
            if kind in ("sleep", "sleep_before_accept"):
                request.cancelled.wait(action[1])
            elif kind == "wait_cancel":
                request.cancelled.wait(30)
            elif kind == "break":
                out.put(_Broken())
                finish = False
                break
            elif kind in ("error", "refuse"):
                finish = self._finish(request, "ERROR")
                finish.status_code = action[1].value[0]
                finish.status_message = action[2]
                finish.status_field = action[3] if len(action) > 3 else ""
                break
            elif kind == "finish":
                finish = self._finish(request, action[1])
                break
            elif kind == "started":
                out.put(worker_pb2.SessionDown(started=[worker_pb2.Started(
                    request_id=request_id, cached_tokens=action[1])]))
            elif kind == "logprobs":
                out.put(worker_pb2.SessionDown(logprobs=[generation_pb2.LogprobRecord(
                    request_id=request_id, index=request.index, rank=1,
                    top=[generation_pb2.TokenLogprob(token_id=i, logprob=p) for i, p in action[1]])]))
            elif kind == "tokens":
                count = len(action[1])
                out.put(worker_pb2.SessionDown(step=worker_pb2.Step(
                    step=request.index + 1, request_id=[request_id] * count, token_id=action[1],
                    index=range(request.index, request.index + count))))
                request.index += count
                request.tokens_sent += count
        if request.cancelled.is_set() and finish is None:
            finish = self._finish(request, "CANCELLED")
        if finish is None:
            finish = self._finish(request, "LENGTH")
        if finish:
            out.put(worker_pb2.SessionDown(finished=[finish]))
        with self.changed:
            self.running.discard(request_id)
            self.changed.notify_all()

    @staticmethod
    def _finish(request, reason):
        return generation_pb2.Finish(
            request_id=request.submit.request_id,
            reason=generation_pb2.FinishReason.Value(f"FINISH_REASON_{reason}"),
            prompt_tokens=len(request.submit.prompt_ids), completion_tokens=request.index)
