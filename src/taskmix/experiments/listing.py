"""What methods there are, and how much each of them learns."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from taskmix.baselines.single import size
from taskmix.experiments.experiment import Experiment
from taskmix.experiments.images import FewShot
from taskmix.experiments.methods import METHODS
from taskmix.experiments.recipes import Method
from taskmix.experiments.regression import Regression
from taskmix.experiments.shared import Shared
from taskmix.learner import Growing, visible
from taskmix.tasks import Examples, Hints, TaskBatch


@dataclasses.dataclass(frozen=True)
class Listed:
    """A method, as ``taskmix methods`` shows it.

    Parameters
    ----------
    method
        Its name, paper and recipe.
    regression, images
        Numbers it learns on the network of the regression and on that for 5-way miniImageNet:
        in all, or per cluster where that is open (``L`` of them). Empty: it is for classes only.

    Examples
    --------
    >>> Listed(METHODS["maml"], "5", "7").method.name
    'maml'
    """

    method: Method
    regression: str
    images: str


def methods() -> dict[str, Listed]:
    """All methods by name, those of other packages included, with what each of them learns.

    Returns
    -------
    dict of str to Listed
        In the order of ``taskmix methods``.

    Examples
    --------
    >>> "maml" in methods()
    True
    """
    regression, images = Regression(), FewShot.at("paper")
    few_points = jax.eval_shape(lambda: regression.stream().batch(jax.random.key(0), 0))
    few_images = jax.eval_shape(lambda: _images(images))
    return {
        name: Listed(
            method,
            "" if method.classes_only else parameters_of(method, regression, few_points),
            "" if method.numbers_only else parameters_of(method, images, few_images),
        )
        for name, method in METHODS.items()
    }


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
    name = shared.head if method.recipe.fitting else method.recipe.task_model
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
