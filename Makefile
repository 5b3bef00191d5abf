# Two commands on a fresh machine: `make demo` and `make test`.
# Tests run in two processes of one thread each (OMP_NUM_THREADS): more would only wait for each other.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo deployment test test-slow test-long test-deployment lint format clean

demo: .venv/core                ## FRL and FedAvg on the embedded digits, in peace and under attack
	$(BIN)/fedrank demo

deployment: .venv/flower        ## one SuperLink, four SuperNodes and a run on this machine, then all is stopped
	$(BIN)/fedrank flower demo

test: .venv/dev                 ## the ordinary test loop
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n 2

test-slow: .venv/dev            ## the rest: real data, where FEDRANK_TEST_DATA names it
	$(MAKE) --no-print-directory --jobs 2 test-long test-deployment

test-long: .venv/dev
	OMP_NUM_THREADS=1 nice -n 19 $(BIN)/pytest -m slow -n 2 --dist loadgroup --ignore tests/flower/test_deployment.py --durations 20

test-deployment: .venv/dev      # waits most of the time, but has deadlines: what runs beside it gives way
	$(BIN)/pytest -m slow tests/flower/test_deployment.py --durations 5

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable ".[plot]"
	touch $@

.venv/flower: .venv/core
	$(PIP) --editable ".[plot,flower]"
	touch $@

.venv/dev: .venv/core
	$(PIP) --editable ".[dev]"
	touch $@
