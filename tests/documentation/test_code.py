"""Every block of Python in README and documentation runs, page by page, as it stands there."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.tables.conftest import quick as quick

from taskmix.experiments.extending import REGISTRIES
from taskmix.tables import example

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    str(path.relative_to(ROOT)): blocks
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (blocks := BLOCK.findall(path.read_text()))
}
REGISTERED = {
    "docs/adding-a-learner.md": ("learner", "reptile"),
    "docs/own-network.md": ("model", "steps"),
    "docs/own-likelihood.md": ("likelihood", "laplace"),
    "docs/measures.md": ("measure", "worst"),
}
"""What pages about parts of one's own add."""


@pytest.fixture
def registered() -> Iterator[None]:
    """What was not registered before is not registered afterwards."""
    before = {kind: set(registry) for kind, registry in REGISTRIES.items()}
    yield
    for kind, registry in REGISTRIES.items():
        for name in set(registry) - before[kind]:
            registry.remove(name)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The files that pages speak of, in the folder where their code runs, and a short example."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(example, "heaters", partial(example.heaters, runs=24))
    rng = np.random.default_rng(0)
    days, hours = 12, 8
    frame = pl.DataFrame(
        {
            "day": np.repeat([f"2024-05-{1 + day:02}" for day in range(days)], hours),
            "hour": np.tile(np.arange(hours) + 9, days),
            "price": rng.uniform(1, 2, days * hours).round(2),
            "weather": rng.choice(["sun", "rain"], days * hours),
            "sold": rng.integers(1, 50, days * hours),
        }
    )
    frame[:80].write_csv("sales.csv")
    frame[80:88].write_csv("tomorrow.csv")
    frame[88:92].write_csv("known.csv")
    frame[92:].drop("sold").write_csv("asked.csv")
    for split, number in (("train", 0), ("train", 1), ("train", 2), ("train", 3), ("val", 4)):
        folder = tmp_path / "photographs" / split / f"animal-{number}"
        folder.mkdir(parents=True)
        Image.new("RGB", (90, 90), (50 * number, 0, 0)).save(folder / "one.png")


# The quick tests run the same as a program, examples/images.py.
SLOW = "docs/tutorials/own-images.md"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page == SLOW else []) for page in PAGES],
)
@pytest.mark.usefixtures("quick", "shop", "registered")
def test_code_of_the_page_runs(page, tmp_path):
    name = re.sub(r"\W", "_", page)
    path = tmp_path / f"{name}.py"
    path.write_text("\n\n".join(PAGES[page]))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the module of a class.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        if page in REGISTERED:
            kind, added = REGISTERED[page]
            assert added in REGISTRIES[kind]
        if hasattr(module, "fitted"):
            for family in module.fitted.summaries[0]["final"].values():
                assert np.isfinite([value for value in family.values() if value is not None]).all()
    finally:
        del sys.modules[name]


def test_pages_about_parts_of_ones_own_are_among_them():
    assert set(REGISTERED) <= set(PAGES)
