"""Which families are active when."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.names import unknown
from taskmix.streams.stream import Phase

Order = Literal["consecutive", "recurring", "interleaved", "gradual"]
"""One family after the other; the same twice over; all at once; fading into each other."""
Mixing = Literal["task", "batch"]
"""Whether each task of a batch, or the batch as a whole, draws a family of its own."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Stretches, each with its families in equal parts, one after the other.

    The first ``transition`` iterations of every stretch but the first move linearly from
    the mix of the stretch before to the new one. After the last stretch its mix goes on.
    Families that are ``rare`` have a share of their own in all of this, in every stretch.
    """

    stretches: tuple[tuple[str, ...], ...]
    lengths: tuple[int, ...]
    transition: int = 0
    mixing: Mixing = "task"
    rare: tuple[tuple[str, float], ...] = ()
    """Families that every phase has besides its own, each with its share of the tasks."""

    def __post_init__(self) -> None:
        if not self.stretches or not all(self.stretches):
            raise ValueError(
                f"stretches is {self.stretches}; give at least one, each with a family or more."
            )
        for stretch in self.stretches:
            if len(set(stretch)) < len(stretch):
                raise ValueError(f"Stretch {stretch} names a family twice; name each one once.")
        if len(self.lengths) != len(self.stretches):
            raise ValueError(
                f"There are {len(self.stretches)} stretches of families but {len(self.lengths)} "
                f"lengths; give one length for each."
            )
        if min(self.lengths) < 1:
            raise ValueError(
                f"lengths is {self.lengths}; every stretch must last 1 iteration or more."
            )
        if self.transition < 0:
            raise ValueError(f"transition is {self.transition}; it must be 0 or more.")
        if self.transition >= min(self.lengths[1:], default=self.transition + 1):
            raise ValueError(
                f"transition is {self.transition}; it must be shorter than every stretch it "
                f"leads into ({', '.join(map(str, self.lengths[1:]))} iterations)."
            )
        if self.mixing not in get_args(Mixing):
            raise ValueError(f"mixing is {self.mixing!r}; it must be 'task' or 'batch'.")
        self._check_rare()

    def _check_rare(self) -> None:
        shares = dict(self.rare)
        if len(shares) < len(self.rare) or any(set(shares) & set(s) for s in self.stretches):
            raise ValueError(
                f"rare is {self.rare}; name each family once, and none that a stretch has."
            )
        if not all(share > 0 for share in shares.values()) or not sum(shares.values()) < 1:
            raise ValueError(
                f"rare is {self.rare}; shares must be positive and add up to less than 1."
            )

    @property
    def families(self) -> tuple[str, ...]:
        """Every family, in order of first appearance; rare ones come last.

        So those of the stretches have the same numbers, and the same test tasks, as without them.
        """
        common = dict.fromkeys(name for stretch in self.stretches for name in stretch)
        return (*common, *(name for name, _ in self.rare))

    @property
    def appearances(self) -> tuple[int, ...]:
        """The first iteration of each family's first phase."""
        return tuple(
            next(phase.start for phase in self.phases if name in phase.families)
            for name in self.families
        )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One phase per stretch; a transition is a phase in which both mixes are active."""
        rare = tuple(name for name, _ in self.rare)
        phases = [Phase(0, self.lengths[0], self.stretches[0] + rare)]
        for before, after, length in zip(
            self.stretches[:-1], self.stretches[1:], self.lengths[1:], strict=True
        ):
            start = phases[-1].stop
            settled = start + self.transition
            if self.transition:
                phases.append(Phase(start, settled, (*dict.fromkeys(before + after), *rare)))
            phases.append(Phase(settled, start + length, after + rare))
        return tuple(phases)

    def weights(self, iteration: Int[Array, ""] | int) -> Float[Array, " families"]:
        """Probability of each family.

        Iteration i of a transition of n (counted from 0) is (i + 1)/(n + 1) of the way.
        """
        starts = jnp.asarray(np.cumsum((0, *self.lengths[:-1])))
        active = np.array([[f in stretch for f in self.families] for stretch in self.stretches])
        rare = np.array([dict(self.rare).get(f, 0.0) for f in self.families])
        common = (1 - rare.sum()) * active / active.sum(axis=1, keepdims=True)
        mixes = jnp.asarray(common + rare, jnp.float32)
        now = jnp.searchsorted(starts, iteration, side="right") - 1
        elapsed = iteration - starts[now]
        moved = jnp.minimum((elapsed + 1) / (self.transition + 1), 1)
        return (1 - moved) * mixes[jnp.maximum(now - 1, 0)] + moved * mixes[now]

    def draw(
        self, key: Key[Array, ""], iteration: Int[Array, ""] | int, tasks: int
    ) -> Int[Array, " {tasks}"]:
        """The family of each task of a batch, as an index into ``families``."""
        draws = tasks if self.mixing == "task" else 1
        drawn = jax.random.categorical(key, jnp.log(self.weights(iteration)), shape=(draws,))
        return jnp.broadcast_to(drawn, (tasks,))

    def boundary(self, iteration: Int[Array, ""] | int) -> Bool[Array, ""]:
        """Whether a phase other than the first starts here."""
        starts = np.array([phase.start for phase in self.phases[1:]], dtype=np.int32)
        return jnp.any(iteration == starts)


def consecutive(families: Sequence[str], lengths: Sequence[int]) -> Schedule:
    """One family after the other, with no overlap.

    Parameters
    ----------
    families
        Names of families, in the order in which they appear.
    lengths
        Iterations of each family's phase.

    Returns
    -------
    Schedule
        To be given to ``FunctionStream`` or ``ImageStream``.

    Examples
    --------
    >>> consecutive(("sinusoid", "step"), (40, 30)).phases[1]
    Phase(start=40, stop=70, families=('step',))
    """
    return Schedule(tuple((name,) for name in families), tuple(lengths))


def recurring(families: Sequence[str], lengths: Sequence[int], rounds: int = 2) -> Schedule:
    """The consecutive phases, all of them, several times over.

    Parameters
    ----------
    families
        Names of families, in the order in which they appear.
    lengths
        Iterations of each family's phase.
    rounds
        How many times.

    Returns
    -------
    Schedule
        To be given to ``FunctionStream`` or ``ImageStream``.

    Examples
    --------
    >>> len(recurring(("sinusoid", "step"), (40, 30)).phases)
    4
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; it must be 1 or more.")
    once = consecutive(families, lengths)
    return Schedule(once.stretches * rounds, once.lengths * rounds)


def interleaved(families: Sequence[str], length: int, mixing: Mixing = "task") -> Schedule:
    """All families from the start: each task, or each batch as a whole, of a random one.

    Parameters
    ----------
    families
        Names of families.
    length
        Iterations of the stream.
    mixing
        ``"task"`` draws a family per task, ``"batch"`` one per batch.

    Returns
    -------
    Schedule
        To be given to ``FunctionStream`` or ``ImageStream``.

    Examples
    --------
    >>> interleaved(("sinusoid", "step"), 100).phases[0].families
    ('sinusoid', 'step')
    """
    return Schedule((tuple(families),), (length,), mixing=mixing)


def gradual(families: Sequence[str], lengths: Sequence[int], transition: int) -> Schedule:
    """One family after the other, each fading in.

    Parameters
    ----------
    families
        Names of families, in the order in which they appear.
    lengths
        Iterations of each family's phase, the transition to it included.
    transition
        Iterations over which a family fades into the next one.

    Returns
    -------
    Schedule
        To be given to ``FunctionStream`` or ``ImageStream``.

    Examples
    --------
    >>> gradual(("sinusoid", "step"), (40, 30), transition=10).phases[1].families
    ('sinusoid', 'step')
    """
    once = consecutive(families, lengths)
    return dataclasses.replace(once, transition=transition)


def ordered(
    order: Order,
    families: Sequence[str],
    lengths: Sequence[int],
    transition: int = 0,
    mixing: Mixing = "task",
) -> Schedule:
    """A schedule by the name of its order.

    Parameters
    ----------
    order
        ``consecutive``, ``recurring`` (twice over), ``interleaved`` or ``gradual``.
    families, lengths
        Families in the order in which they appear, and the iterations of each one's phase.
    transition
        Iterations over which a family fades in, if that is gradual.
    mixing
        Whether each task or each batch draws a family, if all come at once.

    Examples
    --------
    >>> ordered("recurring", ("a", "b"), (10, 20)).phases[-1]
    Phase(start=40, stop=60, families=('b',))
    """
    match order:
        case "consecutive":
            return consecutive(families, lengths)
        case "recurring":
            return recurring(families, lengths)
        case "interleaved":
            return interleaved(families, sum(lengths), mixing)
        case "gradual":
            return gradual(families, lengths, transition)
    raise unknown("schedule", order, get_args(Order))
