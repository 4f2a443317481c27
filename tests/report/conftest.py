"""Hand-made run folders, and the figures that are drawn."""

import json

import matplotlib.figure
import pytest

PHASES = [
    {"start": 0, "stop": 20, "families": ["sinusoid"]},
    {"start": 20, "stop": 40, "families": ["step"]},
]


def family(error, clusters, background=0.0):
    """Errors and shares of a family; clusters and background share it evenly."""
    return {
        "error": error,
        "ci95": 0.1,
        "oracle": error / 2,
        "component_error": [error] * clusters,
        "responsibilities": [(1 - background) / clusters] * clusters,
        "background": background,
        "coverage": None,
    }


@pytest.fixture
def write_run(tmp_path):
    """Write a run that spawns in iteration 22 and return its folder."""

    def write(method="nonparametric", seed=0, iterations=(0, 20, 40), phases=PHASES, **changes):
        folder = tmp_path / method / f"seed-{seed}"
        folder.mkdir(parents=True)
        metrics = [
            {
                "iteration": iteration,
                "clusters": 1 + (iteration > 22),
                "families": {
                    "sinusoid": family(1.0 + seed, 1 + (iteration > 22)),
                    "step": family(2.0 + seed, 1 + (iteration > 22)),
                },
            }
            for iteration in iterations
        ]
        files = {
            "config.json": json.dumps({"method": method, "seed": seed, "phases": phases}),
            "metrics.jsonl": "\n".join(map(json.dumps, metrics)) + "\n",
            "events.jsonl": json.dumps({"iteration": 22, "event": "spawned", "clusters": 2})
            + "\n"
            + json.dumps({"iteration": 40, "event": "finished"})
            + "\n",
            "summary.json": json.dumps({"clusters": 2}),
            **changes,
        }
        for name, content in files.items():
            if content is not None:
                (folder / name).write_text(content)
        return folder

    return write


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved as PNG, in order."""
    figures = []
    save = matplotlib.figure.Figure.savefig

    def remember(figure, file, **options):
        if options["format"] == "png":
            figures.append(figure)
        return save(figure, file, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", remember)
    return figures
