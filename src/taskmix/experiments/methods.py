"""Every method by its name. To add one: write its learner in a file, and one entry here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from taskmix.adaptation import BayesianHead, CalibratedGradient, Gradient, TaskModel
from taskmix.baselines import (
    CMAML,
    EWC,
    LLAMA,
    MAML,
    MMAML,
    PLATIPUS,
    SI,
    VCL,
    FirstOrderMAML,
    Matching,
    MetaLSTM,
    MTNet,
    OnlineEWC,
    OnlineLaplace,
    PerFamily,
    Prototypical,
    SingleModel,
    Versa,
)
from taskmix.learner import Learner, Told
from taskmix.likelihood import Categorical, Likelihood
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture
from taskmix.names import unknown

Build = Callable[..., Learner]
"""A learner's dataclass, or a ``partial`` of it that fixes what makes the method."""

TASK_MODELS: Mapping[str, type] = {
    "gradient": Gradient,
    "calibrated-gradient": CalibratedGradient,
    "bayesian-head": BayesianHead,
}
"""Every task model by its name."""

HEAD_CLIP = 1.0
"""Largest norm of the gradient of a Bayesian head."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A learner with its name and its origin."""

    name: str
    build: Build
    year: int
    reference: str
    summary: str
    paper: Build | None = None
    """The algorithm to the letter of its paper, where ``build`` departs from it."""
    classes_only: str = ""
    """Why the method cannot do regression, if it cannot."""

    @property
    def told(self) -> Told:
        return self.build().told

    @property
    def task_model(self) -> str | None:
        """The task model it has unless the user asks for another; None if it has its own way."""
        return task_model_of(self.build)

    def rule(self, name: str) -> Build:
        """``ours`` or ``paper``."""
        if name == "ours":
            return self.build
        if name == "paper" and self.paper is not None:
            return self.paper
        rules = ["ours"] if self.paper is None else ["ours", "paper"]
        raise ValueError(
            f"{self.name} has no rule {name!r}; use {' or '.join(rules)}, or leave --rule out."
        )


_FINN = "Finn et al., ICML"
_LEE = "Lee & Choi, ICML"
_JERFEL = "Jerfel et al., NeurIPS"
_VINYALS = "Vinyals et al., NeurIPS"
_HARRISON = "Harrison et al., WAFR"
_HEAD: dict[str, Any] = {"task_model": BayesianHead(), "meta_rate": 2e-3, "meta_clip": HEAD_CLIP}
_KEPT = 40
"""Tasks in a reservoir."""
_WEIGHS_LABELS = "it gives a query the labels of its support set"

METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            "nonparametric",
            partial(OnlineMixture, boundaries=False),
            2019,
            _JERFEL,
            "a mixture that opens a cluster when none fits",
            paper=partial(PaperMixture, boundaries=False),
        ),
        Method(
            "task-aware",
            partial(OnlineMixture, boundaries=True),
            2019,
            _JERFEL,
            "the same, told when a phase begins",
            paper=partial(PaperMixture, boundaries=True),
        ),
        Method("mixture", FiniteMixture, 2019, _JERFEL, "a mixture of a fixed number of clusters"),
        Method(
            "uniform",
            partial(FiniteMixture, temperature=math.inf),
            2019,
            _JERFEL,
            "the same, each task shared equally by all clusters",
        ),
        Method("maml", MAML, 2017, _FINN, "one initialisation for every task"),
        Method(
            "fomaml", FirstOrderMAML, 2017, _FINN, "the same, inner gradients taken as constants"
        ),
        Method(
            "maml-per-family",
            PerFamily,
            2017,
            _FINN,
            "one MAML per family, told which: a floor",
        ),
        Method("alpaca", SingleModel, 2018, _HARRISON, "one Bayesian last layer for every task"),
        Method(
            "alpaca-replay",
            partial(SingleModel, reservoir=_KEPT),
            2018,
            _HARRISON,
            "the same on new and kept tasks",
        ),
        Method(
            "alpaca-per-family",
            partial(PerFamily, **_HEAD),
            2018,
            _HARRISON,
            "one Bayesian last layer per family, told which: a floor",
        ),
        Method(
            "alpaca-per-family-replay",
            partial(PerFamily, **_HEAD, reservoir=_KEPT),
            2018,
            _HARRISON,
            "the same on new and kept tasks of each family",
        ),
        Method("mt-net", MTNet, 2018, _LEE, "MAML with learned metric and masks"),
        Method(
            "t-net", partial(MTNet, masked=False), 2018, _LEE, "MAML with learned layerwise metric"
        ),
        Method(
            "platipus",
            PLATIPUS,
            2018,
            "Finn et al., NeurIPS",
            "a distribution over initialisations, averaged",
        ),
        Method(
            "mmaml",
            MMAML,
            2019,
            "Vuorio et al., NeurIPS",
            "MAML modulated by what the task looks like",
        ),
        Method(
            "prototypical",
            Prototypical,
            2017,
            "Snell et al., NeurIPS",
            "the class whose mean embedding is nearest",
            classes_only="it compares with the mean of each class",
        ),
        Method(
            "matching",
            partial(Matching, full_context=True),
            2016,
            _VINYALS,
            "labels weighed by attention, embeddings in context",
            classes_only=_WEIGHS_LABELS,
        ),
        Method(
            "matching-simple",
            partial(Matching, full_context=False),
            2016,
            _VINYALS,
            "the same, every image embedded on its own",
            classes_only=_WEIGHS_LABELS,
        ),
        Method(
            "versa", Versa, 2019, "Gordon et al., ICLR", "infers a task's last layer, uncertain"
        ),
        Method(
            "meta-lstm",
            MetaLSTM,
            2017,
            "Ravi & Larochelle, ICLR",
            "the inner loop's update rule is learned",
        ),
        Method(
            "llama",
            LLAMA,
            2018,
            "Grant et al., ICLR",
            "MAML with a Laplace approximation of each task",
        ),
        Method(
            "laplace",
            OnlineLaplace,
            2018,
            "Ritter et al., NeurIPS",
            "MAML held near the phases before",
        ),
        Method("ewc", EWC, 2017, "Kirkpatrick et al., PNAS", "MAML held by every past phase"),
        Method(
            "online-ewc",
            OnlineEWC,
            2018,
            "Schwarz et al., ICML",
            "MAML held where the last phase ended",
        ),
        Method("si", SI, 2017, "Zenke et al., ICML", "MAML held where moving had helped"),
        Method("vcl", VCL, 2018, "Nguyen et al., ICLR", "a posterior over MAML's initialisation"),
        Method(
            "replay",
            partial(
                SingleModel,
                task_model=Gradient(),
                meta_rate=1e-3,
                meta_clip=math.inf,
                reservoir=_KEPT,
            ),
            2019,
            "Chaudhry et al., arXiv",
            "MAML on new and kept tasks",
        ),
        Method(
            "c-maml",
            CMAML,
            2020,
            "Caccia et al., NeurIPS",
            "MAML whose fast weights are kept until a change is noticed",
        ),
    )
}


def method(name: str) -> Method:
    """The method of that name.

    >>> method("maml").year
    2017
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def methods_for(likelihood: Likelihood) -> tuple[str, ...]:
    """Names of the methods that can learn from targets of this kind."""
    classes = isinstance(likelihood, Categorical)
    return tuple(name for name, one in METHODS.items() if classes or not one.classes_only)


def build_learner(
    build: Build,
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    task_model: str | None = None,
) -> Learner:
    """A learner with the settings of an experiment it has a field for, and its ``own``.

    A learner that is written against task models gets the one asked for, or its usual one,
    as the experiment offers it.
    """
    learner = learner_class(build)
    fields = {field.name for field in dataclasses.fields(learner)}
    strangers = sorted(own.keys() - fields)
    if strangers:
        raise ValueError(
            f"{learner.__name__} has no setting {', '.join(strangers)}; it has "
            f"{', '.join(sorted(fields))}."
        )
    if task_model is not None and "task_model" not in fields:
        raise ValueError(
            f"{learner.__name__} has its own way to adapt; leave the task model {task_model} out."
        )
    return build(**{**given_settings(build, shared, task_model), **own})


def given_settings(
    build: Build, shared: Mapping[str, Any], task_model: str | None = None
) -> dict[str, Any]:
    """What a learner is given of an experiment, by the names of its fields."""
    learner = learner_class(build)
    fields = {field.name for field in dataclasses.fields(learner)}
    given = {name: value for name, value in shared.items() if name in fields}
    if "task_model" in fields:
        given |= _task_model_settings(build, shared, task_model)
    if issubclass(learner, OnlineMixture) and "kept" in shared:
        given |= {"reservoir": shared["kept"], "reference": shared["kept"]}
    return given


def task_model_of(build: Build) -> str | None:
    """Name of the task model that a learner has unless another is asked for."""
    fixed = build.keywords if isinstance(build, partial) else {}
    for field in dataclasses.fields(learner_class(build)):
        if field.name == "task_model":
            usual = type(fixed.get("task_model", field.default))
            return next((name for name, kind in TASK_MODELS.items() if kind is usual), None)
    return None


def _task_model_settings(
    build: Build, shared: Mapping[str, Any], asked: str | None
) -> dict[str, Any]:
    """The task model as the experiment offers it, and how it is learned best."""
    offered: Mapping[str, TaskModel] = shared.get("task_models", {})
    if asked is None and not offered:
        return {}
    name = asked or task_model_of(build) or ""
    if name == "gradient" and issubclass(learner_class(build), OnlineMixture):
        # It compares clusters with what is none, and how well a set is fitted is no probability.
        name = "calibrated-gradient"
    if name not in offered:
        raise unknown("task model", name, offered)
    settings: dict[str, Any] = {"task_model": offered[name]}
    if name == "bayesian-head":
        return settings | {"meta_rate": shared["head_rate"], "meta_clip": HEAD_CLIP}
    return settings | {"meta_clip": math.inf}


def learner_class(build: Build) -> Any:
    """The dataclass behind a method."""
    return build.func if isinstance(build, partial) else build
