"""Stress streams: the streams themselves, the criteria on hand-made runs, the table."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from tests.experiments.outcomes import A, B, errors, outcome

from taskmix.cli import main
from taskmix.experiments import METHODS, criteria
from taskmix.experiments.criteria import Criterion, Verdict
from taskmix.experiments.outcome import read_outcomes
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
from taskmix.streams import FunctionStream, consecutive

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
