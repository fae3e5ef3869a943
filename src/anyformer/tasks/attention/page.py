"""The page of one pass: every head's weights in one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anyformer.errors import InputError

if TYPE_CHECKING:
    from anyformer.tasks.attention.maps import Map

MOST = 6_000_000  # weights in a page: about 16 MB
STEPS = 65535  # weights are whole numbers of 16 bits: shares of this
SCRIPTS = ("weights.js", "heat.js", "lines.js", "image.js", "heads.js", "page.js")
SHOWN = 400  # letters of the text
# controls, lone surrogates, and marks that turn the direction of text
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def page(title: str, text: str, maps: Sequence[Map], image: Tensor | None = None) -> str:
    """The page as the text of an HTML file."""
    check(maps)
    style, script = asset("style.css"), "".join(map(asset, SCRIPTS))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; style-src-attr 'unsafe-inline'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    fields = {
        "policy": policy,
        "title": html.escape(clean(f"Attention of {title}")),
        "text": html.escape(clean(shown)),
        "notes": html.escape(notes(maps)),
        "style": style,
        "data": packed(maps, image),
        "script": script,
    }
    parts = re.split(r"\{\{(\w+)\}\}", asset("page.html"))  # text, name, text, name, …
    return "".join(fields[part] if i % 2 else part for i, part in enumerate(parts))


def check(maps: Sequence[Map]) -> None:
    """Raise where there is nothing to show, too much of it, or no numbers."""
    if not maps:
        raise InputError("this model has no attention to show")
    count = sum(m.weights.numel() for m in maps)
    if count > MOST:
        raise InputError(
            f"{count:,} weights are too many for one page (at most {MOST:,}, about 16 MB): choose "
            "layers or heads (--layers 0-5 --heads 0,1), or take fewer tokens (--first 64)"
        )
    for m in maps:
        if not bool(m.weights.isfinite().all()):
            raise InputError(
                f"weights of {m.kind}, {m.name}, are NaN or infinite: look at the model"
            )


def packed(maps: Sequence[Map], image: Tensor | None = None) -> str:
    """The maps as JSON that can stand in a page: labels once, weights as base64 of 16 bits."""
    labels: dict[tuple[str, ...], int] = {}
    number = lambda names: labels.setdefault(tuple(map(clean, names)), len(labels))
    told = [
        {
            "kind": m.kind,
            "layer": m.layer,
            "name": m.name,
            "heads": m.heads,
            "queries": number(m.queries),
            "keys": number(m.keys),
            "side": m.side,
            "weights": _coded(m),
        }
        for m in maps
    ]
    whole = {"labels": list(labels), "maps": told, "image": None if image is None else _seen(image)}
    found = json.dumps(whole, separators=(",", ":"))
    return found.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _coded(m: Map) -> str:
    steps = (m.weights.double().clamp(0, 1) * STEPS).round().to(torch.int32)
    return base64.b64encode(steps.numpy().astype("<u2").tobytes()).decode()


def _seen(image: Tensor) -> dict[str, Any]:
    """An image (3, H, W) as rows of red, green and blue bytes."""
    rows = (image * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()  # (H, W, 3)
    coded = base64.b64encode(rows.numpy().tobytes()).decode()
    return {"width": image.shape[2], "height": image.shape[1], "bytes": coded}


def notes(maps: Sequence[Map]) -> str:
    """What is to be known of the weights: whether rows add up to 1, and what maps say."""
    return " ".join([_sums(maps), *dict.fromkeys(m.note for m in maps if m.note)])


def _sums(maps: Sequence[Map]) -> str:
    rows = torch.cat([m.weights.sum(-1).flatten() for m in maps])
    if bool(((rows - 1).abs() < 1e-3).all()):
        return "The weights of each row add up to 1."
    return f"The weights of a row add up to between {rows.min():.3f} and {rows.max():.3f}."


def clean(text: object) -> str:
    """The text without characters that hide what is written."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(text))


def asset(name: str) -> str:
    """A file that goes into the page."""
    return (resources.files("anyformer.tasks.attention") / "web" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
