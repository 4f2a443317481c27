"""The search: what it tries, that it goes on where it was, and that its budget is kept."""

import json

import pytest

import taskmix as tm
from taskmix.cli import main
from taskmix.experiments import METHODS
from taskmix.experiments.spaces import Between, OneOf, read_space, space_of
from taskmix.experiments.tuning import Search, planned_searches

pytest.importorskip("optuna")

STREAM = tm.streams.regression(("linear",), (4,), tasks=2)
SETTINGS = tm.Settings(evaluate_every=4, test_tasks=2)


def tuned(out, trials, **options):
    return tm.tune(["alpaca"], STREAM, out, trials=trials, seeds=[0], settings=SETTINGS, **options)


def test_first_trial_is_the_method_as_it_is_and_the_best_is_the_least(tmp_path):
    found = tuned(tmp_path, 3)["alpaca"]
    assert len(found.trials) == 3
    assert found.trials[0]["settings"]["meta_rate"] == pytest.approx(2e-3)
    assert found.error == min(trial["error"] for trial in found.trials)
    assert found.name == f"alpaca:meta_rate={found.settings['meta_rate']}"
    written = json.loads((tmp_path / "tuned.json").read_text())
    assert written["methods"]["alpaca"]["error"] == found.error
    assert (written["trials"], written["seeds"]) == (3, [0])


def test_search_goes_on_where_it_was_and_repeats_nothing(tmp_path):
    first = tuned(tmp_path, 2)["alpaca"]
    runs = sorted((tmp_path / "alpaca").glob("*/seed-0/summary.json"))
    before = [path.stat().st_mtime_ns for path in runs]
    again = tuned(tmp_path, 3)["alpaca"]
    assert list(again.trials[:2]) == list(first.trials)
    assert [path.stat().st_mtime_ns for path in runs] == before
    assert len({str(trial["settings"]) for trial in again.trials}) == 3


def test_interrupted_trial_is_tried_again_with_the_same_settings(tmp_path, monkeypatch):
    asked = []

    def interrupted(self, settings, folder, request):
        asked.append(dict(settings))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Search, "_error", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path, 2)
    found = tuned(tmp_path, 1)["alpaca"]
    assert [dict(trial["settings"]) for trial in found.trials] == asked


def test_search_with_other_seeds_or_another_space_is_refused(tmp_path):
    tuned(tmp_path, 1)
    with pytest.raises(ValueError, match="choose another folder"):
        tuned(tmp_path, 1, space=["meta_rate=1e-4..1e-3"])


def test_every_method_has_something_to_search():
    for name, method in METHODS.items():
        assert space_of(method.recipe), name
    paper = space_of(METHODS["nonparametric"].rule("paper"))
    assert {"coefficient", "refresh", "refresh_every"} <= set(paper)
    assert "temperature" not in space_of(METHODS["uniform"].recipe)


def test_space_of_the_command_line_is_read():
    recipe = METHODS["nonparametric"].rule("paper")
    space = read_space(["window=5..20", "refresh=average,density", "noise=0.01..0.1"], recipe)
    assert space == {
        "window": Between(5, 20, whole=True),
        "refresh": OneOf(("average", "density")),
        "noise": Between(0.01, 0.1),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("meta_rat=1..2", "Did you mean 'meta_rate'"),
        ("meta_rate", "has no values"),
        ("meta_rate=2..1", "larger one"),
        ("meta_rate=a..b", "no range"),
    ],
)
def test_space_that_makes_no_sense_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_space([text], METHODS["maml"].recipe)


@pytest.mark.parametrize(
    ("methods", "trials", "complaint"),
    [
        (["maml", "maml"], 1, "each once"),
        (["maml"], 0, "trials is 0"),
        (["maml:meta_rate=0.01"], 1, "nothing to search"),
    ],
)
def test_plan_that_makes_no_sense_is_refused(methods, trials, complaint):
    with pytest.raises(ValueError, match=complaint):
        planned_searches(methods, STREAM, trials, [0])


def test_command_tunes_and_says_what_it_found(tmp_path, capsys):
    flags = ["--families", "linear", "--lengths", "4", "--tasks", "2", "--evaluate-every", "4"]
    budget = ["--methods", "alpaca", "--trials", "1", "--seeds", "0", "--test-tasks", "2"]
    assert main(["tune", "regression", *flags, *budget, "--out", str(tmp_path), "--quiet"]) == 0
    assert "alpaca: error" in capsys.readouterr().out
