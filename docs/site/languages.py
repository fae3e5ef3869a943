"""The language of each page: pages below zh/ say so in `<html lang>`."""

from __future__ import annotations

from typing import Any

from docs.tour.language import ENGLISH, languages


def tag(page: str) -> str:
    """The tag of a page's language, by the folder that it begins with."""
    return languages().get(page.partition("/")[0], languages()[ENGLISH]).tag


def _mark(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    context["language"] = tag(page)


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about it."""
    app.connect("html-page-context", _mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
