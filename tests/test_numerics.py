"""Canaries: what a compiled program computes on this machine is what was asked for."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix import numerics
from taskmix.numerics import CANARIES, TOLERANCE, Canary, canary_errors, faults, known_faults


@pytest.mark.parametrize("rows", [32_768, 32_769, 40_001])
def test_compiled_reduction_after_a_product_has_no_wrong_row(rows):
    """jaxlib 0.10.2 and 0.11.0 read past the edge of their tiles here (jax issue 39103)."""

    @jax.jit
    def squares(x):
        return jax.vmap(lambda row: jnp.sum(jnp.square(jnp.eye(3) @ row)))(x)

    # Whole numbers below 2^24, so that float32 is exact and any difference is a fault.
    first = np.arange(rows, dtype=np.float32) % 4096
    x = np.stack([first, np.zeros_like(first), np.zeros_like(first)], axis=1)
    np.testing.assert_array_equal(squares(x), np.square(first))


def test_canaries_are_right_here():
    errors = canary_errors()
    assert len(errors) == len(CANARIES)
    assert faults(errors) == []


@pytest.mark.parametrize("wrong", [1.01, np.nan, np.inf])
def test_wrong_result_is_a_fault_that_says_what_to_do(wrong):
    canary = Canary("a sum", lambda: np.array([wrong, 2.0]), lambda: np.array([1.0, 2.0]))
    (sentence,) = faults({canary.name: canary.error()})
    assert "a sum wrongly" in sentence
    assert "install another version" in sentence


def test_rounding_is_no_fault():
    canary = Canary("a sum", lambda: np.array([1.0 + 1e-6]), lambda: np.array([1.0]))
    assert 0 < canary.error() < TOLERANCE


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_outcome_is_kept_for_the_next_start(own_cache, monkeypatch):
    assert known_faults() == []
    monkeypatch.setattr(numerics, "canary_errors", lambda: pytest.fail("computed again"))
    assert known_faults() == []
    # Other flags may make other programs.
    monkeypatch.setenv("XLA_FLAGS", "--others")
    monkeypatch.setattr(numerics, "canary_errors", lambda: dict.fromkeys(_names(), 1.0))
    assert len(known_faults()) == len(CANARIES)
    monkeypatch.setattr(numerics, "canary_errors", lambda: pytest.fail("computed again"))
    assert len(known_faults()) == len(CANARIES)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"a sum": 0}', "null", '{"a": "b"}'])
def test_spoiled_outcome_is_computed_again(own_cache, monkeypatch, content):
    known_faults()
    (kept,) = own_cache.glob("*/canaries-*.json")
    kept.write_text(content)
    monkeypatch.setattr(numerics, "canary_errors", lambda: dict.fromkeys(_names(), 1.0))
    assert len(known_faults()) == len(CANARIES)
    assert set(json.loads(kept.read_text())) == set(_names())


def test_without_a_cache_it_is_computed_each_time(monkeypatch):
    monkeypatch.setenv("TASKMIX_CACHE", "off")
    for error, found in ((0.0, 0), (1.0, len(CANARIES))):
        monkeypatch.setattr(
            numerics, "canary_errors", lambda error=error: dict.fromkeys(_names(), error)
        )
        assert len(known_faults()) == found


def _names() -> list[str]:
    return [canary.name for canary in CANARIES]
