"""The documentation site: what its pages are made of, and how Sphinx is set up."""
