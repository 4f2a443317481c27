"""Networks: a pair of init and apply, whose parameters are a pytree."""

from taskmix.models.conv4 import Conv4 as Conv4
from taskmix.models.encoder import Encoder as Encoder
from taskmix.models.foreign import EquinoxModel as EquinoxModel
from taskmix.models.foreign import FlaxModel as FlaxModel
from taskmix.models.foreign import Pair as Pair
from taskmix.models.lstm import LSTM as LSTM
from taskmix.models.mlp import MLP as MLP
from taskmix.models.model import Embedder as Embedder
from taskmix.models.model import Model as Model
from taskmix.models.model import TappedModel as TappedModel
from taskmix.models.model import is_layer as is_layer
from taskmix.models.model import outputs_of as outputs_of
from taskmix.models.model import parameter_count as parameter_count
from taskmix.models.model import units_of as units_of
from taskmix.models.repeated import check_repeated as check_repeated
from taskmix.models.resnet12 import ResNet12 as ResNet12
from taskmix.models.resnet12 import ResNetEncoder as ResNetEncoder
from taskmix.registry import Registry

MODELS: Registry[type] = Registry("network", "taskmix.models")
"""Every network that can be chosen by its name, as a class with `fitting(shape, outputs)`."""
MODELS.register("mlp", MLP)
MODELS.register("conv4", Conv4)
MODELS.register("resnet12", ResNet12)
