import dataclasses
import json
import math

import pytest

from taskmix.adaptation import BayesianHead
from taskmix.adaptation.gradient import CalibratedGradient, Gradient
from taskmix.baselines import MAML
from taskmix.cli.compare import variant
from taskmix.experiments import (
    METHODS,
    EvolvingImages,
    Method,
    Regression,
    build_learner,
    method,
    methods_for,
)
from taskmix.experiments.methods import TASK_MODELS
from taskmix.experiments.settings_json import learner_from_json
from taskmix.learner import Told
from taskmix.likelihood import Categorical, Gaussian
from taskmix.training.run_folder import as_json


@pytest.mark.parametrize("name", methods_for(Gaussian()))
def test_every_method_takes_the_settings_of_the_experiment(name):
    settings = Regression(meta_rate=0.25, head_rate=0.5, hidden=(3,)).learner_settings()
    learner = build_learner(METHODS[name].build, settings, {})
    model = getattr(learner, "task_model", learner)
    network = model.features if isinstance(model, BayesianHead) else model.model
    assert learner.meta_rate == (0.5 if isinstance(model, BayesianHead) else 0.25)
    assert network.hidden == (3,)


def test_told_is_what_the_learner_asks_for():
    boundaries = {"task-aware", "laplace", "ewc", "online-ewc", "si", "vcl"}
    for name, one in METHODS.items():
        expected = Told.BOUNDARIES if name in boundaries else Told.NOTHING
        assert one.told is (Told.FAMILY if "per-family" in name else expected), name


def test_methods_for_classes_only_are_left_out_of_regression():
    only = {name for name, one in METHODS.items() if one.classes_only}
    assert set(methods_for(Gaussian())) == set(METHODS) - only
    assert set(methods_for(Categorical())) == set(METHODS)


def test_setting_without_a_field_is_left_out():
    assert "families" not in {field.name for field in dataclasses.fields(MAML)}
    assert isinstance(build_learner(MAML, {"families": 3}, {}), MAML)


def test_setting_that_a_learner_does_not_know_is_an_error():
    with pytest.raises(ValueError, match="MAML has no setting components, famlies; it has"):
        build_learner(MAML, {}, {"famlies": 3, "components": 2})


SETTINGS = Regression().learner_settings()
WITH_TASK_MODELS = [
    name
    for name, one in METHODS.items()
    if one.task_model and name not in ("nonparametric", "task-aware")
]


@pytest.mark.parametrize("kind", TASK_MODELS)
@pytest.mark.parametrize("name", WITH_TASK_MODELS)
def test_method_can_have_any_task_model_with_its_own_rate_and_clip(name, kind):
    learner = variant(f"{name}:{kind}", SETTINGS)
    head = kind == "bayesian-head"
    assert type(learner.task_model) is TASK_MODELS[kind]
    assert learner.meta_rate == (2e-3 if head else 1e-3)
    assert learner.meta_clip == (1.0 if head else math.inf)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mixture", Gradient),
        ("uniform", Gradient),
        ("nonparametric:paper", Gradient),
        ("task-aware:paper", Gradient),
        ("maml-per-family", Gradient),
        ("replay", Gradient),
        ("alpaca", BayesianHead),
        ("alpaca-per-family-replay", BayesianHead),
        ("mixture:calibrated-gradient", CalibratedGradient),
        ("nonparametric:paper:bayesian-head", BayesianHead),
        ("nonparametric:bayesian-head:paper", BayesianHead),
    ],
)
def test_task_model_is_the_usual_one_unless_asked_for(name, kind):
    assert type(variant(name, SETTINGS).task_model) is kind


@pytest.mark.parametrize("name", ["mixture:4:bayesian-head", "mixture:bayesian-head:4"])
def test_parts_of_a_name_come_in_any_order(name):
    learner = variant(name, SETTINGS)
    assert learner.components == 4
    assert type(learner.task_model) is BayesianHead


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("maml:bayesian-head", "MAML has its own way to adapt"),
        ("maml:4", "maml has no number of components"),
        ("mixture:bayesian-had", "mixture has no rule 'bayesian-had'"),
        ("mixture:3:4", "twice"),
        ("mixture:gradient:bayesian-head", "twice"),
    ],
)
def test_name_that_makes_no_sense_is_an_error(name, problem):
    with pytest.raises(ValueError, match=problem):
        variant(name, SETTINGS)


def test_unknown_task_model_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'bayesian-head'"):
        build_learner(METHODS["mixture"].build, SETTINGS, {}, "bayesian-heat")


@pytest.mark.parametrize("experiment", [Regression(), EvolvingImages()])
@pytest.mark.parametrize("kind", TASK_MODELS)
@pytest.mark.parametrize("name", ["mixture", "nonparametric:paper", "alpaca", "maml-per-family"])
def test_learner_comes_back_from_its_json(name, kind, experiment):
    learner = variant(f"{name}:{kind}", experiment.learner_settings())
    told = json.loads(json.dumps(as_json(learner)))
    assert learner_from_json(told) == learner


def test_unknown_method_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'nonparametric'"):
        method("non-parametric")


def test_rule_of_the_paper_is_built_where_there_is_one():
    departs = Method("a", MAML, 2017, "", "", paper=lambda: "letter")
    assert departs.rule("paper")() == "letter"
    assert departs.rule("ours") is MAML


@pytest.mark.parametrize("rule", ["paper", "other"])
def test_rule_that_a_method_does_not_have_is_an_error(rule):
    with pytest.raises(ValueError, match=f"maml has no rule '{rule}'; use ours"):
        METHODS["maml"].rule(rule)
