"""FIFOs and devices in the place of files: nobody waits for them, and nothing is read from them."""

import os

import pytest
from tests.hostile.limits import command

import taskmix
from taskmix.reporting import read_run
from taskmix.stores import open_store


def fifo(path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


RUN = (
    *("config.json", "command.json", "metrics.jsonl", "events.jsonl", "summary.json"),
    *("checksums.json", "journal.jsonl", "lock", "metrics.jsonl.partial"),
    *("checkpoints/000000000007/manifest.json", "checkpoints/000000000007/metrics.jsonl"),
)


@pytest.mark.parametrize("name", RUN)
def test_fifo_in_a_run_keeps_nobody_waiting(limited, good, name):
    fifo(good / "run" / name)
    for reader in (("resume", good / "run"), ("export", good / "run", "--out", good / "new")):
        assert not limited.call(command, *reader)
    assert not limited.call(read_run, good / "run")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "checksums.json"])
@pytest.mark.parametrize("device", [None, "/dev/zero"])
def test_model_made_of_a_device_is_refused(limited, good, name, device):
    path = good / "model" / name
    fifo(path)
    if device:
        path.unlink()
        path.symlink_to(device)
    assert not limited.call(taskmix.load, good / "model")
    with pytest.raises(ValueError, match=r"is a link|not a regular file"):
        taskmix.load(good / "model")


@pytest.mark.parametrize("name", ["manifest.json", "train.npy"])
def test_store_made_of_a_fifo_is_refused(limited, good, name):
    fifo(good / "store" / name)
    assert not limited.call(open_store, good / "store")


def test_source_that_is_a_fifo_is_refused(limited, tmp_path):
    os.mkfifo(tmp_path / "images.zip")
    out = tmp_path / "store"
    assert not limited.call(command, "data", "prepare", tmp_path / "images.zip", "--out", out)
