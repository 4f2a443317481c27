"""What a person should know of an exported model, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from taskmix.names import counted, printable

LONGEST_NAME = 200
"""Characters of a name in a card."""


def model_card(described: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """A model card: what it is, what it was trained on, how well it does, how to use it."""
    told = {name: _escaped(described[name]) for name in ("method", "experiment", "taskmix", "seed")}
    errors = [
        f"| {_escaped(family)} | {_number(measured['error'])} | {_number(measured['ci95'])} |"
        for family, measured in last["families"].items()
    ]
    return "\n".join(
        [
            f"# {told['method']} on {told['experiment']}",
            "",
            f"A state of taskmix {told['taskmix']} after {described['iteration']:d} iterations "
            f"(seed {told['seed']}), with {counted(last['clusters'], 'cluster')}.",
            "",
            "| family | held-out error | 95 % interval, half its width |",
            "|---|---|---|",
            *errors,
            "",
            f"Measured at iteration {last['iteration']:d} on held-out tasks of the same stream.",
            "It was trained on that stream alone; nothing is known about tasks of other kinds.",
            "",
            "```python",
            "import taskmix",
            "",
            'predictor = taskmix.load("this folder")',
            "prediction = predictor.predict(support_x, support_y, query_x)",
            "```",
            "",
        ]
    )


def _escaped(text: Any) -> str:
    """A name as plain text: no character of it means anything in Markdown or HTML."""
    plain = printable(" ".join(str(text).split()))[:LONGEST_NAME]
    return re.sub(r"[\\`*_{}\[\]<>()#+!|&~$^:=@]", lambda found: f"&#{ord(found[0])};", plain)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
