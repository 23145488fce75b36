"""Peak memory of torch during a step, on the workloads of `cargo xtask bench memory`.

`python benches/peers/peers.py memory` runs it.
"""

import gc
import json

import peers


def torch_resnet50(torch):
    """ResNet-50 with the stride in the 3x3 convolutions."""
    nn = torch.nn

    def convolved(i, o, kernel, stride=1):
        return nn.Sequential(
            nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o)
        )

    class Bottleneck(nn.Module):
        def __init__(self, i, width, stride):
            super().__init__()
            self.narrow, self.middle, self.wide = (
                convolved(i, width, 1),
                convolved(width, width, 3, stride),
                convolved(width, 4 * width, 1),
            )
            self.short = convolved(i, 4 * width, 1, stride) if i != 4 * width else None
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.relu(self.narrow(x))
            y = self.wide(self.relu(self.middle(y)))
            y += x if self.short is None else self.short(x)
            return self.relu(y)

    layers, i = [convolved(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            layers.append(Bottleneck(i, 64 << stage, 2 if block == 0 and stage > 0 else 1))
            i = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


def training(torch, net, make_optimizer, x, y):
    optimizer = make_optimizer(net.parameters())

    def step():
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        # Not at the start of the step: the profiler does not see frees of memory that was
        # allocated before it started. The peak is the same, because the forward pass has no
        # gradients either way.
        optimizer.zero_grad()
        return loss.detach()

    return step, sum(p.numel() for p in net.parameters())


def live_tensors(torch):
    """Bytes of all tensors that Python can reach, each storage counted once."""
    gc.collect()
    seen = {}
    for o in gc.get_objects():
        if isinstance(o, torch.Tensor):
            for t in (o, o.grad):
                if t is not None:
                    seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return sum(seen.values())


def peak_of_events(torch, call):
    """Peak bytes of the CPU allocator during a call, above those before it.

    They are the running sum of the profiler's memory events.
    """
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for e in sorted(events, key=lambda e: e.start_ns()):
        now += e.nbytes()
        most = max(most, now)
    return most


def torch_peak(torch, device, step):
    """Peak bytes during a warm call, and live bytes between two calls."""
    for _ in range(2):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        result = step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated(), base, torch.cuda.max_memory_reserved(), result
    base = live_tensors(torch)
    return base + peak_of_events(torch, step), base, None, None


def known_peak(torch):
    """Checks the CPU method on a known case: two of three tensors of 4 MiB live simultaneously."""
    x = torch.ones(peers.M)

    def call():
        y = x + 1
        z = y * 2
        del y
        return (z + 1).sum()

    found = peak_of_events(torch, call)
    message = f"two tensors of 4 MiB are live simultaneously, and the events sum to {found} bytes"
    assert 8 * peers.M <= found < 8 * peers.M + 4096, message


def torch_memory(_seconds, wanted):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        known_peak(torch)

    def mnist():
        net = peers.torch_net(torch).to(device).train()
        x, y = torch.rand(512, 1, 28, 28, device=device), torch.randint(
            0, 10, (512,), device=device
        )
        return training(torch, net, lambda p: torch.optim.Adam(p, lr=1e-3), x, y)

    def resnet50():
        net = torch_resnet50(torch).to(device).train()
        x, y = torch.rand(16, 3, 224, 224, device=device), torch.randint(
            0, 1000, (16,), device=device
        )
        return training(torch, net, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), x, y)

    def gpt2():
        # The tensors that exist before the first step are its inputs.
        before = live_tensors(torch)
        with torch.device(device):
            step = peers.torch_gpt2(torch, 1, 64)
        return step, (live_tensors(torch) - before) // 4

    for name, make in [("mnist_step", mnist), ("resnet50_step", resnet50), ("gpt2_decode", gpt2)]:
        if wanted and not any(w in name for w in wanted):
            continue
        step, parameters = make()
        peak, base, held, _result = torch_peak(torch, device, step)
        line = dict(
            value=round(peak / 1e6, 3),
            unit="MB",
            peer=f"torch {torch.__version__} eager",
            base=round(base / 1e6, 3),
            parameters=parameters,
        )
        line |= dict(held=round(held / 1e6, 3)) if held is not None else {}
        # picograd has both variants, which are compared with the same figure.
        for kind in ("plain", "jit"):
            print(json.dumps(dict(suite="memory", name=f"{name}_{kind}") | line), flush=True)
        del step, _result
