# make demo   a first look: installs the simulator without torch, compares schedulers, writes traces and pictures
# make test   the whole verification, as CI runs it
# Both make .venv themselves. Another interpreter: make test PYTHON=python3.12
# An environment that is already there: make check BIN=/path/to/venv/bin
# make docs   the documentation, into site/
# make thorough   laws on a thousand cases each and proofs, about an hour; CANN_ENV_PSPLIB=folder adds PSPLIB's

VENV := .venv
OLD_VENV := .venv-gym122
BIN ?= $(VENV)/bin
CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3.13 python3)
PIP := -m pip install --quiet --disable-pip-version-check
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
COVERAGE_FLOOR := 93
JOBS ?= logical
PARITY_TESTS := $(wildcard tests/test_engine*.py) tests/test_observe.py tests/test_pool.py
GYMNASIUM_TESTS := $(wildcard tests/test_env*.py) tests/test_vector.py tests/test_wrappers.py

NOTEBOOK_RUN := tests/test_notebooks.py::test_a_notebook_runs_in_a_fresh_kernel

export PIP_NO_INPUT := 1
export MPLBACKEND := agg

.PHONY: help demo test check lint types layers browser unit coverage notebooks notebook-outputs docs docs-links old-gymnasium thorough clean
.NOTPARALLEL:

help:
	@sed -n '1,6s/^# //p' Makefile

# The first candidate that runs, is new enough and can make an environment.
define make_venv
@for python in $(CANDIDATES); do \
	if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Making $(1) with $$($$python --version)"; exec "$$python" -m venv --clear $(1); \
	fi; \
done; \
echo "No Python >= 3.11 with the venv module was found (tried: $(CANDIDATES))." >&2; \
echo "Install one, or name it: make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python3.11" >&2; exit 1
endef

$(VENV)/bin/python:
	$(call make_venv,$(VENV))

$(OLD_VENV)/bin/python:
	$(call make_venv,$(OLD_VENV))

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) -c constraints.txt -e '.[cli,onnx,plot]'
	@touch $@

# torch comes first, and from the index of builds without CUDA where that can be reached: those are ten times smaller.
$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	torch="$$(grep '^torch==' constraints.txt)"; \
	$(VENV)/bin/python $(PIP) --no-deps --retries 0 --timeout 20 --extra-index-url $(TORCH_INDEX) "$$torch" \
	|| $(VENV)/bin/python $(PIP) -c constraints.txt "$$torch"
	$(VENV)/bin/python $(PIP) -c constraints.txt -e '.[all,dev]'
	@touch $@ $(VENV)/.demo

$(OLD_VENV)/.test: pyproject.toml constraints.txt | $(OLD_VENV)/bin/python
	grep -v '^gymnasium==' constraints.txt > $(OLD_VENV)/constraints.txt
	$(OLD_VENV)/bin/python $(PIP) -c $(OLD_VENV)/constraints.txt -e '.[cli,onnx,plot]' gymnasium==1.2.2 hypothesis pytest
	@touch $@

demo: $(VENV)/.demo
	@mkdir -p demo
	$(VENV)/bin/cann-env compare --scenario serving_onnx --device ascend910b2
	$(VENV)/bin/cann-env compare --scenario pipeline --device ascend310b1
	$(VENV)/bin/cann-env run --scenario pipeline --device ascend310b1 --trace demo/pipeline.json --gantt demo/pipeline.png
	$(VENV)/bin/cann-env run --scenario serving_onnx --device ascend910b2 --trace demo/serving_onnx.json --gantt demo/serving_onnx.png

test: check

check: lint types layers unit coverage notebooks docs old-gymnasium
	@echo "All checks passed."

# With BIN given, the environment is the caller's affair.
READY := $(if $(filter $(VENV)/bin,$(BIN)),$(VENV)/.test)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

# The tests of the timeline drive Debian's Chromium; root on such a machine gets it here, others skip them.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null; then \
		echo "Installing chromium and chromium-driver for the tests of the timeline"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			chromium chromium-driver fonts-dejavu-core >/dev/null \
		|| echo "Chromium could not be installed: the tests of the timeline in a browser are skipped"; \
	else \
		echo "No chromium and chromedriver here: the tests of the timeline in a browser are skipped"; \
	fi

unit: $(READY) browser
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'not thorough' --deselect $(NOTEBOOK_RUN)

thorough: $(VENV)/.test
	$(BIN)/python -m pytest -m thorough

# Compiled kernels are invisible to coverage, so the tests that compare both forms run once more as plain Python.
coverage: $(READY)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -q $(PARITY_TESTS)
	$(BIN)/coverage report --fail-under=$(COVERAGE_FLOOR)

# Each .ipynb in a fresh kernel, from its own folder; what `unit` leaves out, so that no page runs twice.
notebooks: $(READY)
	$(BIN)/python -m pytest -v -m '' $(NOTEBOOK_RUN)

# Makes each .ipynb anew from its text page, with what it shows.
notebook-outputs: $(READY)
	$(BIN)/python tests/notebook_runs.py

# Strictly and without a network: a link or an anchor that leads nowhere fails (with --quiet it would not be counted).
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Addresses elsewhere, which nobody here can keep from changing. Needs a network, and is no part of `check`.
docs-links: docs
	$(BIN)/linkchecker --check-extern --no-warnings --ignore-url '^(?!https?:|file:)' site/index.html

old-gymnasium: $(OLD_VENV)/.test
	$(OLD_VENV)/bin/python -m pytest -q $(GYMNASIUM_TESTS)

clean:
	rm -rf $(VENV) $(OLD_VENV) build demo dist htmlcov site .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
