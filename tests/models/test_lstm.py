import jax
import jax.numpy as jnp
import numpy as np

from taskmix.models.lstm import LSTM, LSTMState


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_step_is_that_of_a_slow_version():
    cell = LSTM(inputs=2, hidden=3)
    params = cell.init(jax.random.key(0), scale=1.0)
    rng = np.random.default_rng(0)
    x, hidden, memory = (rng.normal(size=(4, n)).astype(np.float32) for n in (2, 3, 3))
    x_now, h_now, c_now = map(jnp.asarray, (x, hidden, memory))
    after = cell.step(params, LSTMState(h_now, c_now), x_now)

    weights = np.concatenate([params.inputs, params.recurrent, params.bias[None]])
    for row in range(4):
        seen = np.concatenate([x[row], hidden[row], [1]])
        enter, keep, candidate, leave = (seen @ weights[:, 3 * k : 3 * k + 3] for k in range(4))
        expected = sigmoid(keep) * memory[row] + sigmoid(enter) * np.tanh(candidate)
        np.testing.assert_allclose(after.cell[row], expected, rtol=1e-5)
        np.testing.assert_allclose(after.hidden[row], sigmoid(leave) * np.tanh(expected), rtol=1e-5)


def test_first_weights_are_within_the_scale_and_the_first_state_is_zero():
    cell = LSTM(inputs=4, hidden=20)
    params = cell.init(jax.random.key(0), scale=0.01)
    numbers = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
    assert numbers.size == 2000
    assert 0.009 < np.abs(numbers).max() <= 0.01
    assert not cell.first(3).hidden.any()
