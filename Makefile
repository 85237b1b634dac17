PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHELL  := /bin/bash

# Spark's workers run the interpreter of the environment, whatever the PATH says.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

INSTALLED := $(VENV)/.installed
COMPILE   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
             --no-config --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup demo bench bench-spark test simulate kafka-tools conformance lint format schemas lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Install the locked dependencies and the project into .venv

$(INSTALLED): requirements.lock requirements-build.lock pyproject.toml
	@conf/check_prerequisites.sh $(PYTHON)
	@echo "[1/4] Creating $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "[2/4] Installing the build tools"
	@$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements-build.lock
	@echo "[3/4] Installing the dependencies (PySpark alone is 450 MB: a few minutes)"
	@set -o pipefail; $(BIN)/python -m pip install --require-hashes --no-build-isolation --use-pep517 \
		--progress-bar off -r requirements.lock | awk '/ MB\)$$/ { sub(/-[0-9].*\(/, " ("); print; fflush() } \
		/^Building wheels/ { print "  Building PySpark ..."; fflush() } /^Installing/ { print "  Installing ..."; fflush() }'
	@echo "[4/4] Installing eoslog"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## Show exactly-once under fire: crashes, retries, zombies
	@$(BIN)/python -m examples.demo

bench: setup ## Count requests, what a predicate saves, and time commits
	$(BIN)/python -m benchmarks.requests
	$(BIN)/python -m benchmarks.pruning
	$(BIN)/python -m benchmarks.commits

bench-spark: setup ## Compare Spark's reads with bare ones, and a task's memory at two sizes (20 minutes)
	$(BIN)/python -m benchmarks.spark_reads
	$(BIN)/python -m benchmarks.spark_memory

test: setup ## Run the tests: first those without Spark, then those with it
	$(BIN)/python -m pytest -n 2 tests --ignore=tests/spark
	@if compgen -G 'tests/spark/test_*.py' >/dev/null; then \
		echo "$(BIN)/python -m pytest tests/spark"; $(BIN)/python -m pytest tests/spark; fi

SEEDS ?= 100
simulate: setup ## Run many processes among faults in one simulated world (SEEDS=100 histories)
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS)

conformance: setup ## Write docs/conformance.md from the tests that answer Kafka's
	$(BIN)/python -m tests.conformance.page

kafka-tools: setup ## Have Kafka's own dump tool read index files (fetches Kafka; needs Java and Maven)
	mvn --quiet --batch-mode --file tests/kafka_tools/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/.cache/kafka
	$(BIN)/python -m pytest tests/kafka_tools

lint: setup ## Check format, style, types and the direction of imports
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: setup ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

schemas: setup ## Write the JSON Schemas of stored records to schemas/
	$(BIN)/python -m eoslog.cli.schemas schemas

lock: setup ## Resolve the dependencies anew (add UPGRADE=--upgrade for newer releases)
	$(COMPILE) $(UPGRADE) pyproject.toml --extra spark --group dev --group build --output-file requirements.lock
	$(COMPILE) --group build --constraints requirements.lock --output-file requirements-build.lock

clean: ## Remove the environment, caches and what a run leaves behind
	rm -rf $(VENV) .cache .ruff_cache .hypothesis .import_linter_cache build dist demo-store \
		spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -prune -exec rm -rf {} +
