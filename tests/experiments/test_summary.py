"""A hand-made run: family a for 4 iterations, then b for 4; a spawn at iteration 5."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.evaluation import Evaluation, History
from taskmix.experiments import combined, summarise
from taskmix.streams import Phase
from taskmix.training import Record

PHASES = (Phase(0, 4, ("a",)), Phase(4, 8, ("b",)))


def line(iteration, a, b, component_a=(1.0,), component_b=(1.0,)):
    known = {"coverage": 0.9}
    return {
        "iteration": iteration,
        "clusters": len(component_a),
        "cluster_ids": list(range(len(component_a))),
        "seconds": iteration / 2,
        "families": {
            "a": {"error": a, "ci95": 0.1, "held_error": list(component_a), **known},
            "b": {"error": b, "ci95": 0.2, "held_error": list(component_b), **known},
        },
    }


@pytest.fixture
def record():
    made = Record.begin(("a", "b"), PHASES, 0)
    made.metrics = [
        line(0, 9.0, 9.0),
        line(4, 2.0, 8.0, (2.0,), (8.0,)),
        line(8, 3.0, 1.0, (2.5, 6.0), (7.0, None)),
    ]
    made.spawns, made.removals, made.alarms = [5], [7], [2, 4, 6]
    errors = np.array([[5.0], [3.0], [2.0], [2.0], [8.0], [4.0], [3.0], [1.0]])
    family = np.array([[0]] * 4 + [[1]] * 4)
    first, second = [[1.0, 0.0]], [[0.0, 1.0]]
    responsibilities = np.array([first] * 5 + [second] * 3)
    for rows in (slice(4), slice(4, 8)):
        made.history.add(rows.start or 0, errors[rows], family[rows], responsibilities[rows])
    shares = np.array([[[0.9, 0.1], [0.8, 0.2]], [[0.1, 0.9], [0.7, 0.3]]])
    made.evaluation = Evaluation(
        *(jnp.zeros((2, 2)), jnp.zeros((2, 2, 2)), jnp.asarray(shares)),
        *(jnp.zeros((2, 2)) for _ in range(3)),
    )
    return made


def test_final_errors_are_those_of_the_last_evaluation(record):
    final = summarise(record, PHASES)["final"]
    assert final == {"a": {"error": 3.0, "ci95": 0.1}, "b": {"error": 1.0, "ci95": 0.2}}


def test_accuracy_is_one_minus_the_error_and_forgetting_is_still_positive_for_worse(record):
    for made in record.metrics:
        for family in made["families"].values():
            family["error"] /= 10
            family["held_error"] = [e and e / 10 for e in family["held_error"]]
    summary = summarise(record, PHASES, "accuracy")
    assert summary["final"]["a"] == {"accuracy": pytest.approx(0.7), "ci95": 0.1}
    assert summary["forgetting"]["a"] == pytest.approx(0.1)
    assert summary["own_cluster"]["a"]["at_phase_end"] == pytest.approx(0.8)
    assert summary["measure"] == "accuracy"


def test_forgetting_counts_from_the_end_of_the_last_active_phase(record):
    assert summarise(record, PHASES)["forgetting"] == {"a": 1.0, "b": 0.0}


def test_mean_forgetting_leaves_the_active_family_out(record):
    assert summarise(record, PHASES)["mean_forgetting"] == 1.0


def test_own_cluster_is_followed_to_the_end(record):
    own = summarise(record, PHASES)["own_cluster"]
    assert own["a"] == {"cluster": 0, "at_phase_end": 2.0, "final": 2.5}


def test_own_cluster_is_followed_by_its_number_and_not_by_its_place(record):
    record.metrics[-1]["cluster_ids"] = [3, 0]
    assert summarise(record, PHASES)["own_cluster"]["a"]["final"] == 6.0


def test_own_cluster_that_was_removed_has_no_error_at_the_end(record):
    record.metrics[-1]["cluster_ids"] = [1, 2]
    own = summarise(record, PHASES)["own_cluster"]["a"]
    assert own == {"cluster": 0, "at_phase_end": 2.0, "final": None}


def test_removals_alarms_and_coverage_are_told(record):
    record.metrics[-1]["families"]["b"]["coverage"] = None
    summary = summarise(record, PHASES)
    assert (summary["removals"], summary["alarms"]) == ([7], [2, 4, 6])
    assert summary["coverage"] == {"a": 0.9, "b": None}
    assert summary["alarm_detection"] == {"delays": [0], "missed": 0, "false": 1}


def test_background_is_one_more_cluster_of_the_assignment(record):
    record.evaluation = eqx.tree_at(
        lambda e: e.background, record.evaluation, jnp.array([[0.0, 0.0], [0.0, 0.8]])
    )
    # Its only task is one of the second family, which the first cluster had before.
    assert summarise(record, PHASES)["assignment"]["purity"] == 1.0


def test_error_that_is_not_finite_becomes_null(record):
    own = summarise(record, PHASES)["own_cluster"]
    assert own["b"] == {"cluster": 1, "at_phase_end": None, "final": None}


def test_family_without_a_task_in_its_last_stretch_has_no_owner(record):
    both = (Phase(0, 4, ("a", "b")), Phase(4, 8, ("a", "b")))
    record.history = History.begin(both, 2)
    for start in (0, 4):
        record.history.add(start, np.ones((4, 1)), np.ones((4, 1), dtype=int), np.ones((4, 1, 1)))
    assert summarise(record, both)["own_cluster"]["a"] is None


def test_prequential_error_is_the_mean_over_the_stream(record):
    assert summarise(record, PHASES)["prequential"] == {"a": 3.0, "b": 4.0}


def test_assignment_scores_the_leading_cluster_of_each_test_task(record):
    assert summarise(record, PHASES)["assignment"]["purity"] == 0.75


def test_spawn_one_iteration_after_the_first_of_a_shift_has_delay_one(record):
    assert summarise(record, PHASES)["detection"] == {"delays": [1], "missed": 0, "false": 0}


def test_speed_is_iterations_over_seconds(record):
    assert summarise(record, PHASES)["iterations_per_second"] == 2.0


def test_summary_is_valid_json(record):
    summary = summarise(record, PHASES)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def summary_of(method, seed, error):
    return {
        "method": method,
        "seed": seed,
        "measure": "error",
        "clusters": 2,
        "final": {"a": {"error": error, "ci95": 0.1}, "b": {"error": 1.0, "ci95": 0.1}},
        "forgetting": {"a": 0.5, "b": 0.0},
        "mean_forgetting": 0.5,
        "prequential": {"a": 1.0},
        "assignment": {"nmi": 0.5},
        "detection": {"delays": [seed], "missed": 0, "false": 0},
        "alarm_detection": {"delays": [], "missed": 1, "false": seed},
        "removals": [5] * seed,
        "alarms": [3] * seed,
        "coverage": {"a": 0.5 + seed / 4, "b": None},
        "seconds": 1.0,
    }


def test_comparison_averages_each_method_over_its_seeds():
    runs = [summary_of("x", 0, 2.0), summary_of("x", 1, 4.0), summary_of("y", 0, 5.0)]
    compared = combined("regression", {"x": "nothing", "y": "family"}, runs)
    x, y = compared["methods"]["x"], compared["methods"]["y"]
    assert x["seeds"] == [0, 1]
    # t(0.975, 1) = 12.706 and s / sqrt(2) = 1
    assert x["final"]["a"] == {"mean": 3.0, "ci95": pytest.approx(12.706, abs=1e-3)}
    assert x["mean_error"]["mean"] == 2.0
    assert x["detection"]["delays"] == [[0], [1]]
    assert x["alarm_detection"] == {"delays": [[], []], "missed": [1, 1], "false": [0, 1]}
    assert x["removals"]["mean"] == x["alarms"]["mean"] == 0.5
    assert x["coverage"]["a"]["mean"] == 0.625
    assert x["coverage"]["b"] == {"mean": None, "ci95": None}
    assert y["final"]["a"] == {"mean": 5.0, "ci95": None}
    assert y["told"] == "family"


def test_comparison_does_not_average_what_one_seed_does_not_know():
    runs = [summary_of("x", 0, 2.0), summary_of("x", 1, None)]
    x = combined("regression", {"x": "nothing"}, runs)["methods"]["x"]
    assert x["final"]["a"] == x["mean_error"] == {"mean": None, "ci95": None}
    assert x["prequential"]["b"] == {"mean": None, "ci95": None}


def with_test(seed, accuracy):
    test = {"accuracy": accuracy, "ci95": 0.01, "episodes": 600, "by_episode": [accuracy] * 2}
    return {**summary_of("x", seed, 1.0), "test": test}


def test_final_test_of_one_run_has_an_interval_over_tasks_and_of_several_over_seeds():
    told = {"x": "nothing"}
    one = combined("few-shot", told, [with_test(0, 0.4)])["methods"]["x"]["test"]
    assert (one["accuracy"], one["ci95"], one["interval"]) == (
        0.4,
        0.01,
        "95 % over tasks (normal)",
    )
    two = combined("few-shot", told, [with_test(0, 0.4), with_test(1, 0.5)])["methods"]["x"]["test"]
    assert two["accuracy"] == pytest.approx(0.45)
    # t(0.975, 1) = 12.706 and s / sqrt(2) = 0.05
    assert two["ci95"] == pytest.approx(0.6353, abs=1e-4)
    assert two["interval"] == "95 % over seeds (Student t)"


def test_methods_are_compared_on_the_same_tasks():
    one, other = with_test(0, 0.4), with_test(0, 0.5)
    other["method"] = "y"
    other["test"]["by_episode"] = [0.4, 0.8]
    methods = combined("few-shot", {"x": "nothing", "y": "nothing"}, [one, other])["methods"]
    assert "against" not in methods["x"]["test"]
    against = methods["y"]["test"]["against"]
    # Differences 0 and 0.4: their standard deviation is 0.2.
    assert against == {
        "method": "x",
        "mean": pytest.approx(0.2),
        "ci95": pytest.approx(1.96 * 0.2 / 2**0.5),
    }
    assert "by_episode" not in methods["y"]["test"]


def test_methods_with_other_seeds_are_not_paired():
    one, other = with_test(0, 0.4), with_test(1, 0.5)
    other["method"] = "y"
    methods = combined("few-shot", {"x": "nothing", "y": "nothing"}, [one, other])["methods"]
    assert methods["y"]["test"]["against"] is None
