"""The paper's settings as data, the methods by name, and what runs of them come to."""

from taskmix.experiments.catalogue import EXPERIMENTS as EXPERIMENTS
from taskmix.experiments.catalogue import default_experiment as default_experiment
from taskmix.experiments.experiment import Experiment as Experiment
from taskmix.experiments.images import EvolvingImages as EvolvingImages
from taskmix.experiments.images import FewShot as FewShot
from taskmix.experiments.methods import METHODS as METHODS
from taskmix.experiments.methods import Method as Method
from taskmix.experiments.methods import build_learner as build_learner
from taskmix.experiments.methods import method as method
from taskmix.experiments.methods import methods_for as methods_for
from taskmix.experiments.regression import Regression as Regression
from taskmix.experiments.run import run_method as run_method
from taskmix.experiments.summary import compare as compare
from taskmix.experiments.summary import summarise as summarise
