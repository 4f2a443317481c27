import numpy as np
import pytest
from matplotlib.colors import to_hex

from taskmix.reporting import overview_figure


def cell(mean, ci95=None):
    return {"mean": mean, "ci95": ci95}


def method(accuracy, forgetting, told="nothing", **changes):
    return {
        "measure": "accuracy",
        "seeds": [0, 1],
        "interval": "95 % over seeds (Student t)",
        "told": told,
        "mean_accuracy": accuracy,
        "mean_forgetting": forgetting,
        **changes,
    }


@pytest.fixture
def comparison():
    return {
        "experiment": "evolving-images",
        "methods": {
            "maml": method(cell(0.25, 0.125), cell(0.5, 0.25)),
            "ewc": method(cell(0.375, 0.125), cell(0.25, 0.125), told="boundaries"),
            "nonparametric": method(cell(0.5, 0.25), cell(0.0, 0.0)),
        },
    }


def dots(ax):
    """Value, row and filling of each dot, from above."""
    return [
        (*container[0].get_xydata()[0].tolist(), to_hex(container[0].get_markerfacecolor()))
        for container in ax.containers
    ]


def labels(figure):
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def test_methods_are_rows_with_the_most_accurate_first(comparison, tmp_path, drawn):
    overview_figure(comparison, tmp_path / "overview")
    end, forgotten = drawn[0].axes
    assert labels(drawn[0]) == ["nonparametric (ours)", "EWC (told)", "MAML"]
    assert [dot[:2] for dot in dots(end)] == [(50, 0), (37.5, 1), (25, 2)]
    assert [dot[:2] for dot in dots(forgotten)] == [(0, 0), (25, 1), (50, 2)]
    assert end.yaxis_inverted()


def test_a_bar_reaches_from_end_to_end_of_the_interval(comparison, tmp_path, drawn):
    overview_figure(comparison, tmp_path / "overview")
    bars = [container[2][0].get_segments()[0] for container in drawn[0].axes[0].containers]
    np.testing.assert_allclose([bar[:, 0] for bar in bars], [[25, 75], [25, 50], [12.5, 37.5]])


def test_dots_of_those_told_more_than_the_examples_are_hollow(comparison, tmp_path, drawn):
    overview_figure(comparison, tmp_path / "overview")
    hollow = [dot[2] == "#ffffff" for dot in dots(drawn[0].axes[0])]
    assert hollow == [False, True, False]


def test_the_smallest_error_is_first_and_not_in_per_cent(tmp_path, drawn):
    methods = {
        name: method(None, cell(0.0), measure="error", mean_error=cell(error))
        for name, error in (("maml", 4.0), ("nonparametric", 1.5))
    }
    overview_figure({"experiment": "regression", "methods": methods}, tmp_path / "overview")
    assert [dot[:2] for dot in dots(drawn[0].axes[0])] == [(1.5, 0), (4, 1)]


def test_a_method_that_diverged_is_last_and_has_no_dot(comparison, tmp_path, drawn):
    comparison["methods"]["nonparametric"]["mean_accuracy"] = cell(None)
    overview_figure(comparison, tmp_path / "overview")
    assert labels(drawn[0])[-1] == "nonparametric (ours)"
    assert len(dots(drawn[0].axes[0])) == 2


def test_a_single_seed_has_no_bars_and_the_caption_says_so(comparison, tmp_path, drawn):
    for one in comparison["methods"].values():
        one.update(seeds=[7], mean_accuracy=cell(0.25), mean_forgetting=cell(0.0))
    overview_figure(comparison, tmp_path / "overview")
    assert not any(container.has_xerr for container in drawn[0].axes[0].containers)
    assert "One run, seed 7." in drawn[0].get_supxlabel()
