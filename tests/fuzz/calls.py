"""Targets of the public API: calls with values that no one should give.

A call is written down as JSON and spoiled like a file, so that a finding can be kept and made
again. What comes out is a result or an error that says what is wrong; a ``TypeError`` is one for
values that are of no use as such a parameter, as Python has it.
"""

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tests.fuzz.files import Files, Target, as_json, files_in, other_header, resigned
from tests.fuzz.mutations import HOSTILE, spoiled, spoiled_json
from tests.fuzz.tables import frame_of, small

import taskmix
from taskmix.experiments import METHODS
from taskmix.experiments.group import shapes_of
from taskmix.experiments.launching import Launcher
from taskmix.experiments.settings_json import learner_from_json
from taskmix.training.run_folder import as_json as as_described
from taskmix.training.step import step

CALL = "call.json"


def _call_of(folder: Path) -> Any:
    """What is to be called; a file that is no JSON any more is no call."""
    try:
        return json.loads((folder / CALL).read_bytes())
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no call: {error}") from None


def _signed(good: Files, name: str, draw: random.Random) -> Files:
    return {name: as_json(spoiled_json(json.loads(good[name]), draw))}


# Tables in memory


def _good_frame() -> Files:
    frame = frame_of().with_columns(when=np.arange(45) // 2)
    columns = {name: frame[name].to_list() for name in frame.columns}
    params = {"task": "shop", "target": "sold", "time": "when", "inputs": ["size", "kind"]}
    more = {"support": 2, "split": "first", "kind": None, "seed": 0, "batch": 3, "updates": 1}
    settings = {"capacity": 2, "reservoir": 8, "reference": 8}
    return {CALL: as_json({"columns": columns, **params, **more, "settings": settings})}


def _fit_frame(folder: Path) -> None:
    params = _call_of(folder)
    if not isinstance(params, dict):
        return
    columns = params.pop("columns", {})
    known = taskmix.TableLearner().get_params()
    with small():
        learner = taskmix.TableLearner(**{n: v for n, v in params.items() if n in known})
        result = learner.fit_online(columns)
        assert np.isfinite(result.error.value)
        repr(learner), str(result)


# Arrays


@cache
def _predictor() -> taskmix.Predictor:
    """One that has learned nothing, so that next to nothing is compiled."""
    learner = taskmix.MAML(taskmix.MLP(hidden=(2,)), adaptation=taskmix.Adaptation(steps=1))
    stream = taskmix.streams.regression(("linear",), (2,), tasks=2)
    state = learner.init(jax.random.key(0), stream.batch(jax.random.key(0), 0))
    return taskmix.Predictor(learner, state, {"example": shapes_of(stream)})


def _good_arrays() -> Files:
    support = [[0.0], [1.0], [2.0]]
    return {CALL: as_json({"support_x": support, "support_y": support, "query_x": [[3.0]]})}


def _predict_arrays(folder: Path) -> None:
    given = _call_of(folder)
    if not isinstance(given, dict):
        return
    wanted = [given.get(name) for name in ("support_x", "support_y", "query_x")]
    prediction = _predictor().predict(*wanted)
    assert np.isfinite(prediction.mean).all()


def _good_batch() -> Files:
    side = {"x": [[[0.0], [1.0]]] * 2, "y": [[[1.0], [2.0]]] * 2, "mask": [[True, True]] * 2}
    return {CALL: as_json({"support": side, "query": side})}


def _step_batch(folder: Path) -> None:
    """A batch of one's own: refused, or learned from without harm to the state."""
    given = _call_of(folder)
    try:
        sides = [
            taskmix.Examples(*(np.array(given[part][name]) for name in ("x", "y", "mask")))
            for part in ("support", "query")
        ]
    except (TypeError, KeyError, IndexError, OverflowError):
        return
    batch = taskmix.check_batch(taskmix.TaskBatch(*sides))
    predictor = _predictor()
    state, _ = step(predictor.learner, predictor.state, batch, jax.random.key(0))
    for leaf in jax.tree.leaves(state):
        assert np.isfinite(leaf).all()


# Settings


def _good_settings() -> Files:
    stream = {"families": ["linear", "step"], "lengths": [2, 2], "tasks": 2}
    learner = {"hidden": [2], "steps": 1, "rate": 0.01, "meta_rate": 0.001}
    run = {"seeds": [0], "iterations": 3, "evaluate_every": 2, "test_tasks": 2}
    return {CALL: as_json({**stream, **learner, **run})}


def _fit_settings(folder: Path) -> None:
    given = _call_of(folder)
    if not isinstance(given, dict):
        return
    given = {**json.loads(_good_settings()[CALL]), **given}
    try:
        adaptation = taskmix.Adaptation(steps=given["steps"], rate=given["rate"])
        learner = taskmix.MAML(
            taskmix.MLP(hidden=_tuple(given["hidden"])),
            adaptation=adaptation,
            meta_rate=given["meta_rate"],
        )
        lengths = _tuple(given["lengths"])
        stream = taskmix.streams.regression(
            _tuple(given["families"]), lengths, tasks=given["tasks"]
        )
        if _large([lengths, *(given[name] for name in SIZES)]):
            return
        taskmix.fit(
            learner,
            stream,
            seeds=given["seeds"],
            iterations=given["iterations"],
            settings=taskmix.Settings(
                evaluate_every=given["evaluate_every"], test_tasks=given["test_tasks"]
            ),
        )
    except TypeError as error:
        if not str(error).strip():
            raise


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


SIZES = ("iterations", "tasks", "test_tasks", "hidden", "seeds")


def _large(values: list[Any]) -> bool:
    """A run that is meant to take long, or much memory, is no finding."""
    every = [one for value in values for one in (_tuple(value) if _several(value) else [value])]
    return any(isinstance(one, int | float) and one > 1000 for one in every)


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple)


# Descriptions of learners


@cache
def _descriptions() -> list[Any]:
    """Of every method, on regression and with small networks."""
    small = taskmix.Regression(hidden=(2,), adaptation=taskmix.Adaptation(steps=1)).shared()
    recipes = [
        recipe
        for method in METHODS.values()
        for recipe in (method.recipe, method.paper)
        if recipe is not None and not method.classes_only
    ]
    return [as_described(recipe.build(small)) for recipe in recipes]


def _good_descriptions() -> Files:
    return {CALL: as_json(_descriptions())}


def _describe(folder: Path) -> None:
    """Those that are as they were are built; of the others the shapes of a prediction are asked."""
    given = _call_of(folder)
    if not isinstance(given, list):
        return
    stream = taskmix.streams.regression(("linear",), (2,), tasks=2)
    batch = stream.batch(jax.random.key(0), 0)
    for one in given:
        learner = learner_from_json(one)
        if one in _descriptions():
            continue
        try:
            state = jax.eval_shape(lambda: learner.init(jax.random.key(0), batch))  # noqa: B023
            task = batch.task(0)
            jax.eval_shape(learner.predict, state, task.support, task.query.x, batch.hints)
        except Exception as error:
            # As the reader of models has it, which says so in one line.
            raise ValueError(str(error) or type(error).__name__) from None


def _spoiled_description(good: Files, name: str, draw: random.Random) -> Files:
    every = json.loads(good[name])
    at = draw.randrange(len(every))
    return {name: as_json([*every[:at], spoiled_json(every[at], draw), *every[at + 1 :]])}


# Live learners


def _live_parts() -> tuple[taskmix.Learner, taskmix.TaskBatch]:
    stream = taskmix.streams.regression(("linear",), (2,), tasks=2)
    return _predictor().learner, stream.batch(jax.random.key(0), 0)


def _good_live() -> Files:
    learner, batch = _live_parts()
    live = taskmix.Live(learner)
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            live.learn(batch)
            live.save(name)
        return files_in(Path(name))


def _go_on_live(folder: Path) -> None:
    learner, batch = _live_parts()
    live = taskmix.Live.load(learner, folder)
    before = live.batches
    live.learn(batch)
    for leaf in jax.tree.leaves(live.state):
        assert np.isfinite(leaf).all()
    assert live.batches == before + 1
    live.save(folder)


def _signed_live(good: Files, name: str, draw: random.Random) -> Files:
    if name.endswith(".safetensors"):
        return resigned(good, name, other_header(good[name], draw))
    if name.endswith(".json"):
        return _signed(good, name, draw)
    return {**good, name: spoiled(good[name], draw)}


# Options of a scheduler


def _good_options() -> Files:
    options = ["timeout_min=5", "mem_gb=4", "slurm_partition=cpu", "slurm_comment=x", "name=x"]
    return {CALL: as_json({"options": options, "job_minutes": 5})}


def _launch(folder: Path) -> None:
    """Up to where a job would be handed over."""
    given = _call_of(folder)
    if not isinstance(given, dict):
        return
    options = given.get("options")
    if not isinstance(options, list) or not all(isinstance(one, str) for one in options):
        return
    Launcher("local", options=tuple(options)).executor(folder / "jobs")


def _spoiled_options(good: Files, name: str, draw: random.Random) -> Files:
    call = json.loads(good[name])
    at = draw.randrange(len(call["options"]))
    option, _, value = call["options"][at].partition("=")
    if draw.random() < 0.5:
        value = spoiled(value.encode(), draw).decode("utf-8", "surrogateescape")
    else:
        value = str(draw.choice(HOSTILE))
    call["options"][at] = f"{option}={value}" if draw.random() < 0.9 else f"{value}={option}"
    return {**good, name: as_json(call)}


CALL_TARGETS = {
    "frame": Target(_good_frame, _fit_frame, _signed),
    "arrays": Target(_good_arrays, _predict_arrays, _signed),
    "batch": Target(_good_batch, _step_batch, _signed),
    "settings": Target(_good_settings, _fit_settings, _signed),
    "described": Target(_good_descriptions, _describe, _spoiled_description),
    "live": Target(_good_live, _go_on_live, _signed_live),
    "options": Target(_good_options, _launch, _spoiled_options),
}
