"""The meta-test protocol, and measures of clusters, of forgetting and of noticing what is new."""

from taskmix.evaluation.clustering import adjusted_rand_index as adjusted_rand_index
from taskmix.evaluation.clustering import (
    normalised_mutual_information as normalised_mutual_information,
)
from taskmix.evaluation.clustering import purity as purity
from taskmix.evaluation.continual import OwnClusterError as OwnClusterError
from taskmix.evaluation.continual import forgetting as forgetting
from taskmix.evaluation.continual import forgetting_from_best as forgetting_from_best
from taskmix.evaluation.continual import last_active as last_active
from taskmix.evaluation.continual import own_cluster_error as own_cluster_error
from taskmix.evaluation.continual import prequential as prequential
from taskmix.evaluation.detection import ALARM_GRACE as ALARM_GRACE
from taskmix.evaluation.detection import Detection as Detection
from taskmix.evaluation.detection import area_under_roc as area_under_roc
from taskmix.evaluation.detection import detection as detection
from taskmix.evaluation.detection import shifts as shifts
from taskmix.evaluation.history import History as History
from taskmix.evaluation.intervals import OVER_SEEDS as OVER_SEEDS
from taskmix.evaluation.intervals import OVER_TASKS as OVER_TASKS
from taskmix.evaluation.intervals import over_seeds as over_seeds
from taskmix.evaluation.intervals import over_tasks as over_tasks
from taskmix.evaluation.measures import MEASURES as MEASURES
from taskmix.evaluation.measures import Course as Course
from taskmix.evaluation.measures import Measure as Measure
from taskmix.evaluation.measures import computed as computed
from taskmix.evaluation.measures import further_measures as further_measures
from taskmix.evaluation.protocol import SHOWN as SHOWN
from taskmix.evaluation.protocol import Details as Details
from taskmix.evaluation.protocol import Evaluation as Evaluation
from taskmix.evaluation.protocol import calibration as calibration
from taskmix.evaluation.protocol import evaluate as evaluate
from taskmix.evaluation.protocol import family_measures as family_measures
