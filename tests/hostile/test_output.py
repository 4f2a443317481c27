"""Output that goes away, and names that would do something to a terminal."""

import contextlib
import errno
import io
import os

import pytest
from rich.console import Console
from tests.hostile.conftest import RUN, quietly

from taskmix.cli import main
from taskmix.cli.output import Screen
from taskmix.names import printable
from taskmix.training import TrainingProgress

TALKING = [word for word in RUN if word != "--quiet"]


class Gone(io.TextIOBase):
    """Where nothing can be written any more: a pipe without a reader, a full device."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EPIPE, 141), (errno.ENOSPC, 2), (errno.EIO, 2)]
)
def test_run_whose_output_goes_away_is_trained_to_its_end(tmp_path, capsys, number, code):
    with contextlib.redirect_stdout(Gone(number)):
        assert main([*TALKING, "--out", str(tmp_path)]) == code
    assert (tmp_path / "summary.json").exists()
    assert (tmp_path / "figures" / "error.png").exists()


def test_run_without_any_output_is_trained_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert main([*TALKING, "--out", str(tmp_path)]) == 0


def test_a_mistake_that_nobody_can_be_told_of_still_has_its_code():
    with contextlib.redirect_stderr(Gone(errno.EPIPE)):
        assert main(["rnu"]) == 2


def test_too_little_memory_is_said_in_one_line(monkeypatch, capsys):
    def greedy(arguments):
        raise MemoryError("Unable to allocate 366. MiB\nfor an array")

    monkeypatch.setattr("taskmix.cli.methods.main", greedy)
    assert main(["methods"]) == 2
    assert capsys.readouterr().err == (
        "taskmix: there is not enough memory (Unable to allocate 366. MiB for an array)\n"
    )


def test_progress_of_a_terminal_that_was_closed_is_silent():
    console = Console(file=Gone(errno.EIO), force_terminal=True)
    with TrainingProgress(console, "maml", [0], 10) as progress:
        progress.tell("goes on")


@pytest.mark.parametrize("name", ["r[/p]q", "[red]x[/red]", "[bold", "a]b[c"])
def test_paths_with_brackets_are_shown_as_they_are(tmp_path, capsys, name):
    out = tmp_path / name
    assert main([*TALKING, "--out", str(out)]) == 0
    assert f"results: {out}" in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x1b]0;title\x07", "\x08", "\x9b31m", "\u202e"])
def test_nothing_that_a_terminal_obeys_gets_through(tmp_path, capsys, hostile):
    assert main(["resume", str(tmp_path / hostile)]) == 2
    Screen().say(f"store: {hostile}")
    progress = TrainingProgress(Console(), hostile, [0], 10)
    progress.tell(hostile)
    captured = capsys.readouterr()
    for said in (captured.err, captured.out):
        assert hostile not in said
        assert printable(hostile) in said


def test_keys_of_a_foreign_run_are_quoted_in_the_command_that_is_suggested(good):
    config = good / "run" / "config.json"
    config.write_text(
        config.read_text().replace('"seed":', '"x; rm -r ~\\u001b[1m": 1, "seed":', 1)
    )
    code, said = quietly(*RUN, "--out", good / "run")
    assert code == 2
    assert "accept 'x; rm -r ~\\x1b[1m'" in said
