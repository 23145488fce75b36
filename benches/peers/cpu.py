"""Times of other frameworks on the workloads of `cargo xtask bench cpu`."""

import os

import peers


def cpu_products(b, rand, matmul, call):
    for n in (512, 1024, 2048):
        b.run(f"matmul_{n}", lambda: call(matmul, rand(n, n), rand(n, n)), 2 * n**3, "GFLOP/s")
    b.run("gemv_4096", lambda: call(matmul, rand(1, 4096), rand(4096, 4096)), 4 * 4096**2, "GB/s")
    b.run(
        "bmm_8x512x64",
        lambda: call(matmul, rand(8, 512, 64), rand(8, 64, 512)),
        2 * 8 * 512 * 512 * 64,
        "GFLOP/s",
    )


def cpu_streams(b, rand, ops, call):
    """Runs the ops that `ops` has, by name."""
    rows = 4096 * 1024
    for name, shapes, nbytes in [
        ("fma_relu_16M", [(16 * peers.M,), (16 * peers.M,)], 12 * 16 * peers.M),
        ("gelu_4M", [(4 * peers.M,)], 8 * 4 * peers.M),
        ("sum_16M", [(16 * peers.M,)], 4 * 16 * peers.M),
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

    b, g = peers.Bench("cpu", f"numpy {np.__version__}", seconds, wanted), np.random.default_rng(0)

    def call(f, *args):
        return lambda: f(*args)

    def gelu(x):
        return (
            0.5
            * x
            * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))
        )

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layernorm(x, w, c):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(
            x.var(-1, keepdims=True) + np.float32(1e-5)
        ) * w + c

    def rand(*shape):
        return g.random(shape, dtype=np.float32)

    cpu_products(b, rand, np.matmul, call)
    cpu_streams(
        b,
        rand,
        {
            "fma_relu_16M": lambda x, y: np.maximum(x * y + np.float32(1.5), 0),
            "gelu_4M": gelu,
            "sum_16M": np.sum,
            "softmax_4096x1024": softmax,
            "layernorm_4096x1024": layernorm,
            "transpose_4096": lambda x: np.ascontiguousarray(x.T),
        },
        call,
    )


def torch_cpu(seconds, wanted):
    import torch

    b, f = peers.Bench("cpu", f"torch {torch.__version__}", seconds, wanted), torch.nn.functional

    def call(g, *args):
        def run():
            with torch.inference_mode():
                return g(*args)

        return run

    cpu_products(b, torch.rand, torch.matmul, call)
    cpu_streams(
        b,
        torch.rand,
        {
            "fma_relu_16M": lambda x, y: torch.relu(x * y + 1.5),
            "gelu_4M": lambda x: f.gelu(x, approximate="tanh"),
            "sum_16M": torch.sum,
            "softmax_4096x1024": lambda x: torch.softmax(x, -1),
            "layernorm_4096x1024": lambda x, w, c: f.layer_norm(x, (1024,), w, c),
            "transpose_4096": lambda x: x.t().contiguous(),
        },
        call,
    )
    for name, image, weights, padding, flops in CONVS:
        b.run(
            name,
            lambda: call(
                lambda x, w: f.conv2d(x, w, padding=padding), torch.rand(image), torch.rand(weights)
            ),
            flops,
            "GFLOP/s",
        )
    b.run("mnist_step", lambda: peers.torch_mnist(torch, "cpu"), None, "ms")
    b.run("gpt2_decode", lambda: peers.torch_gpt2(torch, 1, 64), None, "ms")
    b.run("gpt2_prefill64", lambda: peers.torch_gpt2(torch, 64, 0), None, "ms")


def jax_cpu(seconds, wanted):
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np

    b, g = peers.Bench("cpu", f"jax {jax.__version__}", seconds, wanted), np.random.default_rng(0)

    def call(f, *args):
        f = jax.jit(f)
        return lambda: f(*args).block_until_ready()

    def rand(*shape):
        return jax.device_put(g.random(shape, dtype=np.float32))

    def layernorm(x, w, c):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(
            x.var(-1, keepdims=True) + 1e-5
        ) * w + c

    cpu_products(b, rand, jnp.matmul, call)
    cpu_streams(
        b,
        rand,
        {
            "fma_relu_16M": lambda x, y: jax.nn.relu(x * y + 1.5),
            "gelu_4M": lambda x: jax.nn.gelu(x, approximate=True),
            "sum_16M": jnp.sum,
            "softmax_4096x1024": lambda x: jax.nn.softmax(x, -1),
            "layernorm_4096x1024": layernorm,
            "transpose_4096": lambda x: x.T + 0.0,
        },
        call,
    )
    for name, image, weights, pad, flops in CONVS:
        b.run(
            name,
            lambda: call(
                lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME" if pad else "VALID"),
                rand(*image),
                rand(*weights),
            ),
            flops,
            "GFLOP/s",
        )


ONNX_CONSTANTS = {"k": 1.5}


def onnx_call(nodes, *args):
    """A model of nodes with the inputs a, b, c, the output out and named constants."""
    import onnxruntime as ort
    from onnx import TensorProto, helper

    names = "abc"[: len(args)]
    used = {i for n in nodes for i in n.input if i in ONNX_CONSTANTS}
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in zip(names, args)
    ]
    given = [helper.make_tensor(n, TensorProto.FLOAT, [], [ONNX_CONSTANTS[n]]) for n in used]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        given,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = dict(zip(names, args))
    return lambda: session.run(None, feed)


def onnxruntime_cpu(seconds, wanted):
    import numpy as np
    import onnxruntime as ort
    from onnx import helper

    b, g = peers.Bench(
        "cpu", f"onnxruntime {ort.__version__}", seconds, wanted
    ), np.random.default_rng(0)

    def rand(*shape):
        return g.random(shape, dtype=np.float32)

    node = helper.make_node
    cpu_products(b, rand, [node("MatMul", ["a", "b"], ["out"])], onnx_call)
    cpu_streams(
        b,
        rand,
        {
            "fma_relu_16M": [
                node("Mul", ["a", "b"], ["x"]),
                node("Add", ["x", "k"], ["y"]),
                node("Relu", ["y"], ["out"]),
            ],
            "gelu_4M": [node("Gelu", ["a"], ["out"], approximate="tanh")],
            "sum_16M": [node("ReduceSum", ["a"], ["out"], keepdims=0)],
            "softmax_4096x1024": [node("Softmax", ["a"], ["out"], axis=-1)],
            "layernorm_4096x1024": [node("LayerNormalization", ["a", "b", "c"], ["out"], axis=-1)],
            "transpose_4096": [node("Transpose", ["a"], ["out"], perm=[1, 0])],
        },
        onnx_call,
    )
    for name, image, weights, pad, flops in CONVS:
        b.run(
            name,
            lambda: onnx_call(
                [node("Conv", ["a", "b"], ["out"], pads=[pad] * 4)], rand(*image), rand(*weights)
            ),
            flops,
            "GFLOP/s",
        )
