"""The figures of a comparison, from its folder."""

from __future__ import annotations

import re
from pathlib import Path

from taskmix.reporting.figures import loss_figure, responsibility_figure
from taskmix.reporting.overview import overview_figure
from taskmix.reporting.runs import by_method, read_json, read_runs


def comparison_figures(folder: Path | str) -> list[Path]:
    """All methods at the end and over time, and responsibilities in one figure per method.

    Parameters
    ----------
    folder
        What ``taskmix.compare`` or ``taskmix compare`` wrote.

    Returns
    -------
    list of Path
        The figures, which lie in ``figures`` within the folder.

    Examples
    --------
    >>> import tempfile
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (2,), tasks=2)
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tm.compare({"small": learner}, stream, seeds=[0], out=folder)
    ...     figures = [path.name for path in comparison_figures(folder)]
    >>> "error.png" in figures
    True
    """
    folder = Path(folder)
    runs = read_runs(folder)
    groups = by_method(runs)
    comparison = read_json(folder / "comparison.json")
    methods = comparison.get("methods")
    if not isinstance(methods, dict) or not set(methods) <= set(groups):
        raise ValueError(
            f"{folder / 'comparison.json'} names methods that have no runs; compare again."
        )
    figures = list(loss_figure(runs, folder / "figures" / runs[0].measure))
    if len(methods) > 1 and len(runs[0].phases) > 1:
        try:
            figures += overview_figure(comparison, folder / "figures" / "overview")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{folder / 'comparison.json'} is not what a comparison writes "
                f"({type(error).__name__}: {error}); compare again."
            ) from None
    for name in methods:
        path = folder / "figures" / f"responsibilities-{_as_file(name)}"
        figures += responsibility_figure(groups[name], path)
    return figures


def _as_file(name: str) -> str:
    """A method's name as part of a file's: no part of it leads anywhere else.

    >>> _as_file("mixture:4"), _as_file("../x")
    ('mixture-4', '-x')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:100]
