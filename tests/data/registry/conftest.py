"""A cache of its own for each test, and no settings of the machine's pip."""

import os
import pathlib

import pytest


@pytest.fixture(autouse=True)
def _apart(request, tmp_path, monkeypatch):
    if request.node.get_closest_marker("slow"):
        return  # a real download goes the user's own way
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NETRC", os.devnull)


@pytest.fixture
def shelf(tmp_path) -> pathlib.Path:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return folder
