"""The claims of docs/images.md, on real images. They take hours; small versions are fast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from taskmix.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the real images of {DATA.name}"),
]


def prepared(source: str, size: int, folder: Path) -> str:
    store = folder / source
    assert (
        main(["data", "prepare", str(DATA / source), "--out", str(store), "--size", str(size)]) == 0
    )
    return str(store)


def final_test(store: str, out: Path, settings: str) -> dict:
    """What a few-shot run says of its test."""
    command = ["run", "few-shot", "--data", store, "--out", str(out)]
    assert main([*command, *settings.split()]) == 0
    return json.loads((out / "summary.json").read_text())["test"]


def test_maml_reaches_95_percent_on_new_characters(tmp_path):
    store = prepared("omniglot.zip", 28, tmp_path)
    settings = (
        "--method maml --seed 10 --size 28 --adaptation.steps 1 --adaptation.rate 0.4"
        " --iterations 8000 --evaluate-every 2000 --no-annealed"
    )
    assert final_test(store, tmp_path / "run", settings)["accuracy"] >= 0.95


@pytest.fixture(scope="module")
def one_shot(tmp_path_factory):
    """Tests of ``maml`` and of a mixture of three on the same tasks."""
    folder = tmp_path_factory.mktemp("one-shot")
    store = prepared("mini-imagenet.zip", 32, folder)
    methods = {
        "maml": "--iterations 33000 --evaluate-every 5000 --test-tasks 300",
        "mixture": "--components 3 --temperature 5 --detached --adaptation.first-order"
        " --meta-rate 0.003 --tasks 2 --iterations 36000 --evaluate-every 6000 --test-tasks 300",
    }
    return {
        method: final_test(
            store,
            folder / method,
            f"--method {method} --seed 12 --test-split val --mirrored {settings}",
        )
        for method, settings in methods.items()
    }


def test_maml_reaches_40_percent_on_new_classes(one_shot):
    assert one_shot["maml"]["accuracy"] >= 0.4


def test_mixture_is_not_below_maml_and_uses_all_its_components(one_shot):
    """Within the noise of 600 tasks: the order of sums alone moves it by 0.3 points."""
    mixture = one_shot["mixture"]
    difference = np.subtract(mixture["by_episode"], one_shot["maml"]["by_episode"])
    assert difference.mean() + 1.96 * difference.std() / len(difference) ** 0.5 >= 0
    assert min(mixture["responsibilities"]) >= 0.2


def test_five_shots_reach_52_percent_on_new_classes(tmp_path):
    store = prepared("mini-imagenet.zip", 40, tmp_path)
    settings = (
        "--method maml --seed 10 --adaptation.first-order --shot 5 --size 40 --test-split val"
        " --mirrored --shifted 2 --meta-rate 0.003 --iterations 6000 --evaluate-every 2000"
        " --test-tasks 100 --test-steps 10"
    )
    assert final_test(store, tmp_path / "run", settings)["accuracy"] >= 0.52


@pytest.fixture(scope="module")
def evolving(tmp_path_factory):
    """Summaries by method, of three seeds."""
    folder = tmp_path_factory.mktemp("evolving")
    store = prepared("mini-imagenet.zip", 32, folder)
    flags = "--methods nonparametric uniform maml --seeds 10 11 12 --test-split val"
    command = ["compare", "evolving-images", *flags.split(), "--evaluate-every", "500"]
    assert main([*command, "--workers", "2", "--data", store, "--out", str(folder / "all")]) == 0
    summaries = json.loads((folder / "all" / "comparison.json").read_text())["summaries"]
    return {
        method: [summary for summary in summaries if summary["method"] == method]
        for method in ("nonparametric", "uniform", "maml")
    }


def test_every_new_filter_raises_the_alarm_within_a_tenth_of_its_phase(evolving):
    for summary in evolving["nonparametric"]:
        assert summary["alarm_detection"]["false"] == summary["alarm_detection"]["missed"] == 0
        assert max(summary["alarm_detection"]["delays"]) <= 60


def test_every_filter_opens_one_cluster_in_its_phase(evolving):
    for summary in evolving["nonparametric"]:
        assert summary["clusters"] == 3
        assert summary["detection"]["false"] == summary["detection"]["missed"] == 0
        assert summary["assignment"]["nmi"] >= 0.8


def test_filters_are_forgotten_by_the_others_only(evolving):
    mean = {
        method: np.mean([summary["mean_forgetting"] for summary in summaries])
        for method, summaries in evolving.items()
    }
    assert mean["nonparametric"] <= 0.01
    assert mean["nonparametric"] <= min(mean["uniform"], mean["maml"]) / 4


@pytest.mark.parametrize("family", ["blur", "night"])
def test_first_filters_are_served_best_at_the_end(evolving, family):
    final = {
        method: np.mean([summary["final"][family]["accuracy"] for summary in summaries])
        for method, summaries in evolving.items()
    }
    assert final["nonparametric"] > max(final["uniform"], final["maml"])
