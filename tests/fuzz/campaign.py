"""``python -m tests.fuzz``: spoil files for as long as one likes, and keep what breaks a reader."""

import dataclasses
import random
import tempfile
import time
from pathlib import Path

from tests.fuzz.files import Files, spoiled_files, write
from tests.fuzz.targets import TARGETS, read
from tests.hostile.limits import Limited


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


def campaign(names: list[str], minutes: float, first: int, findings: Path) -> int:
    """Cases until the time is over, which all targets share; how many findings there are."""
    good = {name: TARGETS[name].good() for name in names}
    done, spent = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    seen: set[str] = set()
    stop = time.monotonic() + 60 * minutes
    with Limited() as limited:
        while (began := time.monotonic()) < stop:
            name = min(names, key=spent.__getitem__)
            found = case(limited, name, good[name], first + done[name])
            done[name] += 1
            spent[name] += time.monotonic() - began
            if found and (kind := name + found.what.strip().splitlines()[-1]) not in seen:
                seen.add(kind)
                _keep(found, findings)
    for name in names:
        print(f"{name}: {done[name]} cases from {first} on")
    print(f"findings: {len(seen)}")
    return len(seen)


def _keep(found: Finding, findings: Path) -> None:
    folder = findings / f"{found.target}-{found.case}"
    write(folder, {f"files/{name}": content for name, content in found.files.items()})
    (folder / "what.txt").write_text(found.what)
    print(f"{found.target}, case {found.case}: {found.what.strip().splitlines()[-1]}", flush=True)
