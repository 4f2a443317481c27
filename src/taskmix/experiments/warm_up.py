"""A warm start for few-shot learning: the encoder learns to tell all training classes apart.

Y. Tian et al.: Rethinking few-shot image classification: a good embedding is all you need? ECCV
2020. W.-Y. Chen et al.: A closer look at few-shot classification. ICLR 2019.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from taskmix.adaptation import RidgeHead
from taskmix.adaptation.ridge_head import RidgeParams
from taskmix.learner import Learner, State
from taskmix.models import Embedder
from taskmix.streams import ImageStream
from taskmix.training import run_keys

BATCH = 128
PART = 75
"""Batches between two lines of progress."""
RATE = 3e-3
DECAY = 1e-3
"""Of weights, as AdamW has it."""


class Classifier(eqx.Module):
    """An encoder with a linear layer for all training classes."""

    encoder: PyTree
    weight: Float[Array, "features classes"]
    bias: Float[Array, " classes"]


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """Plain classification of the training classes of a stream by an encoder.

    The images of a batch are normalised together, the rate falls to zero along a cosine.
    """

    encoder: Embedder
    stream: ImageStream
    epochs: int

    @property
    def steps(self) -> int:
        """Batches of all epochs, rounded up to whole parts."""
        images = self.epochs * self.stream.training.images.shape[0]
        return PART * max(1, math.ceil(images / (BATCH * PART)))

    def __call__(self, encoder: PyTree, key: Key[Array, ""], tell: Callable[[str], None]) -> PyTree:
        """The encoder after all epochs; ``tell`` hears after each part how it is getting on."""
        classes = self.stream.training.first.shape[0]
        init_key, key = jax.random.split(key)
        glorot = jax.nn.initializers.glorot_uniform()
        weight = glorot(init_key, (self.encoder.features, classes))
        learned = Classifier(encoder, weight, jnp.zeros(classes))
        optimiser = optax.adamw(optax.cosine_decay_schedule(RATE, self.steps), weight_decay=DECAY)
        data, recipe = eqx.partition(self.stream, eqx.is_array)

        @jax.jit
        def run(data: Any, carry: Any, keys: Key[Array, " steps"]) -> Any:
            stream = eqx.combine(data, recipe)

            def step(carry: tuple[Classifier, PyTree], key: Key[Array, ""]) -> tuple[Any, Array]:
                learned, state = carry
                x, y = stream.labelled_images(key, BATCH)
                gradient, right = jax.grad(self._loss, has_aux=True)(learned, x, y)
                updates, state = optimiser.update(gradient, state, learned)
                return (optax.apply_updates(learned, updates), state), right

            return jax.lax.scan(step, carry, keys)

        carry = learned, optimiser.init(learned)
        keys = jax.random.split(key, self.steps).reshape(-1, PART)
        for part, some in enumerate(keys, start=1):
            carry, right = run(data, carry, some)
            told = f"{float(jnp.mean(right)):.1%} of training images told right"
            tell(f"warm-up: {PART * part} of {self.steps} batches, {told}")
        return carry[0].encoder

    def _loss(
        self, learned: Classifier, x: Float[Array, "images ..."], y: Int[Array, " images"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        embedded, _ = self.encoder.apply(learned.encoder, x)
        logits = embedded @ learned.weight + learned.bias
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        return jnp.mean(losses), jnp.mean(jnp.argmax(logits, axis=-1) == y)


def warmed(
    learner: Learner,
    stream: ImageStream,
    state: State,
    seeds: Sequence[int],
    epochs: int,
    tell: Callable[[str], None],
) -> State:
    """First states, stacked over the seeds, with encoders that know the training classes.

    Every cluster of a seed begins with the same encoder; optimisers begin as they would.
    """
    head = getattr(learner, "task_model", None)
    if not isinstance(head, RidgeHead):
        raise ValueError(
            f"warm_up is {epochs}, but {type(learner).__name__} has no ridge head to warm up; "
            f"choose r2d2 or another method with task model ridge-head, or leave it out."
        )
    warm = WarmUp(head.features, stream, epochs)
    every = []
    for seed in seeds:
        keys = run_keys(seed)
        first = head.init(keys.init).features
        every.append(warm(first, jax.random.fold_in(keys.init, 1), tell))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)

    def replaced(path: tuple[Any, ...], node: Any) -> Any:
        inside = {getattr(part, "name", None) for part in path}
        if not isinstance(node, RidgeParams) or "optimiser" in inside:
            return node
        features = jax.tree.map(_spread, stacked, node.features)
        return dataclasses.replace(node, features=features)

    return jax.tree_util.tree_map_with_path(
        replaced, state, is_leaf=lambda node: isinstance(node, RidgeParams)
    )


def _spread(warm: Float[Array, "seeds ..."], rows: Array) -> Array:
    """The same for every cluster, of which a state has axes after that of the seeds."""
    between = (1,) * (rows.ndim - warm.ndim)
    return jnp.broadcast_to(warm.reshape(warm.shape[0], *between, *warm.shape[1:]), rows.shape)
