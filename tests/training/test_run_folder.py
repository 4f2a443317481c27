import dataclasses
import enum
import errno
import json
import math
import os

import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.files import write_json
from taskmix.training.lock import Refused
from taskmix.training.run_folder import RunFolder, as_json, claim, software


def test_new_folder_holds_the_settings_and_the_versions(tmp_path):
    RunFolder.open(tmp_path / "a" / "run", {"seed": 3})
    config = json.loads((tmp_path / "a" / "run" / "config.json").read_text())
    assert config["seed"] == 3
    assert {"taskmix", "jax", "python", "system"} <= set(config["software"])


def test_software_names_neither_the_machine_nor_its_paths():
    told = json.dumps(software())
    assert os.uname().nodename not in told
    assert os.sep not in told


def test_lines_are_on_disk_as_soon_as_they_are_added(tmp_path):
    folder = RunFolder.open(tmp_path / "run", {})
    folder.metrics.add({"iteration": 0})
    folder.metrics.add({"iteration": 5})
    folder.events.add({"event": "spawned"})
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [0, 5]
    assert (tmp_path / "run" / "events.jsonl").read_text() == '{"event": "spawned"}\n'


def test_folder_that_is_empty_may_be_taken(tmp_path):
    claim(tmp_path)
    assert tmp_path.is_dir()


def test_folder_with_content_is_refused(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(Refused, match="choose another folder or remove it"):
        claim(tmp_path)


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="choose another folder"):
        claim(tmp_path / "file")


def test_folder_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Cannot create .*: Not a directory; .*folder"):
        claim(tmp_path / "file" / "run")


def test_full_disk_says_so(tmp_path, monkeypatch):
    folder = RunFolder.open(tmp_path / "run", {})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("taskmix.training.lines.append", full)
    with pytest.raises(OSError, match="No space left on device; make room"):
        folder.metrics.add({"iteration": 0})


def test_failed_write_leaves_the_old_file_alone(tmp_path):
    write_json(tmp_path / "summary.json", {"old": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "summary.json", {"new": math.nan})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["summary.json"]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (1, 2)


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    colour: Colour = Colour.RED
    temperature: float = math.inf


def brightness(images):
    return images.mean()


@pytest.mark.parametrize("data", [np.zeros((2, 3), np.uint8), jnp.zeros((2, 3), jnp.uint8)])
def test_of_data_only_shape_and_type_are_settings(data):
    assert as_json({"images": data}) == {"images": {"shape": [2, 3], "dtype": "uint8"}}


def test_function_is_named():
    assert as_json({"inputs": brightness}) == {"inputs": "tests:brightness"}


def test_settings_become_json_with_their_types():
    assert as_json(Outer()) == {
        "type": "tests:Outer",
        "inner": {"type": "tests:Inner", "sizes": [1, 2]},
        "colour": "red",
        "temperature": "inf",
    }
