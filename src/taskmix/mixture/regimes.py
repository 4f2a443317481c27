"""Which regime a batch comes from, and whether it is one not seen before.

The model, in full in docs/model.md. A batch belongs to one regime z_t. Regimes persist:
with probability ``1 - hazard`` a batch stays in the regime of the batch before, else a
regime is drawn anew, an old one in proportion to how often it was entered, a new one in
proportion to ``concentration``. Under regime l the signatures of the tasks (their log
query losses, adapted from cluster l, and what the likelihood says of their inputs) are
normal with the means m_l and variances v_l that the cluster has learned. Their level
wanders a little while the cluster learns: over the recent batches it is
N(m_l, wander^2 v_l). Under a new regime it is unknown, N(m_l, (breadth^2 + wander^2) v_l)
for some existing cluster l: new is what looks consistently unlike everything known.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from taskmix.mixture.calibration import Typical


class BatchSummary(eqx.Module):
    """What the regimes need to know of a batch, for each cluster."""

    tasks: Float[Array, "*batches"]
    mean: Float[Array, "*batches clusters statistics"]
    """Mean signature: the log query loss, and what is known of the inputs."""
    square: Float[Array, "*batches clusters statistics"]
    """Mean of its square."""
    scale: Float[Array, "*batches clusters"]
    """Log-likelihood of the residuals given the losses, summed over the tasks."""


class Regimes(eqx.Module):
    """The filter's state."""

    belief: Float[Array, " clusters"]
    """Probability of each cluster being the regime of the last batch."""
    entered: Float[Array, " clusters"]
    """How often each regime was entered."""
    recent: BatchSummary
    """The last batches, newest first; a batch with 0 tasks is an empty place."""


class Verdict(eqx.Module):
    """What the filter makes of a batch."""

    expected: Float[Array, " clusters"]
    """Probability of each regime before the batch was seen."""
    belief: Float[Array, " clusters"]
    """The same after it was seen, given that the regime is not new."""
    new: Float[Array, ""]
    """Probability that a new regime has begun."""


@dataclasses.dataclass(frozen=True)
class RegimeFilter:
    """A sticky Chinese restaurant for batches."""

    hazard: float = 1e-4
    concentration: float = 1.0
    breadth: float = 1.0
    memory: int = 20
    wander: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.hazard < 1:
            raise ValueError(f"hazard is {self.hazard}; it must lie between 0 and 1.")
        for name in ("concentration", "breadth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        if not self.wander >= 0:
            raise ValueError(f"wander is {self.wander}; it must be 0 or more.")
        if self.memory < 1:
            raise ValueError(f"memory is {self.memory}; it must be at least 1 batch.")

    def init(self, clusters: int, statistics: int) -> Regimes:
        first = jnp.zeros(clusters).at[0].set(1.0)
        none = jnp.zeros(self.memory)
        empty = jnp.zeros((self.memory, clusters, statistics))
        return Regimes(first, first, BatchSummary(none, empty, empty, empty[..., 0]))

    def judge(
        self,
        regimes: Regimes,
        batch: BatchSummary,
        typical: Typical,
        alive: Bool[Array, " clusters"],
    ) -> tuple[Regimes, Verdict]:
        """Take in a batch; ``typical`` is what the signatures of each cluster's tasks are."""
        recent = jax.tree.map(
            lambda old, new: jnp.concatenate([new[None], old[:-1]]), regimes.recent, batch
        )
        places = regimes.entered / (jnp.sum(regimes.entered) + self.concentration)
        expected = (1 - self.hazard) * regimes.belief + self.hazard * places
        expected = expected / jnp.sum(expected)
        evidence = log_evidence(batch, typical)
        belief = jax.nn.softmax(jnp.where(alive, jnp.log(expected) + evidence, -jnp.inf))
        regime = jnp.argmax(belief)
        changed = regime != jnp.argmax(regimes.belief)
        entered = regimes.entered.at[regime].add(jnp.where(changed, 1.0, 0.0))
        new = self.probability_of_new(recent, typical, alive, regimes.entered)
        return Regimes(belief, entered, recent), Verdict(expected, belief, new)

    def probability_of_new(
        self,
        recent: BatchSummary,
        typical: Typical,
        alive: Bool[Array, " clusters"],
        entered: Float[Array, " clusters"],
    ) -> Float[Array, ""]:
        """Posterior probability that a new regime began within the recent batches.

        For each k the last k batches are compared as a whole: explained by the best path
        through the existing regimes, or all from one new regime. A path rather than a
        single regime: when a known regime returns, the last batches are of two known
        regimes, and that is nothing new. Nor is one known regime whose level has wandered.
        """
        last = _summed_from_newest(recent)
        evidence = jnp.where(alive, log_evidence(last, typical), -jnp.inf)
        unknown = log_bayes_factor(last, typical, self.breadth**2 + self.wander**2)
        wandered = log_bayes_factor(last, typical, self.wander**2)
        best_fresh = jnp.max(evidence + unknown, axis=-1)
        best_known = jnp.maximum(
            self._best_known_paths(recent, typical, alive, entered),
            jnp.max(evidence + wandered, axis=-1),
        )
        begun = jnp.where(recent.tasks > 0, best_fresh - best_known, -jnp.inf)
        prior = self.hazard * self.concentration / (jnp.sum(entered) + self.concentration)
        return jax.nn.sigmoid(jnp.log(prior) + jax.nn.logsumexp(begun))

    def _best_known_paths(
        self,
        recent: BatchSummary,
        typical: Typical,
        alive: Bool[Array, " clusters"],
        entered: Float[Array, " clusters"],
    ) -> Float[Array, " batches"]:
        """For each k, the log-probability of the best path through the k newest batches."""
        each = jnp.where(alive, log_evidence(recent, typical), -jnp.inf)
        entering = jnp.log(self.hazard * entered / (jnp.sum(entered) + self.concentration))
        staying = jnp.log1p(-self.hazard)

        def one_earlier(path: Array, evidence: Array) -> tuple[Array, Array]:
            """``path`` is the best of the newer batches, by the regime of the oldest of them."""
            path = evidence + jnp.maximum(path + staying, jnp.max(path + entering))
            return path, jnp.max(path)

        _, longer = jax.lax.scan(one_earlier, each[0], each[1:])
        return jnp.append(jnp.max(each[0]), longer)

    def born(self, regimes: Regimes, index: Int[Array, ""], where: Bool[Array, ""]) -> Regimes:
        """The state after a cluster was opened for the current regime."""
        one = jnp.zeros_like(regimes.belief).at[index].set(1.0)
        # The batches before its birth say nothing about a cluster: start remembering anew.
        tasks = jnp.where(where, 0.0, regimes.recent.tasks)
        recent = eqx.tree_at(lambda r: r.tasks, regimes.recent, tasks)
        return Regimes(
            belief=jnp.where(where, one, regimes.belief),
            entered=jnp.where(where, regimes.entered + one, regimes.entered),
            recent=recent,
        )


def summarise(
    signatures: Float[Array, "tasks clusters statistics"], scale: Float[Array, "tasks clusters"]
) -> BatchSummary:
    return BatchSummary(
        tasks=jnp.asarray(float(signatures.shape[0])),
        mean=jnp.mean(signatures, axis=0),
        square=jnp.mean(jnp.square(signatures), axis=0),
        scale=jnp.sum(scale, axis=0),
    )


def log_evidence(batch: BatchSummary, typical: Typical) -> Float[Array, "*batches clusters"]:
    """log p(batch | regime) for each existing cluster."""
    squared = batch.square - 2 * typical.mean * batch.mean + jnp.square(typical.mean)
    spread = typical.spread()
    unlikely = jnp.sum(squared / spread + jnp.log(spread), axis=-1)
    return batch.scale - 0.5 * batch.tasks[..., None] * unlikely


def log_bayes_factor(
    batch: BatchSummary, typical: Typical, variance: float
) -> Float[Array, "*batches clusters"]:
    """A level N(m, variance v) against the cluster's own m, for the mean of n signatures.

    With r = n variance and d = (mean - m) / sqrt(v / n) it is
    -1/2 log(1 + r) + 1/2 d^2 r / (1 + r), summed over the statistics.
    """
    tasks = batch.tasks[..., None, None]
    freedom = tasks * variance
    deviation = tasks * typical.deviation(batch.mean)
    factors = -0.5 * jnp.log1p(freedom) + 0.5 * deviation * freedom / (1 + freedom)
    return jnp.sum(factors, axis=-1)


def grown_regimes(regimes: Regimes) -> Regimes:
    """Twice as many clusters, none of the new ones believed in."""

    def wider(leaf: Array, axis: int) -> Array:
        return jnp.concatenate([leaf, jnp.zeros_like(leaf)], axis=axis)

    recent = regimes.recent
    return Regimes(
        wider(regimes.belief, 0),
        wider(regimes.entered, 0),
        BatchSummary(
            recent.tasks, wider(recent.mean, 1), wider(recent.square, 1), wider(recent.scale, 1)
        ),
    )


def _summed_from_newest(recent: BatchSummary) -> BatchSummary:
    """Entry k describes the k + 1 newest batches as if they were one."""
    tasks = jnp.cumsum(recent.tasks)
    each = recent.tasks[:, None, None]
    total = jnp.maximum(tasks, 1)[:, None, None]
    return BatchSummary(
        tasks=tasks,
        mean=jnp.cumsum(each * recent.mean, axis=0) / total,
        square=jnp.cumsum(each * recent.square, axis=0) / total,
        scale=jnp.cumsum(jnp.where(each[..., 0] > 0, recent.scale, 0), axis=0),
    )
