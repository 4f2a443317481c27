import io

import pytest
from rich.console import Console

from taskmix.names import printable
from taskmix.reporting import accuracy_table, comparison_table, shot_table


def cell(mean, ci95=0.1):
    return {"mean": mean, "ci95": ci95}


def rendered(table) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    return console.file.getvalue()


def method(error, told="nothing", seeds=(0, 1), **changes):
    return {
        "measure": "error",
        "seeds": list(seeds),
        "interval": "95 % over seeds (Student t)",
        "told": told,
        "clusters": cell(3.0),
        "final": {"sinusoid": cell(error)},
        "mean_error": cell(error),
        "mean_forgetting": cell(0.5),
        "nmi": cell(0.25),
        **changes,
    }


def rows(comparison):
    """Every row as a dict from column header to cell."""
    table = comparison_table(comparison)
    columns = {column.header: list(column.cells) for column in table.columns}
    return [{name: cells[row] for name, cells in columns.items()} for row in range(table.row_count)]


def bold_rows(comparison, column):
    return [
        row
        for row, cells in enumerate(rows(comparison))
        if any(span.style == "bold" for span in cells[column].spans)
    ]


@pytest.fixture
def comparison():
    return {
        "experiment": "regression",
        "methods": {
            "maml-per-family": method(0.9, told="family"),
            "maml": method(4.0),
            "nonparametric": method(1.25),
        },
    }


def test_one_row_per_method_in_the_fixed_order(comparison):
    assert [row["method"].plain for row in rows(comparison)] == [
        "nonparametric\ntold nothing",
        "maml\ntold nothing",
        "maml-per-family\ntold family",
    ]


def test_a_cell_is_a_mean_and_its_interval(comparison):
    assert rows(comparison)[0]["sinusoid"].plain == "1.25\n±0.10"


def test_the_best_of_those_told_nothing_is_bold(comparison):
    assert bold_rows(comparison, "mean") == [0]


def test_equal_values_are_not_bold(comparison):
    assert bold_rows(comparison, "forgetting") == []


def test_a_higher_nmi_is_better(comparison):
    comparison["methods"]["maml"]["nmi"] = cell(0.5)
    assert bold_rows(comparison, "NMI") == [1]


def test_accuracies_are_in_per_cent_and_the_highest_is_best():
    known = {"measure": "accuracy", "mean_error": None, "mean_accuracy": cell(0.3)}
    comparison = {
        "experiment": "evolving-images",
        "methods": {"maml": method(0.25, **known), "nonparametric": method(0.31, **known)},
    }
    assert rows(comparison)[0]["sinusoid"].plain == "31.00\n±10.00"
    assert bold_rows(comparison, "sinusoid") == [0]


@pytest.mark.parametrize("name", ["[/p]", "[red]x", "a\x1b[31m"])
def test_names_of_others_colour_nothing(name):
    one = method(1.0, final={name: cell(1.0)})
    table = comparison_table({"experiment": name, "methods": {name: one}})
    assert rendered(table).count(printable(name)) == 3


def test_one_seed_shows_no_interval(comparison):
    comparison["methods"] = {"maml": method(4.0, seeds=[3], final={"sinusoid": cell(4.0, None)})}
    assert rows(comparison)[0]["sinusoid"].plain == "4.00"
    assert "seed 3" in comparison_table(comparison).caption


def test_an_unknown_value_is_a_dash(comparison):
    comparison["methods"]["maml"]["final"]["sinusoid"] = cell(None, None)
    assert rows(comparison)[1]["sinusoid"].plain == "-"


def test_the_table_names_its_interval_when_printed(comparison):
    console = Console(width=120, file=io.StringIO())
    console.print(comparison_table(comparison))
    assert "Mean of 2 seeds ± 95 % over seeds (Student t)" in console.file.getvalue()


def test_the_table_of_three_families_fits_80_columns_without_breaking_a_word(comparison):
    families = ("polynomial", "sinusoid", "sawtooth")
    for entry in comparison["methods"].values():
        entry["final"] = {family: cell(1.0) for family in families}
    console = Console(width=80, file=io.StringIO())
    console.print(comparison_table(comparison))
    printed = console.file.getvalue()
    assert all(word in printed for word in ("maml-per-family", "forgetting", *families))


def with_accuracy(**accuracies: float) -> dict:
    test = {
        "split": "val",
        "episodes": 600,
        "queries_per_class": 15,
        "interval": "95 % over tasks (normal)",
        "iteration": 900,
        "parameters": 32_773,
        "ci95": 0.0123,
    }
    methods = {name: {"test": {**test, "accuracy": value}} for name, value in accuracies.items()}
    return {"experiment": "few-shot", "methods": methods}


def test_accuracies_are_in_per_cent_with_their_interval_and_protocol():
    text = rendered(accuracy_table(with_accuracy(maml=0.4012)))
    assert "40.12 ± 1.23" in text
    assert "32,773" in text
    assert "val classes" in text
    assert "600 tasks, 15 queries per class" in text


def test_methods_are_shown_against_the_first_one_given():
    comparison = with_accuracy(maml=0.4, mixture=0.42)
    against = {"method": "maml", "mean": 0.02, "ci95": 0.005}
    comparison["methods"]["mixture"]["test"]["against"] = against
    text = rendered(accuracy_table(comparison))
    assert "against maml" in text
    assert "+2.00 ± 0.50" in text


def test_shots_are_columns():
    text = rendered(shot_table({1: with_accuracy(maml=0.4), 5: with_accuracy(maml=0.55)}))
    assert "1-shot" in text
    assert "5-shot" in text
    assert "40.00 ± 1.23" in text
    assert "55.00 ± 1.23" in text
