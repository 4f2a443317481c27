"""What a second-order meta-gradient of the regression network costs, beside others in one run.

One iteration is MAML's on the paper's regression: ten tasks of 5 support and 10 query points, a
network 1-40-40-1, five inner steps, Adam. All start from the same weights and are checked to reach
the same loss. Repeats are interleaved; the clock is CPU time of one core. A library that cannot be
imported is left out, and why.

    python benchmarks/peers.py --json peers.json
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

from taskmix.adaptation import Adaptation, meta_gradient
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.streams import regression
from taskmix.tasks import TaskBatch

RATE, META_RATE, STEPS = 0.01, 1e-3, 5
AT_ONCE = 50
"""Iterations of ours per call, as in training, where nothing leaves the device in between."""

Iterate = Callable[[], float]
"""Some iterations from where the last call ended; the loss before the first of them."""


def taskmix(start: tuple, batch: TaskBatch) -> tuple[Iterate, int]:
    adaptation = Adaptation(STEPS, RATE, clip=float("inf"))
    optimiser = optax.adam(META_RATE)

    def update(carry, _):
        params, state = carry
        gradient, result = meta_gradient(MLP(), Gaussian(), adaptation, params, batch)
        change, state = optimiser.update(gradient, state)
        return (optax.apply_updates(params, change), state), jnp.mean(result.loss)

    several = jax.jit(lambda carry: jax.lax.scan(update, carry, None, length=AT_ONCE))
    carry = start, optimiser.init(start)

    def iterate() -> float:
        nonlocal carry
        carry, losses = several(carry)
        return float(losses[0])

    return iterate, AT_ONCE


def _network():
    """Weights as a list, the network as a function of them, and the loss of ours."""
    from torch.nn import functional

    def apply(params, x):
        for layer in range(3):
            x = x @ params[2 * layer] + params[2 * layer + 1]
            x = functional.relu(x) if layer < 2 else x
        return x

    def loss(params, x, y):
        return ((apply(params, x) - y) ** 2).mean()

    return loss


def _tensors(start: tuple, batch: TaskBatch):
    import torch

    torch.set_num_threads(1)

    def of(array):
        return torch.tensor(np.array(array))

    params = [of(part).requires_grad_() for layer in start for part in (layer.weight, layer.bias)]
    data = [of(a) for a in (batch.support.x, batch.support.y, batch.query.x, batch.query.y)]
    return params, data, torch.optim.Adam(params, META_RATE)


def torch_loop(start: tuple, batch: TaskBatch) -> tuple[Iterate, int]:
    """Tasks one after the other, as MAML is usually written in PyTorch."""
    import torch

    loss, (params, data, optimiser) = _network(), _tensors(start, batch)

    def iterate() -> float:
        optimiser.zero_grad()
        total = 0.0
        for x, y, query_x, query_y in zip(*data, strict=True):
            adapted = params
            for _ in range(STEPS):
                gradient = torch.autograd.grad(loss(adapted, x, y), adapted, create_graph=True)
                adapted = [p - RATE * g for p, g in zip(adapted, gradient, strict=True)]
            share = loss(adapted, query_x, query_y) / len(data[0])
            share.backward()
            total += share.item()
        optimiser.step()
        return total

    return iterate, 1


def torch_func(start: tuple, batch: TaskBatch) -> tuple[Iterate, int]:
    """All tasks at once by ``torch.func.vmap``."""
    from torch.func import grad, grad_and_value, vmap

    loss, (params, data, optimiser) = _network(), _tensors(start, batch)

    def of_one(params, x, y, query_x, query_y):
        for _ in range(STEPS):
            gradient = grad(loss)(params, x, y)
            params = [p - RATE * g for p, g in zip(params, gradient, strict=True)]
        return loss(params, query_x, query_y)

    def mean(params, *data):
        return vmap(of_one, (None, 0, 0, 0, 0))(params, *data).mean()

    def iterate() -> float:
        gradient, value = grad_and_value(mean)([p.detach() for p in params], *data)
        for p, g in zip(params, gradient, strict=True):
            p.grad = g
        optimiser.step()
        return value.item()

    return iterate, 1


def _module(start: tuple):
    """The same network as a module, for libraries that want one."""
    import torch

    layers = []
    for place, layer in enumerate(start):
        linear = torch.nn.Linear(*layer.weight.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(np.array(layer.weight).T))
            linear.bias.copy_(torch.tensor(np.array(layer.bias)))
        layers += [linear, torch.nn.ReLU()] if place < len(start) - 1 else [linear]
    return torch.nn.Sequential(*layers)


def higher(start: tuple, batch: TaskBatch) -> tuple[Iterate, int]:
    import higher
    import torch

    _, data, _ = _tensors(start, batch)
    module = _module(start)
    outer = torch.optim.Adam(module.parameters(), META_RATE)
    inner = torch.optim.SGD(module.parameters(), RATE)

    def iterate() -> float:
        outer.zero_grad()
        total = 0.0
        for x, y, query_x, query_y in zip(*data, strict=True):
            with higher.innerloop_ctx(module, inner, copy_initial_weights=False) as (net, steps):
                for _ in range(STEPS):
                    steps.step(((net(x) - y) ** 2).mean())
                share = ((net(query_x) - query_y) ** 2).mean() / len(data[0])
                share.backward()
                total += share.item()
        outer.step()
        return total

    return iterate, 1


def torchopt(start: tuple, batch: TaskBatch) -> tuple[Iterate, int]:
    import torch
    import torchopt

    _, data, _ = _tensors(start, batch)
    module = _module(start)
    outer = torch.optim.Adam(module.parameters(), META_RATE)
    inner = torchopt.MetaSGD(module, lr=RATE)

    def iterate() -> float:
        outer.zero_grad()
        total = 0.0
        weights = torchopt.extract_state_dict(module, by="reference")
        memory = torchopt.extract_state_dict(inner, by="reference")
        for x, y, query_x, query_y in zip(*data, strict=True):
            for _ in range(STEPS):
                inner.step(((module(x) - y) ** 2).mean())
            share = ((module(query_x) - query_y) ** 2).mean() / len(data[0])
            share.backward()
            total += share.item()
            torchopt.recover_state_dict(module, weights)
            torchopt.recover_state_dict(inner, memory)
        outer.step()
        return total

    return iterate, 1


def learn2learn(start: tuple, batch: TaskBatch) -> tuple[Iterate, int]:
    import learn2learn
    import torch

    _, data, _ = _tensors(start, batch)
    module = learn2learn.algorithms.MAML(_module(start), lr=RATE)
    outer = torch.optim.Adam(module.parameters(), META_RATE)

    def iterate() -> float:
        outer.zero_grad()
        total = 0.0
        for x, y, query_x, query_y in zip(*data, strict=True):
            net = module.clone()
            for _ in range(STEPS):
                net.adapt(((net(x) - y) ** 2).mean())
            share = ((net(query_x) - query_y) ** 2).mean() / len(data[0])
            share.backward()
            total += share.item()
        outer.step()
        return total

    return iterate, 1


PEERS = {
    "PyTorch, loop": ("torch", torch_loop),
    "torch.func": ("torch", torch_func),
    "higher": ("higher", higher),
    "torchopt": ("torchopt", torchopt),
    "learn2learn": ("learn2learn", learn2learn),
}


def candidates(start: tuple, batch: TaskBatch) -> tuple[dict, dict[str, str]]:
    """Those that can be had, and why the others cannot."""
    found, missing = {"taskmix": taskmix(start, batch)}, {}
    for name, (package, make) in PEERS.items():
        try:
            importlib.import_module(package)
            found[name] = make(start, batch)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return found, missing


def main(core: int = 0, repeats: int = 7, json_out: Path | None = None) -> None:
    """Time meta-gradients.

    Args:
        core: The core to run on.
        repeats: How often each candidate is timed.
        json_out: File for the results.
    """
    # Before either library starts its threads.
    os.sched_setaffinity(0, {core})
    batch = jax.tree.map(jnp.asarray, regression().batch(jax.random.key(0), 0).without_hints())
    start = MLP().init(jax.random.key(1))
    found, missing = candidates(start, batch)
    first = {name: iterate() for name, (iterate, _) in found.items()}
    np.testing.assert_allclose(list(first.values()), first["taskmix"], rtol=1e-4)
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(repeats):
        for name, (iterate, count) in found.items():
            started = time.process_time()
            iterate()
            times[name].append((time.process_time() - started) / count)
    result = {"seconds": times, "missing": missing}
    if json_out is not None:
        json_out.write_text(json.dumps(result))
    for name, spent in times.items():
        print(f"{name:20} {1e3 * float(np.median(spent)):9.3f} ms")
    for name, why in missing.items():
        print(f"{name:20} missing: {why}")


if __name__ == "__main__":
    tyro.cli(main)
