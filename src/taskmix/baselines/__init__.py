"""Systems to compare with, one a file."""

from taskmix.baselines.laplace import OnlineLaplace as OnlineLaplace
from taskmix.baselines.llama import LLAMA as LLAMA
from taskmix.baselines.maml import MAML as MAML
from taskmix.baselines.meta_lstm import MetaLSTM as MetaLSTM
from taskmix.baselines.per_family import MAMLPerFamily as MAMLPerFamily
