"""Batches, states and compiled steps that the tests of a file share."""

import dataclasses

import jax
import numpy as np
import pytest
from tests.mixture.online.handmade import ALONE, Counted, drawn, handmade, only_key

from taskmix.mixture.reservoir import Reservoir


@pytest.fixture(scope="module")
def same_draws():
    """Reservoirs draw alike in every row and every learner, so that rows can be compared.

    A row otherwise takes a key by its number.
    """
    place, draw = Reservoir.place, Reservoir.draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reservoir, "place", lambda self, where, _: place(self, where, only_key()))
        patch.setattr(Reservoir, "draw", lambda self, _, count: draw(self, only_key(), count))
        yield


@pytest.fixture(scope="module")
def batches():
    return drawn("sinusoid", 30, tasks=4)


@pytest.fixture(scope="module")
def batch(batches):
    """Tasks that clearly belong to the first two clusters of the handmade state, by turns."""
    levels = np.array([-4.0, 4.0, -4.0, 4.0], np.float32)[:, None, None]

    @jax.jit
    def shifted(examples):
        return dataclasses.replace(examples, y=0.2 * examples.y + levels)

    return dataclasses.replace(
        batches[5], support=shifted(batches[5].support), query=shifted(batches[5].query)
    )


@pytest.fixture(scope="module")
def step(same_draws):
    return Counted(ALONE)


@pytest.fixture(scope="module")
def predict():
    return jax.jit(ALONE.predict)


@pytest.fixture(scope="module")
def state(batches):
    """Three clusters that differ, grown up and with samples, and a copy on trial beside them."""
    (many,) = drawn("sinusoid", 1, tasks=5 * 32)
    return handmade(batches[0], many)
