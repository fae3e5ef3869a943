"""The card of a trained model: README.md with what it is, how it was made and how well it does."""

from __future__ import annotations

import json
import re
from typing import Any

from anyformer import spec as S
from anyformer.model.count import count

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!])")


def escaped(text: object) -> str:
    """A text that Markdown and HTML show as it is, on one line."""
    one_line = " ".join(str(text).split())
    return SPECIAL.sub(r"\\\1", one_line).replace("\\<", "&lt;").replace("\\>", "&gt;")


Scores = dict[str, dict[str, float]]  # of each split


def card(
    record: dict[str, Any], last: dict[str, float], steps: int, scores: Scores | None = None
) -> str:
    """README.md of a run: its record (run.json), its last numbers or scores, and its steps."""
    spec, settings = S.from_dict(record["spec"]), record["settings"]
    objective = (record.get("objective") or {}).get("is", "own")
    front = {"library_name": "anyformer", "tags": ["anyformer", objective.lower()]}
    numbers = {k: v for k, v in last.items() if k != "step"}
    lines = ["---", *(f"{k}: {json.dumps(v)}" for k, v in front.items()), "---", ""]
    lines += [f"# {escaped(record['name'])}", ""]
    lines += [
        f"A model of {count(spec).parameters:,} parameters, trained with anyformer "
        f"{escaped(record['versions']['anyformer'])} for {steps:,} steps of "
        f"{settings['batch']:,} rows; objective: {escaped(objective)}.",
        "",
        "```python",
        "import anyformer",
        'model = anyformer.load("path/to/this/folder")',
        "```",
        "",
    ]
    lines += _scores(scores or {}, record)
    if numbers and not scores:
        lines += ["| measure | value |", "|---|---|"]
        lines += [f"| {escaped(k)} | {_number(v)} |" for k, v in sorted(numbers.items())]
        lines += [""]
    source = record["data"].get("source")
    if source is not None:
        lines += [f"Data: {escaped(json.dumps(source))}", ""]
    lines += ["Settings:", "", "```json", _fenced(json.dumps(settings, indent=1)), "```", ""]
    return "\n".join(lines)


def _scores(scores: Scores, record: dict[str, Any]) -> list[str]:
    """A table of scores, how to predict, and the labels."""
    if not scores:
        return []
    names = list(dict.fromkeys(name for found in scores.values() for name in found))
    lines = [f"| score | {' | '.join(scores)} |", "|---" * (len(scores) + 1) + "|"]
    for name in names:
        cells = (_number(found[name]) if name in found else "" for found in scores.values())
        lines += [f"| {escaped(name)} | {' | '.join(cells)} |"]
    labels = record["objective"].get("labels") or ()
    lines += ["", f"Labels: {', '.join(map(escaped, labels))}", ""] if labels else [""]
    return [
        *lines,
        "```python",
        "from anyformer.objectives.task import predict",
        "from anyformer.train.score import opened",
        'task, model = opened("path/to/this/folder")',
        "predict(task, model, records)  # dicts with the fields of the data",
        "```",
        "",
    ]


def _fenced(text: str) -> str:
    """Text that can't end the fence it stands in."""
    return text.replace("```", "'''")


def _number(value: float | str) -> str:
    return f"{float(value):.6g}"
