"""Which loss on a support set tells best which cluster a task belongs to?

Trains one initialisation per family (told the family, so that clusters are pure), then
routes test tasks one at a time by several losses. docs/routing.md shows the result.

    python benchmarks/routing.py --seeds 0 1 2 3 4
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from taskmix.baselines import MAMLPerFamily
from taskmix.evaluation import normalised_mutual_information
from taskmix.experiments import Regression, build_learner
from taskmix.likelihood import masked_mean
from taskmix.mixture.calibration import log_loss
from taskmix.tasks import Examples, TaskBatch
from taskmix.training import Settings, train
from taskmix.training.loop import run_keys

PARTS = 5
LEFT_OUT = (0, 1, 2, 3)
"""Parts of the support set that an adaptation does not see; 0 is the fitted loss."""

SIGNALS = {
    "fitted": (1, 0, 0, 0),
    "leave one out": (0, 1, 0, 0),
    "leave two out": (0, 0, 1, 0),
    "fitted + leave one out, 1:1": (1, 1, 0, 0),
    "fitted + leave two out, 1:1": (1, 0, 1, 0),
    "fitted + leave two out, 1:3": (1, 0, 3, 0),
    "fitted + leave one, two, three out": (1, 1, 1, 1),
}


@dataclasses.dataclass(frozen=True)
class Flags:
    """Compare signals for routing."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tasks: int = 600
    """Test tasks of each family, and as many again to learn what is typical."""
    experiment: Regression = Regression()


class Measured(NamedTuple):
    """Of the tasks of every family, under every cluster."""

    log_losses: np.ndarray
    predicted: np.ndarray
    targets: np.ndarray


def measure(learner: MAMLPerFamily, params, batch: TaskBatch) -> Measured:
    """Log losses with axes (tasks, clusters, parts left out), and what clusters predict."""

    def adapt(cluster, support: Examples):
        return learner.adaptation(learner.model, learner.likelihood, cluster, support)

    def one(cluster, support: Examples, query_x):
        part = jnp.arange(support.mask.shape[0]) % PARTS

        def left_out(first, length):
            away = (part - first) % PARTS < length
            adapted = adapt(cluster, Examples(support.x, support.y, support.mask & ~away))
            losses = learner.likelihood.loss(learner.model.apply(adapted, support.x), support.y)
            return jnp.where(away | (length == 0), losses, 0) / jnp.where(length, length, PARTS)

        over_first = jax.vmap(left_out, (0, None))
        losses = jax.vmap(over_first, (None, 0))(jnp.arange(PARTS), jnp.asarray(LEFT_OUT))
        mean = masked_mean(jnp.sum(losses, axis=1), support.mask)
        return log_loss(mean), learner.model.apply(adapt(cluster, support), query_x)

    def all_clusters(task):
        return jax.vmap(one, (0, None, None))(params, *task)

    losses, predicted = jax.lax.map(all_clusters, (batch.support, batch.query.x), batch_size=50)
    return Measured(losses, predicted, batch.query.y)


def route(seen: list[Measured], tested: list[Measured], signal, independence: float, count: int):
    """Routed error of every family, and the mutual information of clusters and families."""
    weights = np.asarray(signal) / np.sum(signal)
    own = [seen[family].log_losses[:, family] @ weights for family in range(len(seen))]
    mean = np.array([losses.mean() for losses in own])
    variance = np.array([losses.var() for losses in own])
    errors, assigned, true = [], [], []
    for family, task in enumerate(tested):
        losses = task.log_losses @ weights
        scores = -0.5 * ((losses - mean) ** 2 / variance + np.log(variance))
        scores -= independence * count / 2 * losses
        shares = np.asarray(jax.nn.softmax(scores))
        mixed = np.einsum("tc,tcqo->tqo", shares, task.predicted)
        errors.append(float(np.mean((mixed - task.targets) ** 2)))
        assigned += list(shares.argmax(1))
        true += [family] * len(shares)
    return [*errors, normalised_mutual_information(np.array(true), np.array(assigned))]


def main(flags: Flags) -> None:
    stream = flags.experiment.stream()
    learner = build_learner(MAMLPerFamily, flags.experiment.learner_settings(), {})
    assert isinstance(learner, MAMLPerFamily)
    iterations = stream.phases[-1].stop
    states = train(learner, stream, flags.seeds, Settings(iterations, 1), lambda chunk: None)
    measured = jax.jit(lambda params, batch: measure(learner, params, batch))
    rows: dict[tuple[str, float], list[list[float]]] = {}
    floor = []
    for position, seed in enumerate(flags.seeds):
        params = jax.tree.map(lambda leaf, at=position: leaf[at], states.params)
        key = run_keys(seed).test
        sets = [
            [
                jax.tree.map(
                    np.asarray, measured(params, stream.test_tasks(source, family, flags.tasks))
                )
                for family in range(len(stream.families))
            ]
            for source in (jax.random.fold_in(key, 1), key)
        ]
        own = [task.predicted[:, family] - task.targets for family, task in enumerate(sets[1])]
        floor.append([float(np.mean(np.square(residuals))) for residuals in own])
        for name, signal in SIGNALS.items():
            for independence in (1.0, 0.7, 0.4):
                result = route(*sets, signal, independence, flags.experiment.support)
                rows.setdefault((name, independence), []).append(result)
    show(stream.families, rows, np.mean(floor, axis=0), flags)


def show(families, rows, floor, flags: Flags) -> None:
    table = Table(title=f"routed error and NMI, mean of seeds {list(flags.seeds)}")
    for heading in ("signal", "independence", *families, "mean", "NMI"):
        table.add_column(heading, justify="left" if heading == "signal" else "right")
    table.add_row("own cluster given", "", *(f"{x:.2f}" for x in floor), f"{floor.mean():.3f}", "")
    for (name, independence), results in rows.items():
        *errors, information = np.mean(results, axis=0)
        cells = (*(f"{x:.2f}" for x in errors), f"{np.mean(errors):.3f}", f"{information:.3f}")
        table.add_row(name, f"{independence}", *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main(tyro.cli(Flags))
