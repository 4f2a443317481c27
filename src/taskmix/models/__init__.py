"""Networks: a pair of init and apply, whose parameters are a pytree."""

from taskmix.models.mlp import MLP as MLP
from taskmix.models.model import Model as Model
from taskmix.models.model import parameter_count as parameter_count
