# `make demo` and `make test` need only Python (3.11 or newer) and make: both create .venv on
# the first call and go straight to work afterwards. Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Files are handed out in the order given here, so that a long one does not come last.
PYTEST := $(BIN)/python -m pytest -q -rs -n 2 --dist loadfile --no-loadscope-reorder
# Half of a first run of the tests would be spent in LLVM, on programs that run for a second. So
# nothing is optimised, and XLA's older way is taken, which compiles faster to the same values up to
# rounding. Modules that compute for long ask for the fixture `optimised`; the guide's `scrollmt fit`
# is compiled as users compile it, and so is whatever is run by pytest itself. Two calls keep each
# process clear of the 65,530 memory mappings that Linux allows it, of which every compiled program
# takes a few hundred.
QUICKLY := JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="--xla_cpu_use_fusion_emitters=false \
	--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=1"
FIRST := $(patsubst %,tests/test_%.py,docs golden answers zoo arms fuzz extra_heads guide_commands cli \
	cluster interop batching report forecast joint fit heads forecaster selection backtests \
	corpora_lorenz63 fused engines arena laws store)
REST := $(filter-out $(FIRST),$(wildcard tests/test_*.py))
LEFT_OUT := "not (slow or cluster or site)"
# The way of the data, from numerics to a fitted forecaster.
CORE := $(patsubst %,tests/test_%.py,forecaster heads beliefs windows scores model objective \
	observables splits normal labels architecture)

.DEFAULT_GOAL := help
.PHONY: help install demo quick test test-all browser docs lint format clean

help:
	@echo "make install create .venv with the package and all that the other targets need"
	@echo "make demo    draw a corpus, fit the default model, print its scores, draw a picture"
	@echo "make quick   lint, type check and run the core tests, within a minute"
	@echo "make test    lint, type check and run the tests but those of a cluster, of the site and slow ones"
	@echo "make test-all lint, type check and run all tests; says which it leaves out"
	@echo "make browser install Chromium for the tests of pages, where there is none"
	@echo "make docs    build the documentation into the folder site, strictly"
	@echo "make lint    ruff and mypy only"
	@echo "make format  let ruff rewrite what it can"
	@echo "make clean   remove .venv, caches and what the commands wrote"

install: $(INSTALLED)

demo: $(INSTALLED)
	@$(BIN)/scrollmt demo

quick: lint
	$(QUICKLY) $(PYTEST) -m "not (slow or browser or cluster or site)" $(CORE)

# Slow are tests of more than two seconds: every code block of the documents, the golden records,
# processes that are killed, files of all kinds from the config to the report. Without a browser its tests are left out, and named at the
# end; with SCROLLMT_REQUIRE_BROWSER set in the environment they fail.
test: lint
	$(QUICKLY) $(PYTEST) -m $(LEFT_OUT) $(FIRST)
	$(QUICKLY) $(PYTEST) -m $(LEFT_OUT) $(REST)

test-all: lint
	$(QUICKLY) $(PYTEST) $(FIRST)
	$(QUICKLY) $(PYTEST) $(REST)

# The tests of pages drive a real browser. Nothing happens where one is found; no other target
# installs a package of the system.
browser: $(INSTALLED)
	@$(BIN)/python tests/browser.py

# The theme announces its successor; that is for those who maintain the pages.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

lint: $(INSTALLED)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(INSTALLED)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# An environment that is already there is kept and installed into; only `make clean` removes it.
$(INSTALLED): pyproject.toml constraints.txt
	@python=$(PYTHON); if [ -x $(BIN)/python ]; then python=$(BIN)/python; fi; \
	if ! version=$$("$$python" -c 'import platform; print(platform.python_version())'); then \
		echo "scrollmt: cannot run '$$python'; name an interpreter: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "scrollmt needs Python 3.11 or newer, but '$$python' is $$version;" \
			"try: make clean && make PYTHON=python3.12 $(or $(firstword $(MAKECMDGOALS)),test)" >&2; \
		exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ]; then \
		echo "scrollmt: creating $(VENV) with Python $$version"; \
		"$$python" -m venv $(VENV); \
	fi
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@echo "scrollmt: installing into $(VENV) (a few minutes on the first call)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .jax_cache build dist site demo
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
