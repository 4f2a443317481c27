"""Runs that are killed, stopped, damaged or repeated, without the cost of training any.

``train`` is replaced by arithmetic on small arrays that keeps its contract; that the real one
goes on from a state bit for bit is what tests/training/test_loop.py shows.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.experiments.arithmetic import (
    OFTEN,
    PAUSES,
    SEEDS,
    STOPS,
    Arithmetic,
    Experiment,
    Lines,
    results,
    run_all,
    train,
)
from tests.experiments.arithmetic import (
    by_arithmetic as by_arithmetic,
)
from tests.experiments.arithmetic import (
    uninterrupted as uninterrupted,
)

from taskmix.experiments import run
from taskmix.experiments.group import Group, Keeping
from taskmix.reporting.runs import why_diverged
from taskmix.training import RunFolder, Settings, Stopped
from taskmix.training.lock import owning
from taskmix.training.skips import Diverged
from taskmix.training.watch import StopRequest

pytestmark = pytest.mark.usefixtures("by_arithmetic")


@pytest.mark.parametrize("keep", [1, 3])
def test_only_so_many_checkpoints_are_kept(tmp_path, keep):
    run_all(tmp_path, Keeping(checkpoint_minutes=0.0, keep=keep))
    kept = sorted(path.name for path in (tmp_path / "seed-4" / "checkpoints").iterdir())
    assert [int(name) for name in kept] == sorted(STOPS + PAUSES)[-keep:]


def test_interval_in_iterations_is_rounded_up_to_the_next_pause(tmp_path):
    run_all(tmp_path, Keeping(checkpoint_minutes=100.0, checkpoint_iterations=4, keep=9))
    kept = sorted(path.name for path in (tmp_path / "seed-4" / "checkpoints").iterdir())
    assert [int(name) for name in kept] == [5, 10, 11]


def stopped_at(out: Path, iteration: int, keeping: Keeping = OFTEN) -> None:
    """Leave runs behind that were asked to stop just before ``iteration`` was observed."""
    request = StopRequest()

    def asking(learner, stream, seeds, settings, observer, start, pause, *more, **named) -> None:
        def before(observe):
            def observed(moment) -> None:
                if moment.iteration == iteration:
                    request.value = 15
                observe(moment)

            return observed

        train(learner, stream, seeds, settings, before(observer), start, before(pause))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "train", asking)
        with pytest.raises(Stopped) as stop:
            run_all(out, keeping, request)
    assert (stop.value.signum, stop.value.iteration) == (15, iteration)


@pytest.mark.parametrize("iteration", [0, *STOPS[:-1], *PAUSES])
def test_run_that_was_asked_to_stop_goes_on(tmp_path, uninterrupted, iteration):
    stopped_at(tmp_path, iteration, Keeping(checkpoint_minutes=100.0))
    said = run_all(tmp_path)
    assert (f"goes on from iteration {iteration}" in said) == (iteration > 0)
    written = results(tmp_path)
    assert {name for name in written if "checkpoints" not in name} == {
        name for name in uninterrupted if "checkpoints" not in name
    }
    assert all(written[name] == uninterrupted[name] for name in written if name in uninterrupted)


def test_journal_tells_of_the_interruption(tmp_path):
    stopped_at(tmp_path, 6)
    run_all(tmp_path)
    lines = (tmp_path / "seed-9" / "journal.jsonl").read_text().splitlines()
    notes = [json.loads(line) for line in lines]
    assert [(note["note"], note["iteration"]) for note in notes] == [("stopped", 6), ("resumed", 6)]


def test_journal_tells_why_a_run_diverged_until_it_is_begun_anew(tmp_path, monkeypatch):
    def diverging(*arguments, **named):
        raise Diverged("Lower the meta rate.")

    with monkeypatch.context() as patch:
        patch.setattr(run, "train", diverging)
        with pytest.raises(ValueError, match="Lower the meta rate"):
            run_all(tmp_path)
    assert why_diverged(tmp_path / "seed-9") == "Lower the meta rate."
    run_all(tmp_path)
    lines = (tmp_path / "seed-9" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["note"] for line in lines] == ["diverged", "begun anew"]
    assert why_diverged(tmp_path / "seed-9") is None


def damaged(path: Path, draw: random.Random) -> str:
    """Cut a file off or turn one bit of it around; what was done."""
    content = bytearray(path.read_bytes())
    if draw.random() < 0.4:
        length = draw.randrange(len(content))
        path.write_bytes(content[:length])
        return f"{path.name} cut to {length}"
    bit = draw.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return f"bit {bit} of {path.name} flipped"


def without_manifests(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in found.items() if "manifest" not in name}


@pytest.mark.parametrize("cases", [20, pytest.param(400, marks=pytest.mark.soak)])
def test_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, uninterrupted, cases):
    """A bit of the manifest that says nothing about the arrays may flip unnoticed."""
    stopped_at(tmp_path / "stopped", 8)
    draw = random.Random(1)
    for case in range(cases):
        out = tmp_path / "case"
        shutil.copytree(tmp_path / "stopped", out)
        newest = out / f"seed-{draw.choice(SEEDS)}" / "checkpoints" / "000000000008"
        done = damaged(draw.choice(sorted(newest.iterdir())), draw)
        said = run_all(out)
        assert without_manifests(results(out)) == without_manifests(uninterrupted), done
        if "safetensors" in done:
            assert "checkpoint not used" in said, (case, done)
            assert "goes on from iteration 6" in said
        shutil.rmtree(out)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "manifest.json"])
def test_missing_file_of_a_checkpoint_gives_way_to_the_one_before(tmp_path, uninterrupted, name):
    stopped_at(tmp_path, 8)
    (tmp_path / "seed-4" / "checkpoints" / "000000000008" / name).unlink()
    assert "goes on from iteration 6" in run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_checkpoint_of_another_run_is_not_taken(tmp_path, uninterrupted):
    stopped_at(tmp_path, 8)
    newest = Path("checkpoints", "000000000008")
    shutil.rmtree(tmp_path / "seed-4" / newest)
    shutil.copytree(tmp_path / "seed-9" / newest, tmp_path / "seed-4" / newest)
    assert "belongs to another run" in run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_checkpoint_under_the_name_of_another_iteration_is_not_taken(tmp_path, uninterrupted):
    stopped_at(tmp_path, 8)
    for seed in SEEDS:
        shutil.rmtree(tmp_path / f"seed-{seed}" / "checkpoints" / "000000000008")
        older = tmp_path / f"seed-{seed}" / "checkpoints" / "000000000006"
        shutil.copytree(older, older.with_name("000000000008"))
    assert "goes on from iteration 6" in run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_if_no_checkpoint_is_good_an_error_says_so_and_nothing_is_removed(tmp_path):
    stopped_at(tmp_path, 8)
    for path in (tmp_path / "seed-4").rglob("checkpoint.safetensors"):
        path.write_bytes(b"")
    before = results(tmp_path)
    with pytest.raises(ValueError, match=r"No checkpoint can be used: .*wrong checksum"):
        run_all(tmp_path)
    assert results(tmp_path) == before


def test_seed_without_checkpoints_makes_all_begin_anew(tmp_path, uninterrupted):
    stopped_at(tmp_path, 8)
    shutil.rmtree(tmp_path / "seed-4" / "checkpoints")
    run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl"])
def test_lines_come_from_the_checkpoint_whatever_became_of_the_file(tmp_path, uninterrupted, name):
    stopped_at(tmp_path, 8)
    (tmp_path / "seed-9" / name).write_bytes(b'{"iteration": 3, "los')
    run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_run_that_has_ended_is_not_trained_again(tmp_path, uninterrupted, monkeypatch):
    run_all(tmp_path)
    monkeypatch.setattr(run, "train", None)
    run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_summary_that_was_lost_is_made_again(tmp_path, uninterrupted):
    run_all(tmp_path)
    (tmp_path / "seed-4" / "summary.json").write_text('{"half')
    run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_changed_setting_is_refused_with_the_difference(tmp_path):
    stopped_at(tmp_path, 8)
    before = results(tmp_path)
    with pytest.raises(
        ValueError, match=r"learner\.rate was 0\.5 and is 0\.25.*accept learner\.rate"
    ):
        run_all(tmp_path, learner=Arithmetic(rate=0.25))
    assert results(tmp_path) == before


def test_changed_data_are_refused_with_the_difference(tmp_path, monkeypatch):
    stopped_at(tmp_path, 8)
    monkeypatch.setattr(Experiment, "facts", lambda self: {"data": {"fingerprint": "5678"}})
    with pytest.raises(ValueError, match=r'data\.fingerprint was "1234" and is "5678"'):
        run_all(tmp_path)


def test_changed_setting_that_is_named_is_accepted_for_good(tmp_path):
    stopped_at(tmp_path, 6)
    keeping = Keeping(checkpoint_minutes=0.0, accept=("learner",))
    run_all(tmp_path, keeping, learner=Arithmetic(rate=0.25))
    assert (tmp_path / "seed-4" / "summary.json").exists()
    run_all(tmp_path, learner=Arithmetic(rate=0.25))


def test_other_seeds_side_by_side_are_a_changed_setting(tmp_path):
    stopped_at(tmp_path, 6)
    with pytest.raises(ValueError, match=r"seeds_side_by_side was \[4, 9\] and is \[4\]"):
        run_all(tmp_path, seeds=(4,))


def test_folder_has_one_owner(tmp_path):
    stopped_at(tmp_path, 6)
    with owning(tmp_path / "seed-9"), pytest.raises(ValueError, match="by another process"):
        run_all(tmp_path)


def test_lock_that_a_killed_process_left_locks_nothing(tmp_path, uninterrupted):
    stopped_at(tmp_path, 6)
    (tmp_path / "seed-9" / "lock").write_text("1\n")
    run_all(tmp_path)
    assert results(tmp_path) == uninterrupted


def test_best_state_of_an_early_stopping_run_survives(tmp_path):
    folders = [RunFolder.open(tmp_path / str(seed), {"seed": seed}) for seed in SEEDS]
    first, second = (Group(Arithmetic(), Lines(), folders, OFTEN, True) for _ in range(2))
    chunks = []
    train(Arithmetic(), Lines(), SEEDS, Settings(), chunks.append)
    for chunk in chunks[:4]:
        first.add(chunk)
    first.save(chunks[3])
    start, _, problems = second.resume()
    assert (start.iteration, problems) == (8, [])
    assert second.best.error == first.best.error
    assert second.best.iteration == first.best.iteration
    for mine, other in zip(second.best.state, first.best.state, strict=True):
        equal(mine, other)
    equal(start.state, chunks[3].state)


def equal(one: Any, other: Any) -> None:
    def same(a, b) -> None:
        assert a.dtype == b.dtype
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))

    jax.tree.map(same, one, other)


@pytest.mark.parametrize(
    ("field", "value"), [("keep", 0), ("checkpoint_minutes", -1.0), ("checkpoint_iterations", -1)]
)
def test_keeping_that_cannot_be_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        Keeping(**{field: value})
