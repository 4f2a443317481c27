"""What the pages about the paper name exists: files, tests, commands and their settings."""

import re
import shlex
from pathlib import Path

import pytest

from taskmix.cli import COMMANDS
from taskmix.experiments import EXPERIMENTS, METHODS, Regression
from taskmix.experiments.variants import variant
from taskmix.reporting.drawn import DRAWN
from taskmix.reporting.reproducing import FIGURES

ROOT = Path(__file__).parents[2]
PAGE = "\n".join((ROOT / "docs" / name).read_text() for name in ("paper.md", "paper-parts.md"))
QUOTED = re.findall(r"`([^`]+)`", PAGE)
FILES = sorted({one for one in QUOTED if re.fullmatch(r"(src|tests)/[\w/.-]+", one)})
COMMAND_LINES = sorted({one for one in QUOTED if one.startswith("taskmix ")})
SHARED = Regression().shared()
PARTS = [
    *("Algorithm 1, finite", "Algorithm 1, infinite", "Subroutine 2", "Subroutine 3", "Table 1"),
    *(f"Figure {number}" for number in range(4, 10)),
    *(f"\n| {number} " for number in range(1, 9)),
    *("6.1", "6.2", "A Multi-task", "A Clustering", "A Batch", "A Modes", "A Alternative"),
    *("\n| B ", "C.1", "C.2", "D.1", "D.2", "D.3", "D.4", "D.5", "D.6 ", "D.6.1", "D.6.2"),
]


def test_the_page_names_files_and_commands():
    assert len(FILES) > 50
    assert len(COMMAND_LINES) > 30


@pytest.mark.parametrize("part", PARTS, ids=str.strip)
def test_no_part_of_the_paper_is_left_out(part):
    table = PAGE[PAGE.index("## Where everything is") : PAGE.index("## How what is open")]
    assert part in table


def test_every_row_has_a_result():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    for row in rows:
        assert all(cell.strip() for cell in row.strip("|").split("|")), row


@pytest.mark.parametrize("name", FILES)
def test_every_file_exists(name):
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_can_be_given(line):
    _, command, *rest = shlex.split(line)
    assert command in COMMANDS
    if not rest:
        return
    if command == "reproduce":
        assert rest[0] in (*DRAWN, *FIGURES, "table-1", "stress")
    else:
        assert rest[0] in EXPERIMENTS
    if "--methods" in rest:
        names = rest[rest.index("--methods") + 1 :]
        for name in names[: next((i for i, one in enumerate(names) if one[:2] == "--"), None)]:
            variant(name, SHARED)
    if "--method" in rest:
        chosen = METHODS.find(rest[rest.index("--method") + 1])
        chosen.rule(rest[rest.index("--rule") + 1] if "--rule" in rest else "ours")


def test_no_row_of_the_page_is_missing_in_the_list_of_a_learners_settings():
    """Every setting of the appendix that a command on the page sets is one of the learner's."""
    learner = variant("nonparametric:paper", SHARED)
    named = set(re.findall(r"[:`](\w+)=", PAGE)) - {"detached", "refresh_alone"}
    assert {"noise", "draws", "averaged", "window_growth", "prune", "refresh_growth"} <= named
    assert all(hasattr(learner, name) for name in named)
