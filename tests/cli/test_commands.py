"""Whole commands on a stream of a few iterations."""

import json
import signal
import time

import numpy as np
import pytest

import taskmix
from taskmix.cli import main
from taskmix.training import TrainingProgress
from taskmix.training.watch import StopRequest

SMALL = [
    *("--families", "linear", "step"),
    *("--lengths", "12", "9"),
    *("--tasks", "2"),
    *("--hidden", "4"),
    *("--adaptation.steps", "1"),
    *("--evaluate-every", "6"),
    *("--test-tasks", "3"),
]


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    code = main(["run", "regression", "--method", "maml", "--seed", "3", "--out", str(out), *SMALL])
    assert code == 0
    return out


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "both"
    methods = ["--methods", "maml", "maml-per-family", "--seeds", "3", "4"]
    assert main(["compare", "regression", "--quiet", "--out", str(out), *methods, *SMALL]) == 0
    return out


def test_run_leaves_the_files_of_a_run_folder(run_folder):
    assert {path.name for path in run_folder.iterdir()} == {
        *("config.json", "metrics.jsonl", "events.jsonl", "summary.json", "figures"),
        *("command.json", "checkpoints", "checksums.json", "examples.json", "report.html"),
    }
    assert {path.suffix for path in (run_folder / "figures").iterdir()} == {".png", ".pdf"}


def test_config_holds_every_setting(run_folder):
    config = json.loads((run_folder / "config.json").read_text())
    assert (config["experiment"], config["method"], config["seed"]) == ("regression", "maml", 3)
    assert config["learner"]["adaptation"]["steps"] == 1
    assert config["learner"]["model"]["hidden"] == [4]
    assert config["stream"]["tasks"] == 2
    assert config["training"]["evaluate_every"] == 6
    assert [phase["stop"] for phase in config["phases"]] == [12, 21]


def test_metrics_follow_the_schema(run_folder):
    lines = read_lines(run_folder / "metrics.jsonl")
    assert [line["iteration"] for line in lines] == [0, 6, 12, 18, 21]
    assert [set(line["prequential"]) for line in lines] == [
        set(),
        *[{"linear"}] * 2,
        *[{"step"}] * 2,
    ]
    for line in lines:
        assert set(line) == {
            *("iteration", "clusters", "cluster_ids", "loss", "suspicion", "seconds"),
            *("batch_responsibilities", "batch_background", "prequential", "families"),
        }
        assert set(line["families"]["step"]) == {
            *("error", "ci95", "oracle", "component_error", "responsibilities"),
            *("background", "coverage", "weighted", "likeliest", "held_error"),
        }


def test_last_event_says_that_the_run_finished(run_folder):
    assert read_lines(run_folder / "events.jsonl")[-1] == {"iteration": 21, "event": "finished"}


def test_summary_follows_the_schema(run_folder):
    summary = json.loads((run_folder / "summary.json").read_text())
    assert set(summary) == {
        *("experiment", "method", "rule", "seed", "measure", "iterations", "clusters"),
        *("spawns", "removals", "alarms", "final", "coverage", "calibration", "notes"),
        *("grows", "capacity", "growths", "skipped"),
        *("forgetting", "mean_forgetting", "own_cluster", "prequential", "assignment", "measures"),
        *("detection", "alarm_detection", "return_delays", "seconds", "iterations_per_second"),
    }
    assert set(summary["assignment"]) == {"nmi", "ari", "purity"}
    assert summary["detection"] == {"delays": [], "missed": 1, "false": 0}


def test_same_seed_writes_the_same_metrics_twice(run_folder, tmp_path):
    flags = ["--method", "maml", "--seed", "3", "--quiet", "--out", str(tmp_path / "again")]
    assert main(["run", "regression", *flags, *SMALL]) == 0
    again, before = (
        [{**line, "seconds": None} for line in read_lines(folder / "metrics.jsonl")]
        for folder in (tmp_path / "again", run_folder)
    )
    assert again == before


def test_flag_of_the_learner_reaches_it(tmp_path):
    flags = ["--method", "mixture", "--components", "2", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["run", "regression", *flags, *SMALL]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["learner"]["components"] == 2
    assert read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["clusters"] == 2


def test_rule_of_the_paper_has_its_own_flags(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["run", "regression", "--method", "nonparametric", "--rule", "paper", "--help"])
    shown = capsys.readouterr().out
    assert "--warm-up" in shown
    assert "--boundaries" not in shown


def test_flag_of_the_learner_that_is_taken_gets_a_prefix(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["run", "regression", "--method", "nonparametric", "--rule", "paper", "--help"])
    shown = capsys.readouterr().out
    assert "--noise" in shown
    assert "--learner-noise" in shown


def test_compare_has_a_run_folder_per_method_and_seed(comparison):
    found = {str(path.parent.relative_to(comparison)) for path in comparison.rglob("summary.json")}
    assert found == {
        f"{method}/seed-{seed}" for method in ("maml", "maml-per-family") for seed in (3, 4)
    }


def test_comparison_names_what_each_method_was_told(comparison):
    methods = json.loads((comparison / "comparison.json").read_text())["methods"]
    assert {name: entry["told"] for name, entry in methods.items()} == {
        "maml": "nothing",
        "maml-per-family": "family",
    }
    assert methods["maml"]["seeds"] == [3, 4]


def test_compare_agrees_with_a_run_of_the_same_seed(comparison, run_folder):
    single, among = (
        json.loads((folder / "summary.json").read_text())["final"]["linear"]["error"]
        for folder in (run_folder, comparison / "maml" / "seed-3")
    )
    assert among == pytest.approx(single, rel=1e-3)


def test_reproduce_ends_with_the_paths_of_the_figure_and_the_report(tmp_path, capsys):
    out = tmp_path / "figure"
    assert main(["reproduce", "figure-7", "--seeds", "0", "--out", str(out), *SMALL]) == 0
    shown = capsys.readouterr().out
    figure = out / "figures" / "figure-7.png"
    report = out / "report.html"
    assert [line.split()[-1] for line in shown.splitlines()[-2:]] == [str(figure), str(report)]
    assert figure.exists()
    assert report.exists()
    assert "nonparametric" in shown


def test_same_command_again_trains_nothing(run_folder, capsys, monkeypatch):
    monkeypatch.setattr("taskmix.experiments.run.train", None)
    assert main(["resume", str(run_folder)]) == 0
    assert f"results: {run_folder}" in capsys.readouterr().out


def test_comparison_keeps_what_has_ended_and_repeats_what_has_not(comparison):
    (comparison / "maml" / "seed-4" / "summary.json").unlink()
    kept = comparison / "maml-per-family" / "seed-3" / "summary.json"
    changed, before = kept.stat().st_mtime_ns, (comparison / "comparison.json").read_bytes()
    assert main(["resume", str(comparison)]) == 0
    assert kept.stat().st_mtime_ns == changed
    assert (comparison / "comparison.json").read_bytes() == before


def test_stopped_run_exits_with_the_code_of_the_signal_and_goes_on(tmp_path, capsys, run_folder):
    out = tmp_path / "run"
    command = ["run", "regression", "--method", "maml", "--seed", "3", "--out", str(out), *SMALL]
    request = StopRequest()

    def interrupt(self, chunk):
        if chunk.iteration == 12:
            signal.raise_signal(signal.SIGINT)
            while not request.value:
                time.sleep(0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taskmix.cli.run.StopRequest", lambda: request)
        patch.setattr(TrainingProgress, "update", interrupt)
        with pytest.raises(SystemExit, match="130"):
            main(command)
    assert f"taskmix resume {out} goes on" in capsys.readouterr().err
    assert main(["resume", str(out), "--quiet"]) == 0
    for name in ("metrics.jsonl", "events.jsonl"):
        again, before = (
            [{**line, "seconds": None} for line in read_lines(folder / name)]
            for folder in (out, run_folder)
        )
        assert again == before


def test_exported_model_predicts_as_the_learner_did(run_folder, tmp_path, capsys):
    out = tmp_path / "model"
    assert main(["export", str(run_folder), "--out", str(out)]) == 0
    assert f"model: {out}" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {
        *("model.json", "model.safetensors", "checksums.json", "README.md")
    }
    predictor = taskmix.load(out)
    assert predictor.learner.adaptation.steps == 1
    x = np.linspace(-1, 1, 5)[:, None]
    prediction = predictor.predict(x, 2 * x, x)
    assert prediction.mean.shape == (5, 1)
    assert np.isfinite(prediction.mean).all()
    with pytest.raises(ValueError, match="support_x has shape"):
        predictor.predict(x[:, 0], x, x)
    with pytest.raises(ValueError, match="not finite"):
        predictor.predict(x, x * np.nan, x)


def test_methods_lists_names_years_and_parameters(capsys):
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    for expected in ("maml-per-family", "2017", "1,761", "5,283", "98,319", "family"):
        assert expected in shown


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"taskmix {taskmix.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("run", "compare", "reproduce", "methods"))


def test_help_of_a_run_lists_the_flags_of_the_method(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["run", "regression", "--method", "mixture", "--help"])
    shown = capsys.readouterr().out
    assert "--components" in shown
    assert "--model" not in shown


def test_two_workers_train_what_one_does(tmp_path):
    """Their jobs travel to other processes, so everything in a job must be picklable."""
    flags = ["--methods", "maml", "--seeds", "0", "1", "--quiet", "--workers", "2", *SMALL]
    assert main(["compare", "regression", *flags, "--out", str(tmp_path / "two")]) == 0
    comparison = json.loads((tmp_path / "two" / "comparison.json").read_text())
    assert [summary["seed"] for summary in comparison["summaries"]] == [0, 1]
