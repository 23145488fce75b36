"""Times of other frameworks on the workloads of `cargo xtask bench gpu`."""

import sys

import peers

GPU_STREAMS = [  # name, shapes, bytes
    ("copy_256m", [(256 * peers.M,)], 8 * 256 * peers.M),
    ("relu_256m", [(256 * peers.M,), (256 * peers.M,)], 12 * 256 * peers.M),
    ("gelu_256m", [(256 * peers.M,)], 8 * 256 * peers.M),
    ("sum_256m", [(256 * peers.M,)], 4 * 256 * peers.M),
    ("sum_rows_65536x4096", [(65536, 4096)], 4 * 256 * peers.M),
    ("sum_columns_65536x4096", [(65536, 4096)], 4 * 256 * peers.M),
    ("softmax_16384x4096", [(16384, 4096)], 8 * 64 * peers.M),
    ("layernorm_16384x4096", [(16384, 4096)], 8 * 64 * peers.M),
    ("transpose_16384", [(16384, 16384)], 8 * 256 * peers.M),
]
GPU_PRODUCTS = [
    ("matmul_1024", 1024, "float32"),
    ("matmul_4096", 4096, "float32"),
    ("matmul_bf16_1024", 1024, "bfloat16"),
    ("matmul_bf16_4096", 4096, "bfloat16"),
    ("matmul_bf16_8192", 8192, "bfloat16"),
    ("matmul_f16_4096", 4096, "float16"),
]


def torch_llama(torch, layers, past):
    """One token through layers of the shapes of a model with 7 billion weights, with a cache."""
    f, width, inner, heads = torch.nn.functional, 4096, 11008, 32

    def full(*shape):
        return torch.full(shape, 0.01, device="cuda", dtype=torch.bfloat16)

    blocks = [
        dict(
            n1=full(width),
            n2=full(width),
            qkvo=[full(width, width) for _ in range(4)],
            gate=full(inner, width),
            up=full(inner, width),
            down=full(width, inner),
            cache=[full(1, heads, past, width // heads) for _ in range(2)],
        )
        for _ in range(layers)
    ]
    start = full(1, 1, width)

    def run():
        with torch.inference_mode():
            x = start
            for b in blocks:
                h = f.rms_norm(x, (width,), b["n1"], 1e-5)
                q, k, v = (
                    f.linear(h, w).view(1, 1, heads, width // heads).transpose(1, 2)
                    for w in b["qkvo"][:3]
                )
                k, v = (torch.cat([old, new], 2) for old, new in zip(b["cache"], (k, v)))
                a = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 1, width)
                x = x + f.linear(a, b["qkvo"][3])
                h = f.rms_norm(x, (width,), b["n2"], 1e-5)
                x = x + f.linear(f.silu(f.linear(h, b["gate"])) * f.linear(h, b["up"]), b["down"])
            return x

    return run


def torch_streams(torch):
    """The ops of GPU_STREAMS."""
    f = torch.nn.functional
    return {
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


def torch_gpu_layers(b, torch, call, rand):
    """Convolutions and attention."""
    f = torch.nn.functional
    for name, dtype in [
        ("conv_f16_128x64x56_k3", torch.float16),
        ("conv_128x64x56_k3", torch.float32),
    ]:
        flops = 2 * 128 * 64 * 56 * 56 * 64 * 9
        b.run(
            name,
            lambda: call(
                lambda x, w: f.conv2d(x, w, padding=1),
                rand(128, 64, 56, 56, dtype=dtype),
                rand(64, 64, 3, 3, dtype=dtype),
            ),
            flops,
            "TFLOP/s",
        )
    qkv = [(4, 16, 4096, 128)] * 3
    b.run(
        "attention_bf16_4x16x4096x128",
        lambda: call(
            f.scaled_dot_product_attention, *[rand(*s, dtype=torch.bfloat16) for s in qkv]
        ),
        4 * 4 * 16 * 4096 * 4096 * 128,
        "TFLOP/s",
    )


def torch_gpu(seconds, wanted):
    import torch

    if not torch.cuda.is_available():
        return print("torch sees no GPU", file=sys.stderr)
    b = peers.Bench("gpu", f"torch {torch.__version__}", seconds, wanted, torch.cuda.synchronize)
    ops = torch_streams(torch)

    def call(g, *args):
        def run():
            with torch.inference_mode():
                return g(*args)

        return run

    def rand(*shape, dtype=torch.float32):
        return torch.rand(shape, device="cuda").to(dtype)

    for name, shapes, nbytes in GPU_STREAMS:
        b.run(name, lambda: call(ops[name], *[rand(*s) for s in shapes]), nbytes, "GB/s")
    b.run(
        "gemv_bf16_4096",
        lambda: call(
            torch.mv, rand(4096, 4096, dtype=torch.bfloat16), rand(4096, dtype=torch.bfloat16)
        ),
        2 * 4096**2,
        "GB/s",
    )
    for name, n, dtype in GPU_PRODUCTS:
        dtype = getattr(torch, dtype)
        b.run(
            name,
            lambda: call(torch.matmul, rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)),
            2 * n**3,
            "TFLOP/s",
        )
    torch_gpu_layers(b, torch, call, rand)
    b.run("mnist_step", lambda: peers.torch_mnist(torch, "cuda"), None, "ms")
    b.run(
        "decode_bf16_8_layers",
        lambda: torch_llama(torch, 8, 64),
        8 * 2 * 4096 * (4 * 4096 + 3 * 11008),
        "GB/s",
    )


def jax_gpu(seconds, wanted):
    import jax
    import jax.numpy as jnp

    if jax.default_backend() == "cpu":
        return print("jax sees no GPU", file=sys.stderr)
    # The device runs in order, so the last result is the last to be ready.
    b = peers.Bench(
        "gpu",
        f"jax {jax.__version__}",
        seconds,
        wanted,
        lambda: (jnp.zeros(()) + 0).block_until_ready(),
    )

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
    b.run(
        "gemv_bf16_4096",
        lambda: call(jnp.matmul, rand(4096, 4096, dtype="bfloat16"), rand(4096, dtype="bfloat16")),
        2 * 4096**2,
        "GB/s",
    )
    for name, n, dtype in GPU_PRODUCTS:
        b.run(
            name,
            lambda: call(jnp.matmul, rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)),
            2 * n**3,
            "TFLOP/s",
        )
