# Everything a person or CI runs. Each target sets up what it needs by itself.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= python3
WORKERS ?= 2
# Unit tests wait for half of their time, and need little memory: two more workers than there are cores. Tests with brokers
# need gigabytes: one more.
UNIT_WORKERS ?= $(shell expr $(WORKERS) + 2)
BROKER_WORKERS ?= $(shell expr $(WORKERS) + 1)
# Hundreds of processes are started from these sources: without this, some would compile them again each time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: docs help setup java prometheus kerberos browser yaml-language-server screenshots demo demo-failover demo-down test test-all long test-versions test-kubernetes coverage fast lint format types imports unit unit-all integration bench-plan bench-apply lock clean bench-copy bench-files bench-sql bench-failover bench-offsets bench-scale bench-simulated bench-standby bench-start bench-ui bench-workers chaos hostile soak dist sbom release release-files image

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: java $(READY) ## the environment in .venv/ and Java, installed where they are missing

# The stamp is rewritten only after every step went well, so a cut set-up starts over and a finished one costs nothing.
# The lock is complete: older versions of pip resolve a requirement with an extra anew, and refuse a release without a hash.
$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: install python3." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; $$($(PYTHON) --version) was found. Name another: make PYTHON=python3.11 ..." >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then echo "Installing python3-venv ..." >&2; apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; \
	  else echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv) and run this again." >&2; exit 1; fi; fi
	@echo "Setting up $(VENV) (first time: about two minutes) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check -q --disable-pip-version-check
	@touch $@

# Java 17 or newer is the one thing a user brings; where apt can, it is brought here.
java:
	@version=$$({ java -version 2>&1 || true; } | sed -nE '1s/.*version "([0-9]+).*/\1/p'); \
	if [ -z "$$version" ] || [ "$$version" -lt 17 ]; then \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "Installing Java 17 (found: $${version:-none}) ..." >&2; \
	    { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; } \
	      || { echo "Java 17 could not be installed with apt-get: install it yourself and run this again." >&2; exit 1; }; \
	  else echo "Java 17 or newer is needed (found: $${version:-none}): install it, for example the package openjdk-17-jre-headless." >&2; exit 1; fi; fi

# Tests ask a real Prometheus. Where none is installed, Debian's package is unpacked beside the environment: nothing is
# installed and no service is started.
prometheus: $(READY)
	@if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then \
	  if [ -x $(VENV)/prometheus/usr/bin/promtool ]; then :; \
	  elif command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
	    echo "Fetching Prometheus for the tests ..." >&2; \
	    mkdir -p $(VENV)/prometheus && cd $(VENV)/prometheus && rm -f ./*.deb; \
	    apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; } \
	      || { echo "Prometheus could not be fetched with apt-get: install it (the commands prometheus and promtool) and run this again." >&2; exit 1; }; \
	    dpkg-deb -x ./prometheus_*.deb . && rm -f ./*.deb; \
	  else echo "The tests need Prometheus (the commands prometheus and promtool): install it and run this again." >&2; exit 1; fi; fi

# Tests log in at a real KDC. Debian's packages are unpacked beside the environment, as Prometheus is.
KERBEROS := krb5-kdc krb5-admin-server libkadm5srv-mit12 libkadm5clnt-mit12 libkdb5-10 libgssrpc4 libverto1 libverto-libev1 libev4
kerberos: $(READY)
	@if ! command -v krb5kdc >/dev/null && [ ! -x $(VENV)/kerberos/usr/sbin/krb5kdc ]; then \
	  if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
	    echo "Fetching a KDC for the tests ..." >&2; \
	    mkdir -p $(VENV)/kerberos && cd $(VENV)/kerberos && rm -f ./*.deb; \
	    apt-get download -qq $(KERBEROS) 2>/dev/null || { apt-get update -qq && apt-get download -qq $(KERBEROS); } \
	      || { echo "The KDC could not be fetched with apt-get: install it (krb5kdc, kadmin.local and kdb5_util) and run this again." >&2; exit 1; }; \
	    for package in ./*.deb; do dpkg-deb -x "$$package" .; done && rm -f ./*.deb; \
	  else echo "The tests need a KDC (the commands krb5kdc, kadmin.local and kdb5_util): install it and run this again." >&2; exit 1; fi; fi

# Tests and pictures of the pages need Chromium. Playwright drives the installed one and downloads none.
browser:
	@if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "Installing Chromium for the tests of the pages ..." >&2; \
	    install="apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core"; \
	    { $$install >/dev/null 2>&1 || { apt-get update -qq && $$install >/dev/null; }; } \
	      || { echo "Chromium could not be installed with apt-get: install it yourself and run this again." >&2; exit 1; }; \
	  else echo "The tests of the pages need Chromium: install it (Debian: apt-get install chromium) and run this again." >&2; exit 1; fi; fi

# A test asks the language server of editors what it makes of the JSON Schema.
LANGUAGE_SERVER := $(VENV)/yaml-language-server/node_modules/.bin/yaml-language-server
yaml-language-server: $(READY)
	@if [ ! -x $(LANGUAGE_SERVER) ]; then \
	  if ! command -v npm >/dev/null; then \
	    if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then echo "Installing npm for the tests of the schema ..." >&2; apt-get update -qq && apt-get install -y -qq --no-install-recommends npm >/dev/null; \
	    else echo "The tests of the schema need npm (Node.js 18 or newer): install it and run this again." >&2; exit 1; fi; fi; \
	  npm install --silent --no-audit --no-fund --prefix $(VENV)/yaml-language-server yaml-language-server@2.0.0; fi

DEMO := plans/examples/replicator-demo.yaml
DEMO_LOAD := dc1:topic1 dc2:topic1 dc1:topic2 dc1:_schemas
ON_DEMO := $(DEMO)

demo: setup ## two real Kafka clusters on this machine that replicate to each other, within minutes
	@$(BIN)/repl lab up
	@$(BIN)/repl lab status
	@mkdir -p build
	@echo; echo '$$ repl plan $(DEMO) --out build/demo.plan'
	@$(BIN)/repl plan $(DEMO) --out build/demo.plan
	@echo; echo '$$ repl apply build/demo.plan'
	@$(BIN)/repl apply build/demo.plan
	@echo; echo '$$ repl lab load $(DEMO_LOAD) --seconds 10'
	@$(BIN)/repl lab load $(DEMO_LOAD) --seconds 10 2>build/demo-load.log & loading=$$!; \
	  sleep 5; echo; echo '$$ repl status $(DEMO)      # while records are written on both sides'; \
	  $(BIN)/repl status $(DEMO); wait $$loading; cat build/demo-load.log
	@echo; echo '$$ repl read dc2 topic1 $(ON_DEMO) --limit 4      # each record tells where it was written'
	@$(BIN)/repl read dc2 topic1 $(ON_DEMO) --limit 4
	@echo; echo '$$ repl read dc2 topic2.replica $(ON_DEMO) --limit 2'
	@$(BIN)/repl read dc2 topic2.replica $(ON_DEMO) --limit 2
	@echo; echo '$$ repl plan $(DEMO)'
	@$(BIN)/repl plan $(DEMO)
	@echo; echo 'Watch it:                   $(BIN)/repl lab load $(DEMO_LOAD) & $(BIN)/repl status $(DEMO) --watch'
	@echo 'Who reads and writes:       $(BIN)/repl clients dc1 $(ON_DEMO)'
	@echo 'Change something in $(DEMO), then:  $(BIN)/repl plan $(DEMO)'
	@echo 'Lose a datacenter:          $(BIN)/repl lab kill dc1; $(BIN)/repl status $(DEMO); $(BIN)/repl lab start dc1'
	@echo 'Stop it all:                make demo-down'

# The topology that it edits is a copy; the jobs are those of the demo.
FAILOVER := build/failover.yaml
ON_FAILOVER := $(FAILOVER) --auto-approve
demo-failover: export REPL_HOME := $(CURDIR)/$(dir $(DEMO)).repl
show = echo; echo '$$ repl $(1)'; $(BIN)/repl $(1)
read_on = echo; echo '$$ kafka-console-consumer at $(1): billing reads $(3) records of $(2), the last of them:'; \
  $(BIN)/repl lab tool $(1) ConsoleConsumer --topic $(2) --group billing --from-beginning --max-messages $(3) --timeout-ms 30000 2>/dev/null | tail -1

demo-failover: setup ## the demo continued: dc1 is lost, consumers go on at dc2, and everything is copied back
	@$(BIN)/repl plan $(DEMO) --detailed-exitcode >/dev/null 2>&1 || $(MAKE) --no-print-directory demo
	@mkdir -p build && cp $(DEMO) $(FAILOVER)
	@$(call read_on,dc1,topic2,100)
	@$(call show,lab load dc1:topic1 dc2:topic1 dc1:topic2 --seconds 6)
	@echo; echo '# dc1 is lost.'; $(call show,lab kill dc1)
	@$(call show,failover dc1 $(ON_FAILOVER))
	@$(call read_on,dc2,topic2.replica,50)
	@echo; echo '# Its producers go on at dc2.'; $(call show,lab load dc2:topic1 dc2:topic2.replica --seconds 4)
	@echo; echo '# dc1 is back, and a forgotten producer writes there for a second: that is no longer copied.'
	@$(call show,lab start dc1)
	@$(call show,lab load dc1:topic2 --seconds 1)
	@$(call show,salvage dc1-to-dc2-topic2 $(FAILOVER))
	@$(call show,failback dc1 $(ON_FAILOVER))
	@echo; echo '# The producers at dc2 stop. What was copied back, and the original flows:'
	@$(call show,failback dc1 --switch $(ON_FAILOVER))
	@$(call read_on,dc1,topic2,50)
	@$(call show,status $(FAILOVER))
	@echo; echo 'What the topology says now: $(FAILOVER)     Stop it all: make demo-down'

# The jobs first: they would go on asking for clusters that are gone. A cluster that was lost is started for that, since
# each remembers the jobs into it.
demo-down: $(READY) ## stop everything the demo started
	@[ ! -d "$${REPL_LAB_HOME:-.lab}" ] || $(BIN)/repl lab up >/dev/null 2>&1 || true
	@$(BIN)/repl destroy $(DEMO) --auto-approve >/dev/null || true
	@$(BIN)/repl lab down --purge

test: setup ## what every change must pass: format, lint, types, arrows, unit tests, and stories on real brokers and real Spark
	@$(MAKE) --no-print-directory --jobs lint types imports unit-all
	@$(MAKE) --no-print-directory integration

test-all: test long ## make test, and behind it the long stories of make long

long: setup prometheus kerberos browser yaml-language-server ## the long stories: old versions of Kafka, MirrorMaker 2, drills, object stores, pages in Chromium, the tutorial
	@$(BIN)/python -m pytest -n $(UNIT_WORKERS) -m "hypothesis and not integration and not spark" --hypothesis-profile thorough --timeout 1800 -q
	@$(BIN)/python -m pytest -n $(BROKER_WORKERS) --dist loadfile --no-loadscope-reorder -p no:randomly -m "long and not versions and not kubernetes" --durations=15 $(LONG_TESTS)

coverage: ## make test, with the share of the code that the tests in its processes reach; takes a third longer
	@rm -f .coverage .coverage.*
	@$(MAKE) --no-print-directory test COVERED=yes

test-versions: setup ## one story over pairs of old and new versions of Kafka, and the tables of docs/compatibility.md
	@rm -f build/versions.jsonl
	@$(BIN)/python -m pytest -p no:randomly tests/versions tests/runtime/lab/test_old_versions.py
	@$(BIN)/python -m tests.versions.table

# Go builds the daemons at the first run, which takes half an hour on two cores; they are kept in the cache.
test-kubernetes: setup ## jobs on a real node of Kubernetes, built into the cache at the first run; as root, with Go
	@command -v go >/dev/null || { echo "The daemons are built with Go: install it." >&2; exit 1; }
	@$(BIN)/python -m tests.kubernetes.build
	@$(BIN)/python -m pytest -p no:randomly -s -m kubernetes tests/kubernetes

fast: setup ## the checks and the quick tests, without brokers, in a minute on two cores
	@$(MAKE) --no-print-directory --jobs lint types imports unit

# Each worker collects by itself, therefore only the files that have such tests; tests/conftest.py knows the pattern.
unmarked = $(sort $(shell grep -rLE '^pytestmark = .*pytest\.mark\.($(1))\b' tests --include='test_*.py'))

unit: $(READY)
	@$(BIN)/python -m pytest -n $(UNIT_WORKERS) -m "not integration and not spark and not long and not slow" --hypothesis-profile fast -q \
	  $(call unmarked,integration|spark|long|slow)

unit-all: $(READY)
	@$(BIN)/python -m pytest -n $(UNIT_WORKERS) -m "not integration and not spark and not long" -q $(if $(COVERED),--cov --cov-report=) \
	  $(call unmarked,integration|spark|long)

BROKER_TESTS = $(shell grep -rlE 'pytest\.mark\.(integration|spark)\b' tests --include='test_*.py' | xargs grep -LE '^pytestmark = .*pytest\.mark\.long\b')
LONG_TESTS = $(shell grep -rlE 'pytest\.mark\.long\b|^scenarios\b' tests --include='test_*.py')

integration: $(READY)
	@$(BIN)/python -m pytest -n $(BROKER_WORKERS) --dist loadfile --no-loadscope-reorder -p no:randomly -m "(integration or spark) and not long and not versions" \
	  $(if $(COVERED),--cov --cov-append --cov-report=term --cov-fail-under=80) --durations=15 $(BROKER_TESTS)

lint: $(READY) ## ruff: format and rules
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .

format: $(READY) ## rewrite the sources as ruff wants them
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format --quiet .

types: $(READY) ## mypy, strict
	@$(BIN)/mypy

docs: $(READY) ## write what is generated again: docs/cli*.md, docs/topology*.md and the chart's rights
	@$(BIN)/python -m tests.docs.cli_page
	@$(BIN)/python -m tests.docs.chart_rights
	@$(BIN)/repl schema --markdown docs

# The site's generator is large and nothing else needs it, so it comes with the first build. Mermaid draws the diagrams;
# the pages carry it, because they load nothing from elsewhere.
SITE := $(VENV)/site
MERMAID := 12.3.0
MERMAID_SHA256 := 336df803d87a38b70a01e736e666c8f7601d2ce42f5e47c8fafe5d721074b9a3

$(SITE)/.ready: requirements-site.lock $(READY)
	@echo "Setting up the generator of the site (first time: about a minute) ..." >&2
	@command -v npm >/dev/null || { if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends npm >/dev/null; \
	  else echo "The site needs npm, to fetch Mermaid: install it and run this again." >&2; exit 1; fi; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements-site.lock
	@mkdir -p $(SITE) && cd $(SITE) && tar -xzf "$$(npm pack --silent mermaid@$(MERMAID))" package/dist/mermaid.min.js && rm -f mermaid-*.tgz
	@echo "$(MERMAID_SHA256)  $(SITE)/package/dist/mermaid.min.js" | sha256sum --check --quiet
	@touch $@

.PHONY: site
site: $(SITE)/.ready ## build/site: the pages of docs/ with search; a dead link or anchor is an error
	@$(BIN)/python -m tests.docs.site
	@$(BIN)/zensical build --strict --clean
	@echo "Open it: $(BIN)/python -m http.server --directory build/site 8000"

screenshots: setup browser ## take the pictures of README.md and docs/ again, on clusters of its own; ARGS='ui.png'
	@$(BIN)/python -m tests.docs.pictures $(ARGS)

imports: $(READY) ## the arrows of docs/internals/architecture.md
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

bench-plan: setup ## how long a plan over 10,000 topics or subjects takes; build/bench-plan.json keeps it
	@$(BIN)/python -m tests.bench.bench_plan $(ARGS)

bench-apply: setup ## how long 5,000 creates and 5,000 config changes take; build/bench-apply.json keeps it
	@$(BIN)/python -m tests.bench.bench_apply

bench-files: setup ## how fast a task writes a topic to files and restores it; ARGS='--megabytes 300 --rounds 1'
	@$(BIN)/python -m tests.bench.bench_files $(ARGS)

bench-failover: setup ## how long repl failover takes with 100 groups and 100 partitions, the source gone in five ways
	@$(BIN)/python -m tests.bench.bench_failover $(ARGS)

bench-standby: setup ## how long a job stands still when its machine is lost, until a standby copies; ARGS='--rounds 5'
	@$(BIN)/python -m tests.bench.bench_standby $(ARGS)

# The distribution names itself in its extras; what it needs is locked, it is not.
lock: $(READY) ## write requirements.lock again from pyproject.toml, and requirements-site.lock
	@$(BIN)/pip-compile --quiet --upgrade --extra dev --generate-hashes --unsafe-package kafka-repl --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements.lock pyproject.toml
	@echo zensical | $(BIN)/pip-compile --quiet --upgrade --constraint requirements.lock --generate-hashes --allow-unsafe --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements-site.lock -

bench-copy: setup ## speed against MirrorMaker 2, about an hour on a quiet machine; ARGS='--quick --rounds 1'
	@$(BIN)/python -m tests.bench.copy $(ARGS)

bench-scale: setup ## what a job with 1,000, 3,000 and 10,000 partitions costs; ARGS='--partitions 1000 --brokers 1'
	@$(BIN)/python -m tests.bench.bench_scale $(ARGS)

bench-simulated: setup ## what a driver and a plan cost with up to 100,000 partitions, on simulated brokers; ARGS='--partitions 1000,10000 --seed 7'
	@$(BIN)/python -m tests.bench.bench_simulated $(ARGS)

bench-start: setup ## repl apply until the first record, memory and idle cost of one small job; ARGS='--rounds 5'
	@$(BIN)/python -m tests.bench.bench_start $(ARGS)

bench-ui: setup ## first paint, update and memory of repl ui with 10,000 partitions; build/bench-ui.json keeps it
	@$(BIN)/python -m tests.bench.bench_ui $(ARGS)

bench-sql: setup ## a flow that filters and masks, beside MirrorMaker 2 with SMTs; ARGS='--quick --rounds 1'
	@$(BIN)/python -m tests.bench.bench_sql $(ARGS)

bench-offsets: setup ## records read again and skipped after a move, beside MirrorMaker 2; build/bench-offsets.json keeps it
	@$(BIN)/python -m tests.bench.offsets

bench-workers: setup ## a job on Spark with four Workers: a machine lost, a rolling restart, uneven load; MB/s of 1 to 8 slots with small shares of a core and narrow links; ARGS='--only cores links'
	@$(BIN)/python -m tests.bench.workers $(ARGS)

chaos: setup ## 1,000 kills and cuts while records are copied; ARGS='--seed 7 --blows 100 --sql'
	@$(BIN)/python -m tests.chaos $(ARGS)

hostile: setup ## 500 rounds of copying behind a proxy that spoils transactions; ARGS='--rounds 500 --seed 7 --spark 4'
	@$(BIN)/python -m tests.hostile $(ARGS)

soak: setup ## hours of daily life: load, applies, kills, failovers and failbacks; ARGS='--hours 2 --seed 7'
	@$(BIN)/python -m tests.soak $(ARGS)

# hatchling gives files a fixed order, time and mode, so the same sources are the same bytes.
dist: $(READY) ## wheel and sdist in dist/, checked as an index checks them
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/twine check --strict dist/*

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
DATED := s/^\(\#\# $(subst .,\.,$(VERSION))\) (unreleased)$$/\1 ($(shell date -u +%F))/

# What the wheel installs with its extras, at the locked versions: an environment is made for it, and listed.
sbom: dist
	@rm -rf build/sbom && mkdir -p build
	@sed -n 's/^\([a-z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock > build/constraints.txt
	@$(BIN)/uv venv --quiet --python $(BIN)/python build/sbom
	@$(BIN)/uv pip install --quiet --python build/sbom/bin/python --constraints build/constraints.txt \
	  "kafka-repl[spark,files,ui,drill] @ file://$$(realpath dist/*.whl)"
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --sv 1.6 --of JSON \
	  --output-file dist/kafka-repl-$(VERSION).cdx.json build/sbom/bin/python 2>/dev/null
	@rm -rf build/sbom

release-files: sbom ## dist/ as it is published: wheel, sdist, SBOM and checksums, signed where RELEASE_KEY names an SSH key
	@cd dist && sha256sum -- *.whl *.tar.gz *.json > SHA256SUMS
	@[ -z "$(RELEASE_KEY)" ] || ssh-keygen -q -Y sign -f "$(RELEASE_KEY)" -n file dist/SHA256SUMS

# The tag comes last: where a step fails, the commit of the dated changelog is all there is.
release: $(READY) ## date the changelog, build dist/, and tag it: make release VERSION=0.1.0 [RELEASE_KEY=FILE]; docs/releasing.md
	@[ -z "$$(git status --porcelain)" ] || { echo "Files are changed: commit them first." >&2; exit 1; }
	@! git rev-parse -q --verify "refs/tags/v$(VERSION)" >/dev/null || { echo "The tag v$(VERSION) is there already." >&2; exit 1; }
	@grep -qxF 'version = "$(VERSION)"' pyproject.toml || { echo "pyproject.toml has another version than $(VERSION)." >&2; exit 1; }
	@[ "$$(grep -m1 '^## ' CHANGELOG.md)" = "## $(VERSION) (unreleased)" ] \
	  || { echo "CHANGELOG.md does not begin with: ## $(VERSION) (unreleased)" >&2; exit 1; }
	@sed -i '$(DATED)' CHANGELOG.md && git commit -qm "release: $(VERSION)" CHANGELOG.md
	@$(MAKE) --no-print-directory release-files
	@git $(if $(RELEASE_KEY),-c gpg.format=ssh -c user.signingkey="$(RELEASE_KEY)" tag -s,tag -a) -m "repl $(VERSION)" "v$(VERSION)"
	@echo "dist/ holds $(VERSION). To publish it: git push origin HEAD v$(VERSION)"

# Docker builds the Dockerfile as it is. Here buildah does, without a daemon, on a base that mmdebstrap makes under the name
# that the Dockerfile asks for. Each image is then started with runc. A company's proxy may need its own certificates.
IMAGE_BASE := docker.io/library/debian:bookworm-slim
CERTIFICATES := /etc/ssl/certs/ca-certificates.crt
IMAGE_BUILD := buildah build --isolation chroot --format docker --pull=false --layers \
  --volume $(CERTIFICATES):/run/certificates.crt:ro --build-arg PIP_CERT=/run/certificates.crt

image: ## the images repl-planner and repl-jobs, built without Docker and started with runc; as root
	@command -v buildah mmdebstrap runc >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends buildah mmdebstrap runc >/dev/null; }
	@buildah inspect --type image $(IMAGE_BASE) >/dev/null 2>&1 || { mkdir -p build && rm -f build/base.tar; \
	  mmdebstrap --quiet --variant=minbase $(foreach one,doc info locale man,--dpkgopt='path-exclude=/usr/share/$(one)/*') \
	  bookworm build/base.tar; base=$$(buildah from scratch); \
	  buildah add --quiet $$base build/base.tar / >/dev/null; buildah commit --quiet --rm $$base $(IMAGE_BASE) >/dev/null; rm build/base.tar; }
	@for target in planner jobs; do $(IMAGE_BUILD) --target $$target --tag repl-$$target . || exit 1; \
	  started=$$(buildah from --pull=false repl-$$target); code=0; \
	  buildah run --isolation oci --runtime runc $$started -- sh -c 'repl --version && id -un && repl init /tmp/shop && repl validate /tmp/shop' || code=1; \
	  buildah rm $$started >/dev/null; [ $$code = 0 ] || exit 1; done
	@buildah images --format '{{.Name}} {{.Size}}' | grep -E '/repl-(planner|jobs) '

clean: ## remove what builds leave, not the clusters' data
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.* .import_linter_cache
