# One environment, .venv, made from the hashed lock requirements/dev.txt.
#   make PYTHON=python3.12 setup    use another interpreter (3.11 to 3.13)
#   make UV= setup                  use pip even when uv is on PATH

PYTHON ?= python3
UV ?= uv

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.stamp
EXTRAS := bench fleet flower minari ray sign tensorboard

# Tests and demo start hundreds of processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

HAVE_UV = [ -n "$(UV)" ] && command -v "$(UV)" >/dev/null 2>&1
VERSION_OF = -c 'import sys; print("%d.%d" % sys.version_info[:2])'

# The stamp records the interpreter and the checkout it was made for. The environment is
# made again when it was copied from elsewhere, when its interpreter is gone, or when
# PYTHON is given and is of another version.
STAMPED := $(shell cat $(STAMP) 2>/dev/null)
ifneq ($(STAMPED),)
  ifneq ($(filter command environment,$(origin PYTHON)),)
    EXPECTED := $(shell "$(PYTHON)" $(VERSION_OF) 2>/dev/null) $(CURDIR)
  else
    EXPECTED := $(shell $(PY) $(VERSION_OF) 2>/dev/null) $(CURDIR)
  endif
  ifneq ($(STAMPED),$(EXPECTED))
    REMAKE := yes
  endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage test-slow test-nightly lint bench lock clean force

help:
	@echo "make setup      make the environment .venv from the lock"
	@echo "make demo       run the demonstration"
	@echo "make test       run the quick tests"
	@echo "make coverage   the same, and which lines they reach (takes longer)"
	@echo "make test-slow  run the slow tests"
	@echo "make test-nightly  run the longest ones: whole fuzz, mutation and audit suites"
	@echo "make lint       check style, types and the import layers"
	@echo "make bench      run the benchmarks"
	@echo "make lock       compile the locks in requirements/ again (needs uv)"
	@echo "make clean      remove the environment and everything generated"
	@echo "Options: PYTHON=python3.12 picks the interpreter, UV= makes setup use pip."

setup: $(STAMP)
	@echo "$(VENV) is ready."

# Without a stamp, whatever is in .venv is half made: it is removed. With one, only what
# changed in the lock is installed.
$(STAMP): requirements/dev.txt pyproject.toml $(if $(REMAKE),force)
	@set -e; \
	tool=pip; if $(HAVE_UV); then tool=uv; fi; \
	if [ ! -f $(STAMP) ] || [ -n "$(REMAKE)" ] || { [ $$tool = pip ] && [ ! -x $(VENV)/bin/pip ]; }; then \
	  case "$$("$(PYTHON)" $(VERSION_OF) 2>/dev/null)" in \
	  3.11|3.12|3.13) ;; \
	  *) echo "privrl needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is not one of them: choose another with 'make PYTHON=python3.12 setup'." >&2; exit 1;; \
	  esac; \
	  rm -rf $(VENV); \
	fi; \
	rm -f $(STAMP); \
	echo "Installing requirements/dev.txt into $(VENV) with $$tool."; \
	if [ $$tool = uv ]; then \
	  if [ ! -d $(VENV) ]; then \
	    "$(UV)" venv -q --python "$$("$(PYTHON)" -c 'import sys; print(sys.executable)')" $(VENV); \
	  fi; \
	  "$(UV)" pip install -q --python $(PY) --require-hashes -r requirements/dev.txt; \
	  "$(UV)" pip install -q --python $(PY) --no-deps --no-build-isolation -e .; \
	else \
	  if [ ! -d $(VENV) ]; then "$(PYTHON)" -m venv $(VENV); fi; \
	  $(PY) -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt; \
	  $(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi; \
	echo "$$($(PY) $(VERSION_OF)) $(CURDIR)" > $(STAMP)

force:

demo: $(STAMP)
	@$(VENV)/bin/privrl demo

test: $(STAMP)
	@PRIVRL_EXAMPLES=quick $(PY) -m pytest -q -n 2 --dist worksteal -m "not slow and not nightly"

coverage: $(STAMP)
	@$(PY) -m pytest -q -n 2 -m "not slow and not nightly" --cov --cov-report=term:skip-covered

test-slow: $(STAMP)
	@$(PY) -m pytest -q -n 2 --dist worksteal -m "(slow or property) and not nightly"

test-nightly: $(STAMP)
	@$(PY) -m pytest -q -n 2 --dist worksteal -m nightly

lint: $(STAMP)
	@$(PY) -m ruff check -q .
	@$(PY) -m ruff format -q --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-cache --no-logo

bench: $(STAMP)
	@$(PY) -m benchmarks

COMPILE = "$(UV)" pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-strip-extras --custom-compile-command "make lock" pyproject.toml

lock:
	@$(HAVE_UV) || { echo "make lock needs uv, which is not on PATH." >&2; exit 1; }
	@$(COMPILE) -o requirements/core.txt
	@$(COMPILE) --group dev -o requirements/dev.txt
	@set -e; for extra in $(EXTRAS); do \
	  $(COMPILE) --extra $$extra -o requirements/$$extra.txt; \
	done

clean:
	@rm -rf $(VENV) build dist .coverage .coverage.* htmlcov \
	  .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
