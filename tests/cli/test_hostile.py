"""Values that no one should give: whatever they are, there is one line and no traceback."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskmix.cli import main

FLAGS = (
    *("--method", "--rule", "--seed", "--keep", "--checkpoint-minutes", "--checkpoint-iterations"),
    *("--families", "--lengths", "--schedule", "--transition", "--mixing", "--tasks", "--support"),
    *("--query", "--noise", "--hidden", "--adaptation.steps", "--adaptation.rate", "--meta-rate"),
    *("--head-rate", "--task-model", "--reservoir", "--reference", "--capacity", "--worth"),
    *("--evaluate-every", "--test-tasks", "--skips-in-a-row", "--accept"),
)
VALUES = (
    *(
        "0",
        "-1",
        "1",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e-400",
        "0x10",
        "1_000",
        "٣",
        "None",
        "True",
    ),
    *("", " ", "\t", "\n", "[red]", "{}", "%s", "--", "-", "💥", "e\u0301", "../..", "a" * 5000),
    *(str(2**31), str(2**32), str(2**64), str(-(2**70)), "9" * 400),
)
PATHS = ("💥/\u202e", "a" * 300, "/".join(["b"] * 3000), " ", "[red]", "con:", "new\nline")


class Reached(ValueError):
    """The flags were fine, and a run would have begun."""


@pytest.fixture
def begins_no_run(monkeypatch, tmp_path):
    def reached(*_, **__):
        raise Reached("would train")

    monkeypatch.setattr("taskmix.cli.run.fit", reached)
    monkeypatch.chdir(tmp_path)


def one_line(arguments, capsys) -> str:
    assert main(arguments) == 2, arguments
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1
    return captured.err


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(FLAGS), st.sampled_from(VALUES)), min_size=1, max_size=3))
def test_absurd_flags_give_one_line(begins_no_run, capsys, flags):
    one_line(["run", "regression", *(word for flag in flags for word in flag)], capsys)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_words_give_one_line_or_help(begins_no_run, capsys, words):
    if words and words[0] not in ("-h", "--help", "--version"):
        one_line(words, capsys)


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
@pytest.mark.parametrize("command", [("run", "regression", "--out"), ("resume",), ("export",)])
def test_odd_paths_give_one_line(begins_no_run, capsys, command, path):
    more = ("--out", "model") if command == ("export",) else ()
    one_line([*command, path, *more], capsys)
