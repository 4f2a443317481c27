"""Links in a folder of somebody else lead nowhere: nothing outside is written, nor read."""

import os
import shutil

import pytest
from tests.hostile.conftest import COMPARE, RUN, quietly, untouched
from tests.report.test_report import table

import taskmix
from taskmix import files
from taskmix.reporting import read_run, read_runs
from taskmix.stores import open_store
from taskmix.training.lock import owning

OF_A_RUN = (
    *("lock", "config.json", "command.json", "metrics.jsonl", "events.jsonl", "summary.json"),
    *("journal.jsonl", "checkpoints", "figures", "checkpoints/000000000007"),
    "checkpoints/000000000007/manifest.json",
)
PARTIAL = tuple(f"{name}.partial" for name in OF_A_RUN)
FOLDERS = ("lock", "figures", "checkpoints", "checkpoints/000000000007", "summary.json.partial")


def link(path, target) -> None:
    """In the place of what is there, which the link then leads to a copy of."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "file") for name in OF_A_RUN),
        *((name, "folder") for name in FOLDERS),
        *((name, "not-there") for name in ("lock", "metrics.jsonl.partial", "journal.jsonl")),
    ],
)
def test_resumed_run_writes_nothing_outside(good, outside, name, target):
    (good / "run" / "summary.json").unlink()
    link(good / "run" / name, outside / target)
    code, said = quietly("resume", good / "run")
    assert untouched(outside)
    assert code in (0, 2)
    assert said.count("\n") == (code == 2)


def test_resumed_run_that_finds_links_for_every_new_file_ends_and_writes_nothing_outside(
    good, outside
):
    (good / "run" / "summary.json").unlink()
    for name in PARTIAL:
        link(good / "run" / name, outside / "file")
    assert quietly("resume", good / "run") == (0, "")
    assert untouched(outside)


@pytest.mark.parametrize("name", ["lock", "figures", "checkpoints"])
def test_linked_part_of_a_run_is_refused_by_name(good, outside, name):
    (good / "run" / "summary.json").unlink()
    link(good / "run" / name, outside / "folder")
    code, said = quietly("resume", good / "run")
    assert code == 2
    assert f"{name} is a link" in said


@pytest.mark.parametrize(
    "name", ["maml", "maml/seed-0", "figures", "comparison.json", "command.json", "lock"]
)
@pytest.mark.parametrize("target", ["file", "folder"])
def test_resumed_comparison_writes_nothing_outside(good, outside, name, target):
    link(good / "comparison" / name, outside / target)
    code, said = quietly("resume", good / "comparison")
    assert untouched(outside)
    assert (code, said.count("\n")) == (2, 1)


@pytest.mark.parametrize("name", ["maml", "maml/seed-0"])
def test_linked_run_is_not_reported_as_part_of_a_comparison(good, tmp_path, name):
    shutil.move(good / "comparison" / name, tmp_path / "elsewhere")
    link(good / "comparison" / name, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link"):
        read_runs(good / "comparison")


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "events.jsonl", "summary.json"])
def test_linked_file_of_a_run_is_not_read(good, tmp_path, name):
    shutil.move(good / "run" / name, tmp_path / "elsewhere")
    link(good / "run" / name, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{name} is a link"):
        read_run(good / "run")


@pytest.mark.parametrize("name", ["config.json", "checkpoints", "checkpoints/000000000007"])
def test_linked_part_of_a_run_is_not_exported(good, tmp_path, name):
    for older in (good / "run" / "checkpoints").glob("*6"):
        shutil.rmtree(older)
    shutil.move(good / "run" / name, tmp_path / "elsewhere")
    link(good / "run" / name, tmp_path / "elsewhere")
    code, said = quietly("export", good / "run", "--out", tmp_path / "out")
    assert code == 2
    assert "is a link" in said


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "checksums.json"])
def test_linked_file_of_a_model_is_not_read(good, tmp_path, name):
    shutil.move(good / "model" / name, tmp_path / "elsewhere")
    link(good / "model" / name, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{name} is a link"):
        taskmix.load(good / "model")


@pytest.mark.parametrize("name", ["manifest.json", "train.npy", "test.npy"])
def test_linked_file_of_a_store_is_not_read(good, tmp_path, name):
    shutil.move(good / "store" / name, tmp_path / "elsewhere")
    link(good / "store" / name, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{name} is a link"):
        open_store(good / "store")


def test_linked_folder_is_not_exported_into(good, outside, tmp_path):
    (tmp_path / "out").symlink_to(outside / "folder")
    assert quietly("export", good / "run", "--out", tmp_path / "out")[0] == 2
    assert untouched(outside)


def test_path_to_a_folder_may_lead_over_links(good, tmp_path):
    """A person may keep runs on another disk; only what is in a folder may come from others."""
    (tmp_path / "link").symlink_to(good)
    assert quietly("resume", tmp_path / "link" / "run") == (0, "")
    assert quietly("resume", tmp_path / "link" / "comparison") == (0, "")


@pytest.mark.parametrize("name", ["lock", "journal.jsonl"])
def test_file_with_a_second_name_is_not_written_to(tmp_path, name):
    """A hard link: the other name may be that of a file which matters."""
    path = tmp_path / name
    (tmp_path / "other").write_text("precious")
    os.link(tmp_path / "other", path)
    write = owning(tmp_path).__enter__ if name == "lock" else lambda: files.append(path, b"more")
    with pytest.raises(ValueError, match="under another name, too"):
        write()
    assert (tmp_path / "other").read_text() == "precious"


@pytest.mark.parametrize("kind", ["hard link", "fifo"])
def test_picture_is_not_drawn_into_what_has_its_name(tmp_path, outside, kind):
    path = tmp_path / "result.png"
    os.link(outside / "file", path) if kind == "hard link" else os.mkfifo(path)
    table().plot(path)
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert untouched(outside)


def test_new_file_takes_the_place_of_nothing(tmp_path, outside):
    (tmp_path / "new").symlink_to(outside / "file")
    with pytest.raises(FileExistsError):
        files.write_bytes(tmp_path / "new", b"content")
    assert untouched(outside)


@pytest.mark.parametrize(("command", "name"), [(RUN, "run"), (COMPARE, "comparison")])
def test_the_same_command_again_refuses_linked_figures(good, outside, command, name):
    link(good / name / "figures", outside / "folder")
    code, said = quietly(*command, "--out", good / name)
    assert code == 2
    assert "figures is a link" in said
    assert untouched(outside)


def test_jobs_are_not_handed_over_through_a_link(good, outside):
    """Whoever could write to that folder could run code in the next job."""
    link(good / "comparison" / "jobs", outside / "folder")
    code, said = quietly(*COMPARE, "--launcher", "local", "--out", good / "comparison")
    assert code == 2
    assert "jobs is a link" in said
    assert untouched(outside)


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_jobs_are_not_handed_over_where_others_may_write(good):
    jobs = good / "comparison" / "jobs"
    jobs.mkdir()
    jobs.chmod(0o777)
    code, said = quietly(*COMPARE, "--launcher", "local", "--out", good / "comparison")
    assert code == 2
    assert "Others may write to" in said
    assert list(jobs.iterdir()) == []
