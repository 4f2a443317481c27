import json

import matplotlib.figure
import numpy as np
import pytest
from matplotlib.lines import Line2D
from tests.report.conftest import family

from taskmix.reporting import loss_figure, read_run, read_runs, responsibility_figure
from taskmix.reporting.style import (
    BACKGROUND,
    BLACK,
    CLUSTER_COLOURS,
    SHADE,
    VERMILION,
    in_order,
    legend,
    panels,
    save,
    top_of,
)
from taskmix.streams import Phase


@pytest.fixture
def comparison(write_run, tmp_path):
    for method in ("maml", "nonparametric"):
        for seed in (0, 1):
            write_run(method, seed)
    return read_runs(tmp_path)


def lines_of(ax, colour):
    return [line for line in ax.get_lines() if line.get_color() == colour]


def test_figures_are_written_as_png_and_pdf(comparison, tmp_path):
    png, pdf = loss_figure(comparison, tmp_path / "figures" / "figure-6")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_loss_figure_draws_the_mean_over_seeds_and_a_band_to_the_extremes(
    comparison, tmp_path, drawn
):
    loss_figure(comparison, tmp_path / "figure-6")
    sinusoid = drawn[0].axes[0]
    for colour in (VERMILION, BLACK):
        (line,) = lines_of(sinusoid, colour)
        np.testing.assert_array_equal(line.get_xydata(), [[0, 1.5], [20, 1.5], [40, 1.5]])
    band = sinusoid.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (1.0, 2.0)


def test_ours_is_drawn_over_the_others(comparison, tmp_path, drawn):
    loss_figure(comparison, tmp_path / "figure-6")
    assert drawn[0].axes[0].get_lines()[-1].get_color() == VERMILION


def test_phases_without_the_family_are_shaded(comparison, tmp_path, drawn):
    loss_figure(comparison, tmp_path / "figure-6")
    shaded = [
        [patch.get_extents().transformed(ax.transData.inverted()).intervalx for patch in ax.patches]
        for ax in drawn[0].axes
    ]
    np.testing.assert_allclose(shaded, [[[20, 40]], [[0, 20]]], atol=1e-9)
    assert matplotlib.colors.to_hex(drawn[0].axes[0].patches[0].get_facecolor()) == SHADE


def test_captions_name_the_seeds_and_the_band(comparison, tmp_path, drawn):
    loss_figure(comparison, tmp_path / "figure-6")
    assert "2 seeds (0, 1); band: smallest to largest" in drawn[0].get_supxlabel()


@pytest.mark.parametrize("families", [1, 2, 3])
def test_caption_and_legend_are_no_wider_than_the_figure(tmp_path, families):
    figure, [(part, _)] = panels(["plain"] * families, [Phase(0, 20, ("plain",))], share_y=True)
    names = ("nonparametric (ours)", "MAML", "task-aware (ours, told)", "uniform", "mixture")
    legend(part, [Line2D([], [], label=name) for name in names])
    save(figure, tmp_path / "narrow", "Line: mean over 3 seeds (0-2); band: the largest.  " * 3)
    for text in (figure._supxlabel, *part.legends):
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert "  " not in figure.get_supxlabel()


def test_a_single_run_gets_no_band_and_says_so(write_run, tmp_path, drawn):
    loss_figure([read_run(write_run(seed=7))], tmp_path / "figure-6")
    assert not drawn[0].axes[0].collections
    assert "One run, seed 7." in drawn[0].get_supxlabel()


def test_more_methods_than_can_be_told_apart_are_drawn_in_even_parts_with_ours_in_each(
    write_run, tmp_path, drawn
):
    others = [f"method-{number}" for number in range(8)]
    runs = [read_run(write_run(method)) for method in ("nonparametric", *others)]
    loss_figure(runs, tmp_path / "figure-6")
    first, second = drawn[0].subfigs
    for part, expected in ((first, others[:4]), (second, others[4:])):
        (legend,) = part.legends
        named = [text.get_text() for text in legend.get_texts()]
        assert named == ["nonparametric (ours)", *expected]
        assert len(lines_of(part.axes[0], VERMILION)) == 1
    assert first.axes[1].get_ylim() == second.axes[1].get_ylim()


def test_responsibility_figure_draws_each_cluster_from_its_birth(write_run, tmp_path, drawn):
    responsibility_figure([read_run(write_run())], tmp_path / "figure-7")
    (first,) = lines_of(drawn[0].axes[0], CLUSTER_COLOURS[0])
    second, spawn = lines_of(drawn[0].axes[0], CLUSTER_COLOURS[1])
    np.testing.assert_array_equal(first.get_ydata(), [1, 1, 0.5])
    np.testing.assert_array_equal(second.get_ydata(), [np.nan, np.nan, 0.5])
    np.testing.assert_array_equal(spawn.get_xdata(), [22])


ALARM = {"iteration": 21, "event": "alarm"}
SPAWN = {"iteration": 22, "event": "spawned", "clusters": 2, "cluster": 3}


def legend_of(figure):
    (legend,) = figure.subfigs[0].legends
    return [text.get_text() for text in legend.get_texts()]


def test_responsibility_figure_marks_alarms_and_births_by_cluster(write_run, tmp_path, drawn):
    events = "\n".join(map(json.dumps, (ALARM, SPAWN)))
    responsibility_figure([read_run(write_run(**{"events.jsonl": events}))], tmp_path / "figure-7")
    ax = drawn[0].axes[0]
    (alarm,) = [line for line in ax.get_lines() if line.get_marker() == "v"]
    np.testing.assert_array_equal(alarm.get_xdata(), [21])
    (birth,) = lines_of(ax, CLUSTER_COLOURS[3])
    np.testing.assert_array_equal(birth.get_xydata(), [[22, 0]])
    assert legend_of(drawn[0]) == ["cluster 1", "cluster 2", "spawn", "alarm"]


def test_responsibility_figure_draws_the_background_as_a_grey_area(write_run, tmp_path, drawn):
    families = {"sinusoid": family(1.0, 1, background=0.25), "step": family(1.0, 1)}
    lines = [{"iteration": i, "clusters": 1, "families": families} for i in (0, 20, 40)]
    metrics = "\n".join(map(json.dumps, lines))
    run = read_run(write_run(**{"metrics.jsonl": metrics, "events.jsonl": None}))
    responsibility_figure([run], tmp_path / "figure-7")
    sinusoid, step = drawn[0].axes
    (area,) = sinusoid.collections
    assert area.get_paths()[0].vertices[:, 1].max() == 0.25
    assert matplotlib.colors.to_hex(area.get_facecolor()[0]) == BACKGROUND
    assert not step.collections
    assert legend_of(drawn[0]) == ["cluster 1", "background"]


def test_responsibility_figure_takes_seeds_with_different_cluster_counts(
    write_run, tmp_path, drawn
):
    one_cluster = write_run(seed=1, iterations=(0, 20, 21), **{"events.jsonl": None})
    metrics = one_cluster / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"iteration": 21', '"iteration": 40'))
    runs = [read_run(write_run(seed=0)), read_run(one_cluster)]
    responsibility_figure(runs, tmp_path / "figure-7")
    mean = lines_of(drawn[0].axes[0], CLUSTER_COLOURS[1])[2]
    np.testing.assert_array_equal(mean.get_ydata(), [np.nan, np.nan, 0.5])


def test_responsibility_figure_refuses_several_methods(comparison, tmp_path):
    with pytest.raises(ValueError, match=r"shows one method.*\['nonparametric', 'maml'\]"):
        responsibility_figure(comparison, tmp_path / "figure-7")


def test_runs_on_different_streams_are_refused(write_run, tmp_path):
    other = [{"start": 0, "stop": 40, "families": ["sinusoid", "step"]}]
    runs = [read_run(write_run()), read_run(write_run("maml", phases=other))]
    with pytest.raises(ValueError, match="had different streams"):
        loss_figure(runs, tmp_path / "figure-6")


def test_no_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no runs to draw"):
        loss_figure([], tmp_path / "figure-6")


def test_methods_are_always_in_the_same_order_and_unknown_ones_last():
    assert in_order(["zebra", "maml", "apple", "nonparametric"]) == [
        "nonparametric",
        "maml",
        "apple",
        "zebra",
    ]


def test_an_outlier_does_not_stretch_the_axis():
    values = np.append(np.full(999, 2.0), 1e6)
    assert 2 < top_of(values) < 3


def test_the_axis_holds_all_values_when_none_is_an_outlier():
    assert top_of(np.linspace(1, 5, 100)) > 5


def test_the_axis_survives_values_that_are_all_nan():
    assert top_of(np.full(3, np.nan)) == 1
