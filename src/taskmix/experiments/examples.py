"""Tasks of a run that are kept to be looked at: typical ones, and those that fitted nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from PIL import Image

from taskmix.evaluation import Evaluation, detection
from taskmix.streams import Phase, Stream
from taskmix.tasks import Examples, Hints, TaskBatch
from taskmix.training import Record
from taskmix.training.moments import run_keys

PER_CLUSTER = 3
MOST_CLUSTERS = 12
UNEXPLAINED = 6
ALARMS = 4
PER_ALARM = 3
MOST_NUMBERS = 2000
"""Of one task; what has more is neither a curve nor a few rows."""
SIDE = 48
"""Pixels of an image that is kept, at most."""
RIGHT, WRONG, PLAIN = (0, 131, 92), (208, 69, 10), (150, 158, 170)
Kept = dict[str, Any]


def examples_of(record: Record, stream: Stream, seed: int) -> list[Kept]:
    """What ``examples.json`` lists, of a run that has ended."""
    kept: list[Kept] = []
    evaluation = record.evaluation
    if evaluation is not None and evaluation.details is not None and record.test is not None:
        kept += _test_tasks(record, evaluation, record.test, stream)
    return kept + _alarming(record, stream, seed)


def _test_tasks(
    record: Record, evaluation: Evaluation, test: Mapping[str, np.ndarray], stream: Stream
) -> list[Kept]:
    assert record.lives is not None, "there is an evaluation, so there are clusters"
    chosen = chosen_tasks(evaluation, record.lives.rows)
    if not chosen:
        return []
    places = np.array([one["place"] for one in chosen])
    tasks = {name: leaf[places[:, 0], places[:, 1]] for name, leaf in test.items()}
    loaded = _loaded(stream, tasks, places[:, 0])
    details = evaluation.details
    assert details is not None, "the caller has looked"
    kept = []
    for number, one in enumerate(chosen):
        family, place = one.pop("place")
        said = {
            name: np.asarray(getattr(details, name))[family, place]
            for name in ("mean", "low", "high")
        }
        one["family"] = record.families[family]
        one["error"] = _rounded(np.asarray(evaluation.error)[family, place])
        pictured = _pictured(loaded, number, said)
        if pictured is not None:
            kept.append(one | pictured)
    return kept


def chosen_tasks(evaluation: Evaluation, rows: np.ndarray) -> list[Kept]:
    """Test tasks near the median error of each cluster, then those that no cluster explains.

    ``rows`` says which cluster each row of the state holds, -1 for none.
    """
    assert evaluation.details is not None, "the caller has looked"
    shown = np.asarray(evaluation.details.mean).shape[1]
    shares = np.asarray(evaluation.responsibilities)[:, :shown]
    error = np.asarray(evaluation.error)[:, :shown]
    background = np.asarray(evaluation.background)[:, :shown]
    found: list[Kept] = []
    alive = [row for row in np.flatnonzero(rows >= 0) if row < shares.shape[-1]]
    most = sorted(alive, key=lambda row: -shares[..., row].sum())[:MOST_CLUSTERS]
    for row in sorted(most, key=lambda row: rows[row]):
        own = np.argwhere((shares[..., row] > 0.5) & np.isfinite(error))
        if not len(own):
            continue
        found += [
            {
                "why": "cluster",
                "cluster": int(rows[row]),
                "place": (int(f), int(t)),
                "share": _rounded(shares[f, t, row]),
            }
            for f, t in _typical(own, error)
        ]
    strange = np.argwhere(background > 0.5)
    order = np.argsort(-background[strange[:, 0], strange[:, 1]], kind="stable")[:UNEXPLAINED]
    return found + [
        {
            "why": "nothing",
            "place": (int(f), int(t)),
            "background": _rounded(background[f, t]),
        }
        for f, t in strange[order]
    ]


def _typical(own: np.ndarray, error: np.ndarray) -> list[tuple[int, int]]:
    """Of a cluster's tasks, given by family and place, those near the median of their family.

    Families take turns, the one with the most tasks first.
    """
    families, counts = np.unique(own[:, 0], return_counts=True)
    turns = []
    for family in families[np.argsort(-counts, kind="stable")]:
        places = own[own[:, 0] == family, 1]
        errors = error[family, places]
        order = np.argsort(np.abs(errors - np.median(errors)), kind="stable")[:PER_CLUSTER]
        turns.append([(turn, (int(family), int(places[at]))) for turn, at in enumerate(order)])
    every = sorted((one for family in turns for one in family), key=lambda one: one[0])
    return [place for _, place in every[:PER_CLUSTER]]


def _loaded(stream: Stream, tasks: Mapping[str, np.ndarray], family: np.ndarray) -> TaskBatch:
    """Test tasks with their inputs, on the host."""
    support, query = (
        Examples(*(jax.numpy.asarray(tasks[f"{side}.{name}"]) for name in ("x", "y", "mask")))
        for side in ("support", "query")
    )
    hints = Hints(jax.numpy.asarray(family), jax.numpy.asarray(False))
    return _on_host(stream.load(TaskBatch(support, query, hints)))


def _on_host(batch: TaskBatch) -> TaskBatch:
    held: TaskBatch = jax.tree.map(np.asarray, batch)
    return held


def _alarming(record: Record, stream: Stream, seed: int) -> list[Kept]:
    """Tasks of batches that raised an alarm, those that answer a shift first."""
    known = [one for one in record.alarms if record.alarmed.get(one)]
    true = _answering(record.phases, known)
    order = [*true, *(one for one in known if one not in true)][:ALARMS]
    kept: list[Kept] = []
    for iteration in sorted(order):
        batch = _on_host(_drawn(stream, run_keys(seed).stream, iteration))
        families = batch.hints.family if batch.hints is not None else None
        for place in record.alarmed[iteration][:PER_ALARM]:
            pictured = _pictured(batch, place, None)
            if pictured is None:
                continue
            named = {} if families is None else {"family": record.families[int(families[place])]}
            kept.append({"why": "alarm", "iteration": iteration, **named, **pictured})
    return kept


def _answering(phases: Sequence[Phase], alarms: Sequence[int]) -> list[int]:
    """The first alarm of each shift that was noticed."""
    delays: dict[int, int] = {}
    for alarm in alarms:
        for delay in detection(phases, [alarm]).delays:
            delays.setdefault(alarm - delay, alarm)
    return list(delays.values())


@eqx.filter_jit
def _drawn(stream: Stream, key: Any, iteration: int) -> TaskBatch:
    return stream.batch(key, iteration)


def _pictured(batch: TaskBatch, place: int, said: Mapping[str, np.ndarray] | None) -> Kept | None:
    """One task as numbers or as a picture; None if it is too large for either."""
    support, query = batch.support, batch.query
    if support.x.ndim == 5:
        return {"image": _sheet(support, query, place, said)}
    if support.x.ndim != 3 or support.x[place].size + query.x[place].size > MOST_NUMBERS:
        return None
    known, asked = np.asarray(support.mask[place]), np.asarray(query.mask[place])
    answer: Kept = {"x": _rounded(query.x[place][asked]), "y": _rounded(query.y[place][asked])}
    if said is not None:
        answer |= {
            name: _rounded(values[asked])
            for name, values in said.items()
            if np.isfinite(values[asked]).all()
        }
    return {
        "support": {
            "x": _rounded(support.x[place][known]),
            "y": _rounded(support.y[place][known]),
        },
        "query": answer,
    }


def _sheet(
    support: Examples, query: Examples, place: int, said: Mapping[str, np.ndarray] | None
) -> str:
    """Above a known image of each class, below one to be told, framed by whether it was; PNG."""
    labels = [int(one) for one in np.unique(support.y[place][support.mask[place]])]
    guessed = None if said is None else np.asarray(said["mean"]).argmax(axis=-1)
    rows: list[list[Image.Image]] = [[], []]
    for label in labels[:10]:
        for row, side in zip(rows, (support, query), strict=True):
            at = np.flatnonzero((side.y[place] == label) & side.mask[place])
            if not at.size:
                continue
            frame = PLAIN
            if side is query and guessed is not None:
                frame = RIGHT if int(guessed[at[0]]) == label else WRONG
            row.append(_framed(np.asarray(side.x[place][at[0]]), frame))
    side_length = rows[0][0].width + 4
    sheet = Image.new("RGB", (side_length * len(rows[0]), 2 * side_length), (255, 255, 255))
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            sheet.paste(image, (2 + x * side_length, 2 + y * side_length))
    out = io.BytesIO()
    sheet.save(out, format="PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def _framed(pixels: np.ndarray, frame: tuple[int, int, int]) -> Image.Image:
    values = np.clip(255 * np.asarray(pixels, dtype=float), 0, 255).astype(np.uint8)
    if values.shape[-1] == 1:
        values = np.repeat(values, 3, axis=-1)
    image = Image.fromarray(values[..., :3])
    if max(image.size) > SIDE:
        image = image.resize((SIDE, SIDE))
    framed = Image.new("RGB", (image.width + 4, image.height + 4), frame)
    framed.paste(image, (2, 2))
    return framed


def _rounded(value: Any) -> Any:
    """Numbers with five digits, as lists."""
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    values = np.asarray(value)
    return float(f"{float(values):.5g}") if values.ndim == 0 else _rounded(values.tolist())
