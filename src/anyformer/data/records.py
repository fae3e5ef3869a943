"""Records, one after the other: JSON lines, CSV, TSV, Parquet, saved `datasets` folders.

A reader gives (where, record): a record is a mapping, and `where` names it in errors.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyformer.data import stream
from anyformer.errors import DataError

if TYPE_CHECKING:
    from anyformer.data.sources import Source

Row = tuple[str, Any]
Watch = Callable[[int], object]
SKIP = "put it right, or leave such lines out with on_bad='skip' (--on-bad skip)"
ROWS = 512  # of a Parquet file that are in memory at a time


def json_lines(path: Path, source: Source, watch: Watch) -> Iterator[Row]:
    """A JSON object a line; empty lines are left out."""
    raw = stream.Counted(path, watch)
    try:
        for number, line in enumerate(stream.lines(raw, source.options.encoding), 1):
            if not line.strip():
                continue
            try:
                found = _parsed(line, f"{path}:{number}")
            except DataError as problem:
                source.refuse(problem)
                continue
            yield f"{path}:{number}", found
    finally:
        raw.close()
        source.files.append(raw.about())


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as problem:
        hint = "; each line must be one object" if line.lstrip()[:1] in "[]{" else ""
        raise DataError(f"{where}: not valid JSON: {problem}{hint}; {SKIP}") from problem


def table(path: Path, source: Source, watch: Watch) -> Iterator[Row]:
    """CSV, or TSV by its suffix, whose first line names the columns."""
    raw = stream.Counted(path, watch)
    comma = "\t" if ".tsv" in path.suffixes else ","
    csv.field_size_limit(max(csv.field_size_limit(), stream.LONGEST))
    try:
        text = (f"{line}\n" for line in stream.lines(raw, source.options.encoding))
        rows = csv.reader(text, delimiter=comma)
        head: list[str] | None = None
        while True:
            try:
                row = next(rows, None)
            except csv.Error as problem:
                raise DataError(
                    f"{path}:{rows.line_num}: no {comma!r} table: {problem}"
                ) from problem
            if row is None:
                return
            if head is None:
                head = row
            elif row:
                yield from _named(row, head, f"{path}:{rows.line_num}", source)
    finally:
        raw.close()
        source.files.append(raw.about())


def _named(row: list[str], head: list[str], where: str, source: Source) -> Iterator[Row]:
    if len(row) == len(head):
        yield where, dict(zip(head, row, strict=True))
    else:
        said = f"{where}: {len(row)} cells under {len(head)} columns; is a quote open? "
        said += SKIP
        source.refuse(DataError(said))


def parquet(path: Path, source: Source, watch: Watch) -> Iterator[Row]:
    """A Parquet file, some rows at a time."""
    try:
        pyarrow = import_module("pyarrow")
        reader = import_module("pyarrow.parquet")
    except ImportError as missing:
        raise DataError(
            f"{path}: Parquet needs pyarrow: pip install 'anyformer[parquet]'"
        ) from missing
    from anyformer.data.shards import digest_of

    size = path.stat().st_size
    try:
        with reader.ParquetFile(path) as file:
            total, number = max(file.metadata.num_rows, 1), 0
            asked = [source.options.field, *filter(None, [source.options.name])]
            for column in asked:
                if column not in file.schema_arrow.names:
                    raise DataError(_missing(str(path), column, file.schema_arrow.names))
            for batch in file.iter_batches(ROWS, columns=asked):
                watch(size * (number + batch.num_rows) // total - size * number // total)
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as problem:
        raise DataError(f"{path} can't be read as Parquet: {problem}") from problem
    source.files.append({"path": str(path), "bytes": size, "sha256": digest_of(path)})


READERS: dict[str, Callable[[Path, Source, Watch], Iterator[Row]]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": json_lines,
    ".csv": table,
    ".tsv": table,
    ".parquet": parquet,
}


def fields_of(row: Any, where: str) -> Mapping[str, Any]:
    """A record, which has fields; anything else raises."""
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: a {type(row).__name__}, not an object with fields; {SKIP}")
    return row


def text_of(row: Any, column: str, where: str) -> str:
    """The text of a record; a missing or other value raises and names the fields there are."""
    if column not in fields_of(row, where):
        raise DataError(_missing(where, column, row))
    if not isinstance(row[column], str):
        raise DataError(f"{where}: {column!r} is a {type(row[column]).__name__}, not a text")
    try:
        row[column].encode()
    except UnicodeEncodeError as problem:
        raise DataError(f"{where}: half of a pair of surrogates, which is no text") from problem
    return row[column]


def label_of(row: Mapping[str, Any], column: str, where: str) -> str | None:
    """The name or label of a record as a text."""
    if column not in row:
        raise DataError(_missing(where, column, row))
    return None if row[column] is None else str(row[column])


def _missing(where: str, column: str, fields: Iterable[str]) -> str:
    listed = ", ".join(map(repr, list(fields)[:20])) or "none"
    return f'{where}: no field {column!r}; it has {listed}: pass field="..." (--field)'


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk` of the datasets library."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def saved(folder: Path, part: str | None) -> Iterable[Any]:
    """The rows of a folder that `save_to_disk` wrote."""
    try:
        datasets = import_module("datasets")
    except ImportError as missing:
        raise DataError(
            f"{folder} was saved by the datasets library: pip install 'anyformer[datasets]'"
        ) from missing
    return chosen(datasets.load_from_disk(str(folder)), part, str(folder))


def chosen(found: Any, part: str | None, where: str) -> Iterable[Any]:
    """The rows of a data set, or of one part where it has several."""
    if not isinstance(found, Mapping):
        return found
    parts = list(found)
    if part is None and len(parts) == 1:
        part = parts[0]
    if part not in found:
        raise DataError(f"{where} has the parts {', '.join(parts)}: choose with part=")
    return found[part]


def fingerprint_of(what: Any) -> str | None:
    """The fingerprint that a data set of the datasets library keeps."""
    library = sys.modules.get("datasets")
    if library is not None and isinstance(what, library.Dataset):
        return str(what._fingerprint)
    return None
