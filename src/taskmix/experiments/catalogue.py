"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from taskmix.experiments.experiment import Experiment
from taskmix.experiments.images import EvolvingImages, FewShot, Scale
from taskmix.experiments.regression import Regression
from taskmix.names import unknown

EXPERIMENTS: Mapping[str, Callable[[Scale], Experiment]] = {
    "regression": lambda scale: Regression(),
    "few-shot": FewShot.at,
    "evolving-images": EvolvingImages.at,
}
"""Each gives its defaults at a scale; the regression has one scale only."""


def default_experiment(name: str, scale: str = "cpu") -> Experiment:
    """The experiment of that name with its default settings.

    >>> default_experiment("evolving-images", "paper").lengths
    (7500, 7500, 4500)
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    for known in get_args(Scale):
        if scale == known:
            return EXPERIMENTS[name](known)
    raise unknown("scale", scale, get_args(Scale))
