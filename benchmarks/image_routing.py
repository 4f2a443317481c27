"""Which signal tells best through which filter an image task is seen?

Trains one initialisation per filter (told the filter, so that clusters are pure), then asks for
every pair of filters how well each signal tells tasks of the one from tasks of the other: the
area under the ROC curve of the difference of the two clusters' log-likelihoods, on tasks of
classes that were not trained on. docs/images.md shows the result. Without a store it takes the
built-in glyphs.

    python benchmarks/image_routing.py --experiment.data STORE --experiment.test-split val
"""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from taskmix.adaptation import task_loss
from taskmix.baselines import MAMLPerFamily
from taskmix.evaluation.detection import area_under_roc
from taskmix.experiments import EvolvingImages, build_learner
from taskmix.mixture.calibration import SMALLEST_VARIANCE, log_loss
from taskmix.models import for_each
from taskmix.tasks import Examples, TaskBatch
from taskmix.training import Settings, run_keys, train

LOSSES = ("fitted support loss", "support loss, leaving one out", "query loss (in training only)")


@dataclasses.dataclass(frozen=True)
class Flags:
    """Compare signals for routing and noticing on images."""

    seed: int = 0
    tasks: int = 200
    """Test tasks of each filter, and as many again to learn what is typical."""
    experiment: EvolvingImages = EvolvingImages(lengths=(600, 600, 600))


def measure(learner: MAMLPerFamily, params, task: TaskBatch):
    """Log losses of one task with axes (clusters, signals), and what is known of its inputs."""
    model, likelihood = learner.model, learner.likelihood
    support, query = task.support, task.query

    def adapted(cluster, examples: Examples):
        return learner.adaptation(model, likelihood, cluster, examples)

    def one(cluster):
        whole = adapted(cluster, support)

        def left_out(index):
            rest = support.mask.at[index].set(False)
            without = adapted(cluster, Examples(support.x, support.y, rest))
            outputs = model.apply(without, support.x, support.mask)
            return likelihood.loss(outputs, support.y)[index]

        held_out = jax.lax.map(left_out, jnp.arange(support.mask.shape[0]))
        losses = (
            task_loss(model, likelihood, whole, support),
            jnp.mean(held_out),
            task_loss(model, likelihood, whole, query),
        )
        return log_loss(jnp.stack(losses))

    return for_each(model, one)(params), likelihood.describe(support.x, support.mask)


def evidence(seen, tested, signal):
    """Log-density of every test task under every cluster: normal, as its own tasks are."""

    def chosen(measured, cluster):
        losses, inputs = measured
        if signal == "inputs of the support set":
            return inputs
        if signal == "inputs and fitted support loss":
            return np.concatenate([inputs, losses[:, cluster, :1]], axis=1)
        return losses[:, cluster, LOSSES.index(signal)][:, None]

    columns = []
    for cluster in range(len(seen)):
        own = chosen(seen[cluster], cluster)
        variance = own.var(axis=0) + SMALLEST_VARIANCE
        deviation = (chosen(tested, cluster) - own.mean(axis=0)) ** 2 / variance
        columns.append(-0.5 * np.sum(deviation + np.log(variance), axis=1))
    return np.stack(columns, axis=1)


def main(flags: Flags) -> None:
    stream = flags.experiment.stream()
    learner = build_learner(MAMLPerFamily, flags.experiment.learner_settings(), {})
    assert isinstance(learner, MAMLPerFamily)
    end = stream.phases[-1].stop
    state = train(learner, stream, [flags.seed], Settings(end, 1), lambda chunk: None)
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    data, recipe = eqx.partition(stream, eqx.is_array)

    @jax.jit
    def measured(data, key, family):
        stream = eqx.combine(data, recipe)
        drawn = stream.test_tasks(key, 0, flags.tasks)

        def one(task):
            support, query = task
            return measure(learner, params, TaskBatch(support, query))

        drawn = eqx.tree_at(lambda t: t.hints.family, drawn, jnp.full(flags.tasks, family))
        loaded = stream.load(drawn)
        return jax.lax.map(one, (loaded.support, loaded.query))

    key = run_keys(flags.seed).test
    seen, tested = (
        [jax.tree.map(np.asarray, measured(data, k, f)) for f in range(len(stream.families))]
        for k in (jax.random.fold_in(key, 1), key)
    )
    pairs = list(itertools.combinations(range(len(stream.families)), 2))
    table = Table(title=f"AUC on {flags.tasks} test tasks of each filter, seed {flags.seed}")
    table.add_column("signal")
    for a, b in pairs:
        table.add_column(f"{stream.families[a]} / {stream.families[b]}", justify="right")
    table.add_column("tasks routed right", justify="right")
    for signal in (*LOSSES, "inputs of the support set", "inputs and fitted support loss"):
        scores = [evidence(seen, task, signal) for task in tested]
        aucs = [
            area_under_roc(scores[a][:, b] - scores[a][:, a], scores[b][:, b] - scores[b][:, a])
            for a, b in pairs
        ]
        right = np.mean([np.mean(s.argmax(axis=1) == f) for f, s in enumerate(scores)])
        table.add_row(signal, *(f"{auc:.3f}" for auc in aucs), f"{100 * right:.1f} %")
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Flags))
