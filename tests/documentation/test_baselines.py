"""The table of departures has every method."""

from pathlib import Path

import pytest

from taskmix.experiments import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()
TABLE = PAGE[PAGE.index("## What each does differently") : PAGE.index("## Settings by one")]
ROWS = [line.split("|")[1:-1] for line in TABLE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_one_row(name):
    assert sum(f"`{name}`" in row[0] for row in ROWS) == 1
