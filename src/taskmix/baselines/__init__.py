"""Systems to compare with, one a file."""

from taskmix.baselines.maml import MAML as MAML
from taskmix.baselines.per_family import MAMLPerFamily as MAMLPerFamily
