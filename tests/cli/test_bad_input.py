"""Whatever a user gets wrong gives one line that says what to do, and exit code 2."""

import subprocess
import sys

import pytest

from taskmix.cli import main

RUN = ("run", "regression")
BAD = {
    "unknown command": (["rnu"], "Did you mean 'run'"),
    "no experiment": (["run"], "needs the experiment first"),
    "unknown experiment": (["run", "regresion"], "Did you mean 'regression'"),
    "unknown method": ([*RUN, "--method", "mamml"], "Did you mean 'maml'"),
    "method without a value": ([*RUN, "--method"], "--method needs a value"),
    "rule the method has not": ([*RUN, "--method", "maml", "--rule", "paper"], "no rule 'paper'"),
    "unknown family": ([*RUN, "--families", "sinusoit", "--lengths", "9"], "'sinusoid'"),
    "unknown schedule": ([*RUN, "--schedule", "never"], "consecutive"),
    "unknown flag": ([*RUN, "--metod", "maml"], "--method"),
    "flag of another method": ([*RUN, "--method", "maml", "--components", "3"], "--components"),
    "word instead of a number": ([*RUN, "--lengths", "nine"], "--lengths is 'nine'; it must be"),
    "one of two that are needed": (["export", "runs/none"], "taskmix: --out must be given. See"),
    "nothing of what is needed": (["predict"], "MODEL and --support and --query and --out must"),
    "flag without its value": ([*RUN, "--seed"], "--seed needs a value"),
    "choice that is none": (["run", "table", "--kind", "x"], "one of regression, classification"),
    "misspelt flag": ([*RUN, "--sede", "1"], "Unrecognised: --sede. Did you mean --seed?"),
    "value that a part refuses": ([*RUN, "--adaptation.steps", "-1"], "steps"),
    "negative meta rate": ([*RUN, "--meta-rate", "-1"], "meta_rate is -1.0; it must be positive"),
    "head rate NaN": ([*RUN, "--head-rate", "nan"], "head_rate is nan; it must be positive"),
    "adaptation rate NaN": ([*RUN, "--adaptation.rate", "nan"], "rate is nan; it must be positive"),
    "no support": ([*RUN, "--support", "0"], "support is 0"),
    "negative noise": ([*RUN, "--noise", "-1"], "noise is -1.0"),
    "empty phase": ([*RUN, "--lengths", "0", "1", "1"], "lengths"),
    "lengths for other families": ([*RUN, "--lengths", "9"], "give one length for each"),
    "no iteration between evaluations": ([*RUN, "--evaluate-every", "0"], "evaluate_every is 0"),
    "negative seed": ([*RUN, "--seed", "-1"], "seed is -1"),
    "seed twice": (["compare", "regression", "--seeds", "1", "1"], "each once"),
    "method twice": (["compare", "regression", "--methods", "maml", "maml"], "each once"),
    "unknown method to compare": (["compare", "regression", "--methods", "mml"], "'maml'"),
    "unknown figure": (["reproduce", "figure6"], "Did you mean 'figure-6'"),
    "flag of methods": (["methods", "--all"], "--all"),
    "nothing to resume": (["resume", "runs/none"], "runs/none is not a folder"),
    "nothing to export": (["export", "runs/none", "--out", "model"], "config.json is missing"),
    "no checkpoint to keep": ([*RUN, "--keep", "0"], "keep is 0; it must be at least 1"),
}


def complaint(arguments, capsys) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(("arguments", "hint"), BAD.values(), ids=BAD)
def test_mistake_gives_one_helpful_line(arguments, hint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hint in complaint(arguments, capsys)
    assert list(tmp_path.iterdir()) == []


def test_existing_run_folder_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "summary.json").write_text("precious")
    text = complaint([*RUN, "--out", str(tmp_path)], capsys)
    assert "choose another folder or remove it" in text
    assert (tmp_path / "summary.json").read_text() == "precious"


def test_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "run")
    assert f"Cannot create {out}" in complaint([*RUN, "--out", out], capsys)


def test_interrupt_gives_one_line_and_code_130(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("taskmix.experiments.run.train", interrupted)
    assert main([*RUN, "--quiet", "--out", str(tmp_path / "run")]) == 130
    assert capsys.readouterr().err.count("\n") == 1


def test_help_does_not_wait_for_jax():
    script = (
        "import sys; from taskmix.cli import main; main(['--help']); print('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
