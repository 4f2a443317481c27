"""One page for a folder: what it says, and that what others wrote stays text."""

import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

import taskmix as tm
from taskmix.reporting.markup import Markup, figure, page, plain, tag
from taskmix.reporting.pictures import cluster_map, ratios
from taskmix.reporting.report import report, table_report, watch
from taskmix.reporting.run_page import notes_of_run
from taskmix.reporting.runs import read_run
from taskmix.reporting.table_folder import read_table
from taskmix.tables.result import Estimate, Regime, TableAlarm, TableResult

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u202e[red]"


class Elements(HTMLParser):
    """Every element and every heading of a page, and whether all that begins also ends."""

    EMPTY = frozenset({"meta", "link", "img", "input", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def specs(self):
        return [json.loads(text) for tag, text in self.texts if tag == "script" and text[:1] == "{"]


def table(labels=None, **changes):
    tasks = ["a", "b", HOSTILE]
    names = np.repeat(tasks, 4)
    target = np.tile([0, 1, 1, 0], 3)
    predictions = {"row": np.arange(12), "task": names}
    if labels:
        predictions["target"] = [labels[one] for one in target]
        predictions["label"] = [labels[1]] * 12
        predictions["probability"] = np.full(12, 0.75)
    else:
        predictions |= {"target": target.astype(float), "mean": np.full(12, 0.5)}
        predictions |= {"low": np.full(12, -1.0), "high": np.full(12, 0.8)}
    fields = {
        "kind": "classification" if labels else "regression",
        "measure": "mean squared error of the standardised target",
        "error": Estimate(0.5, 0.4, 0.6),
        "baselines": {"support mean": Estimate(0.7, 0.6, 0.8)},
        "coverage": None if labels else 0.5,
        "regimes": (Regime(0, 2, 0.4, "a", "b"), Regime(-1, 1, 0.9, HOSTILE, HOSTILE)),
        "alarms": (TableAlarm((HOSTILE,), (8, 9)),),
        "births": ("b",),
        "tasks": pl.DataFrame(
            {
                "task": tasks,
                "first_row": [0, 4, 8],
                "queries": [4, 4, 4],
                "error": [0.1, 0.2, 0.9],
                "regime": [0, 0, -1],
                "novelty": [0.1, 0.2, 1.0],
                "alarm": [False, False, True],
                "error of support mean": [0.7, 0.7, 0.7],
            }
        ),
        "predictions": pl.DataFrame(predictions),
        "left_out": {"tasks_too_small": 1},
        "chosen": {"support": 2},
        "support": pl.DataFrame(
            {
                "row": [0, 1],
                "task": ["a", "a"],
                "target": [labels[0]] * 2 if labels else [0.0, 1.0],
            }
        ),
        "target": HOSTILE,
        "labels": labels,
    }
    return TableResult(**(fields | changes))


def test_what_is_not_markup_becomes_text_and_what_ends_a_script_does_not():
    assert tag("p", "<b>", Markup("<i>x</i>"), title='"') == (
        '<p title="&quot;">&lt;b&gt;<i>x</i></p>'
    )
    made = figure("plot", {"series": [{"name": HOSTILE}]}, HOSTILE)
    assert "</script><img" not in made
    assert made.count("<script") == made.count("</script>") == 1


def test_data_of_charts_have_five_digits_and_no_infinity():
    assert plain([1.23456789, float("inf"), np.float32(0.5), np.array([1, 2]), True]) == [
        1.2346,
        None,
        0.5,
        [1, 2],
        True,
    ]


def test_page_asks_for_nothing_from_elsewhere_and_runs_only_its_own_script():
    text = page("t", "k", [], "end")
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert "script-src 'sha256-" in text.replace("&#x27;", "'")


def test_report_of_a_run_has_every_section_and_marks_the_birth(write_run):
    folder = write_run()
    path = report(folder)
    assert path == folder / "report.html"
    found = Elements(path.read_text())
    anchors = {attributes.get("id") for attributes in found.attributes}
    assert anchors >= {
        *("summary", "stream", "clusters-over-time", "clusters"),
        *("calibration", "unexplained", "settings", "repeat"),
    }
    course = found.specs()[0]
    assert [mark["x"] for mark in course["marks"] if mark["kind"] == "birth"] == [22]
    assert [one["y"] for one in course["views"][0]["series"]] == [[1.0] * 3, [2.0] * 3]


def test_hostile_names_in_a_run_are_text(write_run):
    folder = write_run(method="x")
    config = json.loads((folder / "config.json").read_text())
    config |= {"method": HOSTILE, "experiment": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    (folder / "config.json").write_text(json.dumps(config))
    found = Elements(report(folder).read_text())
    assert "img" not in found.tags
    assert not any(key.startswith("on") for one in found.attributes for key in one)
    assert any("<img src=x onerror" in text for tag, text in found.texts if tag == "dd")


def test_a_run_that_has_not_ended_says_so(write_run):
    folder = write_run(**{"summary.json": None})
    assert "has not ended" in report(folder).read_text()


def test_a_run_that_ended_with_an_error_says_that_it_diverged(write_run):
    folder = write_run(**{"summary.json": None})
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["families"]["step"]["error"] = None
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    event = {"iteration": 30, "event": "batch skipped", "tasks": [0, 1, 2]}
    (folder / "events.jsonl").write_text(json.dumps(event))
    journal = folder / "journal.jsonl"
    journal.write_text('{"note": "diverged", "why": "Lower the <b>meta rate</b>."}\n')
    notes = notes_of_run(read_run(folder))
    assert [note.split(":")[0] for note in notes] == ["Ended early", "Diverged", "Not finite"]
    assert "the error on step" in notes[1]
    assert "3 tasks of 1 batches" in notes[2]
    text = report(folder).read_text()
    assert "Diverged: the error on step" in text
    assert "The run could not go on" in text
    assert "Lower the &lt;b&gt;meta rate" in text
    # Nobody waits for it; once it is begun anew, it has not ended.
    assert watch(folder, say=str).exists()
    journal.write_text(journal.read_text() + '{"note": "begun anew"}\n')
    assert read_run(folder).why is None


def test_runs_without_a_comparison_file_are_compared_all_the_same(write_run, tmp_path):
    summary = {
        "measure": "error",
        "final": {name: {"error": 1.0, "ci95": 0.1} for name in ("sinusoid", "step")},
        "forgetting": {"sinusoid": 0.0, "step": 0.0},
        "mean_forgetting": 0.0,
        "prequential": {},
        "assignment": {"nmi": 0.5},
        "clusters": 2,
        "detection": {"delays": [], "missed": 0, "false": 0},
        "seconds": 1.0,
    }
    for method in ("maml", "nonparametric"):
        for seed in (0, 1):
            own = summary | {"method": method, "seed": seed}
            if method == "maml":
                own["final"] = {name: {"error": 2.0 + seed, "ci95": 0.1} for name in own["final"]}
            write_run(method=method, seed=seed, **{"summary.json": json.dumps(own)})
    found = Elements(report(tmp_path).read_text())
    rows = next(spec for spec in found.specs() if "rows" in spec)["rows"]
    assert ("a", "stream") in found.texts
    # maml is worse by 1 and by 2: a mean of 1.5, t(0.975, 1) = 12.706, s / sqrt(2) = 0.5.
    assert [(row["name"], row["mean"]) for row in rows] == [("MAML", 1.5)]
    assert rows[0]["high"] == pytest.approx(1.5 + 12.706 * 0.5, rel=1e-3)


def test_a_folder_without_runs_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="There is no run"):
        report(tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        report(tmp_path / "none")


def test_clusters_with_the_same_errors_lie_at_the_same_place(write_run):
    assert ratios(np.array([[1.0, 1.0, 4.0], [2.0, 2.0, 2.0]]))[0].tolist() == [1, 1, 2]
    found = cluster_map(read_run(write_run()))
    assert found["discs"][0]["x"] == pytest.approx(found["discs"][1]["x"])


def test_a_cluster_is_named_for_the_families_of_which_it_takes_most(write_run):
    folder = write_run()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["families"]["sinusoid"]["responsibilities"] = [0.3, 0.25]
    lines[-1]["families"]["step"]["responsibilities"] = [0.1, 0.4]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    discs = cluster_map(read_run(folder))["discs"]
    assert [disc["families"] for disc in discs] == ["sinusoid", "step"]


def test_report_of_a_table_is_the_same_from_its_folder(tmp_path):
    result = table()
    result.save(tmp_path / "table")
    direct = result.report(tmp_path / "table.html").read_text()
    read = report(tmp_path / "table").read_text()
    specs = [Elements(text).specs() for text in (direct, read)]
    assert specs[0] == specs[1]
    assert read_table(tmp_path / "table").alarms == result.alarms


def test_report_of_a_table_folder_has_its_settings_and_the_command_that_repeats_it(tmp_path):
    folder = table().save(tmp_path / "table")
    (folder / "command.json").write_text(json.dumps({"command": ["run", "table", "my sales.csv"]}))
    (folder / "config.json").write_text(json.dumps({"learner": {"split": "morning"}}))
    for path in (report(folder), table_report(table(), tmp_path / "page.html", folder)):
        texts = Elements(path.read_text()).texts
        assert ("code", "taskmix run table 'my sales.csv'") in texts
        assert ("dd", "morning") in texts
        assert ("h1", "Table: table") in texts


def test_hostile_tasks_of_a_table_are_text(tmp_path):
    found = Elements(table().report(tmp_path / "page.html").read_text())
    assert "img" not in found.tags
    tasks = next(spec for spec in found.specs() if "tasks" in spec)
    assert tasks["tasks"][2]["name"].startswith("</script><img")
    assert (tasks["tasks"][1]["start"], tasks["tasks"][1]["stop"]) == (4, 8)
    assert (tasks["tasks"][0]["from"], tasks["tasks"][0]["until"]) == (0, 2)


def test_report_of_classes_counts_labels_and_compares_sureness_with_being_right(tmp_path):
    labels = ("no", HOSTILE)
    found = Elements(table(labels=labels).report(tmp_path / "page.html").read_text())
    calibration = next(spec for spec in found.specs() if spec.get("diagonal"))
    assert calibration["series"][0]["x"] == [0.75]
    assert calibration["series"][0]["y"] == [0.5]
    assert ("td", "6") in found.texts


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(lambda good: good.replace(b"\n1,", b"\n1x,"), id="a number that is none"),
        pytest.param(lambda good: re.sub(rb",[^,]*\n", b",words\n", good), id="words in a column"),
        pytest.param(gzip.compress, id="packed"),
    ],
)
def test_odd_rows_of_a_table_are_refused_in_one_line(tmp_path, spoiled):
    folder = table().save(tmp_path / "table")
    path = folder / "predictions.csv"
    path.write_bytes(spoiled(path.read_bytes()))
    with pytest.raises(ValueError, match="repeat") as refusal:
        report(folder)
    assert "\n" not in str(refusal.value)


def test_a_damaged_table_is_refused_in_one_line(tmp_path):
    folder = table().save(tmp_path / "table")
    told = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(told | {"regimes": 3}))
    with pytest.raises(ValueError, match=r"result.json is not what taskmix run table writes"):
        report(folder)
    (folder / "result.json").write_text(json.dumps(told))
    (folder / "tasks.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"tasks.csv has no column 'task'"):
        report(folder)


def test_watching_writes_again_until_the_run_has_ended(write_run, tmp_path):
    folder = write_run(**{"summary.json": None})
    said, looks = [], []

    def rest(seconds):
        looks.append((folder / "report.html").read_text())
        line = (folder / "metrics.jsonl").read_text().splitlines()[-1]
        if len(looks) == 1:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(line + "\n")
        if len(looks) == 3:
            (folder / "summary.json").write_text("{}")
            sums = {}
            for name in ("metrics.jsonl", "events.jsonl", "summary.json"):
                content = (folder / name).read_bytes()
                sums[name] = {
                    "bytes": len(content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            (folder / "checksums.json").write_text(json.dumps(sums))

    path = watch(folder, say=said.append, rest=rest)
    assert len(looks) == 3
    assert 'data-refresh="5"' in looks[0]
    assert looks[1] != looks[0]
    assert looks[2] == looks[1]
    assert "data-refresh=" not in path.read_text().split("<script>")[0]
    assert said[-1].startswith("ended")


def test_what_kept_nothing_says_how_to_keep_something():
    found = tm.experiments.comparison.Comparison()
    with pytest.raises(ValueError, match="out=FOLDER"):
        found.report()
