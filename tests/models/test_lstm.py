import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.models import LSTM
from taskmix.models.lstm import LSTMParams, Memory

CELL = LSTM(inputs=3, units=2)
KEY = jax.random.key(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_step_by_hand():
    """One input, one unit: gates of 0.5 admit half of tanh(1) and keep half of the cell."""
    params = LSTMParams(jnp.array([[0.0, 0.0, 1.0, 0.0], [0.0] * 4]), jnp.zeros(4))
    memory = LSTM(1, 1).apply(params, Memory(jnp.array([7.0]), jnp.array([2.0])), jnp.ones(1))
    cell = 0.5 * 2 + 0.5 * np.tanh(1)
    np.testing.assert_allclose(memory.cell, [cell], rtol=1e-6)
    np.testing.assert_allclose(memory.hidden, [0.5 * np.tanh(cell)], rtol=1e-6)


def test_step_is_that_of_a_slow_version_gate_by_gate():
    rng = np.random.default_rng(0)
    params = LSTMParams(*(jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((5, 8), (8,))))
    x, hidden, cell = (np.asarray(rng.normal(size=(4, n)), np.float32) for n in (3, 2, 2))
    found = jax.jit(CELL.apply)(params, Memory(jnp.asarray(hidden), jnp.asarray(cell)), x)
    weight, bias = np.asarray(params.weight), np.asarray(params.bias)
    for row in range(4):
        for unit in range(2):
            admit, keep, candidate, show = (
                bias[gate * 2 + unit]
                + x[row] @ weight[:3, gate * 2 + unit]
                + hidden[row] @ weight[3:, gate * 2 + unit]
                for gate in range(4)
            )
            c = sigmoid(keep) * cell[row, unit] + sigmoid(admit) * np.tanh(candidate)
            np.testing.assert_allclose(found.cell[row, unit], c, rtol=1e-5)
            np.testing.assert_allclose(
                found.hidden[row, unit], sigmoid(show) * np.tanh(c), rtol=1e-5
            )


def test_step_of_columns_is_that_of_rows():
    rng = np.random.default_rng(1)
    params = LSTMParams(*(jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((5, 8), (8,))))
    x, hidden, cell = (jnp.asarray(rng.normal(size=(4, n)), jnp.float32) for n in (3, 2, 2))
    rows = CELL.apply(params, Memory(hidden, cell), x)
    columns = CELL.apply_to_columns(params, Memory(hidden.T, cell.T), x.T)
    chex.assert_trees_all_close(jax.tree.map(jnp.transpose, columns), rows, rtol=1e-5)


def test_memory_starts_empty_with_the_axes_asked_for():
    memory = CELL.start(4, 5)
    assert memory.hidden.shape == memory.cell.shape == (4, 5, 2)
    assert not memory.hidden.any()
    assert not memory.cell.any()


def test_cell_of_the_meta_learner_has_2000_parameters():
    shapes = jax.eval_shape(LSTM(inputs=4, units=20).init, KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 2_000


def test_weights_start_within_the_root_of_the_units():
    params = LSTM(inputs=10, units=16).init(KEY)
    assert 0.24 < np.abs(params.weight).max() <= 0.25
    assert not params.bias.any()


@pytest.mark.parametrize("field", ["inputs", "units"])
def test_no_input_or_unit_is_refused(field):
    with pytest.raises(ValueError, match=f"^{field} is 0;"):
        LSTM(**{"inputs": 1, "units": 1, field: 0})
