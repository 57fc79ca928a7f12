# flipbit: the few verbs. Everything of Python is installed into .venv; compilers and emulators come from the system.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
# Test files that run side by side: as many as there are cores, at most 4. WORKERS=0 runs one after the other.
WORKERS ?= auto

.PHONY: help setup tools demo test lint bench bench-mcu wheels docker-test clean
.DEFAULT_GOAL := help

help: ## list these verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install flipbit with the tested versions

$(READY): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,export,run,device,dev]'
	@touch $@

tools: ## install cross-compilers and emulators from Debian or Ubuntu (asks for root)
	@firmware/install-tools.sh

demo: $(READY) tools ## train a one-bit net, put it on an emulated board, let it learn there: a few minutes
	$(BIN)/python firmware/demo.py

test: $(READY) tools lint ## run every test (set FLIPBIT_DATA to the folder of CIFAR-10 for those that need it)
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile

lint: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'firmware/*.c' 'firmware/*.h' 'tests/*.c' 'tests/*.h')

bench: $(READY) ## training speed of each method against float Keras, in one run
	$(BIN)/python train/bench.py

bench-mcu: $(READY) tools ## instructions, RAM and flash of resnet8 on every core, in QEMU
	$(BIN)/python firmware/count/bench.py

wheels: ## wheels of the runtime for x86-64, 64-bit and 32-bit Arm, into dist/ (needs Debian's cross-compilers)
	$(PYTHON) -m venv build/wheels
	build/wheels/bin/python -m pip install --quiet auditwheel==6.8.2
	build/wheels/bin/python docker/wheels.py

docker-test: ## build the Docker images and run them, on three CPUs (docs/docker.md)
	docker/test.sh

clean: ## remove .venv and what was built (runs/ is kept)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis firmware/build runtime/_core.so
