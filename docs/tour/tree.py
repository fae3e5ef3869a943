"""The family tree as a picture."""


def page() -> str:
    """The page in Markdown."""
    return "# The family tree\n"
