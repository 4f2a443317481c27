"""What remains of a family after the stream has moved on.

Evaluations are lists in step: ``iterations[e]`` is how many iterations had been learned
from when evaluation ``e`` took place, so a phase's end is the evaluation at its ``stop``.
An error of None (not finite, as written to JSON) counts as NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from taskmix.streams.stream import Phase


@dataclasses.dataclass(frozen=True)
class OwnClusterError:
    """Error of the cluster that owned a family, apart from any routing between clusters."""

    cluster: int
    at_phase_end: float
    final: float


def last_active(phases: Sequence[Phase], family: str) -> Phase:
    """The last phase in which the family is active."""
    for phase in reversed(phases):
        if family in phase.families:
            return phase
    known = sorted({name for phase in phases for name in phase.families})
    raise ValueError(f"Family {family!r} is active in no phase; the phases have {known}.")


def forgetting(
    iterations: Sequence[int] | np.ndarray,
    error: Sequence[float | None] | np.ndarray,
    phases: Sequence[Phase],
    family: str,
) -> float:
    """Error at the end of training minus error at the end of the family's last active phase.

    Positive is worse; 0 for a family that is active at the end.
    """
    error = np.asarray(error, dtype=float)
    return float(error[-1] - error[_evaluation_at(iterations, last_active(phases, family).stop)])


def forgetting_from_best(error: Sequence[float | None] | np.ndarray) -> float:
    """Error at the end of training minus the smallest error of any evaluation, so never negative.

    A. Chaudhry et al.: Riemannian walk for incremental learning. ECCV 2018 (there for
    accuracies, and for evaluations at phase ends only).
    """
    error = np.asarray(error, dtype=float)
    return float(error[-1] - np.nanmin(error))


def own_cluster_error(
    iterations: Sequence[int] | np.ndarray,
    error: Float[np.ndarray, "evaluations clusters"],
    cluster: int,
    phase: Phase,
) -> OwnClusterError:
    """Error of a family's owner alone, at the end of its last active ``phase`` and at the end."""
    own = np.asarray(error, dtype=float)[:, cluster]
    return OwnClusterError(
        cluster, float(own[_evaluation_at(iterations, phase.stop)]), float(own[-1])
    )


def prequential(
    error: Float[np.ndarray, "iterations tasks"],
    family: Int[np.ndarray, "iterations tasks"],
    families: Sequence[str],
) -> dict[str, float]:
    """Mean error of each family's tasks, each predicted before it was learned from.

    Families that did not occur are left out, and so are tasks whose error is NaN: they were
    neither predicted nor learned from.

    A. P. Dawid: Statistical theory: the prequential approach. JRSS A 147, 1984.
    """
    error, family = np.asarray(error, dtype=float), np.asarray(family)
    known = ~np.isnan(error)
    return {
        name: float(error[known & (family == index)].mean())
        for index, name in enumerate(families)
        if (known & (family == index)).any()
    }


def _evaluation_at(iterations: Sequence[int] | np.ndarray, iteration: int) -> int:
    found = np.flatnonzero(np.asarray(iterations) == iteration)
    if found.size == 0:
        raise ValueError(
            f"There is no evaluation at iteration {iteration}; evaluate at the end of every phase."
        )
    return int(found[0])
