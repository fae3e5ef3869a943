"""Files come through the user's own pip, whole and with the right content, or not at all."""

import dataclasses
import io
import json

import pytest

from anyformer.data.registry import cache, index, pip
from anyformer.errors import DataError
from tests.data.registry import made

TEXT = {"grain/text.txt": b"wheat and barley\n"}


def test_a_wheel_comes_with_pip_and_is_kept(shelf, monkeypatch):
    artefact = made.wheel(shelf, TEXT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    assert cache.cached(artefact) is None
    file = cache.fetch(artefact)
    assert file.read_bytes() == (shelf / artefact.file).read_bytes()
    (shelf / artefact.file).unlink()
    monkeypatch.setattr(pip, "command", lambda: pytest.fail("pip is not needed again"))
    assert cache.fetch(artefact) == file
    assert [each.name for each in cache.folder().iterdir()] == [artefact.file]


def test_an_sdist_comes_without_running_its_code(shelf, tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    code = made.BOMB.format(marker=str(marker)).encode()
    artefact = made.sdist(shelf, {"setup.py": code, **TEXT})
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    assert cache.fetch(artefact).read_bytes() == (shelf / artefact.file).read_bytes()
    assert not marker.exists()


def _index(shelf, artefact, page: str):
    """A simple index in a folder; the file lies beside it, under another folder."""
    project = shelf / "simple" / "grain"
    project.mkdir(parents=True)
    (shelf / "files").mkdir()
    (shelf / artefact.file).rename(shelf / "files" / artefact.file)
    (project / "index.html").write_text(page)
    return (shelf / "simple").as_uri()


@pytest.mark.parametrize("form", ["html", "json"])
def test_an_sdist_is_found_on_the_page_of_the_index(shelf, monkeypatch, form):
    artefact = made.sdist(shelf, TEXT, project="grain")
    link = f"../../files/{artefact.file}#sha256={artefact.sha256}"
    anchors = (
        f'<html><a href="other-1.0.tar.gz">other</a><a href="{link}">{artefact.file}</a></html>'
    )
    files = json.dumps({"files": [{"filename": artefact.file, "url": link}]})
    address = _index(shelf, artefact, anchors if form == "html" else files)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    assert cache.fetch(artefact).is_file()


def test_another_content_is_refused_and_not_kept(shelf, monkeypatch):
    artefact = made.sdist(shelf, TEXT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    other = dataclasses.replace(artefact, sha256="0" * 64)
    with pytest.raises(DataError, match="refused: its SHA-256"):
        cache.fetch(other)
    assert list(cache.folder().iterdir()) == []


def test_more_bytes_than_promised_are_not_read(shelf, monkeypatch):
    artefact = made.sdist(shelf, TEXT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    with pytest.raises(DataError, match="more than 10 bytes"):
        cache.fetch(dataclasses.replace(artefact, size=10))


def test_a_damaged_file_in_the_cache_is_fetched_again(shelf, monkeypatch):
    artefact = made.sdist(shelf, TEXT)
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    file = cache.fetch(artefact)
    good = file.read_bytes()
    file.write_bytes(good[:-1] + b"x")
    assert cache.cached(artefact) is None
    assert cache.fetch(artefact).read_bytes() == good


def test_a_file_put_there_by_hand_will_do(shelf):
    artefact = made.sdist(shelf, TEXT)
    cache.folder().mkdir(parents=True)
    (shelf / artefact.file).rename(cache.folder() / artefact.file)
    assert cache.fetch(artefact).parent == cache.folder()


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_without_a_network_the_error_says_what_to_do(shelf, monkeypatch, kind):
    artefact = getattr(made, kind)(shelf, TEXT)
    with pytest.raises(DataError) as error:
        cache.fetch(artefact)
    said = str(error.value)
    assert artefact.file in said and str(cache.folder()) in said and "PIP_FIND_LINKS" in said
    assert "no network" in said


def test_an_index_out_of_reach_is_named_without_its_password(shelf, monkeypatch):
    artefact = made.sdist(shelf, TEXT)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://someone:secret@127.0.0.1:9/simple")
    with pytest.raises(DataError) as error:
        cache.fetch(artefact)
    assert "127.0.0.1:9" in str(error.value) and "secret" not in str(error.value)


def test_a_cache_that_cant_be_written_is_an_ordinary_error(shelf, tmp_path, monkeypatch):
    artefact = made.sdist(shelf, TEXT)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match="artefacts"):
        cache.fetch(artefact)


def test_a_relative_cache_folder_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache.folder().is_absolute()


def test_settings_are_those_of_pip(monkeypatch, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = file:///one\nextra-index-url =\n    file:///two\n    file:///three\n"
        "proxy = localhost:1\n[download]\nindex-url = file:///four\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "/a /b")
    found = pip.settings()
    assert found.indexes == ("file:///four", "file:///two", "file:///three")
    assert found.links == ("/a", "/b") and found.proxy == "localhost:1"


def test_the_default_index_is_pips_own(monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    [address] = pip.settings().indexes
    assert address.startswith("https://")


def test_only_plain_addresses_are_opened(shelf):
    artefact = made.sdist(shelf, TEXT)
    with pytest.raises(DataError, match="ftp kind are not read"):
        index.download(artefact, pip.Settings(("ftp://127.0.0.1/simple",)), io.BytesIO())
