"""Streams of task batches: pure functions of (key, iteration).

Examples
--------
>>> import taskmix as tm
>>> tm.streams.regression(("linear",), (10,)).families
('linear',)
"""

from taskmix.streams.function_stream import FunctionStream as FunctionStream
from taskmix.streams.function_stream import paper_stream as paper_stream
from taskmix.streams.function_stream import regression as regression
from taskmix.streams.functions import FAMILIES as FAMILIES
from taskmix.streams.functions import Family as Family
from taskmix.streams.functions import family as family
from taskmix.streams.image_features import image_features as image_features
from taskmix.streams.image_statistics import image_statistics as image_statistics
from taskmix.streams.images import ImageSet as ImageSet
from taskmix.streams.images import ImageStream as ImageStream
from taskmix.streams.schedule import Schedule as Schedule
from taskmix.streams.schedule import consecutive as consecutive
from taskmix.streams.schedule import gradual as gradual
from taskmix.streams.schedule import interleaved as interleaved
from taskmix.streams.schedule import ordered as ordered
from taskmix.streams.schedule import recurring as recurring
from taskmix.streams.stream import Phase as Phase
from taskmix.streams.stream import Stream as Stream
from taskmix.streams.until import Until as Until
