"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from taskmix.experiments.experiment import Experiment
from taskmix.experiments.images import EvolvingImages, FewShot, Scale
from taskmix.experiments.own_stream import OwnStream
from taskmix.experiments.regression import Regression
from taskmix.names import unknown
from taskmix.registry import Registry
from taskmix.streams import Stream

Source = Stream | Experiment | str
"""What can be learned from: a stream, an experiment, or the name of one."""

AtScale = Callable[[Scale], Experiment]
"""The defaults of an experiment at a scale."""


class Scaled:
    """Our own experiments, which have defaults for more than one scale."""

    def __init__(self, at: AtScale) -> None:
        self.at = at


def as_experiment(name: str, thing: Any) -> AtScale:
    """What is registered, as a function of the scale, which foreign streams have one of only."""
    if isinstance(thing, Scaled):
        return thing.at
    if not callable(thing):
        raise ValueError(f"{name} is no stream; register a class, or a function that gives one.")
    return lambda scale: experiment_of(thing())[1]


EXPERIMENTS: Registry[AtScale] = Registry("experiment", "taskmix.streams", as_experiment)
"""Everything that can be trained on, by its name."""
EXPERIMENTS.register("regression", Scaled(lambda scale: Regression()))
EXPERIMENTS.register("few-shot", Scaled(FewShot.at))
EXPERIMENTS.register("evolving-images", Scaled(EvolvingImages.at))


def default_experiment(name: str, scale: str = "cpu") -> Experiment:
    """The experiment of that name with its default settings.

    >>> default_experiment("evolving-images", "paper").lengths
    (7500, 7500, 4500)
    """
    at = EXPERIMENTS.find(name)
    for known in get_args(Scale):
        if scale == known:
            return at(known)
    raise unknown("scale", scale, get_args(Scale))


def experiment_of(source: Source) -> tuple[str, Experiment]:
    """What was given, as an experiment, and what tables call it.

    >>> experiment_of("regression")[0]
    'regression'
    """
    if isinstance(source, str):
        return source, default_experiment(source)
    if isinstance(source, Experiment):
        return _name_of(source), source
    if isinstance(source, Stream):
        return type(source).__name__, OwnStream(source)
    raise ValueError(
        f"{type(source).__name__} is no stream and no experiment; give one that has `batch`, "
        f"`test_tasks`, `load`, `families` and `phases`, or a name: {', '.join(EXPERIMENTS)}."
    )


def _name_of(experiment: Experiment) -> str:
    """Ours have names; others are called by their class."""
    names = {Regression: "regression", FewShot: "few-shot", EvolvingImages: "evolving-images"}
    return names.get(type(experiment), type(experiment).__name__)
