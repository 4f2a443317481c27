"""Learn from tasks of your own: predictions, the regime of each task, and an alarm for new ones.

A heater is switched on again and again; each start is a small task: temperature over
time. After 300 batches the heater is replaced by one that behaves differently, and
nobody tells the learner.

    python examples/own_tasks.py
"""

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.mixture import OnlineMixture
from taskmix.tasks import Examples, TaskBatch, check_batch

BATCHES, REPLACED, STARTS, READINGS = 500, 300, 10, 15


def heater(rng: np.random.Generator, replaced: bool) -> tuple[np.ndarray, np.ndarray]:
    """Readings of ten starts: minutes (scaled) and degrees (scaled)."""
    minutes = rng.uniform(-1, 1, (STARTS, READINGS, 1))
    power = rng.uniform(0.5, 2, (STARTS, 1, 1))
    rate = rng.uniform(1, 3, (STARTS, 1, 1))
    if replaced:
        return minutes, power * np.sin(3 * rate * minutes)
    return minutes, power * np.tanh(rate * minutes)


def batch(rng: np.random.Generator, replaced: bool, known: int) -> TaskBatch:
    """Adapt on the first ``known`` readings of each start, predict the others."""
    x, y = heater(rng, replaced)
    return check_batch(
        TaskBatch(
            Examples.full(jnp.asarray(x[:, :known]), jnp.asarray(y[:, :known])),
            Examples.full(jnp.asarray(x[:, known:]), jnp.asarray(y[:, known:])),
        )
    )


def main() -> None:
    rng = np.random.default_rng(0)
    learner = OnlineMixture()
    key = jax.random.key(0)
    state = learner.init(key, batch(rng, False, 5))
    step, predict = jax.jit(learner.step), jax.jit(learner.predict)
    for i in range(BATCHES):
        state, info = step(state, batch(rng, i >= REPLACED, 5), jax.random.fold_in(key, i))
        if info.alarm:
            print(f"batch {i}: these starts fit nothing known")
        if info.spawned:
            print(f"batch {i}: a new kind of start; clusters: {int(info.clusters)}")

    for replaced in (False, True):
        test = batch(rng, replaced, 5)
        one = jax.tree.map(lambda leaf: leaf[0], test)
        prediction = predict(state, one.support, one.query.x)
        error = float(jnp.mean(jnp.square(prediction.mean - one.query.y)))
        low, high = prediction.interval(0.9)
        inside = float(jnp.mean((low < one.query.y) & (one.query.y < high)))
        shares = np.asarray(prediction.responsibilities)[: int(info.clusters)]
        print(
            f"a start of the {'new' if replaced else 'old'} heater: error {error:.3f}, "
            f"{inside:.0%} inside 90 % intervals, "
            f"cluster probabilities {np.round(shares, 2)}, "
            f"novelty {float(prediction.novelty):.2f}"
        )


if __name__ == "__main__":
    main()
