"""Tiny models to look at, and a page's weights read back from its text."""

import base64
import html
import json
import re
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import save

WORDS = ["[UNK]", "<script>", "</script>", "cat", "dog", "sat", "&", '"', "the", "\u202e"]
OWN = "stack.block.0.branch"


def tiny(name="encoder", **options):
    """A small model of a recipe, with some of its spec changed."""
    sizes = {"dim": 16, "depth": 2, "heads": 2, "vocab": len(WORDS), "length": 200}
    torch.manual_seed(0)
    given = {key: value for key, value in {**sizes, **options}.items() if value is not None}
    return anyformer.build(anyformer.recipe(name, **given)).eval()


def vit():
    torch.manual_seed(0)
    sizes = {"dim": 16, "depth": 1, "heads": 2, "image": 12, "patch": 4, "classes": 3}
    return anyformer.build(anyformer.recipe("vit", **sizes)).eval()


def folder(home: Path, model=None) -> Path:
    """A folder with a model and a tokenizer of whole words."""
    save(model or tiny(), home)
    pipeline = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pipeline.save(str(home / "tokenizer.json"))
    return home


def read(page: str):
    """The data of a page, and the weights (H, Q, K) of each of its maps."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    found = []
    for m in data["maps"]:
        shape = [len(m["heads"]), *(len(data["labels"][m[side]]) for side in ("queries", "keys"))]
        steps = np.frombuffer(base64.b64decode(m["weights"]), "<u2").reshape(shape)
        found.append(steps / 65535)
    return data, found


def said(page: str) -> str:
    """The text of a page as it is read."""
    return html.unescape(page)


def changed(name, **paths):
    """A tiny model with changes by dotted path, __ for a dot."""
    torch.manual_seed(0)
    spec = tiny(name).spec
    for path, value in paths.items():
        spec = S.override(spec, path.replace("__", "."), value)
    return anyformer.build(spec).eval()
