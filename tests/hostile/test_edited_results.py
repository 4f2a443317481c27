"""Results that were edited or lost after a run had ended: restored from a checkpoint, or named."""

import json
import shutil

import pytest
from tests.hostile.conftest import COMPARE, RUN, quietly

from taskmix.reporting import read_run
from taskmix.training import run_folder

RESULTS = ("metrics.jsonl", "events.jsonl", "summary.json")


def results(folder) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*RESULTS, "checksums.json")}


def edit(path) -> None:
    path.write_text(path.read_text().replace("iteration", "iterative", 1))


@pytest.mark.parametrize("name", RESULTS)
def test_edited_result_is_not_believed_and_made_again(good, name):
    run = good / "run"
    before = results(run)
    edit(run / name)
    with pytest.raises(ValueError, match=f"{name} is not what the run wrote"):
        read_run(run)
    assert quietly("resume", run) == (0, "")
    assert results(run) == before


def test_edited_result_of_one_seed_leaves_the_others_as_they_were(good):
    edited, other = (good / "comparison" / "maml" / f"seed-{seed}" for seed in (0, 1))
    before = results(edited), results(other)
    edit(edited / "summary.json")
    assert quietly("resume", good / "comparison") == (0, "")
    assert (results(edited), results(other)) == before


def test_edited_result_without_a_checkpoint_is_named(good):
    shutil.rmtree(good / "run" / "checkpoints")
    edit(good / "run" / "summary.json")
    before = results(good / "run")
    code, said = quietly("resume", good / "run")
    assert code == 2
    assert "no checkpoint to go on from" in said
    assert results(good / "run") == before


def test_run_whose_checkpoints_were_removed_has_still_ended(good):
    shutil.rmtree(good / "run" / "checkpoints")
    assert quietly("resume", good / "run") == (0, "")


def test_removed_seed_does_not_retrain_its_neighbours(good):
    shutil.rmtree(good / "comparison" / "maml" / "seed-1")
    other = good / "comparison" / "maml" / "seed-0"
    before = results(other)
    code, said = quietly(*COMPARE, "--out", good / "comparison")
    assert code == 2
    assert "seed-1 has no checkpoint" in said
    assert "seed-0; put a copy of it back" in said
    assert results(other) == before


def test_other_code_under_the_same_version_is_a_difference(good, monkeypatch):
    monkeypatch.setattr(run_folder, "sources", lambda: "0" * 16)
    code, said = quietly(*RUN, "--out", good / "run")
    assert code == 2
    assert "software.sources was" in said
    assert quietly(*RUN, "--accept", "software.sources", "--out", good / "run") == (0, "")


def test_code_has_one_fingerprint(good):
    written = json.loads((good / "run" / "config.json").read_text())["software"]["sources"]
    assert written == run_folder.sources.__wrapped__()
