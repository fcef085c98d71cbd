# serve · test · test-site · test-labs · everything · update · build; each makes .venv first, and a second run installs nothing.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ADDRESS ?= 127.0.0.1:8000
WORKERS ?= 2
SITE ?= not night

.DEFAULT_GOAL := help
.PHONY: help serve test test-site test-labs everything update gallery build train labs bench shake pins mutate lint format clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The tests start many interpreters; without compiled modules each would start at its own cost.
test test-site test-labs shake: export PYTHONDONTWRITEBYTECODE =

NEW_ENOUGH = $(shell $(PYTHON) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null)
FOUND = $(or $(shell $(PYTHON) --version 2>&1),nothing that runs)

$(VENV)/installed: requirements.txt pyproject.toml
	$(if $(NEW_ENOUGH),,$(error The book needs Python 3.11 or newer; $(PYTHON) is $(FOUND). Name a newer one: make PYTHON=python3.12))
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

serve: $(VENV)/installed ## serve the book, and check a page on each save; UPDATE=1 rewrites its outputs, ADDRESS=127.0.0.1:8001 is another port
	@echo "Serving the book at http://$(ADDRESS)/"
	$(BIN)/mkdocs serve --dev-addr $(ADDRESS)

test: $(VENV)/installed ## test the pages, the checker and the snippets; ARGS="-k averaging" runs some
	$(BIN)/python -m pytest -n $(WORKERS) -m "not site and not lab" $(ARGS)
	@echo "Left out: the labs, for make test-labs, and the site in browsers, for make test-site."

test-site: $(VENV)/installed ## build the site and test it in three browsers, a page of each kind; SITE=site tries every page, as at night
	$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder -m "$(SITE)" tests/site $(ARGS)

test-labs: $(VENV)/installed ## what takes longer: the labs at a reduced size, every page's notebook and script
	$(BIN)/python -m pytest -n $(WORKERS) -m lab tests $(ARGS)

everything: ## all that can be tested, in hours: labs, three browsers, twenty processors
	$(MAKE) lint
	$(MAKE) test
	$(MAKE) test-labs
	$(MAKE) test-site SITE=site
	$(MAKE) shake
	$(MAKE) build

update: $(VENV)/installed ## rewrite outputs that no longer agree; PAGE=docs/x.md for one page
	$(BIN)/python -m literate update $(PAGE)

gallery: $(VENV)/installed ## put the models of docs/serving/models/ into the page of the gallery, and count them again
	$(BIN)/python -m tools.gallery
	$(BIN)/python -m literate update docs/serving/gallery.md

build: $(VENV)/installed ## write the site, strictly, into site/
	$(BIN)/mkdocs build --strict $(ARGS)

train: $(VENV)/installed ## train the book's GPT into runs/gpt; stopped in any way, it goes on; ARGS="--help"
	$(BIN)/python -m tools.train $(ARGS)

labs: $(VENV)/installed ## measure again: execute the labs and store what they print; LAB=name for one
	$(BIN)/python -m tools.labs $(LAB)

bench: $(VENV)/installed ## print what the snippets cost beside transformers and PyTorch, as ratios from one run; ARGS="decode" for some rows
	$(BIN)/python -m tests.bench $(ARGS)

shake: $(VENV)/installed ## run the book and its tests on twenty simulated processors; PAGE=docs/x.md for one page, ARGS="--seeds 8"
	$(BIN)/python -m tools.shake $(ARGS) $(PAGE)

pins: $(VENV)/installed ## compile requirements.txt from pyproject.toml; a pin that stands there stays
	$(PYTHON) -m venv .venv/pins
	.venv/pins/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	grep == requirements.txt > .venv/pins/standing.txt
	.venv/pins/bin/pip-compile --quiet --all-extras --strip-extras --allow-unsafe --no-header --annotation-style line \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--constraint .venv/pins/standing.txt --output-file .venv/pins/compiled.txt pyproject.toml
	sed '/^[^#]/,$$d' requirements.txt > .venv/pins/requirements.txt
	sed -e 's/+cpu / /' -e 's/ -c [^,]*standing.txt, / /' -e '/^#/d' -e '/^$$/d' .venv/pins/compiled.txt >> .venv/pins/requirements.txt
	echo '-e .' >> .venv/pins/requirements.txt
	mv .venv/pins/requirements.txt .

mutate: $(VENV)/installed ## change each line of the parts in turn, and print the changes that their tests let pass, a night's work; ARGS="llama --sample 40" for some
	$(BIN)/python -m tools.mutate $(ARGS)

lint: $(VENV)/installed ## check the style of Python files and of the code in pages, and the checker's types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.style

format: $(VENV)/installed ## format Python files and the code in pages
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tools.style --fix

clean: ## delete what was built
	rm -rf site .checked .venv
