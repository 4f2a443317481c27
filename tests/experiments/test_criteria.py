"""Criteria of stress streams, on runs made by hand."""

import math

import pytest
from tests.experiments.outcomes import AGAIN, A, B, errors, outcome

from taskmix.experiments import criteria
from taskmix.experiments.criteria import Criterion, JudgedRun, verdict
from taskmix.streams import Phase


def of(**summary):
    return JudgedRun(outcome(**summary))


def spawned(iteration, cluster):
    return {"iteration": iteration, "event": "spawned", "cluster": cluster}


# Judging


def verdict_of(values, **bounds):
    trials = [of(seed=10 + place, clusters=value) for place, value in enumerate(values)]
    return verdict(Criterion("clusters", criteria.clusters, **bounds), trials)


def test_mean_may_keep_a_bound_that_a_seed_does_not():
    found = verdict_of([1, 2, 6], most=3.0)
    assert found.reached
    assert (found.mean, found.worst, found.worst_seed, found.kept) == (3, 6, 12, 2)
    assert found.spread == pytest.approx(math.sqrt(7))


def test_share_of_seeds_decides_whatever_the_mean_is():
    assert verdict_of([1] * 9 + [99], most=6.0, share=0.9).reached
    assert not verdict_of([1] * 8 + [7, 7], most=6.0, share=0.9).reached
    assert not verdict_of([1, 1, 7], most=6.0, share=0.9).reached


def test_a_bound_itself_is_kept():
    assert verdict_of([6, 6], most=6.0, share=1.0).reached
    assert verdict_of([6, 6], least=6.0).reached


def test_worst_seed_of_a_lower_bound_is_the_smallest():
    assert verdict_of([3, 1, 2], least=2.0).worst_seed == 11


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_missed(value):
    assert not verdict_of([1, value], most=6.0).reached
    assert not verdict_of([1, value], most=6.0, share=1.0).reached


def test_an_infinite_value_keeps_a_lower_bound():
    """Such as the gain per further cluster of a run that has none."""
    assert verdict_of([math.inf, math.inf], least=0.01, share=1.0).reached
    assert verdict_of([math.inf, 1], least=0.01).reached


def test_every_family_has_to_keep_the_bound_and_the_worst_is_shown():
    criterion = Criterion("coverage", criteria.coverage_at_end, least=0.87, most=0.93)

    def covering(**coverage):
        line = {"families": {f: {"coverage": c} for f, c in coverage.items()}}
        return JudgedRun(outcome(lines=[line], final=errors(a=1.0, b=1.0)))

    assert verdict(criterion, [covering(a=0.87, b=0.93)]).reached
    assert verdict(criterion, [covering(a=0.85, b=0.9), covering(a=0.91, b=0.9)]).reached
    found = verdict(criterion, [covering(a=0.9, b=0.95)])
    assert not found.reached
    assert (found.where, found.mean) == ("b", 0.95)
    assert not verdict(criterion, [covering(a=0.9, b=None)]).reached


def test_bounds_in_words():
    clusters = criteria.clusters
    assert Criterion("", clusters, least=0.87, most=0.93).bound == "0.87 to 0.93, mean"
    assert Criterion("", clusters, least=0.7, share=1.0).bound == "at least 0.7, every seed"


# Measures


def test_noise_is_no_family_whose_error_counts():
    assert criteria.mean_error(of(final=errors(a=1.0, noise=9.0, b=2.0))) == {"": 1.5}


def test_own_cluster_is_compared_with_the_end_of_its_phase():
    own = {"a": {"at_phase_end": 0.5, "final": 0.6}, "b": {"at_phase_end": 1.0, "final": 1.0}}
    grown = criteria.own_cluster_growth(of(own_cluster=own, final=errors(a=1.0, b=1.0)))
    assert grown == pytest.approx({"a": 1.2, "b": 1.0})


@pytest.mark.parametrize("own", [None, {"at_phase_end": 0.5, "final": None}])
def test_own_cluster_that_is_gone_is_infinitely_worse(own):
    trial = of(own_cluster={"a": own}, final=errors(a=1.0))
    assert criteria.own_cluster_growth(trial) == {"a": math.inf}


def test_alarm_is_counted_from_the_first_batch_of_its_own_shift():
    phases = (A, B, Phase(200, 300, ("c",)))
    trial = of(phases=phases, alarms=[50, 102, 150])
    assert criteria.batches_to_alarm(trial) == {"b": 3.0, "c": math.inf}


def test_return_is_counted_in_batches_and_never_if_it_never_comes():
    phases = (A, B, AGAIN, Phase(300, 400, ("b",)))
    assert criteria.batches_to_return(of(phases=phases, return_delays=[4, None])) == {
        "a": 5.0,
        "b": math.inf,
    }


def test_only_births_of_the_second_round_that_are_alive_count_as_survivors():
    events = [spawned(110, 1), spawned(210, 2), spawned(220, 3)]
    phases, alive = (A, B, AGAIN), [{"cluster_ids": [0, 1, 3]}]
    trial = JudgedRun(outcome(phases=phases, lines=alive, events=events))
    assert criteria.born_in_second_round(trial) == {"": 1.0}


def test_births_that_did_not_last_are_counted_per_5000_iterations():
    events = [spawned(110, 1), spawned(210, 2), spawned(220, 3)]
    run = outcome(
        lines=[{"cluster_ids": [0, 2]}], events=events, spawns=[110, 210, 220], iterations=20_000
    )
    assert criteria.passing_births(JudgedRun(run)) == {"": 0.5}


def test_false_alarms_are_counted_per_5000_iterations():
    trial = of(alarm_detection={"false": 3}, iterations=10_000)
    assert criteria.false_alarms(trial) == {"": 1.5}


def covering(iteration, **coverage):
    families = {family: {"coverage": value} for family, value in coverage.items()}
    return {"iteration": iteration, "families": families}


COVERED = JudgedRun(
    outcome(
        lines=[covering(0, a=0.1, b=0.2), covering(100, a=0.3, b=0.4), covering(200, a=0.5, b=0.6)],
        final=errors(a=1.0, b=1.0),
    )
)


def test_coverage_is_read_where_a_family_ends_at_the_end_and_before_it_begins():
    assert criteria.coverage_when_active(COVERED) == {"a": 0.3, "b": 0.6}
    assert criteria.coverage_at_end(COVERED) == {"a": 0.5, "b": 0.6}
    assert criteria.coverage_before_seen(COVERED) == {"b after a": 0.4}


@pytest.mark.parametrize(
    ("taken_of_noise", "found"), [([1.0, 0.0, 0.0], 0), ([0.0, 1.0, 0.0], 1), ([0.0, 0.4, 0.6], 2)]
)
def test_cluster_is_of_noise_if_most_of_its_tasks_are(taken_of_noise, found):
    # The other two are next to unused by the families.
    families = {
        "a": {"responsibilities": [1.0, 0.0, 0.0]},
        "noise": {"responsibilities": taken_of_noise},
    }
    run = outcome(lines=[{"families": families}], final=errors(a=1.0, noise=4.0))
    assert criteria.noise_clusters(0.02)(JudgedRun(run)) == {"": found}


def test_errors_next_to_nothing_are_not_divided():
    assert criteria.ratio(0.009, 0.00001) == 1
    assert math.isnan(criteria.ratio(None, 1.0))
    assert math.isnan(criteria.ratio(1.0, None))


def test_prediction_is_compared_at_the_end_and_in_the_stream():
    ours = outcome(final=errors(a=1.0), prequential={"a": 3.0})
    theirs = outcome(final=errors(a=2.0), prequential={"a": 2.0})
    assert criteria.prediction_against("one")(JudgedRun(ours, {"one": theirs})) == {
        "a at the end": 0.5,
        "a in the stream": 1.5,
    }


@pytest.mark.parametrize(("clusters", "gain"), [(1, math.inf), (2, 0.2), (3, 0.1)])
def test_every_further_cluster_has_to_pay_for_itself(clusters, gain):
    ours = outcome(final=errors(a=0.8), clusters=clusters)
    trial = JudgedRun(ours, {"one": outcome(final=errors(a=1.0))})
    assert criteria.gain_per_cluster("one")(trial)[""] == pytest.approx(gain)
