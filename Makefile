# The commands of this checkout. `make help` lists them; docs/install.md explains the settings.
#
#   CLUSTER=name|file.toml   the cluster file to judge by          (accept)
#   SUITE=name               smoke, acceptance, nightly, node ...  (accept)
#   ARGS="..."               more words for pytest                 (accept, test, bench, gpu-check)
#   TESTS="tests/test_x.py"  only these                            (test)
#   PYTHON=/path/python3     build on this interpreter and use the torch it has
#   TORCH_INDEX=URL          take torch from this index
#   WHEELHOUSE=folder        install from this folder, without a network

CLUSTER ?= local
SUITE ?=
ARGS ?=
TESTS ?= tests
TORCH_INDEX ?=
WHEELHOUSE ?=
PYTHON ?=

# Named, the interpreter's packages are used; else the first that is new enough.
BASE := $(or $(PYTHON),$(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done),python3)
SETUP = $(BASE) installation.py $(if $(PYTHON),--reuse) $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX)) \
  $(if $(WHEELHOUSE),--wheelhouse $(WHEELHOUSE))
RUN = .venv/bin/python -m

.DEFAULT_GOAL := help
.PHONY: help accept test lint demo-fault bench gpu-check wheelhouse

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

accept: ## test this machine (or CLUSTER=...) and make the page; set up on the first call
	@$(SETUP)
	@$(RUN) pytest suites --cluster $(CLUSTER) $(if $(SUITE),--suite $(SUITE)) $(ARGS)

test: ## the project's own tests
	@$(SETUP) --dev
	@$(RUN) pytest $(TESTS) --timeout 300 $(ARGS)

lint: ## style, allowed imports and types
	@$(SETUP) --dev
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@.venv/bin/python -c 'from importlinter.cli import lint_imports_command as run; run()' --no-cache
	@$(RUN) mypy

demo-fault: ## plant a link that is 10 % slow among 8 hosts of this machine, and see it named (root)
	@$(SETUP) --dev
	@$(RUN) tests.testbed.demo $(ARGS)

bench: ## the project's own benchmarks
	@$(SETUP) --dev
	@$(RUN) pytest $(sort $(wildcard tests/bench_*.py)) -s $(ARGS)

gpu-check: ## train 70B-shaped layers on one GPU, against its own best product (under five minutes)
	@$(SETUP)
	@$(RUN) benchmarks.training.gpu_check $(ARGS)

wheelhouse: ## fill wheelhouse/ for a machine without a network
	@$(SETUP) --download wheelhouse
