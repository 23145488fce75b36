"""A worker for `cargo xtask bench cpu --compare`: measures workloads of a framework on request.

The first line of standard output is {"peer": "torch 2.15.0"}, or {"error": ...}. Each line of
standard input is a request NAME SECONDS; each answer is a line with the milliseconds of the fastest
repetition in that time, or with an error.
"""

import json
import os
import sys
import time


def answer(**fields):
    print(json.dumps(fields), flush=True)


def limit_threads(threads):
    """Holds libraries that are not imported yet to a number of threads."""
    for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        # XLA starts a thread for each processor that it may run on.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def fastest(f, seconds):
    best, begin, runs = float("inf"), time.perf_counter(), 0
    while runs < 2 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def one_line(error):
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text.replace('"', "'")[:200]


def serve(framework, threads):
    limit_threads(threads)
    import cpu

    try:
        peer = cpu.FRAMEWORKS[framework](threads)
    except ImportError as e:
        return answer(error=one_line(e))
    answer(peer=peer.version)
    ready, run = None, None
    for line in sys.stdin:
        name, seconds = line.split()
        try:
            if name != ready:
                # The inputs of the last workload are freed first.
                ready, run = None, None
                op, shapes, _, _ = cpu.WORKLOADS[name]
                run = peer.make(op, shapes)
                run()
                ready = name
            answer(name=name, ms=fastest(run, float(seconds)) * 1e3)
        except KeyError:  # The framework does not have the op.
            answer(name=name, error="not measured")
        except Exception as e:  # A failing workload does not end the worker.
            answer(name=name, error=one_line(e))
