PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
QUIET := TF_CPP_MIN_LOG_LEVEL=3
# Each test process uses one core; there are as many processes as cores.
PYTEST := $(QUIET) TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

.PHONY: demo test test-full check notebooks clean

demo: $(INSTALLED)
	$(BIN)/keras-sparse demo

test: check
	$(PYTEST) -m "not slow"

test-full: $(INSTALLED)
	$(PYTEST) -m slow

notebooks: $(INSTALLED)
	$(QUIET) $(BIN)/python notebooks/execute.py

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(VENV)/typed
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target $(VENV)/typed .
	cd $(VENV)/typed && ../bin/mypy --config-file ../../pyproject.toml -p keras_sparse -m keras_sparse_command

$(INSTALLED): setup.cfg setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) build dist runs *.egg-info .pytest_cache .ruff_cache .mypy_cache
