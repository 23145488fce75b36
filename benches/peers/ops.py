"""Times of PyTorch on the cases of `cargo xtask bench ops`.

Each line of standard input is a request in JSON: the name of the case, the op, the inputs with
their shapes, and whether the gradient is measured. Each answer is a line with the microseconds of
the fastest run, or an error. `cargo xtask bench ops --peer PYTHON` sends the requests itself;
`cargo xtask bench ops --list | python benches/peers/peers.py ops` measures PyTorch alone.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make(kind, shape, below=0):
    if kind == "float":
        return torch.randn(shape, device=DEVICE)
    if kind == "unit":
        return torch.rand(shape, device=DEVICE) * 0.8 + 0.1
    if kind == "int":
        return torch.randint(0, below, shape, device=DEVICE)
    return torch.rand(shape, device=DEVICE) < 0.5


def same_name(*names):
    """Ops that torch has under the same name, of all inputs."""
    return {name: getattr(torch, name) for name in names}


LAYERS = {}


def recurrent(kind):
    if kind not in LAYERS:
        LAYERS[kind] = getattr(torch.nn, kind)(64, 64).to(DEVICE)
    layer = LAYERS[kind]

    def run(x):
        y, state = layer(x)
        return (y, *state) if kind == "LSTM" else (y, state)

    return run


def contiguous(f):
    return lambda *x: f(*x).contiguous()


def functional(*names):
    return {name: getattr(F, name) for name in names}


OPS = {
    **same_name(
        "abs",
        "acos",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "floor",
        "round",
        "trunc",
        "sign",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "exp2",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "square",
        "neg",
        "erf",
        "sigmoid",
        "isnan",
        "isfinite",
    ),
    **functional(
        "relu",
        "relu6",
        "leaky_relu",
        "elu",
        "selu",
        "celu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "softsign",
        "hardswish",
        "hardsigmoid",
        "logsigmoid",
        "mse_loss",
        "l1_loss",
        "huber_loss",
        "smooth_l1_loss",
        "cross_entropy",
        "nll_loss",
        "linear",
        "cosine_similarity",
    ),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "to_i32": lambda x: x.to(torch.int32),
    "to_f16": lambda x: x.to(torch.float16),
    "to_bf16": lambda x: x.to(torch.bfloat16),
    **same_name(
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "maximum",
        "minimum",
        "atan2",
        "fmod",
        "copysign",
        "logaddexp",
        "lt",
        "eq",
        "bitwise_and",
        "dot",
        "matmul",
        "bmm",
    ),
    "modulo": torch.remainder,
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "int_add": torch.add,
    "int_floor_div": lambda x, y: x // (y + 1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "masked_fill": lambda x, m: x.masked_fill(m, 0.0),
    "select_where": torch.where,
    "add_row": torch.add,
    "sum": torch.sum,
    "sum_rows": lambda x: x.sum(1),
    "sum_columns": lambda x: x.sum(0),
    "mean": torch.mean,
    "prod_rows": lambda x: x.prod(1),
    "max_rows": lambda x: x.amax(1),
    "min_columns": lambda x: x.amin(0),
    "max": torch.max,
    "var_rows": lambda x: x.var(1),
    "std_rows": lambda x: x.std(1),
    "argmax_rows": lambda x: x.argmax(1),
    "argmin_rows": lambda x: x.argmin(1),
    "any_rows": lambda x: (x > 3).any(1),
    "logsumexp_rows": lambda x: x.logsumexp(1),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum_rows": lambda x: x.cumsum(1),
    "cumsum_columns": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: tuple(x.cummax(0)),
    "cummax_rows": lambda x: tuple(x.cummax(1)),
    "cummin_columns": lambda x: tuple(x.cummin(0)),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "softmax": lambda x: x.softmax(-1),
    "softmax_columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layernorm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rmsnorm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    "normalize": F.normalize,
    "transpose": contiguous(lambda x: x.t()),
    "permute_channels_last": contiguous(lambda x: x.permute(0, 2, 3, 1)),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(3, 1),
    "repeat": lambda x: x.repeat(2, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "pad": lambda x: F.pad(x, (2, 2, 1, 1)),
    "pad_reflect": lambda x: F.pad(x, (2, 2, 1, 1), mode="reflect"),
    "expand": contiguous(lambda x: x.expand(10, -1)),
    "cat_two": lambda *x: torch.cat(x, 0),
    "cat_two_columns": lambda *x: torch.cat(x, 1),
    "cat_many": lambda *x: torch.cat(x, 0),
    "stack_many": lambda *x: torch.stack(x, 0),
    "split_sum": lambda x: torch.add(*x.chunk(2, 1)),
    "tril": torch.tril,
    "triu": lambda x: x.triu(1),
    "diagonal": contiguous(lambda x: x.diagonal()),
    "unfold": contiguous(lambda x: x.unfold(0, 8, 4)),
    "shrink": contiguous(lambda x: x[1:-1, 1:-1]),
    "matmul_transposed": lambda x, y: x @ y.t(),
    "matvec": torch.mv,
    "einsum_bij": lambda x, y: torch.einsum("bij,bjk->bik", x, y),
    "conv2d_3x3": lambda x, w: F.conv2d(x, w, padding=1),
    "conv2d_1x1": F.conv2d,
    "conv2d_depthwise": lambda x, w: F.conv2d(x, w, padding=1, groups=32),
    "conv2d_stride2": lambda x, w: F.conv2d(x, w, padding=1, stride=2),
    "conv_transpose2d": lambda x, w: F.conv_transpose2d(x, w, stride=2),
    "attention": F.scaled_dot_product_attention,
    "attention_causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d_overlapping": lambda x: F.max_pool2d(x, 3, stride=2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "interpolate_nearest": lambda x: F.interpolate(x, scale_factor=2),
    "interpolate_bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "qr": lambda x: tuple(torch.linalg.qr(x)),
    "svd": lambda x: tuple(torch.linalg.svd(x)),
    "gather": lambda x, i: x.gather(0, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "take_rows": lambda x, i: x[i],
    "embedding": lambda x, i: F.embedding(i, x),
    "one_hot": lambda i: F.one_hot(i, 100),
    "scatter": lambda x, i, s: x.scatter(0, i, s),
    "scatter_sum": lambda x, i, s: x.scatter_add(0, i, s),
    "scatter_mean": lambda x, i, s: x.scatter_reduce(0, i, s, "mean"),
    "scatter_amax": lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    "scatter_prod": lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
    "scatter_million": lambda x, i, s: x.scatter(0, i, s),
    "scatter_sum_million": lambda x, i, s: x.scatter_add(0, i, s),
    "scatter_mean_million": lambda x, i, s: x.scatter_reduce(0, i, s, "mean"),
    "scatter_amax_million": lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    "scatter_prod_million": lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
    "nonzero": lambda _, m: m.nonzero(),
    "masked_select": torch.masked_select,
    "sort": lambda x: tuple(x.sort(dim=0, stable=True)),
    "sort_rows": lambda x: tuple(x.sort(dim=1, stable=True)),
    "argsort": lambda x: x.argsort(dim=0, descending=True, stable=True),
    "topk_50": lambda x: tuple(x.topk(50, 1)),
    "topk_rows": lambda x: tuple(x.topk(10, 1)),
    "multinomial": lambda p: p.multinomial(10, replacement=False),
    "randperm": lambda x: torch.randperm(x.numel(), device=DEVICE),
    "rand": lambda x: torch.rand(x.numel(), device=DEVICE),
    "randn": lambda x: torch.randn(x.numel(), device=DEVICE),
    "randint": lambda x: torch.randint(0, 100, (x.numel(),), device=DEVICE),
    "bce_logits": F.binary_cross_entropy_with_logits,
    "lstm": recurrent("LSTM"),
    "gru": recurrent("GRU"),
}


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(request):
    """The fastest run in seconds."""
    op = OPS[request["op"]]
    inputs = [make(*spec) for spec in request["inputs"]]
    if request["gradient"]:
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
        targets = [x for x in inputs if x.is_floating_point()]
        targets += (
            list(LAYERS[request["op"].upper()].parameters())
            if request["op"].upper() in LAYERS
            else []
        )

        def run():
            out = op(*inputs)
            outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.is_floating_point()]
            torch.autograd.grad(sum(o.sum() for o in outs), targets)

    else:

        def run():
            with torch.no_grad():
                op(*inputs)

    run()
    wait()
    best, begin, runs = float("inf"), time.perf_counter(), 0
    while runs < 2 or (time.perf_counter() - begin < request["seconds"] and runs < 1000):
        start = time.perf_counter()
        run()
        wait()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def serve():
    for line in sys.stdin:
        request = json.loads(line)
        answer = dict(suite="ops", name=request["name"])
        try:
            answer |= dict(
                value=round(measure(request) * 1e6, 3), unit="us", peer=f"torch {torch.__version__}"
            )
        except Exception as e:  # An op that torch lacks does not end the run.
            answer |= dict(error=f"{type(e).__name__}: {e}".splitlines()[0])
        print(json.dumps(answer), flush=True)
