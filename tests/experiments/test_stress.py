"""Stress streams: the streams themselves, the criteria on hand-made runs, the table."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest

from taskmix.cli import main
from taskmix.experiments import METHODS, criteria
from taskmix.experiments.criteria import Criterion, JudgedRun, Verdict, verdict
from taskmix.experiments.outcome import Outcome, read_outcomes
from taskmix.experiments.stress import (
    NOISE_SHARE,
    OURS,
    STREAMS,
    StressExperiment,
    StressStream,
    chosen,
    shortened,
    verdicts,
)
from taskmix.reporting.stress import (
    StressResult,
    stress_figure,
    stress_json,
    stress_markdown,
    stress_table,
)
from taskmix.streams import FunctionStream, Phase, consecutive

A, B, AGAIN = Phase(0, 100, ("a",)), Phase(100, 200, ("b",)), Phase(200, 300, ("a",))


def outcome(seed=0, phases=(A, B), method=OURS, lines=(), events=(), **summary):
    """A run with the parts that a test is about."""
    return Outcome(method, seed, phases, summary, list(lines), list(events), seconds=60.0)


def errors(**final):
    return {family: {"error": error} for family, error in final.items()}


def of(**summary):
    return JudgedRun(outcome(**summary))


def spawned(iteration, cluster):
    return {"iteration": iteration, "event": "spawned", "cluster": cluster}


# The streams


def test_every_point_of_the_issue_has_its_streams():
    points = [stress.point for stress in STREAMS.values()]
    assert {point: points.count(point) for point in points} == {1: 7, 2: 4, 3: 1, 4: 2, 5: 6, 6: 5}


@pytest.mark.parametrize(
    ("name", "iterations"),
    [
        ("paper", 9500),
        ("order-sawtooth-polynomial-sinusoid", 7500),
        ("interleaved", 6000),
        ("interleaved-4-tasks", 10_000),
        ("recurring", 9000),
        ("six-twice", 18_000),
        ("stationary-bump", 20_000),
    ],
)
def test_stream_is_as_long_as_it_should_be(name, iterations):
    assert STREAMS[name].stream.phases[-1].stop == iterations


def test_every_order_of_the_families_occurs_once():
    orders = {s.stream.families for n, s in STREAMS.items() if n.startswith("order-")}
    assert len(orders) == 6
    assert {frozenset(order) for order in orders} == {frozenset(STREAMS["paper"].stream.families)}


def test_gradual_changes_take_a_thousand_iterations():
    mixed = [phase for phase in STREAMS["gradual"].stream.phases if len(phase.families) == 2]
    assert [phase.stop - phase.start for phase in mixed] == [1000, 1000]


def test_noise_tasks_are_two_per_cent_of_a_stream_that_is_otherwise_the_clean_one():
    speckled, clean = STREAMS["noise-tasks"], STREAMS[STREAMS["noise-tasks"].beside]
    noise = speckled.stream.families.index("noise")
    assert float(speckled.stream.schedule.weights(5000)[noise]) == pytest.approx(NOISE_SHARE)
    without = dataclasses.replace(speckled.stream.schedule, rare=())
    assert dataclasses.replace(speckled.stream, schedule=without) == clean.stream


def test_noise_tasks_leave_test_tasks_and_other_tasks_as_they_are_on_the_clean_stream():
    speckled = STREAMS["noise-tasks"].stream
    clean = STREAMS[STREAMS["noise-tasks"].beside].stream
    key = jax.random.key(0)
    for family in range(3):
        drawn = [stream.test_tasks(key, family, 4).query.y for stream in (speckled, clean)]
        np.testing.assert_array_equal(*drawn)
    batch, other = jax.jit(speckled.batch)(key, 100), jax.jit(clean.batch)(key, 100)
    known = np.asarray(batch.hints.family) == 0
    assert known.any()
    np.testing.assert_allclose(batch.query.y[known], other.query.y[known], atol=1e-5)


@pytest.mark.parametrize("name", STREAMS)
def test_learners_are_built_for_the_families_of_their_stream(name):
    experiment = StressExperiment.at("full", STREAMS[name].stream)
    assert experiment.shared().families == len(experiment.stream().families)


@pytest.mark.parametrize("name", STREAMS)
def test_short_stream_has_the_same_phases_in_less_time(name):
    full = STREAMS[name].stream
    small = shortened(full, 5)
    assert [phase.families for phase in small.phases] == [phase.families for phase in full.phases]
    for short, long in zip(small.phases, full.phases, strict=True):
        assert 5 * (short.stop - short.start) == long.stop - long.start


def test_streams_come_with_those_they_are_compared_with():
    assert list(chosen(["noise-tasks"])) == [STREAMS["noise-tasks"].beside, "noise-tasks"]
    assert list(chosen([])) == list(STREAMS)


def test_compared_streams_come_first():
    order = list(STREAMS)
    for name, stress in STREAMS.items():
        assert stress.beside is None or order.index(stress.beside) < order.index(name)


@pytest.mark.parametrize(
    ("names", "message"),
    [(["papper"], "Did you mean 'paper'"), (["paper", "paper"], "name each stream once")],
)
def test_error_says_what_is_wrong_with_the_streams_asked_for(names, message):
    with pytest.raises(ValueError, match=message):
        chosen(names)


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


# From folders to the table


@pytest.fixture
def folder(tmp_path):
    """Two seeds of the noisy stream, and of its rival."""
    for method, error in ((OURS, 1.2), ("alpaca-per-family", 1.0)):
        for seed in (10, 11):
            run = tmp_path / method / f"seed-{seed}"
            run.mkdir(parents=True)
            phases = [dataclasses.asdict(phase) for phase in (A, B)]
            config = {"method": method, "seed": seed, "phases": phases}
            config["seeds_side_by_side"] = [10, 11]
            summary = {"final": errors(a=error, b=error), "seconds": 50.0}
            (run / "config.json").write_text(json.dumps(config))
            (run / "summary.json").write_text(json.dumps(summary))
            (run / "metrics.jsonl").write_text(json.dumps({"iteration": 0}) + "\n")
            (run / "events.jsonl").write_text("")
    return tmp_path


def test_streams_are_judged_from_their_folders(folder):
    (found,) = verdicts("noise-0.3", {"noise-0.3": read_outcomes(folder)})
    assert found.reached
    assert (found.mean, found.spread, found.seeds) == (pytest.approx(1.2), 0, 2)


def test_seeds_trained_side_by_side_share_their_time(folder):
    assert sum(outcome.seconds for outcome in read_outcomes(folder)) == pytest.approx(100)


def test_run_on_the_clean_stream_is_what_noise_tasks_are_compared_with():
    families = {name: {"responsibilities": [1.0]} for name in ("a", "noise")}
    ours = outcome(lines=[{"families": families}], final=errors(a=1.2, noise=4.0))
    clean = outcome(final=errors(a=1.0))
    by_stream = {"noise-tasks": [ours], STREAMS["noise-tasks"].beside: [clean]}
    of_clusters, of_errors = verdicts("noise-tasks", by_stream)
    assert of_clusters.reached
    assert (of_errors.reached, of_errors.mean) == (False, pytest.approx(1.2))


NEVER = Verdict(
    what="batches to alarm",
    bound="at most 100, 90 % of seeds",
    where="b",
    mean=math.inf,
    spread=math.nan,
    worst=math.inf,
    worst_seed=11,
    kept=1,
    seeds=2,
    by_seed=True,
    reached=False,
)
BETTER = Verdict(
    what="error / one cluster",
    bound="at most 1.05, mean",
    where="",
    mean=0.91,
    spread=0.02,
    worst=0.93,
    worst_seed=10,
    kept=2,
    seeds=2,
    by_seed=False,
    reached=True,
)
RESULTS = [StressResult("louder", 6, (10, 11), 1.5, (NEVER, BETTER))]


def test_page_has_a_line_per_criterion_with_what_was_reached():
    first, second = stress_markdown(RESULTS).splitlines()[-2:]
    assert "| 6 | louder | 1.5 | batches to alarm (b) | ∞ | ∞ (seed 11) |" in first
    assert first.endswith("| **missed** |")
    assert "| 0.91 ± 0.02 | 0.93 (seed 10) |" in second
    assert second.endswith("| 2/2 | reached |")


def test_page_and_table_count_what_was_reached():
    assert "1 of 2 criteria reached" in stress_markdown(RESULTS)
    assert stress_table(RESULTS).title == "stress: 1 of 2 criteria reached"
    assert stress_table(RESULTS).row_count == 1 + 2


def test_json_has_none_for_what_never_came():
    (stream,) = json.loads(json.dumps(stress_json(RESULTS), allow_nan=False))["streams"]
    assert [verdict["mean"] for verdict in stream["verdicts"]] == [None, 0.91]


def test_overview_has_a_cell_per_criterion(tmp_path):
    png, pdf = stress_figure(RESULTS * 2, tmp_path / "overview")
    assert png.stat().st_size > 0
    assert pdf.stat().st_size > 0


# The command


@pytest.fixture
def tiny(monkeypatch):
    """A stream of a few iterations, and one cluster in the place of the mixture."""
    stream = FunctionStream(consecutive(("linear", "step"), (4, 3)), tasks=2)
    asked = (Criterion("clusters", criteria.clusters, most=1.0, share=1.0),)
    monkeypatch.setitem(STREAMS, "tiny", StressStream("tiny", 1, stream, asked))
    monkeypatch.setitem(METHODS._things, OURS, METHODS["alpaca"])


@pytest.mark.usefixtures("tiny")
def test_command_ends_with_table_page_and_pictures_and_goes_on_where_it_was(
    tmp_path, capsys, monkeypatch
):
    out = tmp_path / "stress"
    assert (
        main(["reproduce", "stress", "--streams", "tiny", "--seeds", "3", "--out", str(out)]) == 0
    )
    assert "1 of 1 criteria reached" in capsys.readouterr().out
    assert {path.name for path in (out / "figures").glob("*.png")} == {"tiny.png", "overview.png"}
    page = (out / "stress.md").read_text()
    (stream,) = json.loads((out / "stress.json").read_text())["streams"]
    assert (stream["name"], stream["seeds"]) == ("tiny", [3])

    monkeypatch.setattr("taskmix.experiments.run.train", None)
    assert main(["resume", str(out)]) == 0
    assert (out / "stress.md").read_text() == page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--streams", "papr"], "Did you mean 'paper'"),
        (["--scale", "huge"], "scale"),
        (["--seeds", "1", "1"], "each once"),
    ],
)
def test_command_refuses_before_it_writes(arguments, message, tmp_path, capsys):
    out = tmp_path / "stress"
    assert main(["reproduce", "stress", "--out", str(out), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
