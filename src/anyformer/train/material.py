"""Where a run's samples come from, as data that is kept with the run, and how they are opened."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from anyformer.data import registry
from anyformer.data.corpus import corpus, texts_of
from anyformer.data.order import generator
from anyformer.data.part import Texts, held_out
from anyformer.data.prepare import Progress
from anyformer.data.records import READERS, fields_of
from anyformer.data.rows import Rows
from anyformer.data.samples import Documents, Mixture, Records, Samples
from anyformer.data.sources import Source, kind_of, source
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import DataError, InputError
from anyformer.objectives import answer
from anyformer.objectives.base import Objective
from anyformer.objectives.task import Task
from anyformer.spec.node import Above, Positive, Rate, node

log = logging.getLogger("anyformer")
Pair = tuple[Samples, Samples | None]
OnBad = Literal["raise", "skip"]  # records that can't be read
HELD = 0x4E1D  # the seed that draws which records of a file are held out
COLUMNS = (".conll", ".iob", ".iob2", ".bio")  # files of words and tags


@node
class TextSource:
    """Texts: names of the registry, files or folders, mixed by weight."""

    what: tuple[str, ...]
    weights: tuple[Above, ...] = ()  # of each in the mixture; (): by their number of tokens
    context: Positive = 128  # tokens that the model reads at once
    held_out: Rate = 0.1  # to validate on, of what has no validation split of its own
    split: Literal["file", "block", "line"] = "file"  # what is a document in a text file
    field: str = "text"  # of a record, that holds the text
    name: str | None = None  # the field of a record that names it, as a control code
    segments: Literal["line", "sentence", "paragraph"] | None = None
    end: str | None = None  # the role of a token behind every document, as eos
    on_bad: OnBad = "raise"

    def open(
        self,
        tokenizer: Tokenizer | None,
        objective: Objective,
        seed: int,
        progress: Progress | None = None,
    ) -> Pair:
        """Samples to train on and to validate on, as the objective reads them."""
        if tokenizer is None:
            raise InputError("texts are read through a tokenizer: give one")
        if self.weights and len(self.weights) != len(self.what):
            raise InputError(f"{len(self.weights)} weights for {len(self.what)} sources of text")
        pairs = [self._texts(what, tokenizer, progress) for what in self.what]
        learn = [self._samples(t, objective, seed, True) for t, _ in pairs]
        check = [self._samples(v, objective, seed, False) for _, v in pairs if v is not None]
        weights = self.weights or tuple(float(t.tokens) for t, _ in pairs)
        held = _mixed(check, (1.0,) * len(check), seed) if check else None
        found = _mixed(learn, weights, seed), held
        for samples, use in zip(found, ("to train on", "to validate on"), strict=True):
            if samples is not None and samples.size < objective.least:
                raise InputError(
                    f"the objective needs {objective.least} documents {use}, and there is "
                    f"{samples.size}: give more, or cut text files into some with split='block' "
                    "or 'line' (--split block), or take the objective 'masked' (--objective masked)"
                )
        return found

    def _texts(
        self, what: str, tokenizer: Tokenizer, progress: Progress | None
    ) -> tuple[Texts, Texts | None]:
        made = lambda what, **options: corpus(
            what,
            tokenizer,
            progress=progress,
            segments=self.segments,
            end=self.end,
            name=self.name,
            **options,
        )
        if what in registry.names("text") and not Path(what).exists():
            return made(what), made(f"{what}:validation")
        whole = made(what, **reading(self))
        _tell(what, whole.manifest["source"].get("left_out", 0))
        return held_out(whole, self.held_out) if self.held_out else (whole, None)

    def _samples(self, texts: Texts, objective: Objective, seed: int, shuffle: bool) -> Samples:
        if objective.reads == "documents":
            return Documents(texts, seed, shuffle)
        if objective.reads == "records":
            raise InputError("this objective reads records with named fields, not running text")
        return Rows(texts, objective.length(self.context), seed, shuffle)


@node
class RecordSource:
    """Records: a name of the registry, or a file, with another to validate on or a share of it."""

    what: str
    task: str | None = None  # which records of a set of the registry
    work: str | None = None  # the task of fine-tuning that reads them
    validation: str | None = None  # a file
    held_out: Rate = 0.1
    lists: tuple[str, ...] = ()  # fields of words: in a table they stand with spaces between
    files: tuple[str, ...] = ()  # fields that name files, from the folder of the data on
    on_bad: OnBad = "raise"

    def open(
        self,
        tokenizer: Tokenizer | None,
        objective: Objective,
        seed: int,
        progress: Progress | None = None,
    ) -> Pair:
        """Samples to train on and to validate on."""
        learn, check = (spread(objective, rows) for rows in self.rows())
        return Records(learn, seed), Records(check, seed, False) if check else None

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The records to train on and to validate on."""
        if self.what in registry.names():
            task = self.task
            return registry.load(self.what, "train", task), registry.load(
                self.what, "validation", task
            )
        found = self._read(self.what)
        if self.validation is not None:
            return found, self._read(self.validation)
        few = min(len(found) - 1, max(1, round(len(found) * self.held_out)))
        held = {*generator(HELD, 0).permutation(len(found))[: few if self.held_out else 0].tolist()}
        part = lambda inside: [r for i, r in enumerate(found) if (i in held) == inside]
        return part(False), part(True)

    def split(self, name: str) -> list[dict[str, Any]]:
        """All records of a file, or those of one split of a data set."""
        if self.what not in registry.names():
            return self._read(self.what)
        return registry.load(self.what, name, self.task)

    def held(self) -> dict[str, list[dict[str, Any]]]:
        """The records that a trained model is scored on, by the name of their split."""
        found = {"validation": self.rows()[1]}
        if self.what in registry.names() and "test" in registry.get(self.what).splits:
            found["test"] = self.split("test")
        return {name: rows for name, rows in found.items() if rows}

    def _read(self, path: str) -> list[dict[str, Any]]:
        rows, home = read(path, self.on_bad), Path(path).parent
        for row in rows:
            for name in self.lists:
                row[name] = row[name].split() if isinstance(row.get(name), str) else row.get(name)
            for name in self.files:
                if isinstance(row.get(name), str) and (home / row[name]).is_file():
                    row[name] = str(home / row[name])
        return rows


def read(path: str, on_bad: OnBad = "raise") -> list[dict[str, Any]]:
    """The records of a file: JSON lines, CSV, TSV or Parquet by its suffix, or SQuAD's JSON.

    Lines and rows that are no records are left out, and their number is told, with on_bad="skip".
    """
    if not Path(path).exists():
        raise DataError(
            f"{path} is no file and no data set; those are {', '.join(registry.names())}"
        )
    if Path(path).suffix == ".json":
        return [dict(record) for record in answer.read_squad(path)]
    if Path(path).suffix in COLUMNS:
        return _columns(Path(path))
    if Path(path).suffix == ".parquet":
        return _parquet(path)
    found = source(path, on_bad=on_bad)
    kinds = {file: kind_of(file) for file in found.what}
    odd = [str(file) for file, kind in kinds.items() if kind not in READERS]
    if odd:
        raise DataError(f"{odd[0]} holds no records: give .jsonl, .csv, .tsv or .parquet")
    rows = [row for file, kind in kinds.items() for row in _rows(file, kind, found)]
    if not rows:
        raise DataError(f"{path} has no record")
    _tell(path, found.bad)
    return rows


def _rows(file: Path, kind: str, found: Source) -> Iterator[dict[str, Any]]:
    for where, row in READERS[kind](file, found, lambda n: None):
        try:
            yield dict(fields_of(row, where))
        except DataError as problem:
            found.refuse(problem)


def _tell(what: str, bad: int) -> None:
    if bad:
        log.warning("%s: %d bad records are left out", what, bad)


def _columns(path: Path) -> list[dict[str, Any]]:
    """Words with their tags, one a line, the tag in the last column; sentences stand apart."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8: {error}") from error
    found: list[dict[str, Any]] = []
    fresh = True
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0] == "-DOCSTART-":
            fresh = True
            continue
        if len(parts) < 2:
            raise DataError(f"{path}:{number}: {line!r} needs a word and its tag")
        if fresh:
            found.append({"words": [], "tags": []})
        found[-1]["words"].append(parts[0])
        found[-1]["tags"].append(parts[-1])
        fresh = False
    if not found:
        raise DataError(f"{path} has no record")
    return found


def _parquet(path: str) -> list[dict[str, Any]]:
    """All columns of a Parquet file."""
    try:
        pyarrow, reader = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as missing:
        raise DataError(
            f"{path}: Parquet needs pyarrow: pip install 'anyformer[parquet]'"
        ) from missing
    try:
        rows = reader.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as problem:
        raise DataError(f"{path} can't be read as Parquet: {problem}") from problem
    if not rows:
        raise DataError(f"{path} has no record")
    return rows


def shared(learn: list[dict[str, Any]], check: list[dict[str, Any]]) -> int:
    """How many records to validate on are among those to train on, word for word."""
    known = {_told(record) for record in learn} - {None}
    return sum(_told(record) in known for record in check)


def _told(record: dict[str, Any]) -> str | None:
    """A record as a text; None where it holds more than JSON can, as an image does."""
    try:
        return json.dumps(record, sort_keys=True)
    except (TypeError, ValueError):
        return None


def _mixed(parts: list[Samples], weights: tuple[float, ...], seed: int) -> Samples:
    if len(parts) == 1:
        return parts[0]
    return Mixture(list(zip(parts, weights, strict=True)), seed)


def spread(objective: Objective, rows: list[dict[str, Any]]) -> list[Any]:
    """Records as an objective trains on them: several for one that is longer than a row."""
    return objective.spread(rows) if isinstance(objective, Task) else rows


def reading(material: TextSource) -> dict[str, Any]:
    """How files of texts are read."""
    return {"split": material.split, "field": material.field, "on_bad": material.on_bad}


def texts(material: TextSource) -> Iterator[str]:
    """The texts to train a tokenizer on; of a data set's those that are trained on."""
    options: dict[str, Any] = {"name": material.name}
    for what in material.what:
        if Path(what).exists():
            options |= reading(material)
        yield from texts_of(what, **options).texts()
