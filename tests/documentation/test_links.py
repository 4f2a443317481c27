"""Every link of README and documentation leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "results/**/*.md") for path in ROOT.glob(pattern)
)


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda found: re.sub(r"[\[\]()]", "", found[0]), text)


def anchors(page: Path) -> set[str]:
    """Headings as links name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading)).strip().lower().replace(" ", "-")
        for heading in headings
    }


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        assert ROOT in target.parents or target == ROOT, f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_figure_is_shown_and_the_page_that_shows_it_says_how_it_was_made():
    """The page names a command that draws; a figure that no page shows has no reason to be kept."""
    figures = {path for folder in ("docs", "results") for path in (ROOT / folder).rglob("*.png")}
    assert figures
    shown: dict[Path, list[Path]] = {}
    for page in PAGES:
        for link in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text()):
            shown.setdefault((page.parent / link).resolve(), []).append(page)
    assert figures == set(shown)
    command = re.compile(
        r"taskmix (reproduce|compare|run|report|data show)|python (benchmarks|results|examples)/"
    )
    for figure, pages in shown.items():
        assert any(command.search(page.read_text()) for page in pages), figure.name
