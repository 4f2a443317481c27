import json

import numpy as np
import pytest
from tests.report.conftest import family

from taskmix.reporting import read_run, read_runs
from taskmix.reporting.runs import by_method
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


def lines_of(*evaluations) -> str:
    """Of one family, from the numbers of the clusters and their shares."""
    return "\n".join(
        json.dumps(
            {
                "iteration": 20 * place,
                "clusters": len(ids),
                "cluster_ids": ids,
                "families": {
                    "step": {
                        **family(1.0, 1, background=0.25),
                        "component_error": [float(one) for one in ids],
                        "responsibilities": shares,
                        "coverage": 0.5,
                    }
                },
            }
        )
        for place, (ids, shares) in enumerate(evaluations)
    )


def test_a_cluster_keeps_its_place_when_others_are_removed(write_run):
    metrics = lines_of(([0], [1.0]), ([2, 0], [0.75, 0.25]), ([2], [1.0]))
    run = read_run(write_run(**{"metrics.jsonl": metrics}))
    nan = np.nan
    expected = [[1, nan, nan], [0.25, nan, 0.75], [nan, nan, 1]]
    np.testing.assert_array_equal(run.responsibilities, [expected])
    np.testing.assert_array_equal(run.component_error[0, 1], [0, nan, 2])
    np.testing.assert_array_equal(run.background, [[0.25] * 3])
    np.testing.assert_array_equal(run.coverage, [[0.5] * 3])


def test_events_tell_births_with_numbers_and_alarms(write_run):
    events = [
        {"iteration": 21, "event": "alarm"},
        {"iteration": 22, "event": "spawned", "clusters": 2, "cluster": 1},
        {"iteration": 30, "event": "removed", "clusters": 1, "cluster": 1},
        {"iteration": 35, "event": "spawned", "clusters": 2, "cluster": 2},
    ]
    run = read_run(write_run(**{"events.jsonl": "\n".join(map(json.dumps, events))}))
    assert run.births == ((22, 1), (35, 2))
    assert (run.spawns, run.alarms) == ((22, 35), (21,))


def test_a_run_of_an_older_version_has_clusters_in_order_and_no_background(write_run):
    run = read_run(write_run())
    assert run.births == ((22, 1),)
    assert not run.background.any()
    assert np.isnan(run.coverage).all()


@pytest.mark.parametrize("ids", [[-1], [0.5], ["a"], [10**9], [True], [0, 1], "0", 3])
def test_numbers_of_clusters_that_no_run_writes_are_refused(write_run, ids):
    metrics = lines_of(([0], [1.0])).replace('"cluster_ids": [0]', f'"cluster_ids": {ids!r}')
    metrics = metrics.replace("True", "true").replace("'", '"')
    with pytest.raises(ValueError, match=r"holds what no run writes"):
        read_run(write_run(**{"metrics.jsonl": metrics}))


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
        ("config.json", "[" * 100_000, r"config\.json is not valid JSON"),
        ("config.json", '{"seed": ' + "9" * 5000 + "}", r"config\.json is not valid JSON"),
        ("config.json", "[]", r"config\.json holds a list"),
        ("config.json", "{}", "has no 'phases'"),
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
