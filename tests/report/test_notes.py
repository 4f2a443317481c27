"""What is said in words, since no number says it."""

from tests.report.test_report import table

from taskmix.experiments.notes import notes_by_method, notes_of
from taskmix.tables.result import Estimate, notes_of_table


def test_notes_of_a_table_say_that_intervals_are_narrow_and_that_simpler_is_better():
    assert [note.split(":")[0] for note in notes_of_table(table(coverage=0.9))] == ["Left out"]
    worse = {"support mean": Estimate(0.9, 0.8, 1.0), "global ridge": Estimate(0.3, 0.2, 0.4)}
    notes = " ".join(notes_of_table(table(coverage=0.75, baselines=worse)))
    assert "held only 75.0 % of the targets" in notes
    assert "global ridge has the smaller error (0.3 against 0.5)" in notes


def test_notes_speak_of_divergence_missed_alarms_full_capacity_and_missing_uncertainty():
    summary = {
        "measure": "error",
        "final": {"a": {"error": None}, "b": {"error": 1.0}, "c": {"error": None}},
        "coverage": {"a": None},
        "grows": True,
        "growths": 1,
        "capacity": 8,
        "skipped": {"tasks": 3, "batches": 2},
        "alarm_detection": {"delays": [4], "missed": 1, "false": 2},
    }
    notes = " ".join(notes_of(summary))
    for said in (
        "Diverged: the error on a and c",
        "3 tasks of 2 batches",
        "Missed alarm: 1 of 2 changes",
        "2 alarms answer no change",
        "until there was room for 8",
        "No uncertainty",
    ):
        assert said in notes
    fine = {"measure": "error", "final": {"a": {"error": 1.0}}, "coverage": {"a": 0.9}}
    assert notes_of(fine) == []


def test_notes_of_some_seeds_name_them():
    one = {"method": "maml", "measure": "error", "seed": 3, "final": {"a": {"error": None}}}
    other = one | {"seed": 4, "final": {"a": {"error": 1.0}}}
    assert notes_by_method({"summaries": [one, other]})["maml"][0].endswith("at the end (seed 3).")
