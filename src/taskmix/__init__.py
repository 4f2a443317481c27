"""taskmix learns to learn from a stream of small tasks whose kind changes without notice.

>>> import taskmix as tm
>>> stream = tm.streams.regression(("linear", "sinusoid"), (4, 4), tasks=2)
>>> fitted = tm.fit("alpaca", stream, seeds=[0])
>>> prediction = fitted.predictor().predict([[0.0], [1.0]], [[1.0], [3.0]], [[2.0]])
>>> low, high = prediction.interval(0.9)

Names are imported when they are first used, so that ``import taskmix`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from taskmix.machine import ask_for_threads, quieten

__version__ = "0.2.0"

ask_for_threads()
quieten()

# Each name stands here and, for type checkers and editors, in the block below.
_HOMES = {
    "taskmix.adaptation": (
        "Adaptation",
        "BayesianHead",
        "CalibratedGradient",
        "Gradient",
        "RidgeHead",
    ),
    "taskmix.adaptation.task_model": ("TaskModel",),
    "taskmix.baselines": (
        *("CMAML", "EWC", "FirstOrderMAML", "LLAMA", "MAML", "MMAML", "MOCA", "MTNet", "Matching"),
        *("MetaLSTM", "OnlineEWC", "OnlineLaplace", "PLATIPUS", "PerFamily", "Prototypical"),
        *("SI", "SingleModel", "VCBML", "VCL", "Versa"),
    ),
    "taskmix.cli.resume": ("resume",),
    "taskmix.diagnosis": ("Diagnosis", "doctor"),
    "taskmix.estimator": ("TableLearner",),
    "taskmix.evaluation": ("Measure",),
    "taskmix.experiments": (
        *("EvolvingImages", "Experiment", "FewShot", "Fitted", "Method", "OwnStream", "Recipe"),
        *("Regression", "Shared", "compare", "fit"),
    ),
    "taskmix.experiments.extending": ("register",),
    "taskmix.experiments.group": ("Keeping",),
    "taskmix.experiments.launching": ("Launcher",),
    "taskmix.experiments.listing": ("methods",),
    "taskmix.experiments.loading": ("load",),
    "taskmix.experiments.sharing": ("Predictor", "export"),
    "taskmix.experiments.tuning": ("Tuned", "tune"),
    "taskmix.experiments.table_runs": ("predict_table", "run_table"),
    "taskmix.learner": ("Growing", "Info", "Learner", "Prediction", "Told", "protected"),
    "taskmix.likelihood": ("Categorical", "Gaussian", "Likelihood", "Poisson"),
    "taskmix.machine": ("join",),
    "taskmix.mixture": ("FiniteMixture", "OnlineMixture", "PaperMixture"),
    "taskmix.models": (
        *("Conv4", "Encoder", "EquinoxModel", "FlaxModel", "MLP", "Model", "Pair", "ResNet12"),
        "ResNetEncoder",
    ),
    "taskmix.reporting.comparison": ("comparison_figures",),
    "taskmix.reporting.contact_sheet": ("contact_sheet",),
    "taskmix.reporting.drawn": ("draw_figure",),
    "taskmix.reporting.image_predictions": ("predict_images",),
    "taskmix.reporting.report": ("report", "watch"),
    "taskmix.reporting.reproducing": (
        *("Training", "reproduce_figure", "reproduce_stress", "reproduce_table"),
    ),
    "taskmix.streams": ("FunctionStream", "ImageStream", "Stream"),
    "taskmix.streams.filters": ("register_filter",),
    "taskmix.tasks": ("Examples", "Hints", "TaskBatch", "check_batch"),
    "taskmix.training": ("Settings",),
    "taskmix.training.live": ("Live",),
}
_MODULES = ("stores", "streams", "testing")

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(["__version__", *_HOME_OF, *_MODULES])

if TYPE_CHECKING:
    from taskmix import stores as stores
    from taskmix import streams as streams
    from taskmix import testing as testing
    from taskmix.adaptation import Adaptation as Adaptation
    from taskmix.adaptation import BayesianHead as BayesianHead
    from taskmix.adaptation import CalibratedGradient as CalibratedGradient
    from taskmix.adaptation import Gradient as Gradient
    from taskmix.adaptation import RidgeHead as RidgeHead
    from taskmix.adaptation.task_model import TaskModel as TaskModel
    from taskmix.baselines import CMAML as CMAML
    from taskmix.baselines import EWC as EWC
    from taskmix.baselines import LLAMA as LLAMA
    from taskmix.baselines import MAML as MAML
    from taskmix.baselines import MMAML as MMAML
    from taskmix.baselines import MOCA as MOCA
    from taskmix.baselines import PLATIPUS as PLATIPUS
    from taskmix.baselines import SI as SI
    from taskmix.baselines import VCBML as VCBML
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
    from taskmix.cli.resume import resume as resume
    from taskmix.diagnosis import Diagnosis as Diagnosis
    from taskmix.diagnosis import doctor as doctor
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
    from taskmix.experiments.launching import Launcher as Launcher
    from taskmix.experiments.listing import methods as methods
    from taskmix.experiments.loading import load as load
    from taskmix.experiments.sharing import Predictor as Predictor
    from taskmix.experiments.sharing import export as export
    from taskmix.experiments.table_runs import predict_table as predict_table
    from taskmix.experiments.table_runs import run_table as run_table
    from taskmix.experiments.tuning import Tuned as Tuned
    from taskmix.experiments.tuning import tune as tune
    from taskmix.learner import Growing as Growing
    from taskmix.learner import Info as Info
    from taskmix.learner import Learner as Learner
    from taskmix.learner import Prediction as Prediction
    from taskmix.learner import Told as Told
    from taskmix.learner import protected as protected
    from taskmix.likelihood import Categorical as Categorical
    from taskmix.likelihood import Gaussian as Gaussian
    from taskmix.likelihood import Likelihood as Likelihood
    from taskmix.likelihood import Poisson as Poisson
    from taskmix.machine import join as join
    from taskmix.mixture import FiniteMixture as FiniteMixture
    from taskmix.mixture import OnlineMixture as OnlineMixture
    from taskmix.mixture import PaperMixture as PaperMixture
    from taskmix.models import MLP as MLP
    from taskmix.models import Conv4 as Conv4
    from taskmix.models import Encoder as Encoder
    from taskmix.models import EquinoxModel as EquinoxModel
    from taskmix.models import FlaxModel as FlaxModel
    from taskmix.models import Model as Model
    from taskmix.models import Pair as Pair
    from taskmix.models import ResNet12 as ResNet12
    from taskmix.models import ResNetEncoder as ResNetEncoder
    from taskmix.reporting.comparison import comparison_figures as comparison_figures
    from taskmix.reporting.contact_sheet import contact_sheet as contact_sheet
    from taskmix.reporting.drawn import draw_figure as draw_figure
    from taskmix.reporting.image_predictions import predict_images as predict_images
    from taskmix.reporting.report import report as report
    from taskmix.reporting.report import watch as watch
    from taskmix.reporting.reproducing import Training as Training
    from taskmix.reporting.reproducing import reproduce_figure as reproduce_figure
    from taskmix.reporting.reproducing import reproduce_stress as reproduce_stress
    from taskmix.reporting.reproducing import reproduce_table as reproduce_table
    from taskmix.streams import FunctionStream as FunctionStream
    from taskmix.streams import ImageStream as ImageStream
    from taskmix.streams import Stream as Stream
    from taskmix.streams.filters import register_filter as register_filter
    from taskmix.tasks import Examples as Examples
    from taskmix.tasks import Hints as Hints
    from taskmix.tasks import TaskBatch as TaskBatch
    from taskmix.tasks import check_batch as check_batch
    from taskmix.training import Settings as Settings
    from taskmix.training.live import Live as Live


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
