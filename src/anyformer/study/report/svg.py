"""A figure's SVG made fit for the page: colours by name, ids of its own, no style attributes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from anyformer.study.report.colours import VARIABLES
from anyformer.study.report.markup import Html, clean

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_DROPPED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}


def inline(drawn: bytes, name: str, words: str) -> Html:
    """The SVG as part of an HTML page: an image with words for those who can't see it."""
    root = ET.fromstring(drawn)  # nosec B314 # drawn by matplotlib for us, never a file
    for parent in list(root.iter()):
        for child in [c for c in parent if c.tag in _DROPPED]:
            parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        _attributes(element, name)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {
        "class": "chart",
        "fill": "var(--ink)",
        "role": "img",
        "aria-label": clean(words),
    }
    return Html(ET.tostring(root, encoding="unicode", short_empty_elements=True))


def _attributes(element: ET.Element, name: str) -> None:
    told = element.attrib.pop("style", "")
    for part in filter(str.strip, told.split(";")):
        key, _, value = (text.strip() for text in part.partition(":"))
        if key == "font":  # its size alone: the page says which letters
            element.set("font-size", value.split()[0])
        elif key != "font-family":
            element.set(key, value)
    link = element.attrib.pop(f"{{{_LINK}}}href", None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("url(#", f"url(#{name}-"))
    if "id" in element.attrib and element.tag == "g":
        del element.attrib["id"]
    elif "id" in element.attrib:
        element.set("id", f"{name}-{element.attrib['id']}")
    for key in ("fill", "stroke"):
        variable = VARIABLES.get(element.get(key, ""))
        if variable is not None:
            element.set(key, f"var({variable})")
