"""What the measures of a whole run need of its iterations, gathered while they pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from taskmix.streams.stream import Phase

OWNER_WINDOW = 100
"""Iterations before the end of a phase over which a family's owner is determined."""
RETURN_WINDOW = 10
RETURN_MAJORITY = 9
UNKNOWN = -1


@dataclasses.dataclass
class History:
    """Sums over the stream; how many they are depends on its phases, not on its iterations.

    The last of the rows called "and all" is of all tasks, the others are of one family each.
    """

    phases: Sequence[Phase]
    error: Float[np.ndarray, " families"]
    """Sum over the tasks of each family."""
    tasks: Int[np.ndarray, " families"]
    """How many these were."""
    shares: Float[np.ndarray, "phases families_and_all clusters"]
    """Mean responsibility of each batch's tasks, summed over the last batches of a phase."""
    delays: Int[np.ndarray, " phases"]
    """Of returns, as ``return_delays`` explains; unknown elsewhere."""
    leads: Int[np.ndarray, " recent"]
    """Whether the former owner led the last batches of a return."""

    def __post_init__(self) -> None:
        self._returns = returns(self.phases)

    @staticmethod
    def begin(phases: Sequence[Phase], families: int) -> History:
        return History(
            phases,
            error=np.zeros(families),
            tasks=np.zeros(families, dtype=np.int64),
            shares=np.zeros((len(phases), families + 1, 1)),
            delays=np.full(len(phases), UNKNOWN),
            leads=np.zeros(0, dtype=np.int64),
        )

    def add(
        self,
        start: int,
        error: Float[np.ndarray, "iterations tasks"],
        family: Int[np.ndarray, "iterations tasks"],
        responsibilities: Float[np.ndarray, "iterations tasks clusters"],
        clusters: Int[np.ndarray, " clusters"] | None = None,
    ) -> None:
        """Take in the iterations from ``start`` on, which lie in one phase.

        Responsibilities are by cluster, of which ``clusters`` has the numbers, in order; without
        them they are all that there have been.
        Tasks whose error is NaN are padding, or could not be learned from, and do not count.
        """
        known = ~np.isnan(error)
        np.add.at(self.error, family[known], error[known])
        np.add.at(self.tasks, family[known], 1)
        index = next(i for i, phase in enumerate(self.phases) if start < phase.stop)
        if clusters is None:
            clusters = np.arange(responsibilities.shape[-1])
        family = np.where(known, family, UNKNOWN)
        self._add_shares(index, start, family, responsibilities, clusters)
        self._add_leads(index, start, _leaders(known, responsibilities, clusters))

    def prequential(self, families: Sequence[str]) -> dict[str, float]:
        """As ``taskmix.evaluation.prequential``, for the whole stream."""
        return {
            name: float(error / tasks)
            for name, error, tasks in zip(families, self.error, self.tasks, strict=True)
            if tasks
        }

    def owner(self, phase: Phase, family: int = -1) -> int | None:
        """The cluster with the largest mean share of the last 100 batches of a phase.

        Batches without a task of the family do not count; None if they all are, or if no
        cluster had a share of them.
        """
        index = list(self.phases).index(phase)
        shares = self.shares[index, family]
        return int(np.argmax(shares)) if shares.any() else None

    def return_delays(self) -> tuple[int | None, ...]:
        """How long each recurring family waits until the cluster that owned it carries it again.

        One entry per phase with a single family that was active before and is not in the phase
        right before: the batches of the phase before the first one from which the cluster leads
        for good. That means: the cluster has the largest share of that batch and of at least 9
        of the 10 batches which begin with it. None if there is no such batch.
        """
        delays = (int(self.delays[index]) for index in self._returns)
        return tuple(None if delay == UNKNOWN else delay for delay in delays)

    def _add_shares(
        self,
        index: int,
        start: int,
        family: Int[np.ndarray, "iterations tasks"],
        responsibilities: Float[np.ndarray, "iterations tasks clusters"],
        clusters: Int[np.ndarray, " clusters"],
    ) -> None:
        room = int(clusters.max(initial=0)) + 1 - self.shares.shape[-1]
        self.shares = np.pad(self.shares, ((0, 0), (0, 0), (0, max(room, 0))))
        late = max(self.phases[index].stop - OWNER_WINDOW - start, 0)
        family, responsibilities = family[late:], responsibilities[late:]
        for row in range(len(self.error) + 1):
            members = (family == row) if row < len(self.error) else (family != UNKNOWN)
            count = members.sum(axis=1)
            total = np.where(members[..., None], responsibilities, 0).sum(axis=1)
            occurs = count > 0
            mean = total[occurs] / count[occurs, None]
            self.shares[index, row, clusters] += mean.sum(axis=0)

    def _add_leads(self, index: int, start: int, leaders: Int[np.ndarray, " iterations"]) -> None:
        phase, before = self.phases[index], self._returns.get(index)
        if before is None or self.delays[index] != UNKNOWN:
            return
        if start == phase.start:
            self.leads = self.leads[:0]
        leads = np.concatenate([self.leads, leaders == self.owner(self.phases[before])])
        if len(leads) >= RETURN_WINDOW:
            windows = np.lib.stride_tricks.sliding_window_view(leads, RETURN_WINDOW)
            lasting = np.flatnonzero(windows[:, 0] & (windows.sum(axis=1) >= RETURN_MAJORITY))
            if lasting.size:
                self.delays[index] = start - len(self.leads) - phase.start + lasting[0]
        self.leads = leads[-(RETURN_WINDOW - 1) :]


def _leaders(
    known: Bool[np.ndarray, "iterations tasks"],
    responsibilities: Float[np.ndarray, "iterations tasks clusters"],
    clusters: Int[np.ndarray, " clusters"],
) -> Int[np.ndarray, " iterations"]:
    """The cluster with the largest share of each batch; unknown if none has any."""
    if not len(clusters):
        return np.full(len(known), UNKNOWN)
    total = np.where(known[..., None], responsibilities, 0).sum(axis=1)
    return np.where(total.any(axis=-1), clusters[total.argmax(axis=-1)], UNKNOWN)


def returns(phases: Sequence[Phase]) -> dict[int, int]:
    """Phases with a single family that was active before, and when it was so last.

    A phase that goes on with the family of the one before is no return.
    """
    found = {}
    for index, phase in enumerate(phases):
        earlier = [i for i in range(index) if phases[i].families == phase.families]
        if len(phase.families) == 1 and earlier and earlier[-1] != index - 1:
            found[index] = earlier[-1]
    return found
