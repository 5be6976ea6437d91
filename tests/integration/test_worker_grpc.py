"""A worker as an internal service sees it: ids in and out, cancel, drain, health, reflection."""

import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_worker import Worker


@pytest.fixture(scope="module")
def worker(bin_dir):
    running = Worker(bin_dir, "synthetic", "--backend", "fake", "--fake", "mode=echo,eos-id=2")
    yield running
    assert running.stop() == 0


def test_ids_in_ids_out(stubs, worker):
    from penstock.v1 import worker_pb2, worker_pb2_grpc

    with grpc.insecure_channel(worker.address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        request = worker_pb2.GenerateRequest(token_ids={"ids": [5, 6, 7]})
        request.params.max_tokens = 10
        request.params.stop_token_ids.append(2)
        responses = list(stub.Generate(request, timeout=60))
        assert list(responses[0].prompt_token_ids) == [5, 6, 7]
        assert [i for r in responses for i in r.token_ids] == [5, 6, 7, 2]
        assert responses[-1].finish_reason == "stop"
        assert responses[-1].finish.stop_id == 2


def test_refusals_name_the_field(stubs, worker):
    from penstock.v1 import worker_pb2, worker_pb2_grpc

    with grpc.insecure_channel(worker.address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        for field, value in [("temperature", float("nan")), ("top_p", 1.5), ("top_k", -1)]:
            request = worker_pb2.GenerateRequest(token_ids={"ids": [1]}, **{field: value})
            with pytest.raises(grpc.RpcError) as error:
                list(stub.Generate(request, timeout=60))
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert error.value.details().startswith(field)


def test_cancelling_the_call_frees_the_worker_and_drain_ends_it(stubs, bin_dir):
    from penstock.v1 import worker_pb2, worker_pb2_grpc

    running = Worker(bin_dir, "synthetic", "--backend", "fake", "--fake", "step-us=2000")
    with grpc.insecure_channel(running.address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        request = worker_pb2.GenerateRequest(token_ids={"ids": [1, 2, 3]})
        call = stub.Generate(request)
        for _ in zip(range(3), call):
            pass
        call.cancel()
        deadline = time.monotonic() + 30
        watch = stub.WatchLoad(worker_pb2.WatchLoadRequest(), timeout=60)
        for load in watch:
            if load.steps > 0 and load.running == 0 and load.waiting == 0:
                break
            assert time.monotonic() < deadline
        watch.cancel()
        # Text needs a tokenizer, which a synthetic model lacks.
        with pytest.raises(grpc.RpcError) as error:
            list(stub.Generate(worker_pb2.GenerateRequest(text="x"), timeout=60))
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        drained = stub.Drain(worker_pb2.DrainRequest(deadline_ms=1000), timeout=30)
        assert drained.running == 0
    assert running.process.wait(timeout=60) == 0


def test_health(worker):
    with grpc.insecure_channel(worker.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ["", "penstock.v1.Worker"]:
            request = health_pb2.HealthCheckRequest(service=service)
            assert stub.Check(request, timeout=30).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as error:
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=30)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection(worker):
    with grpc.insecure_channel(worker.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "penstock.v1.Worker" in database.get_services()
        file = database.FindFileContainingSymbol("penstock.v1.Worker")
        methods = {method.name for service in file.service for method in service.method}
        assert methods == {"Session", "Generate", "GetModel", "WatchLoad", "Drain"}
