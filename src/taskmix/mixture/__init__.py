"""The paper, one idea a file."""

from taskmix.mixture.finite import FiniteMixture as FiniteMixture
from taskmix.mixture.online import OnlineMixture as OnlineMixture
from taskmix.mixture.paper import PaperMixture as PaperMixture
