PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow soak fuzz check format bench clean

help:  ## List the targets
	@grep -E '^[a-z]+:.*  ## ' Makefile | sed -E 's/:.*  ## /\t/' | expand -t 10

setup: $(INSTALLED)  ## Create .venv and install everything into it

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@

demo: setup  ## Run the continual regression stream and draw its figure
	rm -rf runs/demo
	$(BIN)/taskmix reproduce figure-5 --seeds 10 --workers 2 --out runs/demo

test: setup  ## Run the tests, without the slow ones
	$(BIN)/pytest -m "not slow and not soak" -n 2 --dist loadfile

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

format: setup  ## Format the code and sort its imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Run every benchmark
	for benchmark in benchmarks/*.py; do $(BIN)/python $$benchmark || exit 1; done

clean:  ## Remove the environment, caches and builds; runs are kept
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
