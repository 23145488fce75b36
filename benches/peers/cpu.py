"""Times of other frameworks on the workloads of `cargo xtask bench cpu`.

A framework is a class: `version` is its name and version, `make(op, inputs)` returns a function
that runs an op, or a model, once. It raises KeyError for an op that it does not have.
"""

import functools
import os

import peers

M = peers.M


def products():
    for n in (512, 1024, 2048, 1000):
        yield f"matmul_{n}", "matmul", [(n, n), (n, n)], 2 * n**3
    yield "matmul_127x129x131", "matmul", [(127, 129), (129, 131)], 2 * 127 * 129 * 131
    yield "matmul_f64_1024", "matmul_f64", [(1024, 1024), (1024, 1024)], 2 * 1024**3
    yield "linear_64x768x3072", "linear", [(64, 768), (3072, 768)], 2 * 64 * 768 * 3072
    yield "bmm_8x512x64", "matmul", [(8, 512, 64), (8, 64, 512)], 2 * 8 * 512 * 512 * 64
    yield "attention_8x8x512x64", "attention", [(8, 8, 512, 64)] * 3, 2 * 64 * 512 * 512 * 64
    conv = 2 * 64 * 64 * 9 * 56 * 56
    yield "conv_1x64x56_k3", "conv_same", [(1, 64, 56, 56), (64, 64, 3, 3)], conv
    conv = 2 * 32 * 32 * 25 * 24 * 24
    yield "conv_32x1x28_k5", "conv_valid", [(32, 1, 28, 28), (32, 1, 5, 5)], conv


def streams():
    rows = 8 * 4096 * 1024
    yield "gemv_4096", "matmul", [(1, 4096), (4096, 4096)], 4 * 4096**2
    yield "gemv_out_in_4096", "linear", [(1, 4096), (4096, 4096)], 4 * 4096**2
    yield "fma_relu_16M", "fma_relu", [(16 * M,), (16 * M,)], 12 * 16 * M
    yield "gelu_4M", "gelu", [(4 * M,)], 8 * 4 * M
    yield "sum_16M", "sum", [(16 * M,)], 4 * 16 * M
    yield "softmax_4096x1024", "softmax", [(4096, 1024)], rows
    yield "layernorm_4096x1024", "layernorm", [(4096, 1024), (1024,), (1024,)], rows
    yield "transpose_4096", "transpose", [(4096, 4096)], 8 * 4096**2


MODELS = ("mnist_step", "gpt2_decode", "gpt2_prefill64", "resnet50")

# name: op, shapes of the inputs, operations or bytes, unit
WORKLOADS = {
    **{name: (op, shapes, work, "GFLOP/s") for name, op, shapes, work in products()},
    **{name: (op, shapes, work, "GB/s") for name, op, shapes, work in streams()},
    **{name: (name, [], None, "ms") for name in MODELS},
}


class Numpy:
    def __init__(self, threads):
        import numpy as np

        self.np, self.version = np, f"numpy {np.__version__}"
        self.random = np.random.default_rng(0)
        self.ops = {
            "matmul": np.matmul,
            "matmul_f64": np.matmul,
            "linear": lambda x, w: x @ w.T,
            "fma_relu": lambda x, y: np.maximum(x * y + np.float32(1.5), 0),
            "gelu": self.gelu,
            "sum": np.sum,
            "softmax": self.softmax,
            "layernorm": self.layernorm,
            "transpose": lambda x: np.ascontiguousarray(x.T),
        }

    def gelu(self, x):
        u = self.np.float32(0.7978845608) * (x + self.np.float32(0.044715) * x * x * x)
        return 0.5 * x * (1 + self.np.tanh(u))

    def softmax(self, x):
        e = self.np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layernorm(self, x, w, c):
        variance = x.var(-1, keepdims=True) + self.np.float32(1e-5)
        return (x - x.mean(-1, keepdims=True)) / self.np.sqrt(variance) * w + c

    def make(self, op, shapes):
        f = self.ops[op]
        dtype = self.np.float64 if op == "matmul_f64" else self.np.float32
        inputs = [self.random.random(shape, dtype=dtype) for shape in shapes]
        return lambda: f(*inputs)


class Torch:
    def __init__(self, threads):
        import torch

        if threads:
            torch.set_num_threads(threads)
        self.torch, self.version = torch, f"torch {torch.__version__}"
        f = torch.nn.functional
        self.ops = {
            "matmul": torch.matmul,
            "matmul_f64": torch.matmul,
            "linear": f.linear,
            "attention": lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
            "conv_same": lambda x, w: f.conv2d(x, w, padding="same"),
            "conv_valid": f.conv2d,
            "fma_relu": lambda x, y: torch.relu(x * y + 1.5),
            "gelu": lambda x: f.gelu(x, approximate="tanh"),
            "sum": torch.sum,
            "softmax": lambda x: torch.softmax(x, -1),
            "layernorm": lambda x, w, c: f.layer_norm(x, (1024,), w, c),
            "transpose": lambda x: x.t().contiguous(),
        }
        self.models = {
            "mnist_step": lambda: peers.torch_mnist(torch, "cpu"),
            "gpt2_decode": lambda: peers.torch_gpt2(torch, 1, 64),
            "gpt2_prefill64": lambda: peers.torch_gpt2(torch, 64, 0),
            "resnet50": self.resnet50,
        }

    def resnet50(self):
        import memory

        net, x = memory.torch_resnet50(self.torch).eval(), self.torch.rand(1, 3, 224, 224)
        return self.inference(net, [x])

    def inference(self, f, inputs):
        def run():
            with self.torch.inference_mode():
                return f(*inputs)

        return run

    def make(self, op, shapes):
        if op in self.models:
            return self.models[op]()
        f = self.ops[op]
        dtype = self.torch.float64 if op == "matmul_f64" else self.torch.float32
        return self.inference(f, [self.torch.rand(shape, dtype=dtype) for shape in shapes])


class Jax:
    def __init__(self, threads):
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        import jax.numpy as jnp
        import numpy as np

        jax.config.update("jax_enable_x64", True)
        self.jax, self.np, self.version = jax, np, f"jax {jax.__version__}"
        self.random = np.random.default_rng(0)
        self.ops = {
            "matmul": jnp.matmul,
            "matmul_f64": jnp.matmul,
            "linear": lambda x, w: x @ w.T,
            "attention": self.attention,
            "conv_same": lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
            "conv_valid": lambda x, w: jax.lax.conv(x, w, (1, 1), "VALID"),
            "fma_relu": lambda x, y: jax.nn.relu(x * y + 1.5),
            "gelu": lambda x: jax.nn.gelu(x, approximate=True),
            "sum": jnp.sum,
            "softmax": lambda x: jax.nn.softmax(x, -1),
            "layernorm": self.layernorm,
            "transpose": lambda x: x.T + 0.0,
        }

    def attention(self, q, k, v):
        jnp = self.jax.numpy
        scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5)
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return self.jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1) @ v

    def layernorm(self, x, w, c):
        scale = self.jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x - x.mean(-1, keepdims=True)) * scale * w + c

    def make(self, op, shapes):
        f = self.jax.jit(self.ops[op])
        dtype = self.np.float64 if op == "matmul_f64" else self.np.float32
        inputs = [self.jax.device_put(self.random.random(s, dtype=dtype)) for s in shapes]
        return lambda: f(*inputs).block_until_ready()


class OnnxRuntime:
    def __init__(self, threads):
        import numpy as np
        import onnxruntime as ort
        from onnx import helper

        self.np, self.ort, self.threads = np, ort, threads
        self.version, self.node = f"onnxruntime {ort.__version__}", helper.make_node
        self.random = np.random.default_rng(0)
        node = helper.make_node
        matmul = [node("MatMul", ["a", "b"], ["out"])]
        self.ops = {
            "matmul": matmul,
            "matmul_f64": matmul,
            "linear": [node("Gemm", ["a", "b"], ["out"], transB=1)],
            "attention": [
                node("Transpose", ["b"], ["t"], perm=[0, 1, 3, 2]),
                node("MatMul", ["a", "t"], ["s"]),
                node("Mul", ["s", "scale"], ["scaled"]),
                node("Add", ["scaled", "seen"], ["masked"]),
                node("Softmax", ["masked"], ["p"], axis=-1),
                node("MatMul", ["p", "c"], ["out"]),
            ],
            "conv_same": [node("Conv", ["a", "b"], ["out"], pads=[1] * 4)],
            "conv_valid": [node("Conv", ["a", "b"], ["out"])],
            "fma_relu": [
                node("Mul", ["a", "b"], ["x"]),
                node("Add", ["x", "k"], ["y"]),
                node("Relu", ["y"], ["out"]),
            ],
            "gelu": [node("Gelu", ["a"], ["out"], approximate="tanh")],
            "sum": [node("ReduceSum", ["a"], ["out"], keepdims=0)],
            "softmax": [node("Softmax", ["a"], ["out"], axis=-1)],
            "layernorm": [node("LayerNormalization", ["a", "b", "c"], ["out"], axis=-1)],
            "transpose": [node("Transpose", ["a"], ["out"], perm=[1, 0])],
        }

    def make(self, op, shapes):
        if op == "resnet50":
            return self.session(*self.resnet50(), [(1, 3, 224, 224)], self.np.float32)
        np, nodes = self.np, self.ops[op]
        constants = {
            "k": np.float32(1.5),
            "scale": np.float32(0.125),
            "seen": np.triu(np.full((512, 512), -np.inf, np.float32), 1),
        }
        used = {i for n in nodes for i in n.input}
        constants = {name: np.asarray(v) for name, v in constants.items() if name in used}
        dtype = np.float64 if op == "matmul_f64" else np.float32
        return self.session(nodes, constants, shapes, dtype)

    def session(self, nodes, constants, shapes, dtype):
        """A run of a model with the inputs a, b, c, the output out and named constants."""
        from onnx import helper, numpy_helper

        inputs = [self.random.random(shape, dtype=dtype) for shape in shapes]
        kind = helper.np_dtype_to_tensor_dtype(self.np.dtype(dtype))
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(n, kind, a.shape) for n, a in zip("abc", inputs)],
            [helper.make_tensor_value_info("out", kind, None)],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        opset = [helper.make_opsetid("", 20)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=9)
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads or 0
        session = self.ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        feed = dict(zip("abc", inputs))
        return lambda: session.run(None, feed)

    def resnet50(self):
        """The nodes of ResNet-50 from a to out, and its weights."""
        np, nodes, weights = self.np, [], {}

        def add(kind, inputs, **how):
            name = f"n{len(nodes)}"
            nodes.append(self.node(kind, inputs, [name], **how))
            return name

        def weight(*shape):
            name = f"w{len(weights)}"
            weights[name] = (self.random.random(shape, dtype=np.float32) - 0.5) * 0.05
            return name

        def convolved(x, inputs, outputs, kernel, stride):
            pads = [kernel // 2] * 4
            w = weight(outputs, inputs, kernel, kernel)
            y = add("Conv", [x, w], pads=pads, strides=[stride] * 2)
            scale, shift, mean, variance = (weight(outputs) for _ in range(4))
            weights[variance] = np.abs(weights[variance])
            return add("BatchNormalization", [y, scale, shift, mean, variance])

        x = add("Relu", [convolved("a", 3, 64, 7, 2)])
        x, inputs = add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 0 else 1
                y = add("Relu", [convolved(x, inputs, width, 1, 1)])
                y = add("Relu", [convolved(y, width, width, 3, stride)])
                y = convolved(y, width, 4 * width, 1, 1)
                short = convolved(x, inputs, 4 * width, 1, stride) if block == 0 else x
                x, inputs = add("Relu", [add("Add", [y, short])]), 4 * width
        x = add("Flatten", [add("GlobalAveragePool", [x])])
        x = add("Gemm", [x, weight(1000, 2048), weight(1000)], transB=1)
        nodes.append(self.node("Identity", [x], ["out"]))
        return nodes, weights


FRAMEWORKS = {"numpy": Numpy, "torch": Torch, "jax": Jax, "onnxruntime": OnnxRuntime}


def measure(framework, seconds, wanted):
    """Measures all workloads of a framework one after the other."""
    peer = FRAMEWORKS[framework](None)
    b = peers.Bench("cpu", peer.version, seconds, wanted)
    for name, (op, shapes, work, unit) in WORKLOADS.items():
        b.run(name, functools.partial(peer.make, op, shapes), work, unit)


numpy_cpu = functools.partial(measure, "numpy")
torch_cpu = functools.partial(measure, "torch")
jax_cpu = functools.partial(measure, "jax")
onnxruntime_cpu = functools.partial(measure, "onnxruntime")
