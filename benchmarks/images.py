"""What a meta-gradient on images costs, beside PyTorch doing the same in the same run.

One iteration is MAML's: four tasks of 5 classes with 1 support and 15 query images each,
second-order gradients, Adam. Of a mixture of four every component judges every task, and one,
drawn by its responsibility, is differentiated. All start from the same weights and are
checked to reach the same loss. Repeats are interleaved. PyTorch is timed as it comes and with
images stored like ours, channels last, which suits it better. The clock is CPU time on one
core (so that other processes matter less) and wall time on more.

    pip install torch==2.13.0
    python benchmarks/images.py --cores 0
    python benchmarks/images.py --cores 0 1
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from rich.console import Console
from rich.table import Table

from taskmix.adaptation import Adaptation, Gradient, meta_gradient
from taskmix.likelihood import Categorical
from taskmix.mixture import FiniteMixture
from taskmix.mixture.clusters import Clusters
from taskmix.models.conv4 import Conv4, Conv4Params
from taskmix.tasks import Examples, TaskBatch

TASKS, WAYS, SHOTS, QUERIES = 4, 5, 1, 15
RATE, META_RATE = 0.05, 1e-3
COMPONENTS = 4

Iterate = Callable[[], float]
"""One iteration, from wherever the last one ended; the mean query loss."""


def random_batch(size: int) -> TaskBatch:
    """Random images: their values do not change what is computed."""
    rng = np.random.default_rng(0)

    def examples(shots: int) -> Examples:
        x = rng.uniform(size=(TASKS, WAYS * shots, size, size, 3)).astype(np.float32)
        y = np.tile(np.arange(WAYS), (TASKS, shots))
        return Examples(jnp.asarray(x), jnp.asarray(y), jnp.ones(y.shape, bool))

    return TaskBatch(examples(SHOTS), examples(QUERIES))


def ours(model: Conv4, start: Conv4Params, batch: TaskBatch, steps: int) -> Iterate:
    adaptation = Adaptation(steps, RATE, clip=float("inf"))
    optimiser = optax.adam(META_RATE)

    @jax.jit
    def update(params, state, batch):
        gradient, result = meta_gradient(model, Categorical(), adaptation, params, batch)
        change, state = optimiser.update(gradient, state)
        return optax.apply_updates(params, change), state, jnp.mean(result.loss)

    params, state = start, optimiser.init(start)

    def iterate() -> float:
        nonlocal params, state
        params, state, loss = update(params, state, batch)
        return float(loss)

    return iterate


def mixture(
    model: Conv4, start: Conv4Params, batch: TaskBatch, steps: int, components: int
) -> Iterate:
    learner = FiniteMixture(
        Gradient(model, Categorical(), Adaptation(steps, RATE, clip=float("inf"))),
        META_RATE,
        components=components,
        sampled=True,
    )
    # Alike in the beginning, so that the loss is that of one cluster.
    rows = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (components, *leaf.shape)), start)
    state = Clusters.stack(rows, optax.adam(META_RATE), jnp.ones(components, bool))
    step = jax.jit(learner.step)
    key = jax.random.key(0)

    def iterate() -> float:
        nonlocal state
        state, info = step(state, batch, key)
        return float(info.loss)

    return iterate


def pytorch(
    model: Conv4, start: Conv4Params, batch: TaskBatch, steps: int, channels_last: bool
) -> Iterate:
    """A loop over tasks and inner steps, as MAML is usually written in PyTorch."""
    try:
        import torch
    except ImportError as error:
        raise SystemExit(
            "This benchmark compares with PyTorch, which is not installed. "
            "Run `pip install torch==2.13.0`."
        ) from error
    from torch.nn import functional

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def images(x):
        return torch.tensor(np.asarray(x)).permute(0, 3, 1, 2).contiguous(memory_format=layout)

    def labels(y):
        return torch.tensor(np.asarray(y)).long()

    support, query = (
        [(images(x), labels(y)) for x, y in zip(examples.x, examples.y, strict=True)]
        for examples in (batch.support, batch.query)
    )
    params = torch_params(model, start)
    params = [p.contiguous(memory_format=layout) if p.ndim == 4 else p for p in params]
    params = [p.detach().requires_grad_() for p in params]
    # Every third of a block is its shift, which the inner loop leaves alone.
    fast = [i for i in range(len(params)) if i >= 12 or i % 3 != 2]
    optimiser = torch.optim.Adam(params, META_RATE)

    def loss(params, x, y):
        for block in range(4):
            kernel, bias, shift = params[3 * block : 3 * block + 3]
            x = functional.conv2d(x, kernel, bias, padding=1)
            x = functional.batch_norm(x, None, None, None, shift, training=True, eps=1e-3)
            x = functional.max_pool2d(functional.relu(x), 2)
        return functional.cross_entropy(functional.linear(x.flatten(1), *params[12:]), y)

    def iterate() -> float:
        optimiser.zero_grad()
        total = 0.0
        for (x, y), judged in zip(support, query, strict=True):
            adapted = list(params)
            for _ in range(steps):
                wanted = [adapted[i] for i in fast]
                gradient = torch.autograd.grad(loss(adapted, x, y), wanted, create_graph=True)
                for i, g in zip(fast, gradient, strict=True):
                    adapted[i] = adapted[i] - RATE * g
            share = loss(adapted, *judged) / TASKS
            share.backward()
            total += share.item()
        optimiser.step()
        return total

    return iterate


def torch_params(model: Conv4, params: Conv4Params) -> list:
    """The same weights in PyTorch's order: filters before channels before pixels."""
    import torch

    arrays = []
    for block in params.blocks:
        arrays += [np.transpose(block.kernel, (3, 2, 0, 1)), block.bias, block.shift]
    side = model.size // 16
    weight = np.reshape(params.head.weight, (side, side, model.filters, model.outputs))
    weight = np.transpose(weight, (3, 2, 0, 1)).reshape(model.outputs, -1)
    return [torch.tensor(np.array(array)) for array in (*arrays, weight, params.head.bias)]


def seconds(candidates: dict[str, Iterate], repeats: int) -> dict[str, list[float]]:
    """Times of each candidate; they take turns."""
    clock = time.process_time if len(os.sched_getaffinity(0)) == 1 else time.perf_counter
    first = {name: iterate() for name, iterate in candidates.items()}
    # Random images nearly tie in pools, and five steps at 84x84 amplify the rounding of float32 to
    # 0.7 % (0.2 % between PyTorch's two layouts). In float64 the losses agree to 13 digits.
    np.testing.assert_allclose(list(first.values()), first["taskmix"], rtol=2e-2)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, iterate in candidates.items():
            started = clock()
            iterate()
            times[name].append(clock() - started)
    return times


def operations(model: Conv4, start: Conv4Params, batch: TaskBatch, steps: int) -> float:
    """Floating-point operations of one meta-gradient of ours, as XLA counts them.

    It counts the body of a loop once, so one task is counted and multiplied.
    """
    adaptation = Adaptation(steps, RATE, clip=float("inf"))
    one = jax.tree.map(lambda leaf: leaf[:1], batch)
    program = jax.jit(partial(meta_gradient, model, Categorical(), adaptation))
    return TASKS * float(program.lower(start, one).compile().cost_analysis()["flops"])


def main(
    cores: tuple[int, ...] = (0,),
    sizes: tuple[int, ...] = (32, 84),
    repeats: int = 9,
    json_out: Path | None = None,
) -> None:
    """Time meta-gradients.

    Args:
        cores: The cores to run on; both libraries use as many threads.
        sizes: Widths of the square images.
        repeats: How often each candidate is timed.
        json_out: File for the results.
    """
    # Before either library starts its threads.
    os.sched_setaffinity(0, cores)
    table = Table(title=f"Milliseconds of an iteration on {len(cores)} core(s)")
    names = ("taskmix", f"mixture of {COMPONENTS}", "PyTorch", "PyTorch, channels last")
    for heading in ("size", "inner steps", *names, *[f"{name} / taskmix" for name in names[1:]]):
        table.add_column(heading, justify="right")
    rows = []
    for size in sizes:
        model, batch = Conv4(size=size), random_batch(size)
        start = model.init(jax.random.key(0))
        for steps in (1, 5):
            candidates = {
                names[0]: ours(model, start, batch, steps),
                names[1]: mixture(model, start, batch, steps, COMPONENTS),
                names[2]: pytorch(model, start, batch, steps, channels_last=False),
                names[3]: pytorch(model, start, batch, steps, channels_last=True),
            }
            times = seconds(candidates, repeats)
            flops = operations(model, start, batch, steps)
            rows.append({"size": size, "steps": steps, "seconds": times, "flops": flops})
            cost = {name: 1e3 * statistics.median(spent) for name, spent in times.items()}
            ratios = [f"{cost[name] / cost['taskmix']:.2f}" for name in names[1:]]
            table.add_row(str(size), str(steps), *[f"{cost[n]:.0f}" for n in names], *ratios)
    Console().print(table)
    if json_out is not None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        json_out.write_text(json.dumps({"rows": rows, "peak_memory": peak}))


if __name__ == "__main__":
    tyro.cli(main)
