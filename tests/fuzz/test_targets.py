"""A few spoiled files for every reader; ``make fuzz`` spoils many."""

import random
import tempfile
from pathlib import Path

import pytest
from tests.fuzz.calls import CALL_TARGETS
from tests.fuzz.campaign import Finding, campaign, case
from tests.fuzz.files import write
from tests.fuzz.mutations import HOSTILE, spoiled_json
from tests.fuzz.tables import TABLE_TARGETS
from tests.fuzz.targets import TARGETS
from tests.hostile.limits import Limited

COMPUTING = (
    "run",
    "comparison",
    "report",
    "model",
    "table-run",
    "search",
    *TABLE_TARGETS,
    *CALL_TARGETS,
)
"""Readers that go on to compile, train or draw, with which a case takes long."""


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    return request.param, TARGETS[request.param].good()


def test_good_files_are_read(target):
    name, good = target
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "in", good)
        TARGETS[name].read(Path(folder) / "in")


@pytest.fixture(scope="module")
def limited():
    with Limited() as process:
        yield process


def test_spoiled_files_are_read_or_refused(limited, target):
    name, good = target
    cases = 2 if name in COMPUTING else 10
    found = [finding for number in range(cases) if (finding := case(limited, name, good, number))]
    assert not found, found[0].what


def test_spoiled_json_differs_and_leaves_the_original_alone():
    draw = random.Random(0)
    value = {"a": [1, 2, {"b": "c"}], "d": None}
    changed = [spoiled_json(value, draw) for _ in range(50)]
    assert value == {"a": [1, 2, {"b": "c"}], "d": None}
    assert sum(one != value for one in changed) > 40


def test_spoiling_leaves_what_is_hostile_as_it_was():
    draw = random.Random(0)
    before = repr(HOSTILE)
    for _ in range(2000):
        spoiled_json({"a": [1, 2, {"b": "c"}], "d": None}, draw)
    assert repr(HOSTILE) == before


def test_campaign_goes_on_after_the_cases_of_the_one_before(tmp_path, monkeypatch):
    tried = []

    def read(limited, target, good, number):
        tried.append(number)
        limited.computed += 1.0
        return Finding(target, number, "ValueError: 3", {"a": b""}) if number == 2 else None

    monkeypatch.setattr("tests.fuzz.campaign.case", read)
    assert campaign(["folder"], 2.5 / 60, tmp_path) == 1
    assert campaign(["folder"], 1.5 / 60, tmp_path) == 0
    assert tried == [0, 1, 2, 3, 4]
    assert (tmp_path / "folder-2" / "what.txt").read_text() == "ValueError: 3"
