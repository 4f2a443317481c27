"""The report of one run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.experiments.notes import notes_of
from taskmix.names import percent
from taskmix.reporting.examples import KeptExamples, cluster_gallery, unexplained_gallery
from taskmix.reporting.markup import (
    Markup,
    Section,
    chip,
    command_box,
    facts,
    figure,
    join,
    notes_box,
    paragraphs,
    settings_list,
    tag,
)
from taskmix.reporting.pictures import (
    cluster_map,
    colour,
    course,
    in_measure,
    lives,
    profiles,
    responsibilities,
)
from taskmix.reporting.runs import Run

TOLD = {
    "nothing": "It is told nothing beyond the examples.",
    "boundaries": "It is told when a new phase begins, which the others are not.",
    "family": "It is told the family of every task, which the others are not.",
}


def run_sections(
    run: Run, command: Sequence[str] | None, examples: KeptExamples | None
) -> list[Section]:
    """All that a folder tells of a run, in the order in which one would ask."""
    found = [
        Section("summary", "In short", _summary(run), "summary"),
        Section("stream", f"{run.measure.capitalize()} over the stream", _course(run), "stream"),
        Section("clusters-over-time", "Which cluster takes what", _shares(run), "responsibilities"),
        Section("clusters", "The clusters", _clusters(run, examples), "clusters"),
        Section("calibration", "Calibration", calibration(run.summary or {}, run), "calibration"),
        Section("unexplained", "Tasks that fitted nothing", _unexplained(run, examples), "novel"),
        Section("settings", "Settings", settings_of(run.config), "settings"),
        Section("repeat", "How to repeat it", repeating(run.config, command), "repeat"),
    ]
    return found


def _summary(run: Run) -> Markup:
    notes = notes_of_run(run)
    so_far = "The run has not ended: these are the numbers so far."
    if run.why is not None:
        so_far = "The run could not go on: these are the numbers up to there."
    return join(
        [
            paragraphs([so_far] if run.summary is None else []),
            tag("p", " ".join(sentences(run)), class_="lead"),
            facts(_facts(run)),
            notes_box("To be aware of", notes),
        ]
    )


def notes_of_run(run: Run) -> list[str]:
    """As the run wrote them, or what its summary says where an older version wrote none."""
    summary = run.summary
    if summary is None:
        found = {"measure": run.measure, "final": _final(run), "skipped": _skipped(run)}
        return [f"Ended early: {run.why}"] * (run.why is not None) + notes_of(found)
    if "notes" in summary:
        return [str(note) for note in summary["notes"]]
    return notes_of(
        {"grows": bool(run.spawns or run.alarms) or None, **summary}
        | {"measure": run.measure, "final": _final(run), "coverage": _coverage(run)}
    )


def _skipped(run: Run) -> dict[str, int]:
    """What was not learned from so far, as a summary counts it."""
    events = [one for one in run.events if one["event"] in ("batch skipped", "tasks skipped")]
    return {"batches": len(events), "tasks": sum(len(one.get("tasks", ())) for one in events)}


def _final(run: Run) -> dict[str, dict[str, float | None]]:
    return {
        family: {run.measure: float(last) if np.isfinite(last) else None}
        for family, last in zip(run.families, run.error[:, -1], strict=True)
    }


def _coverage(run: Run) -> dict[str, float | None]:
    last = run.coverage[:, -1]
    return {
        family: float(one) if np.isfinite(one) else None
        for family, one in zip(run.families, last, strict=True)
    }


def sentences(run: Run) -> list[str]:
    """What happened, in words."""
    done, whole = int(run.iterations[-1]), int(run.phases[-1].stop)
    stream = f"{done:,} task batches" if done == whole else f"{done:,} of {whole:,} task batches"
    kinds = _listed(list(dict.fromkeys(name for phase in run.phases for name in phase.families)))
    told = TOLD.get(str(run.config.get("told")), "")
    said = [f"{run.method} learned from {stream} in {len(run.phases)} phases: {kinds}. {told}"]
    last = in_measure(run, run.error[:, -1])
    if np.isfinite(last).all():
        said.append(
            f"On held-out tasks its mean {run.measure} is {shown(float(last.mean()), run)} at the "
            f"end" + (_extremes(run, last) if len(last) > 1 else "") + "."
        )
    count = int(run.clusters[-1])
    said.append(f"It ended with {count} cluster{'s' * (count != 1)}{_happenings(run)}.")
    return said


def _extremes(run: Run, last: np.ndarray) -> str:
    best, worst = int(np.argmin(run.error[:, -1])), int(np.argmax(run.error[:, -1]))
    if best == worst:
        return ""
    return (
        f", best on {run.families[best]} ({shown(float(last[best]), run)}) and worst on "
        f"{run.families[worst]} ({shown(float(last[worst]), run)})"
    )


def _happenings(run: Run) -> str:
    if not run.spawns and not run.alarms and not run.removals:
        return ", and opened none while it learned"
    parts = [
        f"{len(many):,} {one if len(many) == 1 else more}"
        for many, one, more in (
            (run.spawns, "birth", "births"),
            (run.removals, "removal", "removals"),
            (run.alarms, "alarm", "alarms"),
        )
        if many
    ]
    detection = (run.summary or {}).get("alarm_detection") or {}
    delays = detection.get("delays") or []
    noticed = ""
    if delays:
        after = "at once" if max(delays) == 0 else f"within {max(delays) + 1:,} batches"
        noticed = f"; it noticed {len(delays)} of {len(delays) + detection.get('missed', 0)} new "
        noticed += f"families, {after}"
    return f" after {_listed(parts)}{noticed}"


def _facts(run: Run) -> list[tuple[str, str, str]]:
    last, spread = in_measure(run, run.error[:, -1]), run.ci95[:, -1]
    mean = float(last.mean())
    width = float(np.sqrt(np.square(spread).sum()) / len(spread))
    interval = f"± {shown(width, run)}, 95 % over tasks" if np.isfinite(width) else ""
    found = [
        (f"mean {run.measure} at the end", shown(mean, run), interval),
        (
            "clusters at the end",
            f"{int(run.clusters[-1])}",
            f"{len(run.spawns):,} birth{'s' * (len(run.spawns) != 1)}",
        ),
        ("alarms", f"{len(run.alarms):,}", "times tasks fitted nothing"),
    ]
    summary = run.summary or {}
    if len(run.phases) > 1 and summary.get("mean_forgetting") is not None:
        lost = float(summary["mean_forgetting"])
        found.append(("forgetting", shown(lost, run), "how much worse past families became"))
    coverage = run.coverage[:, -1]
    if np.isfinite(coverage).all():
        found.append(("in 90 % intervals", percent(coverage.mean()), "90 % is right"))
    seconds = summary.get("seconds")
    if isinstance(seconds, int | float):
        found.append(("time", duration(float(seconds)), f"{summary['iterations']:,} iterations"))
    return found


def shown(value: float, run: Run) -> str:
    """An error, or an accuracy in per cent."""
    if not np.isfinite(value):
        return "not finite"
    return f"{100 * value:.1f} %" if run.measure == "accuracy" else f"{value:.3g}"


def duration(seconds: float) -> str:
    """
    >>> duration(75.0), duration(7320.0)
    ('75 s', '2 h 2 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _course(run: Run) -> Markup:
    label = (
        f"{run.measure} of {_listed(run.families)} over {int(run.iterations[-1]):,} iterations; "
        f"at the end "
        + ", ".join(
            f"{family} {shown(float(last), run)}"
            for family, last in zip(run.families, in_measure(run, run.error[:, -1]), strict=True)
        )
    )
    caption = (
        "Shades are the phases of the stream; what is learned in them stands above. Bands are 95 % "
        "intervals over tasks. Drag to zoom; point, or use the arrow keys, to read values."
    )
    return figure("plot", course(run), label, caption, numbers=True)


def _shares(run: Run) -> Markup:
    label = f"Shares of the test tasks of {_listed(run.families)} by cluster over time"
    caption = (
        "Mean responsibility of each cluster for the held-out tasks of a family. Grey is what no "
        "cluster explains. The bar above marks the phases in which the family is learned."
    )
    return figure("plot", responsibilities(run), label, caption, numbers=True)


def _clusters(run: Run, examples: KeptExamples | None) -> Markup:
    profile, ids = profiles(run)
    parts: list[Markup] = []
    found = cluster_map(run)
    if found is None:
        parts.append(tag("p", "There is one cluster only, so there is nothing to place on a map."))
    else:
        parts.append(
            figure(
                "map",
                found,
                f"Map of {len(ids)} clusters",
                "The nearer two clusters, the more alike are their errors on all families; the "
                "larger one is, the more test tasks it takes.",
            )
        )
    parts += [tag("h3", "Births and removals"), figure("lives", lives(run), "Lives of clusters")]
    parts += [
        tag("h3", "What each would do alone"),
        tag(
            "p",
            f"The {run.measure} on each family if one cluster had to take all of its tasks; below "
            f"it how much of the family it does take.",
        ),
        _alone(run, profile, ids),
    ]
    if examples is not None:
        parts.append(cluster_gallery(examples))
    return join(parts)


def _alone(run: Run, profile: np.ndarray, ids: Sequence[int]) -> Markup:
    head = [tag("th", "cluster", scope="col")]
    head += [tag("th", family, scope="col") for family in run.families]
    values, taken = in_measure(run, profile), run.responsibilities[:, -1]
    rows = []
    for i, number in enumerate(ids):
        cells = []
        for f in range(len(run.families)):
            best = np.isfinite(profile[f]).any() and profile[f, i] == np.nanmin(profile[f])
            share = tag("small", f"takes {percent(taken[f, number], 0)}")
            value = shown(float(values[f, i]), run)
            cells.append(tag("td", value, share, class_="best" if best and len(ids) > 1 else None))
        rows.append(
            tag("tr", tag("th", chip(colour(number)), str(number + 1), scope="row"), *cells)
        )
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="clusters")


def calibration(summary: Mapping[str, Any], run: Run) -> Markup:
    """How often intervals, or the most probable classes, are right."""
    from taskmix.reporting.calibrating import calibration_figure

    return calibration_figure(summary.get("calibration"), run)


def _unexplained(run: Run, examples: KeptExamples | None) -> Markup:
    shares = [
        f"{family} {percent(share, 0)}"
        for family, share in zip(run.families, run.background[:, -1], strict=True)
        if share >= 0.005
    ]
    if shares:
        said = f"At the end, no cluster explains these shares of the test tasks: {_listed(shares)}."
    else:
        said = "At the end, every family's test tasks are explained by some cluster."
    if examples is None:
        return paragraphs([said])
    return join([paragraphs([said]), unexplained_gallery(examples)])


def settings_of(config: Mapping[str, Any], of: str = "") -> Markup:
    """All settings by group, folded; ``of`` says of which of several methods they are."""
    parts = []
    for group, title in (
        ("settings", "Experiment"),
        ("learner", "Learner"),
        ("training", "Evaluation"),
        ("software", "Software"),
    ):
        found = config.get(group)
        if isinstance(found, Mapping):
            flat = dict(_flat(found))
            body = settings_list(flat)
            name = f"{title} of {of}" if of else title
            summary = tag("summary", f"{name} ({len(flat)})")
            parts.append(tag("details", summary, body))
    return join(parts)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def repeating(config: Mapping[str, Any], command: Sequence[str] | None) -> Markup:
    """The command, if one made the folder, and what else has to be the same."""
    software = config.get("software")
    version = software.get("taskmix", "") if isinstance(software, Mapping) else ""
    again = "The same command with the same version gives the same numbers on the same processor."
    if command:
        box = command_box(f"taskmix {shlex.join(command)}")
        return join([tag("p", f"With taskmix {version}:"), box, tag("p", again)])
    said = (
        "This was begun from Python, so no command is known: call the same function with the "
        "settings above, and the same seed."
    )
    return paragraphs([said])


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"
