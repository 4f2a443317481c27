"""The figures of the paper's data, and what its figures of runs are drawn from."""

import numpy as np
import pytest

import taskmix as tm
from taskmix.cli import main
from taskmix.evaluation.protocol import likeliest_errors, weighted_errors
from taskmix.reporting import read_run
from taskmix.reporting.reproducing import FIGURES, loss_figures

ERRORS = np.array([[4.0, 8.0, np.inf], [1.0, 3.0, 2.0]])
SHARES = np.array([[0.75, 0.25, 0.0], [0.2, 0.3, 0.5]])


def test_weighted_error_is_the_mean_of_the_clusters_errors_by_hand():
    """0.75 * 4 + 0.25 * 8 = 5, where the diverged cluster has no say; 0.2 + 0.9 + 1 = 2.1."""
    np.testing.assert_allclose(weighted_errors(ERRORS, SHARES), [5.0, 2.1])


def test_weights_that_leave_some_to_the_background_count_among_the_clusters():
    np.testing.assert_allclose(weighted_errors(ERRORS, SHARES / 2), [5.0, 2.1])
    np.testing.assert_allclose(weighted_errors(ERRORS[1:], np.zeros((1, 3))), [2.0])


def test_likeliest_error_is_that_of_the_largest_responsibility():
    np.testing.assert_allclose(likeliest_errors(ERRORS, SHARES), [4.0, 2.0])


def test_figures_have_the_numbers_of_the_paper():
    assert {name: figure.experiment for name, figure in FIGURES.items()} == {
        "figure-6": "regression",
        "figure-7": "regression",
        "figure-8": "evolving-images",
        "figure-9": "evolving-images",
    }


@pytest.mark.parametrize("name", ["figure-4", "figure-5"])
def test_figure_of_data_is_drawn_by_the_command(name, tmp_path, capsys):
    assert main(["reproduce", name, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 5000
    assert f"{name}.png" in capsys.readouterr().out


def test_unknown_figure_of_data_is_refused():
    with pytest.raises(ValueError, match="figure-4"):
        tm.draw_figure("figure-44")


def test_weighted_figure_is_drawn_where_runs_know_it(write_run, tmp_path):
    run = read_run(write_run())
    assert len(loss_figures([run], tmp_path / "figure-6")) == 2
    known = run.__class__(**{**vars(run), "weighted": 2 * run.error, "likeliest": run.error})
    drawn = loss_figures([known], tmp_path / "figure-6")
    assert {path.name for path in drawn if path.suffix == ".png"} == {
        "figure-6.png",
        "figure-6-weighted.png",
        "figure-6-likeliest.png",
    }
    np.testing.assert_array_equal(known.shown("weighted"), 2 * known.shown("mixture"))
