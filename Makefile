# flipbit: the few verbs. Everything is installed into .venv; nothing outside this folder is touched.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

.PHONY: help setup demo test lint bench clean
.DEFAULT_GOAL := help

help: ## list these verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install flipbit with the tested versions

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,export,dev]'
	@touch $@

demo: $(READY) ## train a net with one-bit weights on real digits and write its device image, in about a minute
	folder=runs/demo-$$(date +%Y%m%d-%H%M%S) && \
	$(BIN)/python train/run.py --method bc -o $$folder && \
	$(BIN)/python export/to_fbit.py $$folder/model.h5

test: lint ## run every test (set FLIPBIT_DATA to the folder of CIFAR-10 for those that need it)
	$(BIN)/python -m pytest

lint: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## training speed of each method against float Keras, in one run
	$(BIN)/python train/bench.py

clean: ## remove .venv and caches (runs/ is kept)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
