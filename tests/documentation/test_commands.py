"""Every command of README, documentation and notes is understood, up to where its work begins."""

import re
import shlex
from pathlib import Path

import pytest

from taskmix.cli import main
from taskmix.experiments import method

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("results/**/*.md")),
]
SUBSTITUTES = {
    "METHOD": "maml",
    "NAME": "paper",
    "EXPERIMENT": "regression",
    "FILE": "sales.csv",
    "COL": "sold",
    "MODEL": "runs/sales",
    "RUN": "runs/sales",
    "DIR": "runs/sales",
    "STORE": "stores/mini32",
    "N": "10",
    "W": "1",
}
"""For words that stand for something of the reader's."""


def commands(page: Path) -> list[str]:
    """What blocks of the page give to the shell, without their comments."""
    text = page.read_text()
    fences = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    fenced = [block for kind, block in fences.findall(text) if kind in ("", "sh")]
    indented = re.findall(r"^    (.*)$", fences.sub("", text), re.MULTILINE)
    lines = "\n".join([*fenced, *indented]).replace("\\\n", " ").splitlines()
    # In an order of its own, as every worker has to find the same tests.
    return sorted({line.strip() for line in lines if line.strip().startswith("taskmix ")})


GIVEN = {line: str(page.relative_to(ROOT)) for page in PAGES for line in commands(page)}


class Begun(BaseException):
    """Everything was understood, and work would begin."""


def begin(*arguments, **settings):
    raise Begun


def begin_with(name, methods, *others):
    """A comparison whose methods there are."""
    for one in methods:
        method(one.split(":")[0])
    raise Begun


@pytest.fixture
def stopped(monkeypatch, tmp_path):
    """The command line with nothing behind it."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "run.join",
        "run.own_settings",
        "reproduce.figure_plan",
        "reproduce.table_plans",
        "reproduce.stress_plans",
        "table.run_table",
        "predict.predict_table",
        "resume.resume",
        "export.export",
        "methods.methods",
        "data.prepare_store",
        "data.open_store",
        "doctor.doctor",
        "report.report",
        "report.watch",
        "tune.planned_searches",
        "reproduce.draw_figure",
    ):
        monkeypatch.setattr(f"taskmix.cli.{name}", begin)
    monkeypatch.setattr("taskmix.cli.compare.plan_of", begin_with)


def glyphs_for(word: str) -> str:
    """Glyphs in place of a store or a folder of the reader's, and filtered in place of a family."""
    if word.startswith("store:"):
        return re.sub(r"^[^+]*", "glyphs", word) if "+" in word else "glyphs+invert"
    return "glyphs" if word.startswith("stores/") or word == "photos" else word


@pytest.mark.parametrize("line", GIVEN)
@pytest.mark.usefixtures("stopped")
def test_command_is_understood(line, capsys):
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "..."]
    words = [SUBSTITUTES.get(word, word) for word in words]
    if words[0] in ("run", "compare", "reproduce"):
        # Whether there is a store is not a question of the command.
        words = [glyphs_for(word) for word in words]
    if {"--help", "--version"} & set(words):
        with pytest.raises(SystemExit, match="0"):
            raise SystemExit(main(words))
        return
    begun = False
    try:
        main(words)
    except Begun:
        begun = True
    assert begun, f"{GIVEN[line]}: {line}\n{capsys.readouterr().err}"


def test_there_are_commands_on_every_kind_of_page():
    assert {page.split("/")[0] for page in GIVEN.values()} == {"README.md", "docs", "results"}
    assert len(GIVEN) > 40
