#!/usr/bin/env python3
"""Measures other frameworks on the work of `cargo xtask bench`, with the same names and output format.

  python benches/peers/peers.py cpu [--quick] [NAME...]   numpy, torch, jax, onnxruntime (those that are installed)
  python benches/peers/peers.py gpu [--quick] [NAME...]   torch and jax on the first GPU
  python benches/peers/peers.py memory [NAME...]          peak memory of torch, for `cargo xtask bench memory`
  python benches/peers/peers.py jit [--quick] [NAME...]   torch and tinygrad, for `cargo xtask bench jit`
  python benches/peers/peers.py ops                       torch on the cases of `cargo xtask bench ops` from standard input
  python benches/peers/peers.py compare OURS PEERS        prints a table of two files of figures
  python benches/peers/peers.py save FILE PEERS MACHINE   writes figures to benches/results/*.peers.json for the README

memory and jit use a GPU if the framework sees one. The fastest repetition counts, as for picograd: other work on the
machine only makes repetitions slower. README.md says how to make the environment.
"""
import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import time

M = 1 << 20


def installed(name):
    return importlib.util.find_spec(name) is not None


# ---- measuring ------------------------------------------------------------------------------------------------------


class Bench:
    """Runs workloads and prints their figures. `sync` waits for the device."""

    def __init__(self, suite, peer, seconds, wanted, sync=lambda: None):
        self.suite, self.peer, self.seconds, self.wanted, self.sync = suite, peer, seconds, wanted, sync

    def run(self, name, make, work, unit):
        """`make()` gives what is timed; `work` is what it does, in operations or bytes, and is not needed for a time."""
        if self.wanted and not any(w in name for w in self.wanted):
            return
        try:
            f = make()
            start = time.perf_counter()
            f()
            self.sync()
            first = time.perf_counter() - start
            times, begin = [], time.perf_counter()
            # A GPU is given many launches at once, or what starting one takes would be measured too.
            launches = 10 if self.suite == "gpu" else 1
            while len(times) < 3 or (time.perf_counter() - begin < self.seconds and len(times) < 1000):
                start = time.perf_counter()
                for _ in range(launches):
                    f()
                self.sync()
                times.append((time.perf_counter() - start) / launches)
        except Exception as e:  # One that cannot do the work does not end the run.
            print(f"{self.peer} {name}: {type(e).__name__}: {e}".splitlines()[0], file=sys.stderr)
            return
        times.sort()
        scale = {"GFLOP/s": 1e9, "GB/s": 1e9, "TFLOP/s": 1e12}.get(unit)
        value = times[0] * {"ms": 1e3, "us": 1e6}[unit] if scale is None else work / times[0] / scale
        line = dict(suite=self.suite, name=name, value=round(value, 3), unit=unit, peer=self.peer, best_ms=round(times[0] * 1e3, 3),
                    median_ms=round(times[len(times) // 2] * 1e3, 3), first_ms=round(first * 1e3, 3))
        print(json.dumps(line), flush=True)


# ---- the work of `bench cpu` ----------------------------------------------------------------------------------------


def cpu_products(b, rand, matmul, call):
    for n in (512, 1024, 2048):
        b.run(f"matmul_{n}", lambda: call(matmul, rand(n, n), rand(n, n)), 2 * n**3, "GFLOP/s")
    b.run("gemv_4096", lambda: call(matmul, rand(1, 4096), rand(4096, 4096)), 4 * 4096**2, "GB/s")
    b.run("bmm_8x512x64", lambda: call(matmul, rand(8, 512, 64), rand(8, 64, 512)), 2 * 8 * 512 * 512 * 64, "GFLOP/s")


def cpu_streams(b, rand, ops, call):
    """`ops` by name; a missing one is left out."""
    rows = 4096 * 1024
    for name, shapes, nbytes in [
        ("fma_relu_16M", [(16 * M,), (16 * M,)], 12 * 16 * M),
        ("gelu_4M", [(4 * M,)], 8 * 4 * M),
        ("sum_16M", [(16 * M,)], 4 * 16 * M),
        ("softmax_4096x1024", [(4096, 1024)], 8 * rows),
        ("layernorm_4096x1024", [(4096, 1024), (1024,), (1024,)], 8 * rows),
        ("transpose_4096", [(4096, 4096)], 8 * 4096**2),
    ]:
        if name in ops:
            b.run(name, lambda: call(ops[name], *[rand(*s) for s in shapes]), nbytes, "GB/s")


CONVS = [  # name, image, weights, padding, operations
    ("conv_1x64x56_k3", (1, 64, 56, 56), (64, 64, 3, 3), 1, 2 * 64 * 64 * 9 * 56 * 56),
    ("conv_32x1x28_k5", (32, 1, 28, 28), (32, 1, 5, 5), 0, 2 * 32 * 32 * 25 * 24 * 24),
]


def numpy_cpu(seconds, wanted):
    import numpy as np
    b, g = Bench("cpu", f"numpy {np.__version__}", seconds, wanted), np.random.default_rng(0)

    def call(f, *args):
        return lambda: f(*args)

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layernorm(x, w, c):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5)) * w + c

    def rand(*shape):
        return g.random(shape, dtype=np.float32)

    cpu_products(b, rand, np.matmul, call)
    cpu_streams(b, rand, {
        "fma_relu_16M": lambda x, y: np.maximum(x * y + np.float32(1.5), 0),
        "gelu_4M": gelu,
        "sum_16M": np.sum,
        "softmax_4096x1024": softmax,
        "layernorm_4096x1024": layernorm,
        "transpose_4096": lambda x: np.ascontiguousarray(x.T),
    }, call)


def torch_net(torch):
    """The network of mnist_step."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(576, 10))


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
    """GPT-2 small after its embedding: the logits of the next token, for some tokens after others that are in a cache."""
    f, layers, width, heads, vocabulary = torch.nn.functional, 12, 768, 12, 50257

    def full(*shape):
        return torch.full(shape, 0.01)

    def linear(i, o):
        return full(o, i), full(o)

    blocks = [dict(n1=(full(width), full(width)), qkv=linear(width, 3 * width), proj=linear(width, width), n2=(full(width), full(width)),
                   up=linear(width, 4 * width), down=linear(4 * width, width),
                   cache=[full(1, heads, past, width // heads) for _ in range(2)]) for _ in range(layers)]
    norm, table = (full(width), full(width)), full(vocabulary, width)
    start, places = full(1, tokens, width), full(tokens, width)

    def run():
        with torch.inference_mode():
            x = start + places
            for b in blocks:
                h = f.linear(f.layer_norm(x, (width,), *b["n1"]), *b["qkv"])
                q, k, v = (t.view(1, tokens, heads, width // heads).transpose(1, 2) for t in h.split(width, -1))
                if past:
                    k, v = (torch.cat([old, new], 2) for old, new in zip(b["cache"], (k, v)))
                a = f.scaled_dot_product_attention(q, k, v, is_causal=not past).transpose(1, 2).reshape(1, tokens, width)
                x = x + f.linear(a, *b["proj"])
                h = f.linear(f.layer_norm(x, (width,), *b["n2"]), *b["up"])
                x = x + f.linear(f.gelu(h, approximate="tanh"), *b["down"])
            return f.linear(f.layer_norm(x[:, -1:], (width,), *norm), table)

    return run


def torch_cpu(seconds, wanted):
    import torch
    b, f = Bench("cpu", f"torch {torch.__version__}", seconds, wanted), torch.nn.functional

    def call(g, *args):
        def run():
            with torch.inference_mode():
                return g(*args)
        return run

    cpu_products(b, torch.rand, torch.matmul, call)
    cpu_streams(b, torch.rand, {
        "fma_relu_16M": lambda x, y: torch.relu(x * y + 1.5),
        "gelu_4M": lambda x: f.gelu(x, approximate="tanh"),
        "sum_16M": torch.sum,
        "softmax_4096x1024": lambda x: torch.softmax(x, -1),
        "layernorm_4096x1024": lambda x, w, c: f.layer_norm(x, (1024,), w, c),
        "transpose_4096": lambda x: x.t().contiguous(),
    }, call)
    for name, image, weights, padding, flops in CONVS:
        b.run(name, lambda: call(lambda x, w: f.conv2d(x, w, padding=padding), torch.rand(image), torch.rand(weights)), flops, "GFLOP/s")
    b.run("mnist_step", lambda: torch_mnist(torch, "cpu"), None, "ms")
    b.run("gpt2_decode", lambda: torch_gpt2(torch, 1, 64), None, "ms")
    b.run("gpt2_prefill64", lambda: torch_gpt2(torch, 64, 0), None, "ms")


def jax_cpu(seconds, wanted):
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    b, g = Bench("cpu", f"jax {jax.__version__}", seconds, wanted), np.random.default_rng(0)

    def call(f, *args):
        f = jax.jit(f)
        return lambda: f(*args).block_until_ready()

    def rand(*shape):
        return jax.device_put(g.random(shape, dtype=np.float32))

    def layernorm(x, w, c):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w + c

    cpu_products(b, rand, jnp.matmul, call)
    cpu_streams(b, rand, {
        "fma_relu_16M": lambda x, y: jax.nn.relu(x * y + 1.5),
        "gelu_4M": lambda x: jax.nn.gelu(x, approximate=True),
        "sum_16M": jnp.sum,
        "softmax_4096x1024": lambda x: jax.nn.softmax(x, -1),
        "layernorm_4096x1024": layernorm,
        "transpose_4096": lambda x: x.T + 0.0,
    }, call)
    for name, image, weights, pad, flops in CONVS:
        b.run(name, lambda: call(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME" if pad else "VALID"), rand(*image), rand(*weights)), flops, "GFLOP/s")


def onnxruntime_cpu(seconds, wanted):
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
    b, g = Bench("cpu", f"onnxruntime {ort.__version__}", seconds, wanted), np.random.default_rng(0)

    def rand(*shape):
        return g.random(shape, dtype=np.float32)

    def call(nodes, *args):
        """A model of nodes whose inputs are a, b, c and whose output is out; literals are by their names in CONSTANTS."""
        names = "abc"[:len(args)]
        used = {i for n in nodes for i in n.input if i in constants}
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in zip(names, args)]
        given = [helper.make_tensor(n, TensorProto.FLOAT, [], [constants[n]]) for n in used]
        graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)], given)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        feed = dict(zip(names, args))
        return lambda: session.run(None, feed)

    constants = {"k": 1.5}
    node = helper.make_node
    cpu_products(b, rand, [node("MatMul", ["a", "b"], ["out"])], call)
    cpu_streams(b, rand, {
        "fma_relu_16M": [node("Mul", ["a", "b"], ["x"]), node("Add", ["x", "k"], ["y"]), node("Relu", ["y"], ["out"])],
        "gelu_4M": [node("Gelu", ["a"], ["out"], approximate="tanh")],
        "sum_16M": [node("ReduceSum", ["a"], ["out"], keepdims=0)],
        "softmax_4096x1024": [node("Softmax", ["a"], ["out"], axis=-1)],
        "layernorm_4096x1024": [node("LayerNormalization", ["a", "b", "c"], ["out"], axis=-1)],
        "transpose_4096": [node("Transpose", ["a"], ["out"], perm=[1, 0])],
    }, call)
    for name, image, weights, pad, flops in CONVS:
        b.run(name, lambda: call([node("Conv", ["a", "b"], ["out"], pads=[pad] * 4)], rand(*image), rand(*weights)), flops, "GFLOP/s")


# ---- the work of `bench gpu` ----------------------------------------------------------------------------------------

GPU_STREAMS = [  # name, shapes, bytes
    ("copy_256m", [(256 * M,)], 8 * 256 * M),
    ("relu_256m", [(256 * M,), (256 * M,)], 12 * 256 * M),
    ("gelu_256m", [(256 * M,)], 8 * 256 * M),
    ("sum_256m", [(256 * M,)], 4 * 256 * M),
    ("sum_rows_65536x4096", [(65536, 4096)], 4 * 256 * M),
    ("sum_columns_65536x4096", [(65536, 4096)], 4 * 256 * M),
    ("softmax_16384x4096", [(16384, 4096)], 8 * 64 * M),
    ("layernorm_16384x4096", [(16384, 4096)], 8 * 64 * M),
    ("transpose_16384", [(16384, 16384)], 8 * 256 * M),
]
GPU_PRODUCTS = [("matmul_1024", 1024, "float32"), ("matmul_4096", 4096, "float32"), ("matmul_bf16_1024", 1024, "bfloat16"),
                ("matmul_bf16_4096", 4096, "bfloat16"), ("matmul_bf16_8192", 8192, "bfloat16"), ("matmul_f16_4096", 4096, "float16")]


def torch_llama(torch, layers, past):
    """One token through layers of the shape of a model of 7 billion weights, after others that are in a cache."""
    f, width, inner, heads = torch.nn.functional, 4096, 11008, 32

    def full(*shape):
        return torch.full(shape, 0.01, device="cuda", dtype=torch.bfloat16)

    blocks = [dict(n1=full(width), n2=full(width), qkvo=[full(width, width) for _ in range(4)], gate=full(inner, width), up=full(inner, width),
                   down=full(width, inner), cache=[full(1, heads, past, width // heads) for _ in range(2)]) for _ in range(layers)]
    start = full(1, 1, width)

    def run():
        with torch.inference_mode():
            x = start
            for b in blocks:
                h = f.rms_norm(x, (width,), b["n1"], 1e-5)
                q, k, v = (f.linear(h, w).view(1, 1, heads, width // heads).transpose(1, 2) for w in b["qkvo"][:3])
                k, v = (torch.cat([old, new], 2) for old, new in zip(b["cache"], (k, v)))
                a = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 1, width)
                x = x + f.linear(a, b["qkvo"][3])
                h = f.rms_norm(x, (width,), b["n2"], 1e-5)
                x = x + f.linear(f.silu(f.linear(h, b["gate"])) * f.linear(h, b["up"]), b["down"])
            return x

    return run


def torch_gpu(seconds, wanted):
    import torch
    if not torch.cuda.is_available():
        return print("torch sees no GPU", file=sys.stderr)
    b, f = Bench("gpu", f"torch {torch.__version__}", seconds, wanted, torch.cuda.synchronize), torch.nn.functional
    ops = {
        "copy_256m": lambda x: x + 1.0,
        "relu_256m": lambda x, y: torch.relu(x * y + 1.5),
        "gelu_256m": f.gelu,
        "sum_256m": torch.sum,
        "sum_rows_65536x4096": lambda x: x.sum(1),
        "sum_columns_65536x4096": lambda x: x.sum(0),
        "softmax_16384x4096": lambda x: torch.softmax(x, -1),
        "layernorm_16384x4096": lambda x: f.layer_norm(x, (4096,)),
        "transpose_16384": lambda x: x.t().contiguous(),
    }

    def call(g, *args):
        def run():
            with torch.inference_mode():
                return g(*args)
        return run

    def rand(*shape, dtype=torch.float32):
        return torch.rand(shape, device="cuda").to(dtype)

    for name, shapes, nbytes in GPU_STREAMS:
        b.run(name, lambda: call(ops[name], *[rand(*s) for s in shapes]), nbytes, "GB/s")
    b.run("gemv_bf16_4096", lambda: call(torch.mv, rand(4096, 4096, dtype=torch.bfloat16), rand(4096, dtype=torch.bfloat16)), 2 * 4096**2, "GB/s")
    for name, n, dtype in GPU_PRODUCTS:
        dtype = getattr(torch, dtype)
        b.run(name, lambda: call(torch.matmul, rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)), 2 * n**3, "TFLOP/s")
    for name, dtype in [("conv_f16_128x64x56_k3", torch.float16), ("conv_128x64x56_k3", torch.float32)]:
        flops = 2 * 128 * 64 * 56 * 56 * 64 * 9
        b.run(name, lambda: call(lambda x, w: f.conv2d(x, w, padding=1), rand(128, 64, 56, 56, dtype=dtype), rand(64, 64, 3, 3, dtype=dtype)), flops, "TFLOP/s")
    qkv = [(4, 16, 4096, 128)] * 3
    b.run("attention_bf16_4x16x4096x128", lambda: call(f.scaled_dot_product_attention, *[rand(*s, dtype=torch.bfloat16) for s in qkv]),
          4 * 4 * 16 * 4096 * 4096 * 128, "TFLOP/s")
    b.run("mnist_step", lambda: torch_mnist(torch, "cuda"), None, "ms")
    b.run("decode_bf16_8_layers", lambda: torch_llama(torch, 8, 64), 8 * 2 * 4096 * (4 * 4096 + 3 * 11008), "GB/s")


def jax_gpu(seconds, wanted):
    import jax
    import jax.numpy as jnp
    if jax.default_backend() == "cpu":
        return print("jax sees no GPU", file=sys.stderr)
    # What was started last ends last.
    b = Bench("gpu", f"jax {jax.__version__}", seconds, wanted, lambda: (jnp.zeros(()) + 0).block_until_ready())

    def layernorm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    ops = {
        "copy_256m": lambda x: x + 1.0,
        "relu_256m": lambda x, y: jax.nn.relu(x * y + 1.5),
        "gelu_256m": lambda x: jax.nn.gelu(x, approximate=False),
        "sum_256m": jnp.sum,
        "sum_rows_65536x4096": lambda x: x.sum(1),
        "sum_columns_65536x4096": lambda x: x.sum(0),
        "softmax_16384x4096": lambda x: jax.nn.softmax(x, -1),
        "layernorm_16384x4096": layernorm,
        "transpose_16384": lambda x: x.T + 0.0,
    }

    def call(f, *args):
        f = jax.jit(f)
        return lambda: f(*args)

    def rand(*shape, dtype="float32"):
        return jax.random.uniform(jax.random.key(0), shape).astype(dtype)

    for name, shapes, nbytes in GPU_STREAMS:
        b.run(name, lambda: call(ops[name], *[rand(*s) for s in shapes]), nbytes, "GB/s")
    b.run("gemv_bf16_4096", lambda: call(jnp.matmul, rand(4096, 4096, dtype="bfloat16"), rand(4096, dtype="bfloat16")), 2 * 4096**2, "GB/s")
    for name, n, dtype in GPU_PRODUCTS:
        b.run(name, lambda: call(jnp.matmul, rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)), 2 * n**3, "TFLOP/s")


def captured(name):
    """What `jit.py` has for a peer."""
    return lambda seconds, wanted: getattr(importlib.import_module("jit"), f"{name}_jit")(seconds, wanted)


PEERS = {
    "cpu": [("numpy", numpy_cpu), ("torch", torch_cpu), ("jax", jax_cpu), ("onnxruntime", onnxruntime_cpu)],
    "gpu": [("torch", torch_gpu), ("jax", jax_gpu)],
    "memory": [("torch", lambda _, wanted: importlib.import_module("memory").torch_memory(wanted))],
    "jit": [(name, captured(name)) for name in ("torch", "tinygrad")],
}


# ---- comparing ------------------------------------------------------------------------------------------------------


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.startswith("{")]


def compare(ours, peers):
    """Above 1 we are faster than the best peer, whatever the unit."""
    table = {}
    for line in lines(peers):
        best = min if line["unit"] in ("ms", "us", "MB") else max
        old = table.get(line["name"])
        table[line["name"]] = line if old is None else best(old, line, key=lambda l: l["value"])
    print("| work | unit | ours | of the limit | best peer | its figure | ratio |\n|---|---|---|---|---|---|---|")
    for line in lines(ours):
        peer, value = table.get(line["name"]), line["value"]
        if peer is not None:
            ratio = peer["value"] / value if line["unit"] in ("ms", "us", "MB") else value / peer["value"]
            share = f"{line['of_limit']:.0%}" if "of_limit" in line else ""
            print(f"| {line['name']} | {line['unit']} | {value:.4g} | {share} | {peer['peer']} | {peer['value']:.4g} | {ratio:.2f} |")


NAMES = {"torch": "PyTorch", "jax": "JAX", "numpy": "NumPy", "onnxruntime": "ONNX Runtime", "tinygrad": "tinygrad"}


def save(path, peers, machine):
    """Writes figures in the format of `cargo xtask bench --save`, named `framework version: suite/name`."""
    def version(peer):
        return ".".join(importlib.metadata.version(peer).split(".")[:2])

    head = dict(machine=machine, date=datetime.date.today().isoformat())
    figures = {f"{NAMES[l['peer']]} {version(l['peer'])}: {l['suite']}/{l['name']}": [l["value"], l["unit"]] for l in lines(peers)}
    entries = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in [*head.items(), *sorted(figures.items())]]
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(entries) + "\n}\n")


def main(words):
    if len(words) == 4 and words[0] == "save":
        return save(*words[1:])
    if len(words) == 3 and words[0] == "compare":
        return compare(*words[1:])
    if words == ["ops"]:
        return importlib.import_module("ops").serve()
    if not words or words[0] not in PEERS:
        sys.exit(__doc__)
    seconds = 0.2 if "--quick" in words else 1.5
    wanted = [w for w in words[1:] if not w.startswith("-")]
    for name, measure in PEERS[words[0]]:
        if installed(name):
            measure(seconds, wanted)
        else:
            print(f"{name} is not installed", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
