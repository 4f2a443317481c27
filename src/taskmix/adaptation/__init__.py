"""From a cluster and a support set to a prediction: the task models."""

from taskmix.adaptation.bayesian_head import BayesianHead as BayesianHead
from taskmix.adaptation.calibrated import CalibratedGradient as CalibratedGradient
from taskmix.adaptation.gradient import Adaptation as Adaptation
from taskmix.adaptation.gradient import Gradient as Gradient
from taskmix.adaptation.gradient import adapted_loss as adapted_loss
from taskmix.adaptation.gradient import clip_scale as clip_scale
from taskmix.adaptation.gradient import meta_gradient as meta_gradient
from taskmix.adaptation.gradient import meta_gradient_moments as meta_gradient_moments
from taskmix.adaptation.gradient import task_loss as task_loss
from taskmix.adaptation.means import mean_gradient as mean_gradient
from taskmix.adaptation.means import mean_of_gradients as mean_of_gradients
from taskmix.adaptation.means import one_after_the_other as one_after_the_other
from taskmix.adaptation.means import query_result as query_result
from taskmix.adaptation.optimiser import MetaOptimiser as MetaOptimiser
from taskmix.adaptation.optimiser import annealed_optimiser as annealed_optimiser
from taskmix.adaptation.ridge_head import RidgeHead as RidgeHead
from taskmix.adaptation.task_model import (
    Judgement as Judgement,
)
from taskmix.adaptation.task_model import (
    Predictive as Predictive,
)
from taskmix.adaptation.task_model import (
    TaskModel as TaskModel,
)
from taskmix.adaptation.task_model import (
    TaskResult as TaskResult,
)
from taskmix.adaptation.task_model import (
    over_rows as over_rows,
)
from taskmix.adaptation.task_model import (
    together as together,
)
