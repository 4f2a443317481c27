"""The code of the page about tables runs as it stands there."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.tables.conftest import quick as quick

from taskmix.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The files that the page speaks of, in the folder where its code runs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    days, hours = 12, 8
    frame = pl.DataFrame(
        {
            "day": np.repeat([f"2024-05-{1 + day:02}" for day in range(days)], hours),
            "hour": np.tile(np.arange(hours) + 9, days),
            "price": rng.uniform(1, 2, days * hours).round(2),
            "weather": rng.choice(["sun", "rain"], days * hours),
            "sold": rng.integers(1, 50, days * hours),
        }
    )
    frame[:80].write_csv("sales.csv")
    frame[80:88].write_csv("tomorrow.csv")
    frame[88:92].write_csv("known.csv")
    frame[92:].drop("sold").write_csv("asked.csv")


@pytest.mark.usefixtures("quick", "shop")
def test_python_and_commands_of_the_page():
    text = PAGE.read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert Path("sales.png").stat().st_size > 0
    commands = re.findall(r"^taskmix (.*sales.*)$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert main([one.strip('"') for one in command.split()]) == 0
    assert pl.read_csv("said.csv").height == 4
