# Everything runs in .venv, which the first target that needs it sets up.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench wheel clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED)  ## create .venv and install the package in it with all that demo, test and check need

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed; name one with: make PYTHON=python3.12 setup"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[test,demo]'
	@touch $@

demo: $(INSTALLED)  ## train on ICD-10-CM, clinical phrase to code, and compare with baselines
	$(BIN)/python demo/run.py

test: $(INSTALLED)  ## run the tests
	$(BIN)/python -m pytest

check: $(INSTALLED)  ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A benchmark is a script in benchmarks/; its first line says what it measures, and "(quick)" there marks those run here.
bench: $(INSTALLED)  ## list the benchmarks and run the quick ones
	@for script in $(wildcard benchmarks/*.py); do \
		printf '%s  %s\n' "$(BIN)/python $$script" "$$(head -n 1 $$script | tr -d '"')"; \
	done
	@for script in $(shell grep -l '^""".*(quick)' benchmarks/*.py 2>/dev/null); do \
		echo "== $$script"; $(BIN)/python $$script || exit 1; \
	done

wheel: $(INSTALLED)  ## build the wheel into dist/, install it alone in a fresh environment and try it
	$(BIN)/python -m pytest -m wheel tests/test_wheel.py

clean:  ## remove what was built, cached and downloaded, .venv included
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info demo/data demo/model demo/report.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
