import numpy as np
import pytest

from taskmix.report import read_run, read_runs
from taskmix.report.runs import by_method
from taskmix.streams import Phase


def test_a_run_is_read_into_arrays(write_run):
    run = read_run(write_run(method="maml", seed=3))
    assert (run.method, run.seed, run.families) == ("maml", 3, ("sinusoid", "step"))
    assert run.phases == (Phase(0, 20, ("sinusoid",)), Phase(20, 40, ("step",)))
    assert run.spawns == (22,)
    assert run.summary == {"clusters": 2}
    np.testing.assert_array_equal(run.iterations, [0, 20, 40])
    np.testing.assert_array_equal(run.error, [[4, 4, 4], [5, 5, 5]])
    np.testing.assert_array_equal(run.oracle, [[2, 2, 2], [2.5, 2.5, 2.5]])


def test_a_cluster_is_nan_before_its_birth(write_run):
    run = read_run(write_run())
    expected = [[1, np.nan], [1, np.nan], [0.5, 0.5]]
    np.testing.assert_array_equal(run.responsibilities, [expected, expected])


def test_null_is_read_as_nan(write_run):
    line = (
        '{"iteration": 0, "clusters": 1, "families": {"step": {"error": null, "ci95": null, '
        '"oracle": null, "component_error": [null], "responsibilities": [1.0]}}}'
    )
    run = read_run(write_run(**{"metrics.jsonl": line}))
    assert np.isnan(run.error).all()
    assert np.isnan(run.component_error).all()


def test_a_run_in_progress_has_no_summary_and_maybe_no_events(write_run):
    run = read_run(write_run(**{"summary.json": None, "events.jsonl": None}))
    assert run.summary is None
    assert run.spawns == ()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, r"config\.json is missing"),
        ("config.json", "{", r"config\.json is not valid JSON"),
        ("config.json", "[]", r"config\.json holds a list"),
        ("config.json", "{}", "has no 'method'"),
        ("metrics.jsonl", None, r"metrics\.jsonl is missing"),
        ("metrics.jsonl", "", "no evaluation yet"),
        ("metrics.jsonl", '{"families": {}}\n{"iter', r"metrics\.jsonl, line 2 is not valid JSON"),
    ],
)
def test_a_broken_file_is_named(write_run, file, content, message):
    folder = write_run(**{file: content})
    with pytest.raises(ValueError, match=message):
        read_run(folder)


def test_a_path_that_is_no_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        read_run(tmp_path / "absent")


def test_all_runs_of_a_comparison_are_found(write_run, tmp_path):
    for method, seed in (("maml", 1), ("maml", 0), ("uniform", 0)):
        write_run(method, seed)
    groups = by_method(read_runs(tmp_path))
    assert {name: [run.seed for run in runs] for name, runs in groups.items()} == {
        "maml": [0, 1],
        "uniform": [0],
    }


def test_a_folder_without_runs_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="There is no run"):
        read_runs(tmp_path)


def test_seeds_with_different_evaluations_cannot_be_averaged(write_run, tmp_path):
    write_run("maml", 0)
    write_run("maml", 1, iterations=(0, 40))
    with pytest.raises(ValueError, match="Seeds 0 and 1 of maml were evaluated at different"):
        by_method(read_runs(tmp_path))
