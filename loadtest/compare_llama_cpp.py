"""Our CPU engine and llama.cpp side by side: the same GGUF, the same number of threads, turn by turn, and the ratio.

    python loadtest/compare_llama_cpp.py MODEL.gguf [--threads 2] [--rounds 3] [--bench build/bench/bin/model_bench]

Needs llama-cpp-python in this Python (its build takes ten minutes). Nothing else may run: llama.cpp's decode
drops up to tenfold with company. On a busy machine: --processor-time, which takes one thread each and counts
tokens per second of processor time (waiting threads would spin and be counted). llama.cpp gets the better of flash
attention on and off. Goals of the project, on AVX-512: decode >= 1.0, prefill and 32 streams >= 1.5.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

CASES = ["prefill512", "decode0", "decode512", "batch32"]


def llama(model, threads, flash, now):
    """Tokens per second of llama.cpp, by case."""
    import ctypes

    import llama_cpp as l

    l.llama_backend_init()
    weights = l.llama_model_load_from_file(model.encode(), l.llama_model_default_params())
    params = l.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 32 * 64 + 1024, 512, 512, 32
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True
    if hasattr(params, "flash_attn_type"):
        params.flash_attn_type = 1 if flash else 0
    else:
        params.flash_attn = flash
    context = l.llama_init_from_model(weights, params)
    memory = l.llama_get_memory(context)
    batch = l.llama_batch_init(512, 0, 32)

    def run(tokens):  # [(id, position, sequence, logits wanted)]
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        if l.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        best = ctypes.cast(l.llama_get_logits_ith(context, len(tokens) - 1), ctypes.POINTER(ctypes.c_float))
        return 1000 + int(best[0]) % 100  # the work of choosing a token is not measured

    ids = [1000 + i * 37 % 40000 for i in range(1024)]

    def prefill(count):
        l.llama_memory_clear(memory, True)
        start = now()
        run([(ids[i], i, 0, i == count - 1) for i in range(count)])
        return count / (now() - start)

    def decode(streams, first, steps):
        start = now()
        for i in range(steps):
            run([(ids[i], first + i, s, True) for s in range(streams)])
        return streams * steps / (now() - start)

    prefill(16)
    result = {"prefill512": prefill(512)}
    result["decode512"] = decode(1, 512, 64)
    l.llama_memory_clear(memory, True)
    result["decode0"] = decode(1, 0, 64)
    l.llama_memory_clear(memory, True)
    result["batch32"] = decode(32, 0, 32)
    return result


def ours(bench, model, threads, processor):
    done = subprocess.run([bench, model, "--threads", str(threads), "--repeat", "1"], capture_output=True, text=True,
                          check=True)
    result = {}
    for words in map(str.split, done.stdout.splitlines()):
        if words[0] not in CASES:
            continue
        rate, step_ms, processor_ms = float(words[1]), float(words[3]), float(words[5])
        result[words[0]] = rate * step_ms / processor_ms if processor else rate
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench", default="build/bench/bin/model_bench")
    parser.add_argument("--llama", choices=["on", "off"], help=argparse.SUPPRESS)  # a turn of llama.cpp, in a process
    parser.add_argument("--processor-time", action="store_true")
    args = parser.parse_args()
    if args.processor_time:
        args.threads = 1
    if args.llama:
        now = time.process_time if args.processor_time else time.perf_counter
        print(json.dumps(llama(args.model, args.threads, args.llama == "on", now)))
        return
    results = {"ours": [], "on": [], "off": []}
    for _ in range(args.rounds):
        results["ours"].append(ours(args.bench, args.model, args.threads, args.processor_time))
        for flash in ("on", "off"):
            turn = [sys.executable, __file__, args.model, "--threads", str(args.threads), "--llama", flash]
            turn += ["--processor-time"] if args.processor_time else []
            done = subprocess.run(turn, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            results[flash].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'':12} {'ours':>10} {'llama.cpp':>10} {'ratio':>7}   tokens/s{' of processor time' if args.processor_time else ''}, "
          f"medians of {args.rounds}")
    for case in CASES:
        median = {key: statistics.median(r[case] for r in runs) for key, runs in results.items()}
        theirs = max(median["on"], median["off"])
        print(f"{case:12} {median['ours']:10.1f} {theirs:10.1f} {median['ours'] / theirs:7.2f}")


if __name__ == "__main__":
    main()
