"""Reports in a real Chromium: everything draws, nothing is asked for, everybody can read it."""

import json

import numpy as np
import pytest
from tests.report.browser import chromium, needs_a_browser
from tests.report.test_report import HOSTILE, table

from taskmix.reporting.examples import KeptExamples
from taskmix.reporting.markup import Section, figure, page
from taskmix.reporting.report import report
from taskmix.reporting.run_page import run_sections
from taskmix.reporting.runs import read_run

DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
PHASES = [
    {"start": 0, "stop": 20, "families": ["sinusoid"]},
    {"start": 20, "stop": 40, "families": [HOSTILE]},
]


@pytest.fixture(scope="module")
def browser():
    needs_a_browser()
    with chromium() as one:
        yield one


def task(why, **more):
    return {
        "why": why,
        "family": HOSTILE,
        "support": {"x": [[0.0], [1.0]], "y": [[0.5], [1.5]]},
        "query": {
            "x": [[0.5], [0.2]],
            "y": [[1.0], [0.7]],
            "mean": [[0.9], [0.8]],
            "low": [[0.1], [0.2]],
            "high": [[1.4], [1.2]],
        },
        **more,
    }


@pytest.fixture
def run_page(write_run, tmp_path):
    """A run with everything that a report can show, and hostile names in all places."""
    folder = write_run(phases=PHASES)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["families"][HOSTILE] = line["families"].pop("step")
        line["prequential"] = {"sinusoid": 0.5, HOSTILE: 0.25}
        for number, one in enumerate(line["families"].values()):
            one["component_error"] = [1.0 + number, 3.0 - number][: len(one["component_error"])]
            one["background"] = 0.1
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    events = [{"iteration": 21, "event": "alarm"}]
    events += [{"iteration": 22, "event": "spawned", "clusters": 2, "cluster": 1}]
    events += [{"iteration": 39, "event": "removed", "clusters": 1, "cluster": 0}]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    levels = [0.1, 0.5, 0.9]
    covered = {"sinusoid": levels, HOSTILE: [0.05, 0.4, 0.8]}
    summary = {"clusters": 2, "seconds": 75.0, "iterations": 40, "mean_forgetting": 0.1}
    summary |= {"calibration": {"levels": levels, "covered": covered}, "notes": [HOSTILE]}
    (folder / "summary.json").write_text(json.dumps(summary))
    image = {"why": "nothing", "image": DOT, "family": HOSTILE, "background": 0.9}
    rows = task("alarm", support={"x": [[1.0, 2.0]], "y": [[3.0]]})
    examples = KeptExamples({0: [task("cluster", share=0.9)]}, [image], [rows])
    path = tmp_path / "run.html"
    sections = run_sections(read_run(folder), ["run", "regression", "--out", HOSTILE], examples)
    path.write_text(page(HOSTILE, HOSTILE, sections, "end"))
    return path


@pytest.fixture
def comparison_page(write_run, tmp_path):
    final = {name: {"error": 1.0, "ci95": 0.1} for name in ("sinusoid", "step")}
    summary = {
        "measure": "error",
        "final": final,
        "coverage": {"sinusoid": None, "step": None},
        "forgetting": dict.fromkeys(final, 0.0),
        "mean_forgetting": 0.0,
        "prequential": {},
        "assignment": {"nmi": 0.5},
        "clusters": 2,
        "detection": {"delays": [], "missed": 0, "false": 0},
        "seconds": 1.0,
    }
    for place, method in enumerate(("maml", "nonparametric", "ewc")):
        for seed in (0, 1):
            own = {name: {"error": 3.0 - place + seed / 9, "ci95": 0.1} for name in final}
            told = summary | {"method": method, "seed": seed, "final": own}
            write_run(method=method, seed=seed, **{"summary.json": json.dumps(told)})
    return report(tmp_path, tmp_path / "comparison.html")


@pytest.fixture(params=["run", "comparison", "table", "classes"])
def any_page(request, tmp_path):
    if request.param in ("table", "classes"):
        labels = ("no", HOSTILE) if request.param == "classes" else None
        return table(labels=labels).report(tmp_path / "table.html")
    return request.getfixturevalue(f"{request.param}_page")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_every_picture_draws_without_a_complaint_and_nothing_is_asked_for(
    browser, any_page, width, dark
):
    browser.show(any_page, width, dark=dark)
    assert browser.run("return document.body.dataset.ready") == "yes"
    assert browser.problems() == []
    asked = browser.requests()
    assert asked[0] == any_page.as_uri()
    assert [one for one in asked[1:] if not one.startswith("data:")] == []
    marks = browser.run(
        "return [...document.querySelectorAll('figure[data-kind]')].map((f) => "
        "f.querySelectorAll('.plot > svg path, .plot > svg circle, .plot > svg rect').length)"
    )
    assert marks
    assert min(marks) > 0
    broken = browser.run(
        "return [...document.querySelectorAll('svg *')].filter((e) => [...e.attributes]"
        ".some((a) => a.value.includes('NaN') || a.value.includes('undefined'))).length"
    )
    assert broken == 0
    # Wide tables scroll within themselves; the page does not.
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return document.images.length") == (1 if "run.html" in any_page.name else 0)


def test_everybody_can_use_a_report(browser, any_page):
    """axe-core finds nothing, in light and in dark."""
    selenium = pytest.importorskip("axe_core_python.selenium", reason="axe-core-python is missing")
    for dark in (False, True):
        browser.show(any_page, dark=dark)
        browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
        found = selenium.Axe().run(browser.driver)["violations"]
        assert [(one["id"], [n["target"] for n in one["nodes"]][:5]) for one in found] == []


def test_pointing_at_a_line_tells_its_values_and_dragging_zooms(browser, run_page):
    browser.show(run_page)
    chart = "#stream .plot > svg"
    browser.move(chart, 0.5, 0.5)
    text = browser.run(
        "await new Promise((r) => setTimeout(r, 200)); "
        "return document.querySelector('#stream .tip').textContent"
    )
    assert "iteration 20" in text
    assert HOSTILE[:20] in text
    ticks = (
        "return [...document.querySelectorAll('#stream .plot > svg text.tick')]"
        ".map((t) => t.textContent)"
    )
    before = browser.run(ticks)
    browser.move(chart, 0.4, 0.5, "mousePressed", "left")
    browser.move(chart, 0.6, 0.5, "mouseMoved", "left")
    browser.move(chart, 0.6, 0.5, "mouseReleased", "left")
    zoomed = browser.run(ticks)
    assert "40" in before
    assert "40" not in zoomed
    # The other chart over the same axis follows.
    other = browser.run(ticks.replace("#stream", "#clusters-over-time"))
    assert "40" not in other


def test_a_method_can_be_switched_off_and_on_again(browser, comparison_page):
    browser.show(comparison_page)
    count = "return document.querySelectorAll('#stream .plot > svg path.line').length"
    click = "document.querySelector('#stream .legend button').click()"
    assert browser.run(count) == 3
    browser.run(click)
    assert browser.run(count) == 2
    browser.run(click)
    assert browser.run(count) == 3


def test_a_click_on_a_heading_sorts_the_table_by_its_numbers(browser, comparison_page):
    browser.show(comparison_page)
    script = (
        "const t = document.querySelector('table.sortable'); "
        "[...t.tHead.rows[0].cells].find((c) => c.textContent.startsWith('mean error'))"
        ".querySelector('button').click(); "
        "return [...t.tBodies[0].rows].map((r) => Number(r.cells[2].dataset.value))"
    )
    first, second = browser.run(script), browser.run(script)
    assert first == sorted(first)
    assert second == first[::-1]


def test_any_task_of_a_table_can_be_chosen_by_its_name(browser, tmp_path):
    browser.show(table().report(tmp_path / "table.html"))
    browser.run(
        "const i = document.querySelector('#tasks input[type=search]'); i.value = 'b'; i.onchange()"
    )
    said = "return document.querySelector('#tasks .about').textContent"
    assert browser.run(said).startswith("Task b: regime 0")
    browser.run("document.querySelector('#tasks button[aria-label=\"next task\"]').click()")
    assert browser.run(said).startswith("Task </script><img")


def test_keys_read_a_chart_aloud(browser, run_page):
    browser.show(run_page)
    said = browser.run(
        "const s = document.querySelector('#stream .plot > svg'); s.focus(); "
        "s.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'})); "
        "return document.querySelector('#stream output').textContent"
    )
    assert said.startswith("iteration 0")


def test_a_hundred_thousand_points_are_drawn_and_zoomed_at_once(browser, tmp_path):
    x = np.arange(100_000)
    y = np.sin(x / 500) + np.random.default_rng(0).normal(size=x.size) / 5
    spec = {
        "x": {"label": "task", "min": 0, "max": 99_999},
        "y": {"label": "error"},
        "series": [
            {"name": "line", "x": x, "y": y, "colour": "c0"},
            {"name": "dots", "kind": "dots", "x": x, "y": -y, "colour": "c1"},
        ],
        "sorted": True,
    }
    path = tmp_path / "many.html"
    body = figure("plot", spec, "many points")
    path.write_text(page("many", "points", [Section("many", "Many", body)], "end"))
    browser.show(path)
    milliseconds = browser.run(
        "const b = [...document.querySelectorAll('.zoom button')]; const times = []; "
        "for (const i of [0, 0, 1, 2]) { const t = performance.now(); b[i].click(); "
        "times.push(performance.now() - t); } return times"
    )
    # Far below what a person notices when alone; machines that run tests are rarely that.
    assert np.median(milliseconds) < 1000
    length = browser.run("return document.querySelector('path.line').getAttribute('d').length")
    # A few points per column of pixels, not one per value.
    assert length < 200_000


def test_print_opens_what_is_folded_and_needs_no_colour_of_the_screen(browser, run_page):
    browser.show(run_page, dark=True)
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert len(printed) > 10_000
    assert browser.problems() == []


def test_small_pictures_are_as_small_on_paper(browser, run_page):
    browser.show(run_page, width=794)
    widths = (
        "dispatchEvent(new Event('beforeprint')); return ['#stream', '.gallery'].map((place) => "
        "Number(document.querySelector(`${place} .plot > svg`).getAttribute('width')))"
    )
    assert browser.run(widths) == [660, 240]
