# Aegis: what can be done with a clone that has python3 (3.11 to 3.13), make and git. `make help` lists it.
#   PYTHON=python3.13    the interpreter to make the environment with
#   DJANGO=6.0.10        another Django than the one in requirements.txt
#   VENV=.venv           where the environment lives; each PYTHON but the default has one of its own
#   ARGS="..."           arguments for demo and the test targets

PYTHON ?= python3
VENV ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
DJANGO ?=
ARGS ?=

# A run starts hundreds of processes: each would compile the project anew. `make clean` removes what is kept.
export PYTHONDONTWRITEBYTECODE :=

bin := $(VENV)/bin
run := $(bin)/python manage.py
stamp := $(VENV)/.installed$(if $(DJANGO),-django-$(DJANGO))
compose := $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

# Commands are not echoed: the stdout of `make demo ARGS="--format json"` is the JSON and nothing else.
.SILENT:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help venv demo test test-contract test-mutations test-concurrency test-browser browser bench-locks bench-takeover bench-pages lint format type check wheel try-wheel up down clean

help:  ## List the targets
	grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

venv: $(stamp)  ## Make the virtual environment and install what the project needs

$(stamp): requirements.txt requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "error: Aegis needs Python 3.11 to 3.13 and $(PYTHON) is " + sys.version.split()[0] + ": name another one, such as `make PYTHON=python3.12`.")' >&2
	$(PYTHON) -c 'import ensurepip, venv' >/dev/null 2>&1 || { echo 'error: $(PYTHON) has no venv module: install it (Debian and Ubuntu: apt install python3-venv).' >&2; exit 1; }
	test -x $(bin)/python || $(PYTHON) -m venv $(VENV) >&2
	echo "Installing requirements-dev.txt into $(VENV) ..." >&2
	$(bin)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt >&2
	$(if $(DJANGO),$(bin)/python -m pip install --quiet --disable-pip-version-check 'Django==$(DJANGO)' >&2)
	rm -f $(VENV)/.installed*
	touch $@

demo: $(stamp)  ## Watch ticks collide and stop colliding (ARGS="--seconds 45 --format json")
	$(run) aegis demo $(ARGS)

# Four at a time on two cores: most tests wait for processes. Each of the four starts servers of its own.
test: $(stamp)  ## Run all tests on real services (ARGS="-k name")
	$(bin)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-contract: $(stamp)  ## Run the contract that every lock backend keeps
	$(bin)/python -m pytest tests/contract $(ARGS)

test-mutations: $(stamp)  ## Try every known mistake (half an hour); `make test` tries four
	AEGIS_MUTATIONS=$${AEGIS_MUTATIONS:-all} $(bin)/python -m pytest -n 2 --dist worksteal tests/mutations $(ARGS)

test-concurrency: $(stamp)  ## Run the tests with many processes
	$(bin)/python -m pytest tests/concurrency $(ARGS)

test-browser: $(stamp)  ## Run the tests in Chromium
	$(bin)/python -m pytest tests/browser $(ARGS)

# Debian's package, driven by its path: Playwright downloads nothing. Named in AEGIS_CHROMIUM where it is elsewhere.
browser:  ## Say which Chromium the tests drive, or how to get one
	command -v $${AEGIS_CHROMIUM:-chromium} || command -v chromium-browser || command -v google-chrome || { echo 'error: no Chromium: `apt-get update && apt-get install -y --no-install-recommends chromium` as root, or set AEGIS_CHROMIUM to a path.' >&2; exit 1; }

# Rivals have an environment of their own, so that what they need never mixes with what Aegis needs.
bench-locks:  ## Time every strategy beside the bare commands of its store and beside rivals
	test -x $(VENV)-bench/bin/python || $(PYTHON) -m venv $(VENV)-bench >&2
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt >&2
	$(VENV)-bench/bin/python -m tests.benchmarks.bench_locks $(ARGS)

bench-takeover: $(stamp)  ## Kill holders of every strategy and time how long their names stay closed
	$(bin)/python -m tests.benchmarks.bench_takeover $(ARGS)

bench-pages: $(stamp)  ## Fill a ledger with a million rows and time every page (ARGS="--executions 100000")
	$(bin)/python -m tests.benchmarks.bench_pages $(ARGS)

lint: $(stamp)  ## Check style and formatting
	$(bin)/ruff check .
	$(bin)/ruff format --check .

format: $(stamp)  ## Put the code into the project's format
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

type: $(stamp)  ## Check types
	$(bin)/mypy

check: $(stamp)  ## Run Django's checks, as for production, and look for missing migrations
	$(bin)/python -W 'ignore:Got an error checking a consistent migration history:RuntimeWarning' manage.py makemigrations --check --dry-run
	env DEBUG=false PLAIN_HTTP=false $(run) check --deploy --fail-level WARNING

wheel: $(stamp)  ## Build the distribution that other projects install
	rm -rf dist
	$(bin)/python -m build --no-isolation >&2

try-wheel: wheel  ## Install the distribution beside somebody else's Django project and use it there
	.ci/try-wheel $(bin)/python dist/*.whl

up:  ## Start the containers: http://localhost:8000
	test -f .env || { echo 'error: no .env: `cp .env.example .env` and look through it.' >&2; exit 1; }
	$(compose) up -d --build --scale worker=4
	echo 'http://localhost:8000 (or your WEB_PORT); user admin, password: $(compose) logs migrate'

down:  ## Stop the containers and remove their data
	$(compose) down -v

clean:  ## Remove what was built, not the virtual environment
	rm -rf dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
