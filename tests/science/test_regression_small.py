"""The claims of the regression stream on a small scale.

The settings were chosen on seeds 0 to 4.
"""

import jax
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.evaluation import History
from taskmix.mixture import OnlineMixture
from taskmix.models import MLP
from taskmix.streams import FunctionStream, Schedule
from taskmix.training import Settings, train

SEED = 10
PARTS = {
    "model": MLP(hidden=(20, 20)),
    "adaptation": Adaptation(steps=2, rate=0.02),
    "meta_rate": 3e-3,
}
ONLINE = OnlineMixture(**PARTS, cool_down=200)
# The first family returns before the third appears.
STREAM = FunctionStream(
    Schedule((("linear",), ("sinusoid",), ("linear",), ("sawtooth",)), (400, 400, 200, 400))
)


def run(learner):
    """The infos of all iterations, and the evaluations by iteration."""
    chunks = []
    train(learner, STREAM, [SEED], Settings(evaluate_every=200, test_tasks=100), chunks.append)
    parts = [chunk.info for chunk in chunks if chunk.info is not None]
    infos = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1)[0], *parts)
    return infos, {chunk.iteration: chunk.evaluation for chunk in chunks}


@pytest.fixture(scope="module")
def online():
    return run(ONLINE)


def first_family(evaluations, iteration: int) -> float:
    """Error of the first cluster alone on the first family."""
    return evaluations[iteration].component_error[0, 0, :, 0].mean()


def test_new_families_open_one_cluster_each_within_25_iterations_and_nothing_else_does(online):
    infos, _ = online
    first, second = np.flatnonzero(infos.spawned)
    assert 400 <= first < 425
    assert 1000 <= second < 1025


def test_returning_family_is_carried_by_its_old_cluster_within_20_iterations(online):
    infos, _ = online
    history = History.begin(STREAM.phases, 1)
    for phase in STREAM.phases:
        rows = slice(phase.start, phase.stop)
        error, shares = infos.error[rows], infos.responsibilities[rows]
        history.add(phase.start, error, np.zeros(error.shape, dtype=int), shares)
    (delay,) = history.return_delays()
    assert delay is not None
    assert delay < 20


def test_first_cluster_keeps_its_family_where_maml_forgets_it(online):
    _, evaluations = online
    for before, after in ((400, 800), (1000, 1400)):
        kept = first_family(evaluations, after) / first_family(evaluations, before)
        assert abs(kept - 1) < 0.08
    _, of_maml = run(MAML(**PARTS))
    assert first_family(of_maml, 1400) > 2 * first_family(of_maml, 1000)
