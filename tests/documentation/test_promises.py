"""Every promise of the documentation has its tests, and these are there."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/runs.md", "docs/security.md", "docs/scaling.md")


def rows(page: str) -> list[tuple[str, str]]:
    """Promises and what keeps them, of all tables with these two columns."""
    found, within = [], False
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("| promise"):
            within = True
        elif not line.startswith("|"):
            within = False
        elif within and not line.startswith("|---"):
            promise, kept, *more = (cell.strip() for cell in line.strip("|").split(" | "))
            assert not more, line
            found.append((promise, kept))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_names_what_keeps_it(page):
    promises = rows(page)
    assert len(promises) >= 4
    for promise, kept in promises:
        assert re.search(r"`(tests|benchmarks)/|the same", kept), promise


@pytest.mark.parametrize("page", ["docs/runs.md", "docs/security.md"])
def test_what_is_not_promised_is_said(page):
    text = (ROOT / page).read_text()
    section = re.split(r"^#+ What is not promised$", text, flags=re.MULTILINE)[1]
    said = re.findall(r"^- ", re.split(r"^#", section, flags=re.MULTILINE)[0], re.MULTILINE)
    assert len(said) >= 4


def test_who_may_write_and_what_is_kept_of_examples_is_said():
    """Who may write, what is kept of the examples, and what an export holds."""
    said = (ROOT / "docs" / "security.md").read_text().partition("## What is not promised")[2]
    for words in ("may write to a run folder", "in every checkpoint", "every export"):
        assert words in " ".join(said.split()), words


@pytest.mark.parametrize("page", PAGES)
def test_what_is_named_is_there_and_tests_something(page):
    text = (ROOT / page).read_text()
    for name in set(re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", text)):
        path = ROOT / name
        assert path.exists(), f"{page} names {name}, which is not there"
        if path.is_dir():
            assert list(path.glob("test_*.py")), name
        elif path.name.startswith("test_"):
            assert re.search(r"^def test_", path.read_text(), re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES)
def test_targets_that_are_named_are_in_the_makefile(page):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in re.findall(r"`make ([a-z]+)", (ROOT / page).read_text()):
        assert name in targets


def test_tests_of_the_soak_are_marked_so():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert any(mark.startswith("soak:") for mark in known["ini_options"]["markers"])
    for path in (ROOT / "tests" / "soak").glob("test_*.py"):
        assert "@pytest.mark.soak" in path.read_text(), path.name
