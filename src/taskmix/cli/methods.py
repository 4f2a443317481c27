"""``taskmix methods``: what there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
from rich.console import Console
from rich.table import Table

from taskmix.cli.flags import parse
from taskmix.experiments import METHODS, Regression, build_learner
from taskmix.learner import Learner
from taskmix.models import parameter_count


@dataclasses.dataclass(frozen=True)
class MethodsFlags:
    """List the methods, with their papers."""


def main(arguments: Sequence[str]) -> None:
    parse(MethodsFlags, arguments, "taskmix methods")
    table = Table(caption="Parameters: on the network of the regression experiment.")
    for column in ("method", "what it is", "told", "parameters", "year", "reference"):
        table.add_column(column, no_wrap=column == "method")
    for method in METHODS.values():
        learner = build_learner(method.build, Regression().learner_settings(), {})
        told, parameters = method.told.value, parameters_of(learner, Regression())
        table.add_row(
            method.name, method.summary, told, parameters, str(method.year), method.reference
        )
    Console().print(table)


def parameters_of(learner: Learner, experiment: Regression) -> str:
    """How much a learner learns: in all, or per cluster if their number is open."""
    key, batch = jax.eval_shape(
        lambda: (jax.random.key(0), experiment.stream().batch(jax.random.key(0), 0))
    )
    state = jax.eval_shape(learner.init, key, batch)
    grown = jax.eval_shape(learner.grow, state)
    one = parameter_count(experiment.learner_settings()["model"])
    shapes, grown_shapes = ([leaf.shape for leaf in jax.tree.leaves(s)] for s in (state, grown))
    if shapes != grown_shapes:
        return f"{one:,} a cluster"
    task, hints = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (batch, batch.hints)
    )
    prediction = jax.eval_shape(learner.predict, state, task.support, task.query.x, hints)
    return f"{one * prediction.responsibilities.shape[0]:,}"
