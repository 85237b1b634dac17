PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHELL  := /bin/bash

# Spark's workers run the interpreter of the environment, whatever the PATH says.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start many processes. Each of them would compile the library anew if the shell forbids to keep what was compiled.
unexport PYTHONDONTWRITEBYTECODE
# NumPy's algebra, which nothing here uses, starts threads in each process. They spin for 70 ms before they sleep.
export OPENBLAS_NUM_THREADS := 1

INSTALLED := $(VENV)/.installed
# Python 3.12 and later measure coverage at a small cost.
COVERAGE_CORE = $(shell $(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')
# pip takes a newer release than the locked one for "coverage[toml]" unless the lock has the extra, and finds no hash.
COMPILE   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
             --no-config --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup demo bench bench-all bench-peers bench-spark test test-unit coverage test-simulation test-spark test-deep test-all test-clouds test-s3 s3-server promtool s3 s3-stop simulate mutations fuzz soak kafka-tools delta-tools iceberg-tools test-kafka-clients bench-gateway conformance docs lint format schemas lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

demo: setup ## Show exactly-once under fire: crashes, retries, zombies (STORE=s3, gs or az: on a server of this cloud's kind)
ifeq ($(STORE),s3)
	@conf/s3_server.sh with $(BIN)/python -m examples.demo s3://eoslog/demo
else ifeq ($(STORE),gs)
	@conf/gcs_server.sh with $(BIN)/python -m examples.demo gs://eoslog/demo
else ifeq ($(STORE),az)
	@conf/azure_server.sh with $(BIN)/python -m examples.demo az://eoslog/demo
else ifneq ($(filter-out local,$(STORE)),)
	@echo "STORE=$(STORE): there are local (a directory, the default), s3, gs and az" >&2; exit 2
else
	@$(BIN)/python -m examples.demo
endif

bench: setup s3-server ## Count requests and time commits, sends, polls and plans in four minutes; OLD=<commit>: beside that commit
	$(BIN)/python -m benchmarks.compare $(OLD) $(NEW)

ifdef OLD
bench-all: setup s3-server
	$(BIN)/python -m benchmarks.compare --all $(OLD) $(NEW)
else
bench-all: setup s3-server ## The same at length: each benchmark alone with its own table (25 minutes); OLD=<commit>: more comparisons
	$(BIN)/python -m benchmarks.requests
	$(BIN)/python -m benchmarks.opening
	$(BIN)/python -m benchmarks.pruning
	$(BIN)/python -m benchmarks.planning
	$(BIN)/python -m benchmarks.scans
	$(BIN)/python -m benchmarks.commits
	$(BIN)/python -m benchmarks.small_commits
	$(BIN)/python -m benchmarks.object_store_writers --store local
	$(BIN)/python -m benchmarks.object_store_writers
	$(BIN)/python -m benchmarks.console
	$(BIN)/python -m benchmarks.send
endif

SIZE ?= full
bench-peers: setup s3-server ## Do the same work with Parquet, Delta, Iceberg, Kafka and eoslog, and write docs/performance.md (SIZE=quick ONLY=part)
	@conf/peers.sh
	.cache/peers/venv/bin/python -m benchmarks.peers --size $(SIZE) $(if $(ONLY),--only $(ONLY)) $(if $(HISTORY),--history $(HISTORY))

bench-spark: setup ## Compare Spark's reads with bare ones, and a task's memory at two sizes (20 minutes)
	$(BIN)/python -m benchmarks.spark_reads
	$(BIN)/python -m benchmarks.spark_memory

# More workers need more memory: each one that runs Spark takes up to 4 GiB.
WORKERS  ?= 2
PYTEST   := $(BIN)/python -m pytest -n $(WORKERS)
SIMULATE := $(BIN)/python -m tests.simulation.run

QUICK_SEEDS ?= 100
SHORT_STEPS := 100
test: test-unit test-simulation test-spark ## Run the tests of every part, with Spark and S3 (11 minutes on 2 cores)

# These tests often wait for a process of theirs, so one worker more keeps the cores busy.
UNIT_WORKERS ?= $(shell expr $(WORKERS) + 1)
# A worker takes tests that follow each other, so that tests of a module share what they have made.
UNIT_TESTS := --dist worksteal -m "not slow and not clouds" tests --ignore=tests/simulation --ignore=tests/spark
test-unit: setup s3-server promtool ## The part of them without Spark and the simulation
	$(BIN)/python -m pytest -n $(UNIT_WORKERS) $(UNIT_TESTS)

coverage: setup s3-server promtool ## Run test-unit with the coverage, which takes half as long again
	COVERAGE_CORE=$(COVERAGE_CORE) $(PYTEST) --cov --cov-report= $(UNIT_TESTS)
	@echo "Coverage of these tests: the ten modules with the least, and all"
	@$(BIN)/python -m coverage report --sort=cover | awk 'NR <= 12 || /^TOTAL/'

test-simulation: setup ## The part of them that simulates: its tests, and QUICK_SEEDS=100 short histories
	$(PYTEST) -m "not slow" tests/simulation
	$(SIMULATE) --services mixed --seeds $(QUICK_SEEDS) --steps $(SHORT_STEPS)

# VERSION is a release of PySpark, which has an environment of its own. PySpark 3 must be refused.
SPARK_PYTHON = $(if $(VERSION),.cache/pyspark-$(VERSION),$(VENV))/bin/python
SPARK_TESTS  = $(if $(filter 3.%,$(VERSION)),tests/older_pyspark,tests/spark $(if $(VERSION),tests/unit/pyspark_eoslog))
# A session waits for its own processes nearly half of the time, so one more keeps the cores busy.
SPARK_WORKERS ?= $(shell expr $(WORKERS) + 1)
test-spark: setup s3-server ## The part of them that runs Spark, with a session for each of SPARK_WORKERS=3 (VERSION=4.1: another PySpark)
	$(if $(VERSION),@conf/pyspark_environment.sh $(VERSION))
	PYSPARK_PYTHON=$(CURDIR)/$(SPARK_PYTHON) PYSPARK_DRIVER_PYTHON=$(CURDIR)/$(SPARK_PYTHON) \
		$(SPARK_PYTHON) -m pytest -n $(SPARK_WORKERS) --dist worksteal -m "not slow" $(SPARK_TESTS)

DEEP_MIXED_SEEDS ?= 1000
DEEP_LOG_SEEDS ?= 3000
FOCUS_SEEDS ?= 100
test-deep: setup s3-server ## Run the slow tests, except those of interrupts, more examples, and a slice of the seeds (45 minutes on 2 cores)
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=deep tests --ignore=tests/spark --ignore=tests/interrupts
	$(SIMULATE) --services mixed --seeds $(DEEP_MIXED_SEEDS) --steps $(SHORT_STEPS)
	$(SIMULATE) --services log --seeds $(DEEP_LOG_SEEDS) --steps $(SHORT_STEPS)
	@set -e; for focus in uploads replacements replicas races threads racing-clients queue queue-clients append-services append-service-clients publications fences; do \
		echo "$(SIMULATE) --services $$focus --seeds $(FOCUS_SEEDS)"; \
		$(SIMULATE) --services $$focus --seeds $(FOCUS_SEEDS); done
	$(PYTEST) --dist worksteal -m slow tests/spark

test-all: ## Run everything: make test, make test-deep with all seeds, fuzz, and Spark on S3 (90 minutes on 2 cores)
	$(MAKE) test
	$(MAKE) test-deep DEEP_MIXED_SEEDS=10000 DEEP_LOG_SEEDS=10000 FOCUS_SEEDS=1000
	$(MAKE) test-clouds
	$(PYTEST) -m slow tests/interrupts
	$(MAKE) fuzz
	$(PYTEST) --dist worksteal tests/spark --store=s3

test-clouds: setup s3-server ## Run the tests on servers for s3://, gs:// and az:// and on a REST catalog (needs Go, npm, Java and Maven)
	@conf/gcs_server.sh install
	@conf/azure_server.sh install
	@conf/iceberg_catalog.sh install
	$(PYTEST) --dist worksteal -m "clouds and not slow" tests --ignore=tests/spark

test-s3: setup s3-server ## Run the tests that use S3, and those of Spark with their stores on a real S3 server
	$(PYTEST) -m s3 tests --ignore=tests/spark
	$(PYTEST) --dist worksteal tests/spark --store=s3

s3-server:
	@echo "conf/s3_server.sh install"; conf/s3_server.sh install || echo "Tests that need a real S3 server are skipped."

promtool:
	@echo "conf/promtool.sh install"; conf/promtool.sh install || echo "Tests of the alert rules are skipped."

s3: ## Start a real S3 server on this machine (built with Go the first time); s3-stop stops it
	@conf/s3_server.sh start

s3-stop:
	@conf/s3_server.sh stop

SEEDS ?= 100
simulate: setup ## Run many processes among faults in one simulated world (SEEDS=100 FROM=0 STEPS=2000 JOBS=2 SERVICES=log)
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(if $(FROM),--from $(FROM)) \
		$(if $(STEPS),--steps $(STEPS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SERVICES),--services $(SERVICES))

MINUTES ?= 5
fuzz: setup ## Spoil every record and file that is read, and see that none does harm (MINUTES=5)
	$(BIN)/python -m tests.fuzz.run --minutes $(MINUTES)

STORE ?= local
soak: setup ## Run real processes among kills, stops and a full disk (MINUTES=5 STORE=local, or s3, gs, az)
	$(BIN)/python -m tests.soak.run --minutes $(MINUTES) --store $(STORE)

mutations: setup ## Leave out one rule of the protocol at a time, and write docs/evidence/mutations.md from what shows it
	$(BIN)/python -m tests.simulation.mutations

conformance: setup ## Write docs/evidence/conformance.md from the tests that answer Kafka's
	$(BIN)/python -m tests.conformance.page

kafka-tools: setup ## Have Kafka's own dump tool read index files (fetches Kafka; needs Java and Maven)
	mvn --quiet --batch-mode --file tests/kafka_tools/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/.cache/kafka
	$(BIN)/python -m pytest tests/kafka_tools

delta-tools: setup ## Have Delta's own connector, delta-rs, DuckDB and Polars read published topics (needs Java and Maven)
	@conf/delta_tools.sh
	PYSPARK_PYTHON=$(CURDIR)/.cache/delta-tools/venv/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/.cache/delta-tools/venv/bin/python \
		.cache/delta-tools/venv/bin/python -m pytest tests/delta_tools

iceberg-tools: setup ## Have Iceberg's own runtime for Spark, PyIceberg, DuckDB and Polars read published topics (needs Java and Maven)
	@conf/iceberg_tools.sh
	PYSPARK_PYTHON=$(CURDIR)/.cache/iceberg-tools/venv/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/.cache/iceberg-tools/venv/bin/python \
		.cache/iceberg-tools/venv/bin/python -m pytest tests/iceberg_tools

KAFKA_CLIENTS := $(CURDIR)/.cache/kafka-clients/venv/bin/python
test-kafka-clients: setup s3-server ## Run clients of Kafka, with their own tests, against the gateway (needs Java, Maven, npm, Go and a C++ compiler)
	@conf/kafka_clients.sh
	PYSPARK_PYTHON=$(KAFKA_CLIENTS) PYSPARK_DRIVER_PYTHON=$(KAFKA_CLIENTS) $(KAFKA_CLIENTS) -m pytest -n 2 --dist worksteal tests/kafka_clients

bench-gateway: setup s3-server ## Measure the gateway beside a Kafka broker: CPU for each record, and the time of an acknowledgement
	@conf/kafka_clients.sh
	$(KAFKA_CLIENTS) -m benchmarks.gateway

docs: setup ## Build the site of the pages and the API reference into .cache/docs/site; a dead link is an error
	@conf/docs_source.sh
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file conf/mkdocs.yml

lint: setup ## Check format, style, types and the direction of imports
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: setup ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

schemas: setup ## Write the JSON Schemas of stored records to schemas/
	$(BIN)/python -m tests.schemas schemas

lock: setup ## Resolve the dependencies anew (add UPGRADE=--upgrade for newer releases)
	$(COMPILE) $(UPGRADE) pyproject.toml --extra spark --extra ui --extra iceberg --extra gateway --group dev --group docs --group build --output-file requirements.lock
	$(COMPILE) --group build --constraints requirements.lock --output-file requirements-build.lock

clean: ## Remove the environment, caches and what a run leaves behind
	rm -rf $(VENV) .cache .ruff_cache .hypothesis .import_linter_cache build dist demo-store \
		spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -prune -exec rm -rf {} +
