"""Which kinds of images does the mixture tell apart, whatever a network makes of them?

Follows a stream of `taskmix run evolving-images` with a task model to which all tasks are alike and
which costs nothing, so that images are all it has to go by. Prints alarms, births and removals, and
to which cluster tasks of new classes go, five images each.

    python benchmarks/recognition.py STORE --families blur night pencil --schedule interleaved
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array

from taskmix.adaptation.task_model import Judgement, Predictive, TaskResult
from taskmix.compiled import quickly
from taskmix.evaluation import normalised_mutual_information
from taskmix.experiments import EvolvingImages
from taskmix.experiments.methods import METHODS
from taskmix.likelihood import Categorical
from taskmix.streams import ImageStream, image_features
from taskmix.streams.schedule import Order
from taskmix.tasks import Examples, TaskBatch

AT_ONCE = 50
"""Batches per dispatch."""
LEAD = 0.2
"""Nats per query by which a cluster explains labels better than the background, which guesses."""


@dataclasses.dataclass(frozen=True)
class Indifferent:
    """A task model to which all tasks are alike."""

    likelihood: Categorical = Categorical(inputs=image_features)
    outputs: int = 5
    exact = False
    one_at_a_time = True

    def init(self, key: Array) -> Array:
        return jnp.zeros(())

    def loss(self, params: Array, support: Examples, query: Examples) -> tuple[Array, TaskResult]:
        return params**2, TaskResult(params**2, self.predict(params, query.x).mean, params)

    def evidence(self, params: Array, examples: Examples) -> Array:
        return -math.log(self.outputs) * examples.count() + 0 * params

    def adapt(self, params: Array, support: Examples) -> Array:
        return params

    def predict(
        self, posterior: Array, query_x: Array, query_mask: Array | None = None
    ) -> Predictive:
        return Predictive(jnp.full((len(query_x), self.outputs), 1 / self.outputs) + 0 * posterior)

    def judge(self, params: Array, support: Examples, query: Examples) -> Judgement:
        known = self.evidence(params, support)
        of_query = self.evidence(params, query) + LEAD * query.count()
        return Judgement(known, known + of_query, self.predict(params, query.x))


@dataclasses.dataclass(frozen=True)
class Flags:
    """Recognise families of images without a network."""

    data: Annotated[str, tyro.conf.Positional] = "glyphs"
    """As in `taskmix run evolving-images`."""
    families: tuple[str, ...] = ("blur", "night", "pencil")
    schedule: Order = "consecutive"
    length: int = 300
    """Batches per family."""
    size: int = 32
    test_split: str = "val"
    seed: int = 0
    asked: int = 100
    """Test tasks per family."""


def main(flags: Flags) -> None:
    experiment = EvolvingImages(
        data=flags.data,
        families=flags.families,
        schedule=flags.schedule,
        lengths=(flags.length,) * len(flags.families),
        size=flags.size,
        test_split=flags.test_split,
    )
    stream = experiment.stream()
    own: dict[str, Any] = {"task_model": Indifferent(outputs=experiment.way), "capacity": 16}
    learner: Any = METHODS["nonparametric"].recipe.build(experiment.shared(), own)
    data, recipe = eqx.partition(stream, eqx.is_array)
    key = jax.random.key(flags.seed)
    state = learner.init(key, stream.batch(key, 0).without_hints())

    def follow(data: Any, state: Any, first: Array) -> tuple[Any, Any]:
        whole: ImageStream = eqx.combine(data, recipe)

        def step(state: Any, iteration: Array) -> tuple[Any, Any]:
            batch = whole.batch(key, iteration).without_hints()
            state, info = learner.step(state, batch, jax.random.fold_in(key, -1 - iteration))
            return state, (info.alarm, info.spawned, jnp.sum(info.alive))

        return jax.lax.scan(step, state, first + jnp.arange(AT_ONCE))

    def asked(data: Any, state: Any, tasks: TaskBatch) -> Array:
        whole: ImageStream = eqx.combine(data, recipe)
        tasks = whole.load(tasks)

        def shares(support: Examples) -> Array:
            return learner.predict(state, support, support.x).responsibilities

        return jax.lax.map(shares, tasks.support)

    advance = jax.jit(follow, compiler_options=quickly())
    seen = []
    for first in range(0, stream.phases[-1].stop, AT_ONCE):
        state, found = advance(data, state, jnp.asarray(first))
        seen.append(jax.tree.map(np.asarray, found))
    alarm, born, alive = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    changes = [phase.start for phase in stream.phases]
    print(f"{flags.schedule}, seed {flags.seed}; phases begin at {changes}")
    print(f"  alarms {np.flatnonzero(alarm).tolist()}, births {np.flatnonzero(born).tolist()}")
    gone = np.flatnonzero(np.diff(alive) < 0) + 1
    print(f"  removals {gone.tolist()}, clusters at the end {alive[-1]}")
    answer, homes = jax.jit(asked, compiler_options=quickly()), []
    for number, name in enumerate(stream.families):
        shares = np.asarray(answer(data, state, stream.test_tasks(key, number, flags.asked)))
        homes.append(shares.argmax(axis=1))
        print(f"  {name:12s}", np.round(shares.mean(axis=0)[np.asarray(state.alive)], 2))
    family = np.repeat(np.arange(len(homes)), flags.asked)
    print(f"  NMI {normalised_mutual_information(family, np.concatenate(homes)):.3f}")


if __name__ == "__main__":
    main(tyro.cli(Flags))
