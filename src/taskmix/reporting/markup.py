"""HTML in which everything that is not markup is text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

SCRIPTS = ("plot.js", "hover.js", "kinds.js", "page.js")
STYLE = "report.css"
LONGEST_TEXT = 500
"""Characters of a name or a setting of somebody else's that are shown."""


class Markup(str):
    """HTML that is safe as it is: made by this module."""


def tag(name: str, *children: str, **attributes: Any) -> Markup:
    """An element; children that are not ``Markup`` are text.

    >>> tag("p", "a < b", class_="soft")
    '<p class="soft">a &lt; b</p>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """Markup and texts, one after the other."""
    return Markup("".join(one if isinstance(one, Markup) else text(one) for one in parts))


def text(value: str) -> str:
    """As it is to be read: markup, control characters and changes of direction are shown."""
    short = value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…"
    kept = (
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in short
    )
    return html.escape("".join(kept))


def plain(value: Any) -> Any:
    """Data for a chart: numbers to five digits, None for what is not one, names printable.

    >>> plain({"y": np.array([0.1234567, np.nan])})
    {'y': [0.12346, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _numbers(value) if value.ndim == 1 else [plain(row) for row in value]
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return html.unescape(text(value))
    return value


def _numbers(values: np.ndarray) -> list[Any]:
    if values.dtype.kind in "iub":
        return list(values.tolist())
    if values.dtype.kind != "f":
        return [plain(one) for one in values.tolist()]
    return [float(f"{one:.5g}") if math.isfinite(one) else None for one in values.tolist()]


def figure(
    kind: str,
    spec: Mapping[str, Any],
    label: str,
    caption: str | Markup = "",
    numbers: bool = False,
) -> Markup:
    """A picture that the page draws from data; ``label`` says in words what is to be seen."""
    content = json.dumps(plain(spec), allow_nan=False, separators=(",", ":"))
    # The only thing that could end the element.
    data = Markup(content.replace("<", "\\u003c").replace("\u2028", "").replace("\u2029", ""))
    parts = [tag("div", class_="plot")]
    if caption:
        parts.append(tag("figcaption", caption))
    if numbers:
        summary = tag("summary", "Show the numbers")
        parts.append(
            tag("details", summary, tag("div", class_="scroll", tabindex=0), class_="numbers")
        )
    script = tag("script", data, type="application/json")
    return tag("figure", *parts, script, data_kind=kind, data_label=label)


def chip(colour: str) -> Markup:
    """A dot of a colour of charts, beside a name."""
    return tag("span", class_="chip", data_colour=colour)


def facts(pairs: Sequence[tuple[str, str, str]]) -> Markup:
    """The few numbers to begin with: name, value, and what to know about it."""
    cells = [
        tag("div", tag("dt", name), tag("dd", value, tag("small", small) if small else ""))
        for name, value, small in pairs
    ]
    return tag("dl", *cells, class_="facts")


def notes_box(title: str, notes: Sequence[str]) -> Markup:
    """What has to be said before anything else; nothing if there is nothing."""
    if not notes:
        return Markup("")
    entries = [tag("li", note) for note in notes]
    return tag("div", tag("h3", title), tag("ul", *entries), class_="notes", role="note")


def paragraphs(sentences: Iterable[str]) -> Markup:
    return join(tag("p", sentence) for sentence in sentences)


def settings_list(settings: Mapping[str, Any]) -> Markup:
    """Names and values; nested names are joined by dots."""
    entries = []
    for name, value in settings.items():
        shown = value if isinstance(value, str) else json.dumps(value)
        entries += [tag("dt", name), tag("dd", shown)]
    return tag("dl", *entries, class_="settings")


def command_box(command: str) -> Markup:
    copy = tag("button", "copy", type="button", class_="copy", hidden="")
    return tag("div", tag("pre", tag("code", command), tabindex=0), copy, class_="command")


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page with a heading and a place in its list of contents."""

    name: str
    """Of the anchor, and unique."""
    title: str
    body: Markup
    short: str = ""
    """In the list of contents."""


def page(title: str, kind: str, sections: Sequence[Section], closing: str, refresh: int = 0) -> str:
    """The whole page, with nothing that would have to be fetched.

    ``refresh`` is after how many seconds it is read again, 0 for never.
    """
    script = "".join(_asset(name) for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    contents = [
        tag("li", tag("a", one.short or one.title, href=f"#{one.name}")) for one in sections
    ]
    body = [
        tag(
            "header",
            tag("h1", title),
            tag("button", "dark", type="button", id="theme", hidden=""),
            tag("div", kind, class_="kind"),
            class_="top",
        ),
        tag("nav", tag("ul", *contents), aria_label="contents"),
        tag("main", *map(_section, sections)),
        tag("footer", closing),
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="generator" content="taskmix">',
        '<link rel="icon" href="data:,">',
        tag("title", title),
        f"<style>\n{_asset(STYLE)}</style>",
    ]
    attribute = f' data-refresh="{refresh}"' if refresh else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n' + "\n".join(head) + "\n</head>\n"
        f"<body{attribute}>\n"
        + "\n".join(body)
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _section(one: Section) -> Markup:
    return tag("section", tag("h2", one.title), one.body, id=one.name)


def _asset(name: str) -> str:
    return files("taskmix.reporting").joinpath("assets", name).read_text(encoding="utf-8")
