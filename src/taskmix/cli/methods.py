"""``taskmix methods``: what there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from rich.console import Console

from taskmix.baselines.single import size
from taskmix.cli.flags import parse
from taskmix.experiments import METHODS, Experiment, FewShot, Method, Regression, Shared
from taskmix.learner import Growing, visible
from taskmix.tasks import Examples, Hints, TaskBatch

ROW = "{:15} {:10} {:>10} {:>10} {}"
NOTE = (
    "Numbers: parameters, on the network of the regression and on that for 5-way miniImageNet; "
    "L is the number of clusters. A method without the first is for classes only."
)


@dataclasses.dataclass(frozen=True)
class MethodsFlags:
    """List the methods, with their papers."""


def main(arguments: Sequence[str]) -> None:
    parse(MethodsFlags, arguments, "taskmix methods")
    console = Console(highlight=False)
    console.print(ROW.format("method", "told", "regression", "images", "paper"), style="bold")
    regression, images = Regression(), FewShot.at("paper")
    few_points = jax.eval_shape(lambda: regression.stream().batch(jax.random.key(0), 0))
    few_images = jax.eval_shape(lambda: _images(images))
    for method in METHODS.values():
        row = ROW.format(
            method.name,
            method.told.value,
            "" if method.classes_only else parameters_of(method, regression, few_points),
            parameters_of(method, images, few_images),
            " ".join(filter(None, (method.reference, str(method.year or "")))),
        )
        console.print(row, f"    {method.summary}", sep="\n")
    for name, problem in METHODS.broken.items():
        console.print(f"{name} cannot be used: {problem}", markup=False)
    console.print(f"\n{NOTE}", style="italic")


def parameters_of(method: Method, experiment: Experiment, example: TaskBatch) -> str:
    """How much a method learns: in all, or for L clusters if their number is open.

    A learner of somebody else's may not be made for every experiment.
    """
    shared = experiment.shared()
    try:
        learner = method.recipe.build(shared)
        if isinstance(learner, Growing):
            return f"{_per_cluster(method, shared):,} L"
        state = jax.eval_shape(
            lambda batch: learner.init(jax.random.key(0), visible(learner, batch)), example
        )
        return f"{learner.parameters(state):,}"
    except Exception:
        if method.year is not None:
            raise
        return "-"


def _per_cluster(method: Method, shared: Shared) -> int:
    """Parameters of one cluster."""
    name = method.recipe.task_model
    part = shared.model if name is None else shared.task_models[name]
    return size(jax.eval_shape(part.init, jax.random.key(0)))


def _images(experiment: FewShot) -> TaskBatch:
    """A batch as the experiment's stream gives it, without drawing any image."""

    def examples(each: int) -> Examples:
        shape = (experiment.tasks, experiment.way * each)
        x = jnp.zeros((*shape, experiment.size, experiment.size, 3))
        return Examples.full(x, jnp.zeros(shape, dtype=int), input_axes=3)

    hints = Hints(jnp.zeros(experiment.tasks, dtype=int), jnp.asarray(False))
    return TaskBatch(examples(experiment.shot), examples(experiment.query), hints)
