"""Who is who among clusters: a row of a learner's state may serve several, one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from taskmix.learner import Info

NOBODY = -1


class Happening(NamedTuple):
    """What one iteration did to the clusters, or had to say of its tasks."""

    offset: int
    """Iterations since the first one that was looked at."""
    event: Literal["spawned", "removed", "alarm"]
    clusters: int
    """How many there are from then on."""
    cluster: int | None = None
    """Which one it happened to; None for an alarm, or if no row says which."""


@dataclasses.dataclass
class Lives:
    """Which cluster each row holds; clusters are numbered in the order of their births."""

    rows: Int[np.ndarray, " rows"]
    """Numbers of the clusters, ``NOBODY`` where there is none."""
    born: int
    """How many clusters there have been."""
    alarmed: bool = False
    """Whether the last batch raised an alarm: batches in a row raise one together."""

    @staticmethod
    def begin(alive: Bool[np.ndarray, " rows"]) -> Lives:
        """With those that are there from the beginning."""
        lives = Lives(np.full(alive.shape, NOBODY), 0)
        lives._change(alive)
        return lives

    @property
    def alive(self) -> Bool[np.ndarray, " rows"]:
        return self.rows != NOBODY

    @property
    def ids(self) -> list[int]:
        """Numbers of those that are alive, in the order of their rows."""
        return self.rows[self.alive].tolist()

    def copy(self) -> Lives:
        return dataclasses.replace(self, rows=self.rows.copy())

    def follow(self, info: Info) -> tuple[Int[np.ndarray, "iterations rows"], list[Happening]]:
        """Live through the iterations of one seed.

        Returns which cluster each row held in each of them, those that the iteration itself
        removed included, and what happened, in order.
        """
        alive = np.asarray(info.alive)
        room = alive.shape[-1] - len(self.rows)
        self.rows = np.pad(self.rows, (0, max(room, 0)), constant_values=NOBODY)
        held = np.tile(self.rows, (len(alive), 1))
        happenings: list[Happening] = []
        # Rows change rarely and there are many iterations.
        changed = np.any(alive != np.vstack([self.alive, alive[:-1]]), axis=1)
        for offset in np.flatnonzero(changed | np.asarray(info.spawned)):
            before, count = self.rows.copy(), int(alive[offset].sum())
            removed, newborn = self._change(alive[offset])
            held[offset:] = self.rows
            held[offset] = np.where(self.alive, self.rows, before)
            here = int(offset)
            happenings += [Happening(here, "removed", count, one) for one in removed]
            if info.spawned[offset]:
                numbers: list[int] | list[None] = newborn or [None]
                happenings += [Happening(here, "spawned", count, one) for one in numbers]
        happenings += self._alarms(info)
        return held, sorted(happenings, key=lambda one: one.offset)

    def _change(self, alive: Bool[np.ndarray, " rows"]) -> tuple[list[int], list[int]]:
        """Let the dead go and number the newborn; who they are."""
        gone, new = self.alive & ~alive, alive & ~self.alive
        removed = self.rows[gone].tolist()
        newborn = list(range(self.born, self.born + int(new.sum())))
        self.rows[gone] = NOBODY
        self.rows[new] = newborn
        self.born += len(newborn)
        return removed, newborn

    def _alarms(self, info: Info) -> list[Happening]:
        raised = np.asarray(info.alarm)
        before = np.concatenate([[self.alarmed], raised[:-1]])
        self.alarmed = bool(raised[-1])
        counts = np.asarray(info.alive).sum(axis=-1)
        return [
            Happening(int(offset), "alarm", int(counts[offset]))
            for offset in np.flatnonzero(raised & ~before)
        ]

    def shares(
        self,
        held: Int[np.ndarray, "iterations rows"],
        responsibilities: Float[np.ndarray, "iterations tasks rows"],
    ) -> tuple[Int[np.ndarray, " clusters"], Float[np.ndarray, "iterations tasks clusters"]]:
        """Responsibilities by cluster instead of by row, and the numbers of these clusters.

        Those that were gone before are left out: their number grows with the stream.
        """
        iterations, tasks = responsibilities.shape[:2]
        clusters = np.unique(held[held != NOBODY])
        # What no cluster holds goes to one more, which is then left out.
        place = np.where(held == NOBODY, len(clusters), np.searchsorted(clusters, held))
        shares = np.zeros((iterations, tasks, len(clusters) + 1), responsibilities.dtype)
        where = np.broadcast_to(place[:, None], responsibilities.shape)
        np.put_along_axis(shares, where, responsibilities, axis=-1)
        return clusters, shares[..., :-1]

    def facts(self) -> dict[str, Any]:
        """What JSON can say of it, which is all."""
        return {"rows": self.rows.tolist(), "born": self.born, "alarmed": self.alarmed}

    @staticmethod
    def restored(facts: Mapping[str, Any]) -> Lives:
        """Those whose ``facts`` these were."""
        return Lives(np.array(facts["rows"], dtype=int), int(facts["born"]), bool(facts["alarmed"]))
