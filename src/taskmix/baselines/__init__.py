"""Systems to compare with, one a file."""

from taskmix.baselines.maml import MAML as MAML
from taskmix.baselines.matching import Matching as Matching
from taskmix.baselines.per_family import MAMLPerFamily as MAMLPerFamily
from taskmix.baselines.prototypical import Prototypical as Prototypical
from taskmix.baselines.versa import Versa as Versa
