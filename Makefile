# Everything a developer runs, one target each. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Compiled once, found again: a rebuild after `make clean` or a rebase takes seconds where ccache is installed.
ifneq ($(shell command -v ccache 2>/dev/null),)
export CC ?= ccache gcc
export CXX ?= ccache g++
endif

KERNEL_SOURCES := setup.py pyproject.toml $(shell find jetfast csrc -name '*.pyx' -o -name '*.pxd' -o -name '*.hpp')

# Spark's Python workers run the same interpreter as the tests and the demo.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help setup lint test simulate differential chaos sanitize bench bench-micro compare demo clean
.DEFAULT_GOAL := help

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/kernels.stamp  ## install what is missing (apt-get, PyPI), make .venv, compile the kernels

lint: setup  ## ruff check, ruff format, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup  ## all tests, Spark included
	$(BIN)/python -m pytest $(PYTEST_ARGUMENTS)

simulate: setup  ## whole jobs under faults, one seed a run: make simulate SEEDS=10000 FIRST=0
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),2000) --first $(or $(FIRST),0) --processes 2 --json

differential: setup  ## random pipelines beside exact Python, DuckDB and Spark: make differential PIPELINES=3000 SEED=0
	$(BIN)/python -m tests.differential --pipelines $(or $(PIPELINES),3000) --seed $(or $(SEED),0) --json --shrink

chaos: setup  ## processes of running jobs are killed, each row is looked for: make chaos KILLS=200 FREEZES=10 SEED=0
	for sink in files postgres; do \
	    $(BIN)/python -m tests.chaos --cluster processes --sink $$sink --kills $(or $(KILLS),200) --freezes $(or $(FREEZES),0) \
	        --seed $(or $(SEED),0) --json || exit 1; done

sanitize: setup  ## C++ tests and kernels under sanitizers, a minute of fuzzing (clang; apt-get where it is missing)
	.ci/sanitize $(BIN)/python

bench: setup  ## asv, quick, over what is built now; results in benchmarks/results
	cd benchmarks && ../$(BIN)/asv machine --yes && ../$(BIN)/asv run --quick -E existing:$(CURDIR)/$(BIN)/python \
	    --set-commit-hash $$(git rev-parse HEAD)

bench-micro: setup  ## pytest-benchmark: what one batch costs at each kernel, while you work on it
	$(BIN)/python -m pytest benchmarks/micro --benchmark-columns=min,median,rounds $(BENCH_ARGUMENTS)

compare: setup  ## jetfast beside polars, duckdb, pyarrow and numpy on the same data: ratios against the goals
	$(BIN)/python -m benchmarks.compare $(COMPARE_ARGUMENTS)

demo: setup  ## a year of real flights through one pipeline, on the local cluster and on Spark, checked row by row
	$(BIN)/python -m docs.examples.flights

clean:  ## remove what was built and written (not .venv)
	rm -rf build dist out *.egg-info tests/csrc/build benchmarks/results benchmarks/html spark-warehouse
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks $(VENV)/kernels.stamp
	find jetfast -name '*.so' -delete -o -name '*.html' -delete
	find jetfast/kernels -maxdepth 1 -name '*.cpp' -delete

$(VENV)/packages.stamp: pyproject.toml .ci/install
	.ci/install $(PYTHON) $(VENV)
	touch $@

$(VENV)/kernels.stamp: $(VENV)/packages.stamp $(KERNEL_SOURCES)
	$(BIN)/python setup.py -q build_ext --inplace
	@# An editable install by pip would compile everything once more; a path file is all that it comes to.
	$(BIN)/python -c "import pathlib, site; pathlib.Path(site.getsitepackages()[0], 'jetfast.pth').write_text('$(CURDIR)\n')"
	@printf '#!%s\nfrom jetfast.cli import main\n\nmain()\n' $(CURDIR)/$(BIN)/python > $(BIN)/jetfast && chmod +x $(BIN)/jetfast
	touch $@
