"""Whoever waits for a compilation is told what for, once."""

import time

import jax.numpy as jnp

from taskmix.training import compiling
from taskmix.training.compiling import Compiling


def test_long_compilation_says_what_it_is_for_and_only_the_first_time(monkeypatch):
    monkeypatch.setattr(compiling, "LONG", 0.01)
    told = []
    saying = Compiling(told.append)
    state = jnp.zeros(3)
    for given, so_far in ((state, 1), (state, 1), (jnp.zeros(4), 2)):
        with saying("the training step", given):
            until = time.monotonic() + 60
            while time.monotonic() < until and len(told) < so_far:
                time.sleep(0.01)
            # Long enough for a second time, if there were one.
            time.sleep(0.05)
        assert len(told) == so_far, "once per shape"
    assert told[0].startswith("compiling the training step")


def test_quick_one_says_nothing():
    told = []
    with Compiling(told.append)("the evaluation"):
        pass
    time.sleep(0.02)
    assert told == []
