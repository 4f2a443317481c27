"""taskmix learns to learn from a stream of small tasks whose kind changes without notice.

>>> import taskmix as tm
>>> stream = tm.streams.regression(("linear", "sinusoid"), (4, 4), tasks=2)
>>> fitted = tm.fit("alpaca", stream, seeds=[0])
>>> prediction = fitted.predictor().predict([[0.0], [1.0]], [[1.0], [3.0]], [[2.0]])
>>> low, high = prediction.interval(0.9)

Names are imported when they are first used, so that ``import taskmix`` takes no time.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# JAX lets the factorisation of a batch of matrices wait, in a thread of its pool, for work that
# only threads of this pool do. When as many wait as there are threads, they wait for ever (seen
# with JAX 0.10.1 and two threads). So there have to be more of them than can wait.
os.environ.setdefault("PJRT_NPROC", str(max(8, os.cpu_count() or 1)))

# Each name stands here and, for type checkers and editors, in the block below.
_HOMES = {
    "taskmix.adaptation": ("Adaptation", "BayesianHead", "CalibratedGradient", "Gradient"),
    "taskmix.adaptation.task_model": ("TaskModel",),
    "taskmix.baselines": (
        *("CMAML", "EWC", "FirstOrderMAML", "LLAMA", "MAML", "MMAML", "MTNet", "Matching"),
        *("MetaLSTM", "OnlineEWC", "OnlineLaplace", "PLATIPUS", "PerFamily", "Prototypical"),
        *("SI", "SingleModel", "VCL", "Versa"),
    ),
    "taskmix.estimator": ("TableLearner",),
    "taskmix.evaluation": ("Measure",),
    "taskmix.experiments": (
        *("EvolvingImages", "Experiment", "FewShot", "Fitted", "Method", "OwnStream", "Recipe"),
        *("Regression", "Shared", "compare", "fit"),
    ),
    "taskmix.experiments.extending": ("register",),
    "taskmix.experiments.group": ("Keeping",),
    "taskmix.experiments.loading": ("load",),
    "taskmix.experiments.sharing": ("Predictor", "export"),
    "taskmix.learner": ("Growing", "Info", "Learner", "Prediction", "Told"),
    "taskmix.likelihood": ("Categorical", "Gaussian", "Likelihood", "Poisson"),
    "taskmix.mixture": ("FiniteMixture", "OnlineMixture", "PaperMixture"),
    "taskmix.models": (
        *("Conv4", "EquinoxModel", "FlaxModel", "MLP", "Model", "Pair", "ResNet12"),
    ),
    "taskmix.streams": ("FunctionStream", "ImageStream", "Stream"),
    "taskmix.tasks": ("Examples", "Hints", "TaskBatch", "check_batch"),
    "taskmix.training": ("Settings",),
}
_MODULES = ("streams", "testing")

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(["__version__", *_HOME_OF, *_MODULES])

if TYPE_CHECKING:
    from taskmix import streams as streams
    from taskmix import testing as testing
    from taskmix.adaptation import Adaptation as Adaptation
    from taskmix.adaptation import BayesianHead as BayesianHead
    from taskmix.adaptation import CalibratedGradient as CalibratedGradient
    from taskmix.adaptation import Gradient as Gradient
    from taskmix.adaptation.task_model import TaskModel as TaskModel
    from taskmix.baselines import CMAML as CMAML
    from taskmix.baselines import EWC as EWC
    from taskmix.baselines import LLAMA as LLAMA
    from taskmix.baselines import MAML as MAML
    from taskmix.baselines import MMAML as MMAML
    from taskmix.baselines import PLATIPUS as PLATIPUS
    from taskmix.baselines import SI as SI
    from taskmix.baselines import VCL as VCL
    from taskmix.baselines import FirstOrderMAML as FirstOrderMAML
    from taskmix.baselines import Matching as Matching
    from taskmix.baselines import MetaLSTM as MetaLSTM
    from taskmix.baselines import MTNet as MTNet
    from taskmix.baselines import OnlineEWC as OnlineEWC
    from taskmix.baselines import OnlineLaplace as OnlineLaplace
    from taskmix.baselines import PerFamily as PerFamily
    from taskmix.baselines import Prototypical as Prototypical
    from taskmix.baselines import SingleModel as SingleModel
    from taskmix.baselines import Versa as Versa
    from taskmix.estimator import TableLearner as TableLearner
    from taskmix.evaluation import Measure as Measure
    from taskmix.experiments import EvolvingImages as EvolvingImages
    from taskmix.experiments import Experiment as Experiment
    from taskmix.experiments import FewShot as FewShot
    from taskmix.experiments import Fitted as Fitted
    from taskmix.experiments import Method as Method
    from taskmix.experiments import OwnStream as OwnStream
    from taskmix.experiments import Recipe as Recipe
    from taskmix.experiments import Regression as Regression
    from taskmix.experiments import Shared as Shared
    from taskmix.experiments import compare as compare
    from taskmix.experiments import fit as fit
    from taskmix.experiments.extending import register as register
    from taskmix.experiments.group import Keeping as Keeping
    from taskmix.experiments.loading import load as load
    from taskmix.experiments.sharing import Predictor as Predictor
    from taskmix.experiments.sharing import export as export
    from taskmix.learner import Growing as Growing
    from taskmix.learner import Info as Info
    from taskmix.learner import Learner as Learner
    from taskmix.learner import Prediction as Prediction
    from taskmix.learner import Told as Told
    from taskmix.likelihood import Categorical as Categorical
    from taskmix.likelihood import Gaussian as Gaussian
    from taskmix.likelihood import Likelihood as Likelihood
    from taskmix.likelihood import Poisson as Poisson
    from taskmix.mixture import FiniteMixture as FiniteMixture
    from taskmix.mixture import OnlineMixture as OnlineMixture
    from taskmix.mixture import PaperMixture as PaperMixture
    from taskmix.models import MLP as MLP
    from taskmix.models import Conv4 as Conv4
    from taskmix.models import EquinoxModel as EquinoxModel
    from taskmix.models import FlaxModel as FlaxModel
    from taskmix.models import Model as Model
    from taskmix.models import Pair as Pair
    from taskmix.models import ResNet12 as ResNet12
    from taskmix.streams import FunctionStream as FunctionStream
    from taskmix.streams import ImageStream as ImageStream
    from taskmix.streams import Stream as Stream
    from taskmix.tasks import Examples as Examples
    from taskmix.tasks import Hints as Hints
    from taskmix.tasks import TaskBatch as TaskBatch
    from taskmix.tasks import check_batch as check_batch
    from taskmix.training import Settings as Settings


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"taskmix.{name}")
    if name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'taskmix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
