# Needs Python >= 3.10 and make; everything else is made below .venv, .uv and .cache.
SHELL := /bin/bash
PYTHON ?= python3
ROOT := $(CURDIR)
# uv: the one on PATH, else one of our own.
UV := $(shell uv --version >/dev/null 2>&1 && command -v uv || echo $(ROOT)/.uv/bin/uv)
RUN := $(UV) run --no-sync
JAVA := JAVA_HOME="$$($(RUN) python -m maint_assets_tests.oracles.setup --java-home)"

.PHONY: setup sync browser fast test check demo demo-s3 bench bench-compaction bench-append bench-s3 bench-logs bench-checkpoint stories races package clean

setup: sync
	$(RUN) python -m maint_assets_tests.oracles.setup

sync: .venv/.synced

.venv/.synced: pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --all-extras
	touch $@

$(ROOT)/.uv/bin/uv:
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet uv

# For the tests of the UI; without root or apt they skip, in CI they fail.
browser:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; \
	else echo "no chromium, no root with apt-get: tests of the UI will skip"; fi

# No Java, no jars, no browser, no S3 server; a test of it that starts a JVM fails.
fast: sync
	$(RUN) pytest -n 2 -m "not jvm and not s3 and not slow and not long" $(ARGS)

# Two processes: tests wait more than they compute. A file's tests share one Spark session; files
# come in the order of conftest.py, the longest first.
test: setup browser
	$(JAVA) $(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: sync
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) pyright
	$(RUN) lint-imports

demo: sync
	$(JAVA) $(RUN) maint-assets demo $(ARGS)

# The same on a real S3 server from PyPI; nothing stays.
demo-s3: sync
	$(JAVA) $(RUN) python -m maint_assets_tests.demo_s3 $(ARGS)

bench: setup
	$(JAVA) $(RUN) python -m maint_assets_tests.benchmarks $(ARGS)

bench-compaction: setup
	$(JAVA) $(RUN) python -m maint_assets_tests.benchmarks.small_files $(ARGS)

bench-append: setup
	$(JAVA) $(RUN) python -m maint_assets_tests.benchmarks.appended $(ARGS)

bench-s3: setup
	$(JAVA) $(RUN) python -m maint_assets_tests.benchmarks.stores $(ARGS)

bench-checkpoint: setup
	$(JAVA) $(RUN) python -m maint_assets_tests.benchmarks.checkpointing $(ARGS)

bench-logs: setup
	$(JAVA) $(RUN) python -m maint_assets_tests.benchmarks.logs $(ARGS)

N ?= 200

stories: setup
	STORIES=$(N) $(JAVA) $(RUN) pytest -m "long or slow" $(ARGS) \
		maint_assets_tests --ignore=maint_assets_tests/races \
		-o log_cli=true -o log_cli_level=INFO

package: setup
	$(JAVA) $(RUN) pytest -m long $(ARGS) maint_assets_tests/test_package.py

races: setup
	RACES=$(N) $(JAVA) $(RUN) pytest $(ARGS) maint_assets_tests/races \
		-o log_cli=true -o log_cli_level=INFO

clean:
	rm -rf .venv .uv .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
