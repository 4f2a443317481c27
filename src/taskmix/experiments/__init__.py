"""The paper's settings as data, the methods by name, and what runs of them come to."""

from taskmix.experiments.catalogue import EXPERIMENTS as EXPERIMENTS
from taskmix.experiments.catalogue import default_experiment as default_experiment
from taskmix.experiments.comparison import compare as compare
from taskmix.experiments.experiment import Experiment as Experiment
from taskmix.experiments.fitting import Fitted as Fitted
from taskmix.experiments.fitting import fit as fit
from taskmix.experiments.images import EvolvingImages as EvolvingImages
from taskmix.experiments.images import FewShot as FewShot
from taskmix.experiments.methods import METHODS as METHODS
from taskmix.experiments.methods import method as method
from taskmix.experiments.methods import methods_for as methods_for
from taskmix.experiments.own_stream import OwnStream as OwnStream
from taskmix.experiments.recipes import TASK_MODELS as TASK_MODELS
from taskmix.experiments.recipes import Method as Method
from taskmix.experiments.recipes import Recipe as Recipe
from taskmix.experiments.regression import Regression as Regression
from taskmix.experiments.run import run_method as run_method
from taskmix.experiments.shared import Shared as Shared
from taskmix.experiments.summary import combined as combined
from taskmix.experiments.summary import summarise as summarise
