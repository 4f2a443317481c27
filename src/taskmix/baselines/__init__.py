"""Systems to compare with, one a file."""

from taskmix.baselines.c_maml import CMAML as CMAML
from taskmix.baselines.ewc import EWC as EWC
from taskmix.baselines.ewc import OnlineEWC as OnlineEWC
from taskmix.baselines.maml import MAML as MAML
from taskmix.baselines.per_family import MAMLPerFamily as MAMLPerFamily
from taskmix.baselines.replay import Replay as Replay
from taskmix.baselines.si import SI as SI
from taskmix.baselines.vcl import VCL as VCL
