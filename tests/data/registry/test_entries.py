"""The entries are whole, the page shows them, and no address of a registry stands in the code."""

import pathlib
import re

import anyformer
from anyformer.data import registry
from anyformer.data.registry import page
from anyformer.data.registry.readers import READERS

SOURCE = pathlib.Path(anyformer.__file__).parent / "data" / "registry"
PAGE = pathlib.Path(__file__).parents[3] / "docs" / "datasets.md"


def test_entries_are_whole():
    for name in registry.names():
        entry = registry.get(name)
        assert entry.name == name and entry.tasks and entry.reader in READERS
        assert set(entry.tasks) <= set(registry.COLUMNS)
        assert entry.title and entry.licence and entry.data_licence
        assert bool(entry.note) or not entry.derived
        assert bool(entry.members) == bool(entry.artefacts) == bool(entry.size)
        for artefact in entry.artefacts:
            assert re.fullmatch(r"[0-9a-f]{64}", artefact.sha256) and artefact.size > 100_000
            assert artefact.kind == ("wheel" if artefact.file.endswith(".whl") else "sdist")
            assert artefact.version in artefact.file


def test_every_task_has_data():
    assert all(registry.names(task) for task in registry.COLUMNS)


def test_every_task_but_pairs_and_such_needs_no_network():
    offline = {task for name in registry.names() if not registry.get(name).size
               for task in registry.get(name).tasks}  # fmt: skip
    assert set(registry.COLUMNS) - offline == {"pairs", "regression", "images"}


def test_the_page_shows_the_registry():
    text = PAGE.read_text(encoding="utf-8")
    assert page.table(map(registry.get, registry.names())) in text
    for task, columns in registry.COLUMNS.items():
        assert f"| {task} | {', '.join(f'`{column}`' for column in columns)} |" in text


def test_no_address_stands_in_the_code():
    for file in [*SOURCE.glob("*.py"), PAGE]:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://\w|\w\.(org|com|io|net)\b", text), file
