.PHONY: docs
PYTHON ?= python

docs: ## the documentation site, into build/docs/html
	PYTHONPATH=src $(PYTHON) -m docs.build
