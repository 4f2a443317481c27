"""What makes updates of meta-gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import optax

MetaOptimiser = Callable[..., optax.GradientTransformation]
"""From a rate, or a schedule of rates, to what makes updates of gradients."""


def annealed_optimiser(
    rate: float,
    anneal_over: int = 0,
    clip: float = math.inf,
    optimiser: MetaOptimiser = optax.adam,
) -> optax.GradientTransformation:
    """What updates clusters; its rate falls to zero along a cosine if there is an end.

    A stream that may go on for ever has none: 0 keeps the rate. ``clip`` is the largest norm of
    a gradient; an infinite one does not clip.
    """
    if not 0 < rate < math.inf:
        raise ValueError(f"meta_rate is {rate}; it must be positive and finite.")
    if anneal_over < 0:
        raise ValueError(f"anneal_over is {anneal_over}; it must be 0 (never) or more.")
    if not clip > 0:
        raise ValueError(f"meta_clip is {clip}; it must be positive ('inf' does not clip).")
    made = optimiser(optax.cosine_decay_schedule(rate, anneal_over) if anneal_over else rate)
    return made if math.isinf(clip) else optax.chain(optax.clip_by_global_norm(clip), made)
