"""Targets that only look: reports, the study of a search, labels for pictures.

Nothing is trained. What would take long to compile is stood in for by something that is not.
"""

import contextlib
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from tests.fuzz.files import Files, Target, as_json, files_in, pictures
from tests.fuzz.mutations import spoiled_json
from tests.hostile.limits import command

import taskmix
from taskmix.experiments.sharing import Predictor
from taskmix.experiments.tuning import Search


def _signed(good: Files, name: str, draw: random.Random) -> Files:
    return {**good, name: as_json(spoiled_json(json.loads(good[name]), draw))}


# Reports


def page_of(good: Callable[[], Files], signed: Any, *folders: str) -> Target:
    """The reports on folders that another target has made."""

    def read(folder: Path) -> None:
        for one in folders:
            command("report", folder / one)

    return Target(good, read, signed)


# Searches


def _search(out: Path, trials: int) -> None:
    stream = taskmix.streams.regression(("linear",), (4,), tasks=2)
    with mock.patch.object(Search, "_error", lambda self, given, *_: given["meta_rate"]):
        taskmix.tune(["alpaca"], stream, out, trials=trials, seeds=[0])


def _good_search() -> Files:
    with tempfile.TemporaryDirectory() as name:
        _search(Path(name), 3)
        return files_in(Path(name))


def _go_on_searching(folder: Path) -> None:
    _search(folder, 4)


# Pictures


def _good_folders() -> Files:
    every = pictures()
    known = {f"known/{name}": content for name, content in every.items()}
    return known | {f"asked/{name}": content for name, content in list(every.items())[:2]}


def _label(folder: Path) -> None:
    """By a model that thinks the same of all classes."""

    def predict(support_x: Any, support_y: Any, query_x: Any) -> Any:
        assert support_x.shape[1:] == query_x.shape[1:]
        assert len(support_x) == len(support_y)
        return SimpleNamespace(mean=np.full((len(query_x), 4), 0.25), novelty=None)

    for channels in (1, 3):
        model = mock.Mock(
            spec=Predictor,
            facts={"example": {"support": {"x": {"shape": [2, 8, 8, channels]}}}},
            learner=SimpleNamespace(likelihood=taskmix.Categorical()),
            outputs=4,
            predict=predict,
        )
        tables = ("--support", folder / "known", "--query", folder / "asked")
        with (
            mock.patch("taskmix.reporting.image_predictions.predictor_of", return_value=model),
            contextlib.chdir(folder),
        ):
            command("predict", folder / "model", *tables, "--out", folder / "labels.csv")


PAGE_TARGETS = {
    "search": Target(_good_search, _go_on_searching, _signed),
    "pictures": Target(_good_folders, _label),
}
