"""Valid JSON that no run writes, with checksums that fit: refused in one line, or made again."""

import hashlib
import json

import pytest
from tests.hostile.conftest import quietly

from taskmix.reporting import read_run


def sign(run, name) -> None:
    sums = json.loads((run / "checksums.json").read_text())
    content = (run / name).read_bytes()
    sums[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (run / "checksums.json").write_text(json.dumps(sums))


@pytest.mark.parametrize(
    "event",
    [
        {"iteration": 1},
        {"event": "spawned"},
        {"event": 1, "iteration": 1},
        {"event": "spawned", "iteration": "1"},
        {"event": "spawned", "iteration": -1},
        {"event": "spawned", "iteration": 10**400},
        {"event": "spawned", "iteration": 1, "cluster": "x"},
        {"event": "spawned", "iteration": True},
    ],
)
def test_event_that_is_none_is_refused(good, event):
    (good / "run" / "events.jsonl").write_text(json.dumps(event) + "\n")
    sign(good / "run", "events.jsonl")
    with pytest.raises(ValueError, match=r"no run writes|has no 'event'|has no 'iteration'"):
        read_run(good / "run")


@pytest.mark.parametrize(
    "change",
    [
        {"final": None},
        {"final": {"linear": 3}},
        {"forgetting": []},
        {"clusters": "many"},
        {"clusters": 10**400},
        {"removals": 3},
        {"detection": {}},
        {"method": ["maml"]},
        {"seconds": {}},
        {"test": {"accuracy": 1}},
    ],
    ids=str,
)
def test_summary_that_is_none_is_made_again(good, change):
    path = good / "run" / "summary.json"
    before = path.read_bytes()
    path.write_text(json.dumps({**json.loads(before), **change}))
    sign(good / "run", "summary.json")
    assert quietly("resume", good / "run") == (0, "")
    assert path.read_bytes() == before
