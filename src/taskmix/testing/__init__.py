"""What every learner owes to the loop, the evaluation and the reports, to be checked by anyone.

Each function of ``CHECKS`` takes a ``Trial`` and raises an ``AssertionError`` that says what is
not as the contract has it. ``check_learner`` calls them all.

Examples
--------
>>> import taskmix as tm
>>> tm.testing.check_learner(tm.SingleModel(tm.Gradient(tm.MLP(hidden=(4,)))))
"""

from __future__ import annotations

from taskmix.learner import Learner
from taskmix.streams import Stream
from taskmix.testing.checks import CHECKS as CHECKS
from taskmix.testing.trial import Trial as Trial


def check_learner(learner: Learner, stream: Stream | None = None) -> None:
    """Raise an ``AssertionError`` that names what a learner owes and does not do.

    Parameters
    ----------
    learner
        The learner, best with a small network: it is compiled several times.
    stream
        What it is tried on, with at least two tasks per batch; small regression tasks if there
        is none. A learner of classes needs a stream of classes.

    Examples
    --------
    >>> import taskmix as tm
    >>> tm.testing.check_learner(tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1)))
    """
    trial = Trial(learner, stream)
    for check in CHECKS:
        try:
            check(trial)
        except AssertionError as error:
            raise AssertionError(f"{type(learner).__name__}: {error} ({check.__name__})") from error
