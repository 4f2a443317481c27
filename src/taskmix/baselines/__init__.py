"""Systems to compare with, one per file."""

from taskmix.baselines.alpaca import SingleModel as SingleModel
from taskmix.baselines.c_maml import CMAML as CMAML
from taskmix.baselines.ewc import EWC as EWC
from taskmix.baselines.ewc import OnlineEWC as OnlineEWC
from taskmix.baselines.laplace import OnlineLaplace as OnlineLaplace
from taskmix.baselines.llama import LLAMA as LLAMA
from taskmix.baselines.maml import MAML as MAML
from taskmix.baselines.maml import FirstOrderMAML as FirstOrderMAML
from taskmix.baselines.matching import Matching as Matching
from taskmix.baselines.meta_lstm import MetaLSTM as MetaLSTM
from taskmix.baselines.mmaml import MMAML as MMAML
from taskmix.baselines.moca import MOCA as MOCA
from taskmix.baselines.mt_net import MTNet as MTNet
from taskmix.baselines.per_family import PerFamily as PerFamily
from taskmix.baselines.platipus import PLATIPUS as PLATIPUS
from taskmix.baselines.prototypical import Prototypical as Prototypical
from taskmix.baselines.si import SI as SI
from taskmix.baselines.vc_bml import VCBML as VCBML
from taskmix.baselines.vcl import VCL as VCL
from taskmix.baselines.versa import Versa as Versa
