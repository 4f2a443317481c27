import dataclasses

import pytest

from taskmix.baselines import MAML
from taskmix.experiments import METHODS, Method, Regression, build_learner, method, methods_for
from taskmix.learner import Told
from taskmix.likelihood import Categorical, Gaussian


@pytest.mark.parametrize("name", methods_for(Gaussian()))
def test_every_method_takes_the_settings_of_the_experiment(name):
    settings = Regression(meta_rate=0.25, hidden=(3,)).learner_settings()
    learner = build_learner(METHODS[name].build, settings, {})
    assert learner.meta_rate == 0.25
    assert learner.model.hidden == (3,)


def test_told_is_what_the_learner_asks_for():
    told = {name: METHODS[name].told for name in METHODS}
    for name in ("task-aware", "ewc", "online-ewc", "si", "vcl"):
        assert told.pop(name) is Told.BOUNDARIES
    assert told.pop("maml-per-family") is Told.FAMILY
    assert set(told.values()) == {Told.NOTHING}


def test_methods_for_classes_only_are_left_out_of_regression():
    only = {name for name, one in METHODS.items() if one.classes_only}
    assert set(methods_for(Gaussian())) == set(METHODS) - only
    assert set(methods_for(Categorical())) == set(METHODS)


def test_setting_without_a_field_is_left_out():
    assert "families" not in {field.name for field in dataclasses.fields(MAML)}
    assert isinstance(build_learner(MAML, {"families": 3}, {}), MAML)


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
