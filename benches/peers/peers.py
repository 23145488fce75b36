#!/usr/bin/env python3
"""Measures other frameworks on the workloads of `cargo xtask bench`.

Names and output format are the same. Usage: python benches/peers/peers.py COMMAND, with

  cpu [--quick] [NAME...]   numpy, torch, jax, onnxruntime (those that are installed)
  gpu [--quick] [NAME...]   torch and jax on the first GPU
  memory [NAME...]          peak memory of torch, for `cargo xtask bench memory`
  jit [--quick] [NAME...]   torch and tinygrad, for `cargo xtask bench jit`
  ops                       torch on the cases of `cargo xtask bench ops`, from standard input
  serve PEER THREADS        a worker for `cargo xtask bench cpu --compare` (serve.py)
  compare OURS PEERS        a table of two files of figures
  save FILE PEERS MACHINE   writes figures to benches/results/*.peers.json for the README

memory and jit use a GPU if the framework sees one. The fastest repetition counts, as for picograd:
other work on the machine only makes repetitions slower. README.md describes the environment.
"""

import datetime
import importlib
import importlib.util
import json
import sys
import time

M = 1 << 20


def installed(name):
    return importlib.util.find_spec(name) is not None


# ---- measuring ----


class Bench:
    """Runs workloads and prints their figures. `sync` waits for the device."""

    def __init__(self, suite, peer, seconds, wanted, sync=lambda: None):
        self.suite, self.peer, self.seconds, self.wanted, self.sync = (
            suite,
            peer,
            seconds,
            wanted,
            sync,
        )

    def run(self, name, make, work, unit):
        """Times the function that `make()` returns.

        `work` is its number of operations or bytes, and None if the unit is a time.
        """
        if self.wanted and not any(w in name for w in self.wanted):
            return
        try:
            f = make()
            start = time.perf_counter()
            f()
            self.sync()
            first = time.perf_counter() - start
            times, begin = [], time.perf_counter()
            # Several launches per synchronization hide the launch overhead of a GPU.
            launches = 10 if self.suite == "gpu" else 1
            while len(times) < 3 or (
                time.perf_counter() - begin < self.seconds and len(times) < 1000
            ):
                start = time.perf_counter()
                for _ in range(launches):
                    f()
                self.sync()
                times.append((time.perf_counter() - start) / launches)
        except KeyError:  # The framework does not have the op.
            return
        except Exception as e:  # A failing workload does not end the run.
            print(f"{self.peer} {name}: {type(e).__name__}: {e}".splitlines()[0], file=sys.stderr)
            return
        times.sort()
        scale = {"GFLOP/s": 1e9, "GB/s": 1e9, "TFLOP/s": 1e12}.get(unit)
        value = (
            times[0] * {"ms": 1e3, "us": 1e6}[unit] if scale is None else work / times[0] / scale
        )
        line = dict(
            suite=self.suite,
            name=name,
            value=round(value, 3),
            unit=unit,
            peer=self.peer,
            best_ms=round(times[0] * 1e3, 3),
            median_ms=round(times[len(times) // 2] * 1e3, 3),
            first_ms=round(first * 1e3, 3),
        )
        print(json.dumps(line), flush=True)


# ---- models ----


def torch_net(torch):
    """Returns the network of mnist_step."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5),
        nn.ReLU(),
        nn.BatchNorm2d(32),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.BatchNorm2d(64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(576, 10),
    )


def torch_mnist(torch, device):
    net = torch_net(torch).to(device).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.rand(512, 1, 28, 28, device=device), torch.randint(0, 10, (512,), device=device)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_gpt2(torch, tokens, past):
    """GPT-2 small without its embedding: logits for new tokens after cached ones."""
    f, layers, width, heads, vocabulary = torch.nn.functional, 12, 768, 12, 50257

    def full(*shape):
        return torch.full(shape, 0.01)

    def linear(i, o):
        return full(o, i), full(o)

    blocks = [
        dict(
            n1=(full(width), full(width)),
            qkv=linear(width, 3 * width),
            proj=linear(width, width),
            n2=(full(width), full(width)),
            up=linear(width, 4 * width),
            down=linear(4 * width, width),
            cache=[full(1, heads, past, width // heads) for _ in range(2)],
        )
        for _ in range(layers)
    ]
    norm, table = (full(width), full(width)), full(vocabulary, width)
    start, places = full(1, tokens, width), full(tokens, width)

    def run():
        with torch.inference_mode():
            x = start + places
            for b in blocks:
                h = f.linear(f.layer_norm(x, (width,), *b["n1"]), *b["qkv"])
                q, k, v = (
                    t.view(1, tokens, heads, width // heads).transpose(1, 2)
                    for t in h.split(width, -1)
                )
                if past:
                    k, v = (torch.cat([old, new], 2) for old, new in zip(b["cache"], (k, v)))
                a = (
                    f.scaled_dot_product_attention(q, k, v, is_causal=not past)
                    .transpose(1, 2)
                    .reshape(1, tokens, width)
                )
                x = x + f.linear(a, *b["proj"])
                h = f.linear(f.layer_norm(x, (width,), *b["n2"]), *b["up"])
                x = x + f.linear(f.gelu(h, approximate="tanh"), *b["down"])
            return f.linear(f.layer_norm(x[:, -1:], (width,), *norm), table)

    return run


# ---- workloads ----


def workloads(module, framework):
    """Returns the measurement of a framework, from a module of this folder."""

    def measure(seconds, wanted):
        return getattr(importlib.import_module(module), f"{framework}_{module}")(seconds, wanted)

    return measure


FRAMEWORKS = {
    "cpu": ("numpy", "torch", "jax", "onnxruntime"),
    "gpu": ("torch", "jax"),
    "memory": ("torch",),
    "jit": ("torch", "tinygrad"),
}


# ---- comparing ----


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.startswith("{")]


def compare(ours, peers):
    """Prints ratios; above 1 picograd is faster than the best peer, in any unit."""
    table = {}
    for line in lines(peers):
        best = min if line["unit"] in ("ms", "us", "MB") else max
        old = table.get(line["name"])
        table[line["name"]] = line if old is None else best(old, line, key=lambda l: l["value"])
    print(
        "| workload | unit | ours | of roofline | best peer | its figure | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    for line in lines(ours):
        peer, value = table.get(line["name"]), line["value"]
        if peer is not None:
            ratio = (
                peer["value"] / value
                if line["unit"] in ("ms", "us", "MB")
                else value / peer["value"]
            )
            share = f"{line['of_limit']:.0%}" if "of_limit" in line else ""
            print(
                f"| {line['name']} | {line['unit']} | {value:.4g} | {share} "
                f"| {peer['peer']} | {peer['value']:.4g} | {ratio:.2f} |"
            )


NAMES = {
    "torch": "PyTorch",
    "jax": "JAX",
    "numpy": "NumPy",
    "onnxruntime": "ONNX Runtime",
    "tinygrad": "tinygrad",
}


def save(path, peers, machine):
    """Writes figures in the format of `cargo xtask bench --save`.

    Their names are `framework version: suite/name`.
    """

    def title(peer):
        """`PyTorch 2.15` of `torch 2.15.0+cu132`."""
        package, version = peer.split()[:2]
        return f"{NAMES[package]} {'.'.join(version.split('.')[:2])}"

    head = dict(machine=machine, date=datetime.date.today().isoformat())
    figures = {
        f"{title(l['peer'])}: {l['suite']}/{l['name']}": [l["value"], l["unit"]]
        for l in lines(peers)
    }
    entries = [
        f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in [*head.items(), *sorted(figures.items())]
    ]
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(entries) + "\n}\n")


def main(words):
    if len(words) == 4 and words[0] == "save":
        return save(*words[1:])
    if len(words) == 3 and words[0] == "compare":
        return compare(*words[1:])
    if len(words) == 3 and words[0] == "serve":
        return importlib.import_module("serve").serve(words[1], int(words[2]))
    if words == ["ops"]:
        return importlib.import_module("ops").serve()
    if not words or words[0] not in FRAMEWORKS:
        sys.exit(__doc__)
    seconds = 0.2 if "--quick" in words else 1.5
    wanted = [w for w in words[1:] if not w.startswith("-")]
    for name in FRAMEWORKS[words[0]]:
        if installed(name):
            workloads(words[0], name)(seconds, wanted)
        else:
            print(f"{name} is not installed", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
