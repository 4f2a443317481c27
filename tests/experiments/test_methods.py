import json
import math

import pytest

from taskmix.adaptation import BayesianHead, RidgeHead
from taskmix.adaptation.calibrated import CalibratedGradient
from taskmix.adaptation.gradient import Gradient
from taskmix.baselines import EWC, MAML
from taskmix.experiments import (
    METHODS,
    EvolvingImages,
    Method,
    Recipe,
    Regression,
    method,
    methods_for,
)
from taskmix.experiments.recipes import SHARED, TASK_MODELS
from taskmix.experiments.settings_json import learner_from_json
from taskmix.experiments.variants import variant
from taskmix.learner import Told
from taskmix.likelihood import Categorical, Gaussian
from taskmix.mixture import OnlineMixture
from taskmix.training.run_folder import as_json


@pytest.mark.parametrize("name", methods_for(Gaussian()))
def test_every_method_takes_the_settings_of_the_experiment(name):
    settings = Regression(meta_rate=0.25, head_rate=0.5, hidden=(3,)).shared()
    learner = METHODS[name].recipe.build(settings)
    model = getattr(learner, "task_model", learner)
    network = model.features if isinstance(model, BayesianHead) else model.model
    assert learner.meta_rate == (0.5 if isinstance(model, BayesianHead) else 0.25)
    assert network.hidden == (3,)


def test_told_is_what_the_learner_asks_for():
    boundaries = {"task-aware", "laplace", "ewc", "online-ewc", "si", "vcl", "vc-bml"}
    for name, one in METHODS.items():
        expected = Told.BOUNDARIES if name in boundaries else Told.NOTHING
        assert one.told is (Told.FAMILY if "per-family" in name else expected), name


def test_methods_for_one_kind_of_targets_only_are_left_out_of_the_other():
    only = {name for name, one in METHODS.items() if one.classes_only}
    assert set(methods_for(Gaussian())) == set(METHODS) - only
    assert set(methods_for(Categorical())) == set(METHODS) - {"moca"}


def test_pace_of_the_papers_mixture_follows_the_first_phase():
    """A quarter of it to warm up, and as much cool-down as 1000 iterations in 7500."""
    shared = Regression(lengths=(400, 300, 250)).shared()
    learner = METHODS["nonparametric"].rule("paper").build(shared)
    assert (learner.warm_up, learner.refresh_every, learner.cool_down) == (100, 100, 53)
    asked = METHODS["nonparametric"].rule("paper").build(shared, {"warm_up": 7})
    assert (asked.warm_up, asked.cool_down) == (7, 53)


def test_setting_that_a_learner_does_not_know_is_an_error_with_the_nearest_name():
    complaint = "MAML has no setting 'meta_rat'. Did you mean 'meta_rate'"
    with pytest.raises(ValueError, match=complaint):
        METHODS["maml"].recipe.build(SETTINGS, {"meta_rat": 0.1})


@pytest.mark.parametrize(
    ("takes", "complaint"),
    [
        ({"modle": "model"}, "MAML has no setting 'modle'. Did you mean 'model'"),
        ({"model": "modle"}, "Shared has no setting 'modle'. Did you mean 'model'"),
    ],
)
def test_recipe_that_takes_what_is_not_there_is_an_error_at_once(takes, complaint):
    with pytest.raises(ValueError, match=complaint):
        Recipe(MAML, takes)


def test_nothing_shared_is_dropped_unless_a_recipe_says_so():
    """Every field of a learner that an experiment has a value for is taken, or fixed, by name."""
    by_another = {"task_model", "meta_rate"}
    for name, one in METHODS.items():
        for recipe in filter(None, (one.recipe, one.paper)):
            taken = {*recipe.takes, *recipe.suggested, *recipe.fixed}
            forgotten = (recipe.fields & SHARED) - taken - by_another
            assert not forgotten, (name, forgotten)


SETTINGS = Regression().shared()
WITH_TASK_MODELS = [
    name
    for name, one in METHODS.items()
    if one.recipe.task_model
    # Those that take one kind only, or another than was asked for.
    and name not in ("nonparametric", "task-aware", "moca")
    and not one.classes_only
]


@pytest.mark.parametrize("kind", sorted({*TASK_MODELS} - {"ridge-head"}))
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


@pytest.mark.parametrize(
    "name",
    ["r2d2", "r2d2-replay", "r2d2-per-family", "nonparametric", "mixture:ridge-head"],
)
def test_images_have_a_ridge_head_with_the_rate_and_clip_of_heads(name):
    learner = variant(name, EvolvingImages(head_rate=0.25, transductive=True).shared())
    assert type(learner.task_model) is RidgeHead
    assert learner.task_model.transductive
    assert (learner.meta_rate, learner.meta_clip) == (0.25, 1.0)


def test_regression_has_no_ridge_head():
    with pytest.raises(ValueError, match="no task model 'ridge-head'"):
        variant("mixture:ridge-head", SETTINGS)


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
        ("mixture:temperature=1:temperature=2", "twice"),
        ("mixture:temperatur=1", "Did you mean 'temperature'"),
        ("mixture:temperature=hot", "temperature is 'hot' in .*; it must be of type float"),
        ("maml:model=mlp", "model is 'mlp' in .*; it must be of type Model"),
        ("mixture:gradient:bayesian-head", "twice"),
    ],
)
def test_name_that_makes_no_sense_is_an_error(name, problem):
    with pytest.raises(ValueError, match=problem):
        variant(name, SETTINGS)


def test_any_setting_can_be_varied_in_a_name():
    learner = variant("mixture:components=2:detached=true:temperature=inf", SETTINGS)
    assert (learner.components, learner.detached, learner.temperature) == (2, True, math.inf)


def test_unknown_task_model_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'bayesian-head'"):
        METHODS["mixture"].recipe.build(SETTINGS, task_model="bayesian-heat")


@pytest.mark.parametrize("experiment", [Regression(), EvolvingImages()])
@pytest.mark.parametrize("kind", TASK_MODELS)
@pytest.mark.parametrize("name", ["mixture", "nonparametric:paper", "alpaca", "maml-per-family"])
def test_learner_comes_back_from_its_json(name, kind, experiment):
    shared = experiment.shared()
    if kind not in shared.task_models:
        pytest.skip(f"{type(experiment).__name__} has no {kind}")
    learner = variant(f"{name}:{kind}", shared)
    told = json.loads(json.dumps(as_json(learner)))
    assert learner_from_json(told) == learner


def test_unknown_method_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'nonparametric'"):
        method("non-parametric")


def test_rule_of_the_paper_is_built_where_there_is_one():
    ours, letter = Recipe.of(MAML), Recipe.of(EWC)
    departs = Method("a", ours, paper=letter)
    assert departs.rule("paper") is letter
    assert departs.rule("ours") is ours


@pytest.mark.parametrize("rule", ["paper", "other"])
def test_rule_that_a_method_does_not_have_is_an_error(rule):
    with pytest.raises(ValueError, match=f"maml has no rule '{rule}'; use ours"):
        METHODS["maml"].rule(rule)


def test_a_registered_mixture_keeps_its_own_settings_where_the_experiment_has_none():
    recipe = Recipe.of(OnlineMixture)
    usual, seeing = recipe.build(Regression().shared()), recipe.build(EvolvingImages().shared())
    assert (usual.rehearsed, usual.inherits, usual.scouting, usual.youth) == (8, False, 3, 5)
    assert (seeing.rehearsed, seeing.inherits, seeing.scouting, seeing.youth) == (4, True, 0, 3)
    assert (usual.probation, usual.parting, usual.parting_updates) == (400, 15, 20)
    assert (seeing.probation, seeing.parting, seeing.parting_updates) == (150, 6, 2)
    assert (usual.worth, usual.split_worth, seeing.worth, seeing.split_worth) == (6, 8, 4, 4)
