"""The most memory that lives at one time in torch during a step, for the work of `cargo xtask bench memory`: `peers.py memory` runs it."""
import gc
import json

import peers


def torch_resnet50(torch):
    """ResNet-50, whose 3x3 convolutions have the stride."""
    nn = torch.nn

    def convolved(i, o, kernel, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o))

    class Bottleneck(nn.Module):
        def __init__(self, i, width, stride):
            super().__init__()
            self.narrow, self.middle, self.wide = convolved(i, width, 1), convolved(width, width, 3, stride), convolved(width, 4 * width, 1)
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
        # Here and not at the start, because the profiler does not see the end of what began before it. The peak is the same: either way there are none in the forward pass.
        optimizer.zero_grad()
        return loss.detach()

    return step, sum(p.numel() for p in net.parameters())


def live_tensors(torch):
    """Bytes of the memory of all tensors that Python can reach, each counted once."""
    gc.collect()
    seen = {}
    for o in gc.get_objects():
        if isinstance(o, torch.Tensor):
            for t in (o, o.grad):
                if t is not None:
                    seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return sum(seen.values())


def peak_of_events(torch, call):
    """What the allocator of the CPU had handed out at the most during a call, above what it had before: the events of the profiler, added up."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for e in sorted(events, key=lambda e: e.start_ns()):
        now += e.nbytes()
        most = max(most, now)
    return most


def torch_peak(torch, device, step):
    """The peak during a warm call, and what lives between two calls, in bytes."""
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
    """The method of the CPU on a case whose answer is known: three tensors of 4 MB, of which two live at once beside the first."""
    x = torch.ones(peers.M)

    def call():
        y = x + 1
        z = y * 2
        del y
        return (z + 1).sum()

    found = peak_of_events(torch, call)
    assert 8 * peers.M <= found < 8 * peers.M + 4096, f"two tensors of 4 MiB live at once, and the events say {found} bytes"


def torch_memory(wanted):
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        known_peak(torch)

    def mnist():
        net = peers.torch_net(torch).to(device).train()
        x, y = torch.rand(512, 1, 28, 28, device=device), torch.randint(0, 10, (512,), device=device)
        return training(torch, net, lambda p: torch.optim.Adam(p, lr=1e-3), x, y)

    def resnet50():
        net = torch_resnet50(torch).to(device).train()
        x, y = torch.rand(16, 3, 224, 224, device=device), torch.randint(0, 1000, (16,), device=device)
        return training(torch, net, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), x, y)

    def gpt2():
        # All that is there before the first step is what it is given.
        before = live_tensors(torch)
        with torch.device(device):
            step = peers.torch_gpt2(torch, 1, 64)
        return step, (live_tensors(torch) - before) // 4

    for name, make in [("mnist_step", mnist), ("resnet50_step", resnet50), ("gpt2_decode", gpt2)]:
        if wanted and not any(w in name for w in wanted):
            continue
        step, parameters = make()
        peak, base, held, _result = torch_peak(torch, device, step)
        line = dict(value=round(peak / 1e6, 3), unit="MB", peer=f"torch {torch.__version__} eager", base=round(base / 1e6, 3), parameters=parameters)
        line |= dict(held=round(held / 1e6, 3)) if held is not None else {}
        # Ours has both: what captures is compared with the same.
        for kind in ("plain", "jit"):
            print(json.dumps(dict(suite="memory", name=f"{name}_{kind}") | line), flush=True)
        del step, _result
