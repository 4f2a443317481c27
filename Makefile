PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test slow soak fuzz check docs dist format bench slurm clean

help:  ## List the targets
	@grep -E '^[a-z]+:.*  ## ' Makefile | sed -E 's/:.*  ## /\t/' | expand -t 10

setup: $(INSTALLED)  ## Create .venv and install everything into it

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@

browser:  ## Install Chromium and its driver (Debian, Ubuntu), for the tests of reports
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core

demo: setup  ## Run the continual regression stream, draw its figure and write a report
	rm -rf runs/demo
	$(BIN)/taskmix reproduce figure-6 --seeds 10 --workers 2 --out runs/demo

test: setup  ## Run the tests, without the slow ones
	$(BIN)/pytest -m "not slow and not soak" -n 2 --dist worksteal

slow: setup  ## Run the slow tests
	$(BIN)/pytest -m slow

soak: setup  ## Kill runs, damage their files and see that they survive
	$(BIN)/pytest -m soak

MINUTES = 5
fuzz: setup  ## Spoil files for MINUTES (5), and see that every reader reads or refuses them
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

check: setup  ## Check format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## Build the documentation in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: setup  ## Build wheel and sdist in dist, install the wheel elsewhere, and test it there
	rm -rf dist build/installed
	$(BIN)/python -m build
	$(PYTHON) -m venv build/installed
	build/installed/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && installed/bin/python ../tests/installed/smoke.py

format: setup  ## Format the code and sort its imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Measure taskmix beside others, and write docs/benchmarks.md
	$(BIN)/python benchmarks/page.py

slurm: setup  ## Start a SLURM on this machine (Debian: slurm-wlm, munge) and run jobs in it
	$(BIN)/python -m tests.far.slurm $(BIN)/pytest -m slow tests/far/test_launching.py

clean:  ## Remove the environment, caches and builds; runs are kept
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
