# `make serve` and `make test` are all that a newcomer needs; everything they make lies in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# without --no-compile pip compiles 3,700 modules, of which a server imports 500
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --only-binary :all: -c constraints.txt
LOCK   := --quiet --no-header -c constraints.txt --generate-hashes --python-version 3.11 --python-platform x86_64-manylinux_2_28
SHIPPED := engine documents corpus server export cli training convoy_client
SOURCE := $(SHIPPED) loadtest tests deploy

.DEFAULT_GOAL := help
.PHONY: help hooks serve test lint types types-everywhere tests coverage oracles test-mutants test-containers test-old-processor test-faults test-ray audit lock native bench bench-check bench-record wheel wheels client-wheel release format clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/serve  ## serve the shipped models on 127.0.0.1:8000 (change with CONVOY_HOST, CONVOY_PORT, ...)
	@CONVOY_FRONTENDS=$${CONVOY_FRONTENDS:-1} CONVOY_ENGINES=$${CONVOY_ENGINES:-2} exec $(BIN)/convoy serve

test: lint types tests  ## format, lint, types and tests; what .ci/run calls

lint: $(VENV)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check $(SOURCE)

types: $(VENV)/test
	$(BIN)/mypy

types-everywhere: types  ## the same as macOS and Windows see the sources
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32

# failed tests run once more, one at a time: a busy machine can break a connection; both results are printed
tests: $(VENV)/test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile || \
	  $(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

coverage: $(VENV)/test  ## the tests, traced: fails below 90 % of the lines; a third longer
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --cov --cov-report=term --cov-fail-under=90

oracles: $(VENV)/test  ## transformers 5, peft, Weblate and clients beside the environment; CONVOY_TEST_THOROUGH=1 asks them
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --no-deps --upgrade \
		--target $(VENV)/oracles/transformers-5 transformers==5.23.0 huggingface-hub==2.4.0 tokenizers==0.23.3 \
		peft==0.21.2 accelerate==1.15.0 psutil
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --no-deps --upgrade \
		--target $(VENV)/oracles/weblate -r tests/clients/weblate.txt
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --upgrade \
		--target $(VENV)/oracles/clients ollama==0.6.3 google-cloud-translate==3.28.0 langchain-openai==1.7.4
	npm install --no-audit --no-fund --ignore-scripts --prefix $(VENV)/oracles/clients \
		@modelcontextprotocol/sdk@1.32.2 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92

test-mutants: $(VENV)/test  ## inject faults into the code; each must make a test fail
	$(BIN)/python -m tests.mutants

test-containers: $(VENV)/test  ## build the images, run compose, kill it and see it come back (needs Docker)
	$(BIN)/python -m pytest -q -rs -s -m containers tests/deploy/test_containers.py tests/deploy/test_gpu_image.py

test-old-processor: $(VENV)/test  ## int8 on an emulated Haswell, which has no VNNI (root installs Debian's qemu-user-static)
	@command -v qemu-x86_64-static > /dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update -qq; apt-get install -y -qq --no-install-recommends qemu-user-static; } > /dev/null 2>&1 || true
	$(BIN)/python -m pytest -q -rs tests/engine/executors/test_without_vnni.py

test-faults: $(VENV)/test  ## break things on purpose: minutes
	$(BIN)/python -m pytest -q -rs -m faults

test-ray: $(VENV)/test  ## a local Ray of two replicas, then of two engines, of which one is killed: minutes (installs Ray)
	$(PIP) -e '.[ray,ray-data]'
	$(BIN)/python -m pytest -q -rs -m ray tests/server/test_ray.py tests/corpus/test_ray_data.py

audit: $(VENV)/test  ## look for risky code (bandit) and for known weaknesses of what the images install (pip-audit)
	$(PIP) 'bandit[toml]' pip-audit
	$(BIN)/bandit -q -ll -c pyproject.toml -r $(SHIPPED)
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r docker/requirements.txt
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r docker/requirements-gpu.txt
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r docker/requirements-ray.txt

bench-check: $(VENV)/test  ## fail when int8 is slower beside CTranslate2 than recorded, or the cuda backend's host work grew
	PYTHONPATH=. $(BIN)/python -m loadtest.engine.cpu_compare --threads 1 --beams 4 --precisions int8 --runs 9 \
		--check docs/benchmarks/*-cpu-compare-iwslt*.json
	PYTHONPATH=. $(BIN)/python -m loadtest.engine.host_work --slots 256 --beams 4 --most-step 1.2
	PYTHONPATH=. $(BIN)/python -m loadtest.engine.host_work --slots 1 --beams 1 --requests 200 --most-step 0.25

bench-record: $(VENV)/test  ## measure this processor for docs/lab/record-*.md: about twelve minutes of a quiet machine
	$(PIP) ctranslate2
	PYTHONPATH=. $(BIN)/python -m loadtest.engine.record

lock: $(VENV)/test  ## pin what the images install, with hashes (needs uv)
	uv pip compile pyproject.toml --extra hub --extra otel --extra redis $(LOCK) -o docker/requirements.txt
	uv pip compile pyproject.toml --extra otel --extra redis --extra torch $(LOCK) -o docker/requirements-gpu.txt
	uv pip compile pyproject.toml --extra otel --extra redis --extra ray $(LOCK) -o docker/requirements-ray.txt
	$(BIN)/python docker/linux_hashes.py docker/requirements*.txt

hooks:  ## check the subject of each commit in this clone (.githooks/commit-msg)
	git config core.hooksPath .githooks

native:  ## build the C++ operators again (installing builds them too, where a compiler is)
	$(PYTHON) engine/native/build.py

bench: $(VENV)/serve  ## the table of docs/benchmarks.md (MODEL=models/...)
	$(BIN)/convoy bench --model $(or $(MODEL),models/tatoeba-de-en)

wheel: $(VENV)/test  ## dist/convoy_server-*.whl for this Python and this machine; `wheels`: for any
	$(BIN)/python -m hatchling build -t wheel

client-wheel: $(VENV)/test  ## dist/convoy_client-*.whl, the client by itself
	cd deploy/client && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist

release: $(VENV)/test  ## walk the list of a release: what is fine, what is not, what can't be checked here
	$(BIN)/python deploy/release.py

wheels: $(VENV)/test  ## wheels with the native operators for Linux (x86-64, aarch64) and macOS (arm64), by ziglang
	$(PIP) auditwheel ziglang
	rm -f dist/*.whl
	for target in x86_64-linux aarch64-linux aarch64-macos; do \
	  CONVOY_TARGET=$$target CXX= $(BIN)/python -m hatchling build -t wheel || exit 1; done
	for wheel in dist/*manylinux*.whl; do \
	  $(BIN)/auditwheel show $$wheel | tr -d '\n' | grep 'platform tag: "manylinux_2_17' || exit 1; done

format: $(VENV)/test  ## rewrite the sources in the one format
	$(BIN)/ruff check --fix $(SOURCE)
	$(BIN)/ruff format .

clean:  ## remove all that make made
	rm -rf $(VENV) dist build .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCE) -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp in .venv says which set of dependencies it holds. `serve` has no torch.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Convoy needs Python 3.11 or later as '$(PYTHON)'; name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "This Python can't make virtual environments. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/serve: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	@$(PIP) --retries 1 helm-python-sdk > /dev/null 2>&1 || echo "without Helm's library: the chart is tested as it was rendered last"
	@touch $@ $(VENV)/serve
