"""The claims of the paper's regression stream, on seeds that no setting was chosen on."""

import io

import numpy as np
import pytest
from rich.console import Console

from taskmix.experiments import METHODS, Regression, run_method
from taskmix.training import Settings

pytestmark = pytest.mark.slow

SEEDS = tuple(range(10, 20))
FAMILIES = ("polynomial", "sinusoid", "sawtooth")
STATIC = ("uniform", "mixture", "maml")


def summaries(name: str, experiment: Regression, folder) -> list[dict]:
    learner = METHODS[name].recipe.build(experiment.shared())
    return run_method(
        experiment,
        {"experiment": "regression", "method": name},
        learner,
        SEEDS,
        lambda seed: folder / name / f"seed-{seed}",
        Settings(),
        Console(file=io.StringIO()),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Summaries of every seed, by method; each method is trained when first asked for."""
    folder, done = tmp_path_factory.mktemp("paper"), {}

    def of(name: str) -> list[dict]:
        if name not in done:
            done[name] = summaries(name, Regression(), folder)
        return done[name]

    return of


@pytest.fixture(scope="module")
def ours(runs):
    return runs("nonparametric")


def mean(of, values) -> float:
    return float(np.mean([of(value) for value in values]))


def mean_error(of_runs: list[dict]) -> float:
    """Routed error at the end, over families and seeds."""
    return mean(lambda run: np.mean([run["final"][f]["error"] for f in FAMILIES]), of_runs)


def relative_forgetting(of_runs: list[dict], family: str) -> float:
    """How much the routed error grew since the family's phase, as a fraction of it then."""
    forgotten = mean(lambda run: run["forgetting"][family], of_runs)
    final = mean(lambda run: run["final"][family]["error"], of_runs)
    return forgotten / (final - forgotten)


def test_nine_of_ten_seeds_open_two_clusters_soon_after_the_shifts_and_no_other(ours):
    good = [
        run["spawns"]
        for run in ours
        if len(run["spawns"]) == 2
        and all(0 <= s - shift < 25 for s, shift in zip(run["spawns"], (4000, 7000), strict=True))
    ]
    assert len(good) >= 9, [run["spawns"] for run in ours]


@pytest.mark.parametrize("family", ["polynomial", "sinusoid"])
def test_own_cluster_is_kept_within_two_percent(ours, family):
    before = mean(lambda run: run["own_cluster"][family]["at_phase_end"], ours)
    after = mean(lambda run: run["own_cluster"][family]["final"], ours)
    assert after <= 1.02 * before


@pytest.mark.parametrize(("family", "most"), [("polynomial", 0.2), ("sinusoid", 0.1)])
def test_routed_error_of_past_families_grows_little(ours, family, most):
    assert relative_forgetting(ours, family) <= most


@pytest.mark.parametrize("method", STATIC)
@pytest.mark.parametrize("family", ["polynomial", "sinusoid"])
def test_methods_without_new_clusters_more_than_double_their_error(runs, method, family):
    assert relative_forgetting(runs(method), family) > 1


@pytest.mark.parametrize("method", STATIC)
def test_mean_error_is_at_most_two_thirds_of_methods_without_new_clusters(runs, ours, method):
    assert mean_error(ours) <= 0.65 * mean_error(runs(method))


def test_mean_error_is_at_most_a_quarter_above_one_maml_per_family(runs, ours):
    assert mean_error(ours) <= 1.25 * mean_error(runs("maml-per-family"))


@pytest.mark.parametrize("family", FAMILIES)
def test_stream_is_predicted_nearly_as_well_as_by_maml(runs, ours, family):
    of_maml = mean(lambda run: run["prequential"][family], runs("maml"))
    assert mean(lambda run: run["prequential"][family], ours) <= 1.10 * of_maml


def test_active_family_is_predicted_nearly_as_well_as_by_maml_one_task_at_a_time(runs, ours):
    of_maml = mean(lambda run: run["final"]["sawtooth"]["error"], runs("maml"))
    assert mean(lambda run: run["final"]["sawtooth"]["error"], ours) <= 1.25 * of_maml


def test_single_tasks_are_assigned_to_the_cluster_of_their_family(ours):
    assert mean(lambda run: run["assignment"]["nmi"], ours) >= 0.35


def test_recurring_families_find_their_clusters_again(tmp_path):
    """The whole stream twice over: what comes the second time is not new."""
    experiment = Regression(schedule="recurring")
    for run in summaries("nonparametric", experiment, tmp_path):
        assert len(run["spawns"]) == 2, run["spawns"]
        assert run["detection"]["false"] == 0
        assert len(run["return_delays"]) == 3
        assert all(delay is not None and delay < 20 for delay in run["return_delays"])
