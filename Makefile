.PHONY: docs
PYTHON ?= python

docs: ## the documentation site, into build/docs/html
	PYTHONPATH="src$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m docs.build
