"""Tasks that a run keeps to be looked at."""

import base64
import io

import jax.numpy as jnp
import numpy as np
from PIL import Image

import taskmix as tm
from taskmix.evaluation import Details, Evaluation
from taskmix.experiments.examples import RIGHT, WRONG, _pictured, chosen_tasks, examples_of
from taskmix.streams import Phase
from taskmix.tasks import Examples, TaskBatch
from taskmix.training import Record


def evaluation(shares, error, background=None):
    """One family whose tasks have these shares of clusters and errors; two queries each."""
    shares, error = np.array([shares], dtype=float), np.array([error], dtype=float)
    background = np.zeros_like(error) if background is None else np.array([background])
    tasks = error.shape[1]
    predictions = jnp.zeros((1, tasks, 2, 1))
    details = Details(
        jnp.zeros((1, tasks, 11)),
        jnp.zeros((1, tasks, 10, 3)),
        predictions,
        predictions,
        predictions,
    )
    known = map(jnp.asarray, (error, shares, shares, error, background, error))
    return Evaluation(*known, details)


def test_typical_tasks_are_those_near_the_median_error_of_their_cluster():
    shares = [[0.9, 0.1]] * 5 + [[0.2, 0.8]]
    found = chosen_tasks(evaluation(shares, [1.0, 9.0, 2.0, 3.0, 0.0, 7.0]), np.array([4, 5]))
    # The median of 1, 9, 2, 3 and 0 is 2; then come 1 and 3.
    assert [(one["cluster"], one["place"][1]) for one in found] == [(4, 2), (4, 0), (4, 3), (5, 5)]


def test_tasks_that_no_cluster_explains_come_worst_first():
    found = chosen_tasks(
        evaluation([[0.4], [0.05], [0.2]], [1.0, 1.0, 1.0], [0.6, 0.95, 0.8]), np.array([0])
    )
    assert [one["place"][1] for one in found if one["why"] == "nothing"] == [1, 2, 0]


def test_images_are_framed_by_whether_they_were_told_rightly():
    labels = jnp.array([[0, 1]])
    images = jnp.broadcast_to(jnp.array([0.0, 1.0])[None, :, None, None, None], (1, 2, 8, 8, 1))
    examples = Examples(images, labels, jnp.ones((1, 2), dtype=bool))
    said = {"mean": np.array([[0.9, 0.1], [0.8, 0.2]])}
    kept = _pictured(TaskBatch(examples, examples), 0, said)
    sheet = Image.open(io.BytesIO(base64.b64decode(kept["image"])))
    # Two columns and two rows of 8 pixels, with a frame of 2 and a gap of 2 on each side.
    assert sheet.size == (32, 32)
    assert sheet.getpixel((2, 18)) == RIGHT
    assert sheet.getpixel((18, 18)) == WRONG
    assert sheet.getpixel((24, 8)) == (255, 255, 255)


def test_tasks_that_raised_an_alarm_are_drawn_again_from_the_stream():
    stream = tm.streams.regression(("linear", "step"), (4, 4), tasks=3)
    record = Record.begin(stream.families, (Phase(0, 4, ("linear",)), Phase(4, 8, ("step",))), 0)
    record.alarms = [1, 5]
    record.alarmed = {1: [], 5: [2, 0]}
    found = examples_of(record, stream, seed=3)
    assert [(one["why"], one["iteration"], one["family"]) for one in found] == [
        ("alarm", 5, "step")
    ] * 2
    assert len(found[0]["support"]["x"]) == 5
