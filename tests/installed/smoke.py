"""What a user meets first, run against an installed taskmix: python tests/installed/smoke.py

It needs nothing but what ``pip install taskmix`` installs, and no file of the repository.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from importlib import metadata, resources
from pathlib import Path

QUICKEST_OF = 5
LONGEST_IMPORT, LONGEST_HELP = 0.1, 0.3
ENDS = "print(time.process_time(){})"


def command(*arguments: str, cwd: Path) -> str:
    """What a command prints; it must end well."""
    line = [sys.executable, "-c", "import sys; from taskmix.cli import main; sys.exit(main())"]
    done = subprocess.run([*line, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"taskmix {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def check_package(folder: Path) -> None:
    import taskmix

    assert taskmix.__version__ == metadata.version("taskmix")
    assert resources.files("taskmix").joinpath("py.typed").is_file(), "py.typed is missing"
    entry = metadata.entry_points(group="console_scripts", name="taskmix")
    assert [one.value for one in entry] == ["taskmix.cli:main"]
    here = Path(taskmix.__file__).resolve()
    assert "site-packages" in here.parts or "dist-packages" in here.parts, f"{here}: not installed"
    for name in taskmix.__all__:
        assert getattr(taskmix, name) is not None, name


def check_quick(folder: Path) -> None:
    # Time of the processor, so that it does not matter what else the machine does.
    importing = "import time; t = time.process_time(); import taskmix; " + ENDS.format(" - t")
    helping = (
        "import time; from taskmix.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n" + ENDS.format("")
    )
    assert "usage: taskmix COMMAND" in command("--help", cwd=folder)
    for what, program, longest in (
        ("import taskmix", importing, LONGEST_IMPORT),
        ("taskmix --help", helping, LONGEST_HELP),
    ):
        found = []
        for _ in range(QUICKEST_OF):
            line = [sys.executable, "-c", program]
            done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True)
            found.append(float(done.stdout.split()[-1]))
        print(f"{what}: {min(found):.3f} s")
        assert min(found) < longest, what


def check_table(folder: Path) -> None:
    import numpy as np

    import taskmix as tm

    rng = np.random.default_rng(0)
    rows = ["shop,hour,sold"]
    for shop in range(14):
        rows += [f"{shop},{hour},{2 * hour + shop + rng.normal():.3f}" for hour in range(6)]
    (folder / "sales.csv").write_text("\n".join([rows[0], *rows[1:73]]))
    (folder / "known.csv").write_text("\n".join([rows[0], *rows[73:76]]))
    (folder / "asked.csv").write_text("\n".join(["shop,hour", "12,3", "12,4"]))
    columns = ("--task", "shop", "--target", "sold", "--support", "3", "--no-cache")
    command("run", "table", "sales.csv", *columns, "--out", "runs/sales", cwd=folder)
    known, asked = ("--support", "known.csv"), ("--query", "asked.csv")
    command("predict", "runs/sales", *known, *asked, "--out", "predicted.csv", cwd=folder)
    lines = (folder / "predicted.csv").read_text().splitlines()
    assert lines[0].startswith("task,mean,low,high")
    assert len(lines) == 3
    learner = tm.load(folder / "runs" / "sales" / "model")
    found = learner.predict(folder / "known.csv", folder / "asked.csv")
    low, high = found.interval(0.9)
    assert np.all((low < found.mean) & (found.mean < high))


def check_stream(folder: Path) -> None:
    short = ("--lengths", "3", "3", "--families", "linear", "step", "--test-tasks", "2")
    which = ("--method", "alpaca", "--no-cache", "--quiet", "--out", "runs/first")
    command("run", "regression", *short, *which, cwd=folder)
    summary = json.loads((folder / "runs" / "first" / "summary.json").read_text())
    assert summary["iterations"] == 6
    command("export", "runs/first", "--out", "models/first", cwd=folder)
    assert "nonparametric" in command("methods", cwd=folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for check in (check_package, check_quick, check_table, check_stream):
            begun = time.perf_counter()
            check(folder)
            print(f"{check.__name__}: fine ({time.perf_counter() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
