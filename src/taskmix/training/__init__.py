"""The training loop and what it leaves behind."""

from taskmix.training.loop import train as train
from taskmix.training.moments import Chunk as Chunk
from taskmix.training.moments import Pause as Pause
from taskmix.training.moments import Settings as Settings
from taskmix.training.moments import Start as Start
from taskmix.training.moments import run_keys as run_keys
from taskmix.training.progress import TrainingProgress as TrainingProgress
from taskmix.training.record import Record as Record
from taskmix.training.run_folder import RunFolder as RunFolder
from taskmix.training.step import step as step
from taskmix.training.watch import Stopped as Stopped
