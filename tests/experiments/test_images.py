"""The image experiments: their settings, and whole runs of them at a tiny size."""

from __future__ import annotations

import dataclasses
import json

import jax.numpy as jnp
import pytest

from taskmix.adaptation import Adaptation, RidgeHead
from taskmix.cli import main
from taskmix.cli.reproduce import PaperTableFlags
from taskmix.evaluation import Evaluation
from taskmix.experiments import (
    EvolvingImages,
    FewShot,
    default_experiment,
    few_shot,
    image_families,
    images,
)
from taskmix.experiments.few_shot import EarlyStopping, with_steps
from taskmix.experiments.variants import variant
from taskmix.models import parameter_count
from taskmix.reporting import reproducing
from taskmix.stores.glyphs import glyph_split
from taskmix.training import Chunk

TINY = (
    *("--size", "16", "--width", "4", "--tasks", "2", "--query", "2", "--adaptation.steps", "1"),
    *("--test-query", "2", "--test-tasks", "3", "--quiet"),
)


def test_paper_scale_is_that_of_the_paper():
    paper = default_experiment("few-shot", "paper")
    assert parameter_count(paper.shared().model) == 32_773
    assert (paper.iterations, paper.tasks, paper.query) == (60_000, 4, 15)
    evolving = default_experiment("evolving-images", "paper")
    assert evolving.families == ("blur", "night", "pencil")
    assert evolving.lengths == (7500, 7500, 4500)


@pytest.mark.parametrize(
    ("experiment", "every"),
    [
        (EvolvingImages(), 100),
        (EvolvingImages(data="store"), 300),
        (EvolvingImages(lengths=(2, 50, 50)), 1),
        (EvolvingImages.at("paper"), 300),
    ],
)
def test_every_phase_is_looked_at_three_times_or_more(experiment, every):
    assert experiment.training().evaluate_every == every


def test_unknown_scale_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="paper"):
        default_experiment("few-shot", "papr")


def test_finns_protocol_has_as_many_queries_as_shots():
    usual, finn = FewShot(size=16, shot=2), FewShot(size=16, shot=2, protocol="finn")
    queries = [one.final_stream(one.stream()).test_query for one in (usual, finn)]
    assert queries == [15, 2]


def test_images_that_are_on_the_device_are_not_put_there_again():
    experiment = FewShot(size=16, test_split="val")
    stream = experiment.stream()
    assert experiment.final_stream(stream).testing is stream.testing
    other = dataclasses.replace(experiment, test_split="test").final_stream(stream)
    assert other.testing is not stream.testing


def test_parameters_of_a_mixture_are_those_of_its_components():
    settings = FewShot.at("paper").shared()
    learner = variant("mixture:4", settings)
    assert learner.components == 4
    assert learner.components * parameter_count(learner.task_model.model) == 131_092


@pytest.mark.parametrize("name", ["maml:3", "nonparametric:2"])
def test_components_of_a_method_without_them_are_refused(name):
    with pytest.raises(ValueError, match="no number of components"):
        variant(name, FewShot().shared())


def test_way_of_more_classes_than_a_split_has_is_refused():
    with pytest.raises(ValueError, match="too few for 31-way"):
        FewShot(way=31, size=16).stream()


def test_missing_store_is_refused_before_a_folder_is_made(tmp_path, capsys):
    out = tmp_path / "run"
    code = main(["run", "few-shot", "--data", str(tmp_path / "none"), "--out", str(out)])
    assert code == 2
    assert "There is no store" in capsys.readouterr().err
    assert not out.exists()


def chunk_of(iteration: int, errors, state) -> Chunk:
    error = jnp.asarray(errors)[:, None, None]
    evaluation = Evaluation(error, error[..., None], error[..., None], error, error, error)
    return Chunk(iteration, None, None, evaluation, state, False, 0.0)


@dataclasses.dataclass(frozen=True)
class Inner:
    """A task model; its own steps are no gradient steps."""

    adaptation: Adaptation = Adaptation(steps=1, rate=0.25)
    steps: int = 1


@dataclasses.dataclass(frozen=True)
class Outer:
    """A learner that adapts by its task model."""

    adaptation: Adaptation | None
    inner: Inner


def test_steps_at_the_test_change_nothing_else():
    learner = Outer(adaptation=None, inner=Inner(steps=3))
    changed = with_steps(learner, 10)
    assert changed == Outer(adaptation=None, inner=Inner(Adaptation(steps=10, rate=0.25), steps=3))


def test_early_stopping_keeps_each_seeds_best_state():
    best = EarlyStopping(2)
    for iteration, errors in ((0, [0.9, 0.5]), (10, [0.4, 0.6]), (20, [0.5, 0.5])):
        best.see(chunk_of(iteration, errors, jnp.array([iteration, -iteration])))
    assert best.iteration == [10, 0]
    assert [int(state) for state in best.state] == [10, 0]


def test_few_shot_run_ends_with_a_test_on_new_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(few_shot, "FINAL_EPISODES", 4)
    out = tmp_path / "run"
    command = ["run", "few-shot", "--method", "prototypical", "--iterations", "2"]
    assert main([*command, "--out", str(out), "--evaluate-every", "1", *TINY]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["test"]["split"] == "test"
    assert summary["test"]["episodes"] == 4
    assert 0 <= summary["test"]["accuracy"] <= 1
    assert summary["test"]["iteration"] in (0, 1, 2)
    config = json.loads((out / "config.json").read_text())
    assert config["settings"]["scale"] == "cpu"
    assert config["data"] == {"source": "glyphs", "synthetic": True}


def test_table_1_has_every_row_of_the_paper_for_one_and_five_shots():
    paper = {"matching", "meta-lstm", "prototypical", "maml", "mt-net", "platipus", "versa"}
    assert paper | {f"mixture:{count}" for count in (2, 3, 4, 5)} <= {*reproducing.TABLE_METHODS}
    assert PaperTableFlags().shots == (1, 5)


def test_table_1_has_the_columns_that_are_asked_for(tmp_path, monkeypatch, capsys):
    # The cheapest stands for the rest, which would be compiled for minutes.
    monkeypatch.setattr(reproducing, "TABLE_METHODS", ("prototypical",))
    monkeypatch.setattr(few_shot, "FINAL_EPISODES", 4)
    command = ["reproduce", "table-1", "--shots", "2", "1", "--iterations", "1", "--seeds", "0"]
    assert main([*command, "--out", str(tmp_path / "table"), *TINY]) == 0
    assert {path.name for path in (tmp_path / "table").glob("*-shot")} == {"1-shot", "2-shot"}
    shown = capsys.readouterr().out
    for word in ("2-shot", "1-shot", "prototypical"):
        assert word in shown
    assert "5-shot" not in shown


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--shot", "1"], "give that instead of --shot"),
        (["--shot=5"], "give that instead of --shot"),
        (["--shots", "1", "1"], "each once"),
        (["--shots"], "at least one"),
    ],
)
def test_table_1_refuses_columns_that_make_no_sense(tmp_path, capsys, flags, complaint):
    out = tmp_path / "table"
    assert main(["reproduce", "table-1", *flags, "--out", str(out), *TINY]) != 0
    assert complaint in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture(scope="module")
def evolving(tmp_path_factory):
    out = tmp_path_factory.mktemp("evolving") / "run"
    stream = ("--families", "blur", "night", "--lengths", "120", "30")
    # The first cluster is believed early enough for so short a stream.
    soon = ("--maturity", "60", "--held-out", "0.3", "--capacity", "2")
    command = ["run", "evolving-images", *stream, *soon]
    assert main([*command, "--evaluate-every", "60", "--out", str(out), *TINY]) == 0
    return out


def test_evolving_images_run_reports_accuracies_and_draws_them(evolving):
    summary = json.loads((evolving / "summary.json").read_text())
    assert list(summary["final"]) == ["blur", "night"]
    assert all(0 <= family["accuracy"] <= 1 for family in summary["final"].values())
    assert (evolving / "figures" / "accuracy.png").exists()
    assert (evolving / "figures" / "responsibilities.png").exists()


def test_new_filter_raises_the_alarm_and_leaves_the_first_cluster_alone(evolving):
    """The claim of tests/science/test_images.py, on glyphs; clusters take longer to be born."""
    summary = json.loads((evolving / "summary.json").read_text())
    assert summary["alarm_detection"]["false"] == summary["alarm_detection"]["missed"] == 0
    assert max(summary["alarm_detection"]["delays"]) <= 4
    own = summary["own_cluster"]["blur"]
    assert own["final"] == own["at_phase_end"]


def test_clusters_of_images_have_ridge_heads_and_keep_few_tasks():
    settings = EvolvingImages().shared()
    learner = variant("nonparametric", settings)
    assert isinstance(learner.task_model, RidgeHead)
    assert (learner.reservoir, learner.reference) == (40, 40)


@pytest.mark.parametrize(("name", "kept"), [("r2d2", 0), ("r2d2-replay", 40), ("replay", 40)])
def test_other_methods_keep_what_makes_them(name, kept):
    assert variant(name, EvolvingImages().shared()).reservoir == kept


def test_run_looks_at_the_checksums_of_a_store_once(tmp_path, monkeypatch):
    """Reading everything takes a second for each gigabyte."""
    looked = []

    def glyphs(path, verify=True):
        looked.append(verify)
        return Glyphs()

    class Glyphs:
        channels, fingerprint = 3, "1234"

        def split(self, name):
            return glyph_split(name, 16)

    monkeypatch.setattr(image_families, "open_store", glyphs)
    monkeypatch.setattr(image_families, "store_of", lambda data, size: data)
    monkeypatch.setattr(images, "store_of", lambda data, size, tell: data)
    monkeypatch.setattr(few_shot, "FINAL_EPISODES", 2)
    out = ["--out", str(tmp_path / "run"), "--method", "matching-simple", "--data", "somewhere"]
    assert main(["run", "few-shot", *out, *TINY[:-3], "--quiet", "--iterations", "1"]) == 0
    assert looked.count(True) == 1


@pytest.mark.parametrize(("shot", "updates"), [(1, 12), (5, 8)])
def test_learned_rule_takes_the_updates_of_its_paper(shot, updates):
    assert variant("meta-lstm", FewShot(shot=shot).shared()).updates == updates
