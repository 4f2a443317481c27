"""Every public name says what it takes, what it gives, and shows an example that runs.

Doctests themselves run where they stand.
"""

import ast
import dataclasses
import doctest
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import taskmix as tm
from taskmix.streams import consecutive, gradual, interleaved, recurring, regression
from taskmix.tables.answers import TablePrediction
from taskmix.tables.result import TableResult

CONTRACTS = (
    tm.Learner,
    tm.Growing,
    tm.TaskModel,
    tm.Model,
    tm.Likelihood,
    tm.Stream,
    tm.Experiment,
)
"""What they ask for is documented there, once, and not with every implementation."""
USED = (
    *CONTRACTS,
    *(
        tm.Examples,
        tm.TaskBatch,
        tm.Hints,
        tm.Info,
        tm.Prediction,
        tm.Fitted,
        tm.Predictor,
        tm.Live,
    ),
    *(tm.TableLearner, TableResult, TablePrediction),
)
"""What people call methods of."""
STANDARD = {name for contract in CONTRACTS for name in vars(contract) if not name.startswith("_")}
MODULES = {name for name in tm.__all__ if inspect.ismodule(getattr(tm, name))}
NAMES = [name for name in tm.__all__ if name != "__version__" and name not in MODULES]
FUNCTIONS = {
    **{name: getattr(tm, name) for name in NAMES if inspect.isfunction(getattr(tm, name))},
    **{f"streams.{one.__name__}": one for one in (regression, consecutive, recurring)},
    **{f"streams.{one.__name__}": one for one in (interleaved, gradual)},
    **{f"stores.{one}": getattr(tm.stores, one) for one in ("prepare_store", "open_store")},
    "stores.resized": tm.stores.resized,
    "testing.check_learner": tm.testing.check_learner,
}
CLASSES = {
    **{name: getattr(tm, name) for name in NAMES if inspect.isclass(getattr(tm, name))},
    "TableResult": TableResult,
    "TablePrediction": TablePrediction,
    "stores.Options": tm.stores.Options,
}


def sections(text: str) -> dict[str, str]:
    """A docstring of numpy's style by the names of its sections."""
    parts = re.split(r"^(\w+)\n-+\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(text: str) -> set[str]:
    """Parameters that a section describes, alone or several at once."""
    found = re.findall(r"^(\*{0,2}\w[\w, *]*?)(?: :.*)?$", text, re.MULTILINE)
    return {name.strip(" *") for names in found for name in names.split(",")}


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


def gives_nothing(function: Callable[..., Any]) -> bool:
    return inspect.signature(function).return_annotation in (None, "None", "NoReturn")


def field_comments(kind: type) -> set[str]:
    """Fields with a line of text below them, in the class or in one that it extends."""
    found: set[str] = set()
    for one in kind.__mro__:
        if not one.__module__.startswith("taskmix"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                found.add(field.target.id)
    return found


def check_function(name: str, function: Callable[..., Any]) -> None:
    parts = sections(inspect.getdoc(function) or "")
    missing = parameters(function) - described(parts.get("Parameters", ""))
    assert not missing, f"{name} does not say what {sorted(missing)} are"
    assert gives_nothing(function) or "Returns" in parts, f"{name} does not say what it gives"


@pytest.mark.parametrize("name", sorted(MODULES | set(FUNCTIONS) | set(CLASSES)))
def test_public_name_has_an_example(name):
    thing = {**FUNCTIONS, **CLASSES}.get(name) or getattr(tm, name)
    assert doctest.DocTestParser().get_examples(inspect.getdoc(thing) or ""), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_says_what_it_takes_and_gives(name):
    check_function(name, FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_class_says_what_it_is_made_of(name):
    kind = CLASSES[name]
    said = described(sections(inspect.getdoc(kind) or "").get("Parameters", ""))
    if dataclasses.is_dataclass(kind):
        fields = {one.name for one in dataclasses.fields(kind) if one.init}
        fields = {field for field in fields if not field.startswith("_")}
        said |= field_comments(kind)
    elif "__init__" in vars(kind) and kind not in CONTRACTS:
        fields = parameters(kind.__init__)
    else:
        return
    assert not fields - said, f"{name} does not say what {sorted(fields - said)} are"


@pytest.mark.parametrize("name", [name for name, kind in CLASSES.items() if kind in USED])
def test_methods_of_what_users_hold_say_what_they_take_and_give(name):
    for method, function in methods(CLASSES[name]):
        check_function(f"{name}.{method}", function)


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_has_a_docstring_unless_a_contract_has_it(name):
    for method, function in methods(CLASSES[name]):
        assert method in STANDARD or inspect.getdoc(function), f"{name}.{method}"


def methods(kind: type) -> list[tuple[str, Callable[..., Any]]]:
    """Those of the class itself; a field whose default is a function is none."""
    fields = inspect.get_annotations(kind)
    every = ((name, getattr(thing, "__func__", thing)) for name, thing in vars(kind).items())
    return [
        (name, thing)
        for name, thing in every
        if not name.startswith("_") and name not in fields and inspect.isfunction(thing)
    ]
