import numpy as np
import pytest

from taskmix.evaluation import (
    OwnClusterError,
    forgetting,
    forgetting_from_best,
    last_active,
    own_cluster_error,
    prequential,
)
from taskmix.streams import Phase

CONSECUTIVE = (Phase(0, 200, ("a",)), Phase(200, 400, ("b",)))
RECURRING = (*CONSECUTIVE, Phase(400, 600, ("a",)))


def test_forgetting_is_the_rise_since_the_end_of_the_last_active_phase():
    # "a" was learned until iteration 200: 1.0 there, 2.5 at the end.
    iterations, error = [0, 100, 200, 300, 400], [4.0, 0.5, 1.0, 3.0, 2.5]
    assert forgetting(iterations, error, CONSECUTIVE, "a") == 1.5


def test_a_family_active_at_the_end_has_not_been_forgotten():
    assert forgetting([0, 200, 400], [4.0, 5.0, 0.7], CONSECUTIVE, "b") == 0


def test_a_recurring_family_is_measured_from_its_last_phase():
    phases = (*RECURRING, Phase(600, 700, ("b",)))
    iterations, error = [0, 200, 400, 600, 700], [4.0, 1.0, 3.0, 0.5, 0.75]
    assert forgetting(iterations, error, phases, "a") == 0.25


def test_improvement_after_the_phase_is_negative_forgetting():
    assert forgetting([0, 200, 400], [4.0, 1.0, 0.5], CONSECUTIVE, "a") == -0.5


def test_forgetting_from_best_starts_at_the_smallest_error():
    assert forgetting_from_best([4.0, 0.5, 1.0, 3.0, 2.5]) == 2.0


def test_forgetting_needs_an_evaluation_at_the_end_of_the_phase():
    with pytest.raises(ValueError, match="no evaluation at iteration 200"):
        forgetting([0, 150, 400], [1.0, 1.0, 1.0], CONSECUTIVE, "a")


def test_an_unknown_family_is_named_beside_the_known_ones():
    with pytest.raises(ValueError, match=r"'c' is active in no phase.*\['a', 'b'\]"):
        last_active(CONSECUTIVE, "c")


def test_own_cluster_error_follows_the_owner_and_not_the_best_cluster():
    error = np.array([[4.0, np.nan], [0.1, 1.0], [0.1, 1.25]])
    measured = own_cluster_error([0, 200, 400], error, 1, CONSECUTIVE[0])
    assert measured == OwnClusterError(cluster=1, at_phase_end=1.0, final=1.25)


def test_prequential_error_is_a_mean_over_tasks_of_each_family():
    error = np.array([[1.0, 2.0], [3.0, 10.0]])
    family = np.array([[0, 0], [0, 2]])
    assert prequential(error, family, ["a", "b", "c"]) == {"a": 2.0, "c": 10.0}
