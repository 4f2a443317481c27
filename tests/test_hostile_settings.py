"""Settings that no one should give: refused in one line where they are given, or usable.

Every number of every learner, network and stream is tried with values that are none.
"""

import dataclasses
import json
import math

import pytest

import taskmix as tm
from taskmix.experiments import METHODS
from taskmix.experiments.settings_json import learner_from_json
from taskmix.learner import Learner
from taskmix.training.run_folder import as_json

WHOLE = (0, -1, 2**31, 2**70, 10**400)
REAL = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308)
SMALL = tm.Regression(hidden=(2,), adaptation=tm.Adaptation(steps=1)).shared()
RECIPES = [
    recipe
    for method in METHODS.values()
    for recipe in (method.recipe, method.paper)
    if recipe is not None and not method.classes_only
]


def parts_of(thing, found: dict) -> dict:
    """All dataclasses within one, each kind once."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        found.setdefault(type(thing).__name__, thing)
        for field in dataclasses.fields(thing):
            parts_of(getattr(thing, field.name), found)
    return found


PARTS: dict = {}
for _thing in (
    *(recipe.build(SMALL) for recipe in RECIPES),
    *(tm.Conv4(), tm.Encoder(), tm.ResNet12(), tm.ResNetEncoder()),
    *(tm.Settings(), tm.Keeping(), tm.Launcher(), tm.streams.regression(("linear",), (4,))),
):
    parts_of(_thing, PARTS)


def numbers(part) -> list[tuple[str, tuple]]:
    found = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.init and isinstance(value, int | float) and not isinstance(value, bool):
            found.append((field.name, WHOLE if isinstance(value, int) else REAL))
    return found


@pytest.mark.parametrize("kind", PARTS)
def test_number_is_taken_or_refused_in_one_line_that_names_it(kind):
    part = PARTS[kind]
    for name, values in numbers(part):
        for value in values:
            try:
                made = dataclasses.replace(part, **{name: value})
            except ValueError as refusal:
                said = str(refusal)
                assert said.isprintable(), said
                assert len(said) < 600, said
                continue
            taken = getattr(made, name)
            assert taken == taken, f"{name} may be no number"
            if isinstance(made, Learner):
                again = learner_from_json(json.loads(json.dumps(as_json(made))))
                assert as_json(again) == as_json(made)


@pytest.mark.parametrize(
    ("part", "name", "values"),
    [
        ("MAML", "anneal_over", (-1,)),
        ("MAML", "meta_rate", (math.inf, 0.0)),
        ("FiniteMixture", "meta_clip", (-1.0, 0.0)),
        ("PaperMixture", "meta_clip", (-1.0, 0.0)),
        ("OnlineMixture", "meta_rate", (math.inf,)),
        ("MLP", "init_scale", (-1.0, math.inf)),
        ("MLP", "input_scale", (0.0, -1.0, math.inf)),
        ("Adaptation", "rate", (math.inf,)),
        ("PLATIPUS", "initial_log_variance", (math.inf,)),
        ("Launcher", "job_minutes", (0, -1)),
    ],
)
def test_number_that_nothing_could_be_learned_with_is_refused_where_it_is_given(part, name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(PARTS[part], **{name: value})
