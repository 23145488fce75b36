"""Times of other frameworks on the workloads of `cargo xtask bench jit`: a chain of a hundred
kernels, a training step and a token of GPT-2 small, eager and captured.

Captured means TinyJit for tinygrad. For torch it means a CUDA graph on a GPU and torch.compile on
the CPU, where the chain of kernels runs eagerly. `python benches/peers/peers.py jit` runs it; each
call is synchronized, and the fastest one counts.
"""

import peers

CHAIN = 100


def cuda_graph(torch, step):
    """Captures the step as a CUDA graph, after warm-up calls on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()
    return recorded.replay


def torch_jit(seconds, wanted):
    import torch

    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    b = peers.Bench(
        "jit",
        f"torch {torch.__version__}",
        seconds,
        wanted,
        torch.cuda.synchronize if gpu else lambda: None,
    )

    def chain():
        x = torch.zeros(1, device=device)

        def run():
            y = x
            for _ in range(CHAIN):
                y = y + 1.0
            return y

        return run

    def mnist(capture):
        net = peers.torch_net(torch).to(device).train()
        # A CUDA graph can count steps only if the state of the optimizer is on the GPU.
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=gpu, fused=gpu)
        x = torch.rand(512, 1, 28, 28, device=device)
        y = torch.randint(0, 10, (512,), device=device)

        def loss():
            return torch.nn.functional.cross_entropy(net(x), y)

        forward = torch.compile(loss) if capture and not gpu else loss

        def step():
            optimizer.zero_grad(set_to_none=True)
            forward().backward()
            optimizer.step()

        return cuda_graph(torch, step) if capture and gpu else step

    def gpt2(capture):
        with torch.device(device):
            run = peers.torch_gpt2(torch, 1, 64)
        if capture:
            return cuda_graph(torch, run) if gpu else torch.compile(run)
        return run

    b.run("chain_100_kernels", (lambda: cuda_graph(torch, chain())) if gpu else chain, None, "us")
    b.run("mnist_step_plain", lambda: mnist(False), None, "ms")
    b.run("mnist_step_jit", lambda: mnist(True), None, "ms")
    b.run("gpt2_decode_plain", lambda: gpt2(False), None, "ms")
    b.run("gpt2_decode_jit", lambda: gpt2(True), None, "ms")


def tinygrad_mnist(capture):
    """Returns a training step."""
    from tinygrad import Context, Tensor, TinyJit, nn

    layers = [
        nn.Conv2d(1, 32, 5),
        Tensor.relu,
        nn.Conv2d(32, 32, 5),
        Tensor.relu,
        nn.BatchNorm(32),
        Tensor.max_pool2d,
        nn.Conv2d(32, 64, 3),
        Tensor.relu,
        nn.Conv2d(64, 64, 3),
        Tensor.relu,
        nn.BatchNorm(64),
        Tensor.max_pool2d,
        lambda x: x.flatten(1),
        nn.Linear(576, 10),
    ]
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=1e-3)
    x, y = Tensor.rand(512, 1, 28, 28).realize(), Tensor.randint(512, high=10).realize()

    def step(x, y):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = x.sequential(layers).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

    step = TinyJit(step) if capture else step
    return lambda: step(x, y)


def tinygrad_gpt2(capture):
    """Returns the decoding of a token by GPT-2 small."""
    from tinygrad import Tensor, TinyJit

    layers, width, heads, vocabulary, past = 12, 768, 12, 50257, 64

    def full(*shape):
        return Tensor.full(shape, 0.01).contiguous().realize()

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
    norm, table, start = (full(width), full(width)), full(vocabulary, width), full(1, 1, width)

    def through(x, w, c=None):
        return x @ w.T if c is None else x @ w.T + c

    def normed(x, w, c):
        return x.layernorm() * w + c

    def run(x):
        x = x + start
        for k in blocks:
            h = through(normed(x, *k["n1"]), *k["qkv"])
            q, new_k, new_v = (
                t.reshape(1, 1, heads, width // heads).transpose(1, 2)
                for t in h.split(width, dim=-1)
            )
            keys, values = k["cache"][0].cat(new_k, dim=2), k["cache"][1].cat(new_v, dim=2)
            seen = q.scaled_dot_product_attention(keys, values).transpose(1, 2).reshape(1, 1, width)
            x = x + through(seen, *k["proj"])
            x = x + through(through(normed(x, *k["n2"]), *k["up"]).gelu(), *k["down"])
        return through(normed(x, *norm), table).realize()

    run = TinyJit(run) if capture else run
    return lambda: run(start)


def tinygrad_jit(seconds, wanted):
    from importlib.metadata import PackageNotFoundError, version
    from tinygrad import Device, Tensor, TinyJit

    try:
        number = version("tinygrad")
    except PackageNotFoundError:
        number = ""
    b = peers.Bench(
        "jit",
        f"tinygrad {number} {Device.DEFAULT}",
        seconds,
        wanted,
        lambda: Device[Device.DEFAULT].synchronize(),
    )

    def chain():
        x = Tensor.zeros(1).contiguous().realize()

        @TinyJit
        def run(x):
            for _ in range(CHAIN):
                x = (x + 1.0).realize()
            return x

        return lambda: run(x)

    b.run("chain_100_kernels", chain, None, "us")
    b.run("mnist_step_plain", lambda: tinygrad_mnist(False), None, "ms")
    b.run("mnist_step_jit", lambda: tinygrad_mnist(True), None, "ms")
    b.run("gpt2_decode_plain", lambda: tinygrad_gpt2(False), None, "ms")
    b.run("gpt2_decode_jit", lambda: tinygrad_gpt2(True), None, "ms")
