"""``python -m tests.fuzz``: spoil files for as long as one likes, and keep what breaks a reader."""

import contextlib
import dataclasses
import json
import random
import tempfile
import time
from pathlib import Path

from tests.fuzz.files import Files, spoiled_files, write
from tests.fuzz.targets import TARGETS, read
from tests.hostile.limits import Limited

TRIED = "tried.json"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a reader did with files that it should have read or refused."""

    target: str
    case: int
    what: str
    files: Files


def case(limited: Limited, target: str, good: Files, number: int) -> Finding | None:
    """Spoil the files of a target in the way of this number, and read them under limits.

    Nothing beside them may change, whatever they say.
    """
    draw = random.Random(f"{target} {number}")
    files = spoiled_files(TARGETS[target], good, draw)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        write(folder, files)
        (Path(name) / "precious").write_text("precious")
        what = limited.call(read, target, folder)
        beside = {path.name for path in Path(name).iterdir()}
        if beside != {"in", "precious"} or (Path(name) / "precious").read_text() != "precious":
            what = f"wrote beside its folder: {sorted(beside)}"
    return Finding(target, number, what, files) if what else None


def campaign(names: list[str], minutes: float, findings: Path) -> int:
    """Cases that were not tried yet, until so many minutes were computed, which all targets share.

    How many there were is kept beside the findings, so that another campaign goes on there.
    """
    good = {name: TARGETS[name].good() for name in names}
    tried = _tried(findings)
    spent = dict.fromkeys(names, 0.0)
    seen: set[str] = set()
    with Limited() as limited, contextlib.suppress(KeyboardInterrupt):
        while sum(spent.values()) < 60 * minutes:
            name = min(names, key=spent.__getitem__)
            before = time.process_time() + limited.computed
            number, seconds = tried.get(name, (0, 0.0))
            found = case(limited, name, good[name], int(number))
            took = time.process_time() + limited.computed - before
            spent[name] += took
            tried[name] = (int(number) + 1, seconds + took)
            if found and (kind := name + found.what.strip().splitlines()[-1]) not in seen:
                seen.add(kind)
                _keep(found, findings)
            (findings / TRIED).write_text(json.dumps(tried, indent=1))
    for name, (cases, seconds) in sorted(tried.items()):
        print(f"{name}: {cases} cases, {seconds / 60:.1f} minutes")
    total = sum(cases for cases, _ in tried.values()), sum(took for _, took in tried.values())
    print(f"all campaigns: {total[0]} cases, {total[1] / 60:.1f} minutes of computing")
    print(f"findings of this one: {len(seen)}")
    return len(seen)


def _tried(findings: Path) -> dict[str, tuple[int, float]]:
    """Cases and seconds of computing per target, of earlier campaigns."""
    findings.mkdir(parents=True, exist_ok=True)
    path = findings / TRIED
    return json.loads(path.read_text()) if path.exists() else {}


def _keep(found: Finding, findings: Path) -> None:
    folder = findings / f"{found.target}-{found.case}"
    write(folder, {f"files/{name}": content for name, content in found.files.items()})
    (folder / "what.txt").write_text(found.what)
    print(f"{found.target}, case {found.case}: {found.what.strip().splitlines()[-1]}", flush=True)
