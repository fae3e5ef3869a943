"""The documentation: pages, the site that is built from them, and the annotated tour."""
