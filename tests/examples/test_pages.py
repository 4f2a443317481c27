"""The code of pages that explain how to add something is run from top to bottom."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from taskmix.experiments.extending import REGISTRIES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "adding-a-learner": ("learner", "reptile"),
    "own-network": ("model", "steps"),
    "own-likelihood": ("likelihood", "laplace"),
}
"""What each of them registers."""


@pytest.fixture
def registered() -> Iterator[None]:
    """What was not registered before is not registered afterwards."""
    before = {kind: set(registry) for kind, registry in REGISTRIES.items()}
    yield
    for kind, registry in REGISTRIES.items():
        for name in set(registry) - before[kind]:
            registry.remove(name)


@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_page_runs_and_registers_what_it_says(page, registered, tmp_path):
    blocks = re.findall(
        r"^```python\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL
    )
    name = page.replace("-", "_")
    path = tmp_path / f"{name}.py"
    path.write_text("\n\n".join(blocks))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the module of a class.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        kind, registered_name = PAGES[page]
        assert registered_name in REGISTRIES[kind]
        for family in module.fitted.summaries[0]["final"].values():
            assert np.isfinite(family["error"])
    finally:
        del sys.modules[name]
