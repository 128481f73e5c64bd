# Everything a newcomer runs. `make demo` needs only Python 3.11 or newer; choose one with PYTHON=python3.12.

PYTHON ?= python3
VENV := .venv
# The oldest Spark that is supported; make nightly-spark OLDER_SPARK=4.2 tests another one.
export OLDER_SPARK ?= 4.0
SPARK := .venv-spark$(OLDER_SPARK)
AIRFLOW := .venv-airflow
PACKED := .venv-packed
PACKED_PREFIX :=
DIST := dist
BIN := $(VENV)/bin
PARTS := cases spark broker histories properties mutants
SPREAD := -n auto --dist loadscope --no-loadscope-reorder
BUNDLE_TOOL = $(DIST)/kafka-forensics-$(shell $(BIN)/python -c 'import sys, sysconfig, kafka_forensics.version as package; \
  print(package.__version__, sysconfig.get_platform(), sys.implementation.cache_tag, sep="-")').pyz
KAFKA_FORENSICS := $(BIN)/kafka-forensics
CODE := kafka_forensics tests lab bench

# Hundreds of processes of the tests load the package: compiled once, not by each of them anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo java test test-broker nightly $(PARTS:%=nightly-%) check format docs dist release release-checks bench \
  bench-spark packed-environment bundle-tool lab lab-versions clean

help:
	@echo 'make demo                install into $(VENV) and scan two sample clusters that lost data'
	@echo 'make test                the tests: 14 to 20 minutes on two cores'
	@echo 'make test-broker         tests with a real Kafka on loopback: 16 minutes; SLICE=slice: 3 minutes'
	@echo 'make nightly             all other tests: 2½ to 3¼ hours; with PART=spark one part (docs/development.md)'
	@echo 'make check               formatting, lint, types'
	@echo 'make format              format with ruff, and fix what it can'
	@echo 'make docs                the documentation as a site with search, in build/site'
	@echo 'make dist                wheel and sdist, in $(DIST)'
	@echo 'make release             check that this commit can be released, then run all suites: 3 to 4 hours'
	@echo 'make release-checks      only the checks: one second'
	@echo 'make bench               measure against other tools'
	@echo 'make bench-spark         measure the scan on Spark against the local engine'
	@echo 'make packed-environment  $(DIST)/environment.tar.gz: the package for Spark (docs/clusters.md)'
	@echo 'make bundle-tool         $(DIST)/kafka-forensics-….pyz: one file for brokers (docs/bundle-tool.md)'
	@echo 'make lab                 make the sample log directories again and check their scans'
	@echo 'make lab-versions        every state of each Kafka version with its scan: an hour'
	@echo 'make clean               remove environments, caches and built files'

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo 'make: $(PYTHON) was not found; name a Python 3.11 or newer, e.g. make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Python 3.11 or newer is needed and $(PYTHON) is $$($(PYTHON) -c 'import sys; print(sys.version.split()[0])'); try make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed

# Both samples hold lost data, so a scan that works ends with exit status 1: anything else fails the demo.
demo: $(VENV)/.installed
	@for sample in unclean-election silent-divergence; do \
	  printf '\n$$ kafka-forensics scan sample_logs/%s\n\n' "$$sample"; \
	  status=0; $(KAFKA_FORENSICS) scan sample_logs/$$sample || status=$$?; \
	  test $$status -eq 1 || { echo "make: the scan of sample_logs/$$sample ended with $$status instead of 1" >&2; exit 1; }; \
	done

# The older Spark, over all else of $(VENV).
$(SPARK)/.installed: $(VENV)/.installed-dev
	$(BIN)/python -m venv $(SPARK)
	$(SPARK)/bin/pip install --quiet 'pyspark==$(OLDER_SPARK).*'
	$(BIN)/python -c 'import sys, sysconfig; print(sys.argv[1], sysconfig.get_path("purelib"), sep="\n")' '$(CURDIR)' \
	  > "$$($(SPARK)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_shared.pth"
	@touch $@

# The scheduler of examples/airflow_dag.py, whose packages would not go with ours.
$(AIRFLOW)/.installed: | $(VENV)/.installed-dev
	$(BIN)/python -m venv $(AIRFLOW)
	$(AIRFLOW)/bin/pip install --quiet 'apache-airflow==3.3.*' 'apache-airflow-providers-apache-spark>=6.3,<7'
	@touch $@

# The package with what it needs, but without pyspark, which clusters bring. The archive has a link to Python, whose prefix on the
# workers is PACKED_PREFIX, where that is another than here: theirs must be of the same version.
packed-environment: dist/environment.tar.gz

dist/environment.tar.gz: pyproject.toml $(shell find kafka_forensics -type f -not -name '*.pyc') | $(BIN)/python
	rm -rf $(PACKED)
	$(BIN)/python -m venv $(PACKED)
	$(PACKED)/bin/pip install --quiet '.[cluster]'
	$(BIN)/pip install --quiet 'venv-pack>=0.2'
	@mkdir -p $(@D)
	$(BIN)/venv-pack --quiet --force --prefix $(PACKED) $(if $(PACKED_PREFIX),--python-prefix $(PACKED_PREFIX)) --output $@

# The same package with what it needs as one file, for brokers where nothing may be installed: for this system and this Python, with the
# library versions of $(VENV).
bundle-tool: $(VENV)/.installed
	$(BIN)/pip install --quiet 'shiv>=1.0.8,<2'
	$(BIN)/pip freeze --exclude-editable > $(VENV)/constraints.txt
	@mkdir -p $(DIST)
	$(BIN)/shiv --quiet --reproducible --preamble lab/bundle_tool_preamble.py --console-script kafka-forensics --output-file $(BUNDLE_TOOL) \
	  --only-binary=:all: --constraint $(VENV)/constraints.txt .

java:
	@sh tests/spark/java.sh

test: $(VENV)/.installed-dev java
	$(BIN)/pytest --require-groups $(SPREAD)

test-broker: $(VENV)/.installed-dev
	$(BIN)/pytest --broker -m 'broker$(if $(SLICE), and $(SLICE))' $(SPREAD)

# Every part runs, also after one that failed; each runs alone, too: make nightly PART=spark.
nightly:
	@failed=; told=; for part in $(or $(PART),$(PARTS)); do \
	  began=$$(date +%s); result=passed; $(MAKE) nightly-$$part || { result=FAILED; failed=yes; }; \
	  told="$$told$$part $$result in $$(($$(date +%s) - began)) s; "; \
	done; echo "nightly: $$told"; test -z "$$failed"

nightly-cases: $(VENV)/.installed-dev
	$(BIN)/pytest --nightly -m 'nightly and not spark' $(SPREAD) --require-groups=browser,containers,debian

nightly-spark: $(VENV)/.installed-dev $(SPARK)/.installed $(AIRFLOW)/.installed packed-environment java
	$(BIN)/pytest --nightly -m 'nightly and spark' $(SPREAD) --require-groups=spark

nightly-broker: $(VENV)/.installed-dev
	$(BIN)/pytest --nightly --broker -m broker $(SPREAD) --require-groups=broker

nightly-histories: $(VENV)/.installed-dev
	$(BIN)/pytest --nightly $(SPREAD) tests/scanning/engine/test_hostile.py tests/simulation/test_random_histories.py \
	  tests/simulation/test_random_histories_on_disk.py tests/questions/recover/test_recover_histories.py

nightly-properties: $(VENV)/.installed-dev
	$(BIN)/pytest --nightly --hypothesis-profile=nightly -m hypothesis $(SPREAD) --require-groups=hypothesis

nightly-mutants: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet 'cosmic-ray>=8.4' 'coverage>=7.6'
	$(BIN)/python -m tests.mutants

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(foreach folder,$(CODE),$(if $(shell find $(folder) -name '*.py' 2>/dev/null),$(folder)))

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The theme prints a notice about its successor, which concerns nobody who reads the pages.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo 'build/site/index.html'

# The wheel is built from the sdist. hatchling gives every file the same time, so equal sources give equal bytes.
dist: | $(BIN)/python
	$(BIN)/pip install --quiet 'build>=1.2'
	rm -f $(DIST)/kafka_forensics-*
	$(BIN)/python -m build --quiet --outdir $(DIST)
	@ls $(DIST)/kafka_forensics-*

# Checked again after the suites: they take 3 hours. `nightly` has the tests of `test-broker`.
release: release-checks
	$(MAKE) check test nightly dist
	$(BIN)/python -m lab.release --next

# With TAGGED=yes for a commit that has its tag.
release-checks: | $(BIN)/python
	$(BIN)/python -m lab.release $(if $(TAGGED),--tagged)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench

bench-spark: $(VENV)/.installed-dev
	$(BIN)/python -m bench.spark

lab: $(VENV)/.installed-dev
	$(BIN)/python -m lab.make_samples

lab-versions: $(VENV)/.installed-dev
	$(BIN)/python -m lab.version_table

clean:
	rm -rf $(VENV) .venv-spark* $(AIRFLOW) $(PACKED) $(DIST)/environment.tar.gz $(DIST)/kafka-forensics-*.pyz $(DIST)/kafka_forensics-* build/site .mypy_cache .pytest_cache .ruff_cache .hypothesis
