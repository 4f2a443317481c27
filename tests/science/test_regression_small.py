"""The claims of the regression stream on a small scale.

The settings were chosen on seeds 0 to 4.
"""

import jax
import numpy as np
import pytest

from taskmix.adapt import Adaptation
from taskmix.baselines import MAML
from taskmix.evaluation import return_delays
from taskmix.mixture import OnlineMixture
from taskmix.models import MLP
from taskmix.streams import FunctionStream, Schedule, consecutive
from taskmix.training import Settings, train

SEED = 10
PARTS = {
    "model": MLP(hidden=(20, 20)),
    "adaptation": Adaptation(steps=2, rate=0.02),
    "meta_rate": 3e-3,
}
ONLINE = OnlineMixture(**PARTS, cool_down=150, capacity=8)
SHIFTING = FunctionStream(consecutive(("linear", "sinusoid", "sawtooth"), (400, 400, 400)))
RETURNING = FunctionStream(Schedule((("linear",), ("sinusoid",), ("linear",)), (400, 400, 200)))


def run(learner, stream):
    """The infos of all iterations, and the evaluations by iteration."""
    chunks = []
    train(learner, stream, [SEED], Settings(evaluate_every=400, test_tasks=100), chunks.append)
    parts = [chunk.info for chunk in chunks if chunk.info is not None]
    infos = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1)[0], *parts)
    return infos, {chunk.iteration: chunk.evaluation for chunk in chunks}


@pytest.fixture(scope="module")
def shifting():
    return run(ONLINE, SHIFTING)


@pytest.fixture(scope="module")
def returning():
    return run(ONLINE, RETURNING)


def first_family(evaluations, iteration: int) -> float:
    """Error of the first cluster alone on the first family."""
    return evaluations[iteration].component_error[0, 0, :, 0].mean()


def test_each_shift_opens_one_cluster_within_25_iterations(shifting):
    infos, _ = shifting
    first, second = np.flatnonzero(infos.spawned)
    assert 400 <= first < 425
    assert 800 <= second < 825


def test_first_cluster_keeps_its_family_where_maml_forgets_it(shifting):
    _, evaluations = shifting
    kept = first_family(evaluations, 1200) / first_family(evaluations, 400)
    assert abs(kept - 1) < 0.05
    _, of_maml = run(MAML(**PARTS), SHIFTING)
    assert first_family(of_maml, 1200) > 2 * first_family(of_maml, 400)


def test_returning_family_opens_no_cluster(returning):
    infos, _ = returning
    (spawn,) = np.flatnonzero(infos.spawned)
    assert 400 <= spawn < 425


def test_returning_family_is_carried_by_its_old_cluster_within_20_iterations(returning):
    infos, _ = returning
    (delay,) = return_delays(RETURNING.phases, infos.responsibilities.mean(axis=1))
    assert delay is not None
    assert delay < 20
