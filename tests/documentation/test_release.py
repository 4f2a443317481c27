"""What a release consists of agrees with itself: versions, extras, workflows, pages."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import taskmix as tm

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict:
    """YAML of GitHub, in which ``on`` is a word and not a truth value."""
    found = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in found.items()}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_has_events_and_jobs_with_steps(path):
    found = read(path)
    assert found["on"]
    for job in found["jobs"].values():
        assert job["runs-on"]
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        needed = job.get("needs", [])
        assert {needed} if isinstance(needed, str) else set(needed) <= set(found["jobs"])


def test_workflows_test_every_python_that_the_package_claims():
    claimed = {
        line.rsplit(" ", 1)[1]
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    }
    assert PROJECT["requires-python"] == f">={min(claimed, key=lambda v: int(v[2:]))}"
    for path, job in (("test.yml", "test"), ("release.yml", "installed")):
        matrix = read(ROOT / ".github" / "workflows" / path)["jobs"][job]["strategy"]["matrix"]
        assert set(matrix["python"]) == claimed


def test_oldest_versions_are_the_bounds_of_the_package():
    oldest = dict(
        line.split("==")
        for line in (ROOT / ".github" / "oldest.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert {"jax", "jaxlib"} <= set(oldest)
    for name, version in oldest.items():
        (bound,) = [one for one in PROJECT["dependencies"] if re.match(rf"{name}\W", one)]
        least = re.search(r">=([\d.]+)", bound)[1]
        assert version in (least, f"{least}.0")


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tm.__version__
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {tm.__version__} - {citation['date-released']}" in changes


def test_extras_that_are_named_exist():
    extras = set(PROJECT["optional-dependencies"])
    assert all(PROJECT["optional-dependencies"].values())
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]:
        for named in re.findall(r"taskmix\[([a-z,]+)\]", path.read_text()):
            assert set(named.split(",")) <= extras, path.name


def test_sdist_has_every_folder_and_file_that_tests_read():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    # Hatch always adds the last one.
    included = {*table["build"]["targets"]["sdist"]["include"], "pyproject.toml"}
    for path in ROOT.glob("tests/**/*.py"):
        for name in re.findall(r"(?:ROOT|parents\[\d\]) / \"([^\"]+)\"", path.read_text()):
            assert name in included or not (ROOT / name).exists(), (path.name, name)
    assert {name for name in included if not (ROOT / name).exists()} == set()


def test_every_public_name_has_its_place_in_the_reference():
    pages = [path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md")]
    named = [name for page in pages for name in re.findall(r"^::: taskmix\.(\w+)$", page, re.M)]
    assert sorted(named) == sorted(set(tm.__all__) - {"__version__"})


def test_nav_lists_every_page_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    notes = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("results/**/README.md")}
    assert sorted(leaves(nav)) == sorted(pages | notes | {"CHANGELOG.md", "CONTRIBUTING.md"})


def leaves(tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [
        leaf for one in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(one)
    ]
