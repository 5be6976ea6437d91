"""Calls a Penstock worker directly over gRPC: text or chat in, text out, streamed.

Make the stubs once (pip install grpcio grpcio-tools):

    python -m grpc_tools.protoc -I proto --python_out=stubs --grpc_python_out=stubs \
        proto/penstock/v1/generation.proto proto/penstock/v1/worker.proto

Then, with PYTHONPATH=stubs:

    python docs/examples/grpc_client.py 127.0.0.1:50051 text "Once upon a time"
    python docs/examples/grpc_client.py unix:/run/penstock/worker.sock chat "What is a penstock?"
"""

import argparse
import json
import sys

import grpc

from penstock.v1 import worker_pb2, worker_pb2_grpc

# Both ends of a connection must agree about keepalive, or the server closes it.
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", 128 << 20),
]


def make_request(args):
    request = worker_pb2.GenerateRequest(return_text=True, stop=args.stop)
    # Fields that stay unset take the model's own defaults.
    request.params.max_tokens = args.max_tokens
    if args.temperature is not None:
        request.temperature = args.temperature
    if args.seed is not None:
        request.seed = args.seed
    if args.kind == "text":
        request.text = args.prompt
    else:
        request.chat.messages_json = json.dumps([{"role": "user", "content": args.prompt}])
        request.chat.add_generation_prompt = True
    return request


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="HOST:PORT or unix:/PATH")
    parser.add_argument("kind", choices=["text", "chat"])
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--timeout", type=float, default=120, help="seconds for the whole call")
    args = parser.parse_args()

    with grpc.insecure_channel(args.address, options=CHANNEL_OPTIONS) as channel:
        worker = worker_pb2_grpc.WorkerStub(channel)
        try:
            # Leaving the loop early (or cancelling the call) stops the generation.
            for response in worker.Generate(make_request(args), timeout=args.timeout):
                print(response.text, end="", flush=True)
                if response.HasField("finish"):
                    print()
                    print(
                        f"[{response.finish_reason}: {response.finish.prompt_tokens} prompt tokens,"
                        f" {response.finish.completion_tokens} output tokens]",
                        file=sys.stderr,
                    )
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
