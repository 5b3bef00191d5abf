# Two commands on a fresh machine: `make demo` and `make test`.
# Tests run in two processes with one thread each (OMP_NUM_THREADS); more threads would compete for cores.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo deployment test test-slow test-long test-deployment lint format clean

demo: .venv/core                ## FRL and FedAvg on the embedded digits, without and under attack
	$(BIN)/fedrank demo

deployment: .venv/flower        ## run one SuperLink and four SuperNodes on this machine, then stop them
	$(BIN)/fedrank flower demo

test: .venv/dev                 ## fast tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n 2

test-slow: .venv/dev            ## slow tests; set FEDRANK_TEST_DATA to include those on real data
	$(MAKE) --no-print-directory --jobs 2 test-long test-deployment

test-long: .venv/dev
	OMP_NUM_THREADS=1 nice -n 19 $(BIN)/pytest -m slow -n 2 --dist loadgroup --ignore tests/flower/test_deployment.py --durations 20

test-deployment: .venv/dev      # mostly waits but has deadlines, so test-long runs at low priority
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
