"""Every method by its name. To add one: write its learner in a file, and one entry here."""

from __future__ import annotations

import math
from typing import Any

from taskmix.adaptation import BayesianHead, Gradient, RidgeHead
from taskmix.baselines import (
    CMAML,
    EWC,
    LLAMA,
    MAML,
    MMAML,
    MOCA,
    PLATIPUS,
    SI,
    VCBML,
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
from taskmix.experiments.recipes import Method, Recipe, as_method
from taskmix.experiments.shared import BY_LOOKS, HEAD_CLIP
from taskmix.likelihood import Categorical, Likelihood
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture
from taskmix.registry import Registry

METHODS: Registry[Method] = Registry("method", "taskmix.learners", as_method)
"""Every method by its name."""


def _taking(*names: str) -> dict[str, str]:
    """Fields of a learner that are called as in ``Shared``."""
    return {name: name for name in names}


_NETWORK = _taking("model", "likelihood", "meta_rate", "anneal_over")
_STEPS = _NETWORK | _taking("adaptation")
_CLUSTERS = _taking("anneal_over")
_FAMILIES = _CLUSTERS | _taking("families")
_EMBEDDING = _taking("model", "likelihood", "meta_rate")
_REHEARSAL = _taking("rehearsed")


def _initialisation(learner: Any, **fixed: Any) -> Recipe:
    return Recipe(learner, _STEPS, fixed)


def _network(learner: Any, **fixed: Any) -> Recipe:
    return Recipe(learner, _NETWORK, fixed)


def _single(**fixed: Any) -> Recipe:
    return Recipe(SingleModel, _CLUSTERS, fixed, suggested=_REHEARSAL)


def _per_family(**fixed: Any) -> Recipe:
    return Recipe(PerFamily, _FAMILIES, fixed, suggested=_REHEARSAL)


def _finite(**fixed: Any) -> Recipe:
    return Recipe(FiniteMixture, _CLUSTERS, fixed)


def _paper(**fixed: Any) -> Recipe:
    """The global prior is first taken, and then refreshed, after as long as a warm-up."""
    pace = {"warm_up": "warming", "refresh_every": "warming", "cool_down": "cooling"}
    return Recipe(PaperMixture, _CLUSTERS, fixed, suggested=pace)


def _online(**fixed: Any) -> Recipe:
    """It compares clusters with what is none, and how well a set is fitted is no probability."""
    return Recipe(
        OnlineMixture,
        _CLUSTERS,
        fixed,
        suggested={"reservoir": "kept", "reference": "kept"} | _REHEARSAL | _taking(*BY_LOOKS),
        instead={"gradient": "calibrated-gradient"},
        fitting=True,
    )


_FINN = "Finn et al., ICML"
_LEE = "Lee & Choi, ICML"
_JERFEL = "Jerfel et al., NeurIPS"
_VINYALS = "Vinyals et al., NeurIPS"
_HARRISON = "Harrison et al., WAFR"
_BERTINETTO = "Bertinetto et al., ICLR"
_HEAD: dict[str, Any] = {"task_model": BayesianHead(), "meta_rate": 2e-3, "meta_clip": HEAD_CLIP}
_RIDGE = _HEAD | {"task_model": RidgeHead()}
_KEPT = 40
"""Tasks in a reservoir."""
_CLOSED_FORM = "it regresses on the labels of images"
_WEIGHS_LABELS = "it gives a query the labels of its support set"

_OWN = (
    Method(
        "nonparametric",
        _online(boundaries=False),
        2019,
        _JERFEL,
        "a mixture that opens a cluster when none fits",
        paper=_paper(boundaries=False),
    ),
    Method(
        "task-aware",
        _online(boundaries=True),
        2019,
        _JERFEL,
        "the same, told when a phase begins",
        paper=_paper(boundaries=True),
    ),
    Method("mixture", _finite(), 2019, _JERFEL, "a mixture of a fixed number of clusters"),
    Method(
        "uniform",
        _finite(temperature=math.inf),
        2019,
        _JERFEL,
        "the same, each task shared equally by all clusters",
    ),
    Method("maml", _initialisation(MAML), 2017, _FINN, "one initialisation for every task"),
    Method(
        "fomaml",
        _initialisation(FirstOrderMAML),
        2017,
        _FINN,
        "the same, inner gradients taken as constants",
    ),
    Method(
        "maml-per-family",
        _per_family(),
        2017,
        _FINN,
        "one MAML per family, told which: a floor",
    ),
    Method("alpaca", _single(), 2018, _HARRISON, "one Bayesian last layer for every task"),
    Method(
        "alpaca-replay",
        _single(reservoir=_KEPT),
        2018,
        _HARRISON,
        "the same on new and kept tasks",
    ),
    Method(
        "alpaca-per-family",
        _per_family(**_HEAD),
        2018,
        _HARRISON,
        "one Bayesian last layer per family, told which: a floor",
    ),
    Method(
        "alpaca-per-family-replay",
        _per_family(**_HEAD, reservoir=_KEPT),
        2018,
        _HARRISON,
        "the same on new and kept tasks of each family",
    ),
    Method(
        "r2d2",
        _single(**_RIDGE),
        2019,
        _BERTINETTO,
        "ridge regression on learned features of images",
        classes_only=_CLOSED_FORM,
    ),
    Method(
        "r2d2-replay",
        _single(**_RIDGE, reservoir=_KEPT),
        2019,
        _BERTINETTO,
        "the same on new and kept tasks",
        classes_only=_CLOSED_FORM,
    ),
    Method(
        "r2d2-per-family",
        _per_family(**_RIDGE),
        2019,
        _BERTINETTO,
        "one such head per family, told which: a floor",
        classes_only=_CLOSED_FORM,
    ),
    Method("mt-net", _initialisation(MTNet), 2018, _LEE, "MAML with learned metric and masks"),
    Method(
        "t-net",
        _initialisation(MTNet, masked=False),
        2018,
        _LEE,
        "MAML with learned layerwise metric",
    ),
    Method(
        "platipus",
        _initialisation(PLATIPUS),
        2018,
        "Finn et al., NeurIPS",
        "a distribution over initialisations, averaged",
    ),
    Method(
        "mmaml",
        _initialisation(MMAML),
        2019,
        "Vuorio et al., NeurIPS",
        "MAML modulated by what the task looks like",
    ),
    Method(
        "prototypical",
        Recipe(Prototypical, _EMBEDDING),
        2017,
        "Snell et al., NeurIPS",
        "the class whose mean embedding is nearest",
        classes_only="it compares with the mean of each class",
    ),
    Method(
        "matching",
        _network(Matching, full_context=True),
        2016,
        _VINYALS,
        "labels weighed by attention, embeddings in context",
        classes_only=_WEIGHS_LABELS,
    ),
    Method(
        "matching-simple",
        _network(Matching, full_context=False),
        2016,
        _VINYALS,
        "the same, every image embedded on its own",
        classes_only=_WEIGHS_LABELS,
    ),
    Method(
        "versa",
        _network(Versa),
        2019,
        "Gordon et al., ICLR",
        "infers a task's last layer, uncertain",
    ),
    Method(
        "meta-lstm",
        Recipe(MetaLSTM, _NETWORK, suggested={"updates": "rule_updates"}),
        2017,
        "Ravi & Larochelle, ICLR",
        "the inner loop's update rule is learned",
    ),
    Method(
        "llama",
        _initialisation(LLAMA),
        2018,
        "Grant et al., ICLR",
        "MAML with a Laplace approximation of each task",
    ),
    Method(
        "laplace",
        _initialisation(OnlineLaplace),
        2018,
        "Ritter et al., NeurIPS",
        "MAML held near the phases before",
    ),
    Method(
        "ewc",
        _initialisation(EWC),
        2017,
        "Kirkpatrick et al., PNAS",
        "MAML held by every past phase",
    ),
    Method(
        "online-ewc",
        _initialisation(OnlineEWC),
        2018,
        "Schwarz et al., ICML",
        "MAML held where the last phase ended",
    ),
    Method(
        "si", _initialisation(SI), 2017, "Zenke et al., ICML", "MAML held where moving had helped"
    ),
    Method(
        "vcl",
        _initialisation(VCL),
        2018,
        "Nguyen et al., ICLR",
        "a posterior over MAML's initialisation",
    ),
    Method(
        "replay",
        _single(
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
        "moca",
        Recipe(MOCA, _CLUSTERS),
        2020,
        "Harrison et al., NeurIPS",
        "ALPaCA whose prior follows the tasks since the last change",
        numbers_only="class numbers of one task mean nothing in the next",
    ),
    Method(
        "vc-bml",
        _initialisation(VCBML),
        2021,
        "Zhang et al., NeurIPS",
        "a truncated Dirichlet process of normal initialisations",
    ),
    Method(
        "c-maml",
        _initialisation(CMAML),
        2020,
        "Caccia et al., NeurIPS",
        "MAML whose fast weights are kept until a change is noticed",
    ),
)

for _method in _OWN:
    METHODS.register(_method.name, _method)


def method(name: str) -> Method:
    """The method of that name.

    >>> method("maml").year
    2017
    """
    return METHODS.find(name)


def methods_for(likelihood: Likelihood) -> tuple[str, ...]:
    """Names of the methods that can learn from targets of this kind."""
    classes = isinstance(likelihood, Categorical)
    return tuple(
        name
        for name, one in METHODS.items()
        if not (one.numbers_only if classes else one.classes_only)
    )
