"""Published packages that our results are compared with, several versions side by side.

Only one version of a package can be installed. The older ones go, without their dependencies, into
one folder each under `.oracles/` (or the folder that ANYFORMER_ORACLES names), on first use.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import filelock
import pytest

INSTALLED = "2.31.10"
DOWNLOADED = ("0.12.3", "0.25.9")
_PACKAGE = "x_transformers"
_REPOSITORY = Path(__file__).resolve().parents[2]
_PIP_SECONDS = 300


@functools.cache
def x_transformers(version: str) -> ModuleType:
    """Return x-transformers of this version: one of "0.12.3", "0.25.9" and "2.31.10".

    A module of a downloaded version is not in `sys.modules`: reach its names through the module
    returned here. A test that asks for a version that can't be had fails, it isn't skipped.
    """
    if version == INSTALLED:
        return _installed()
    if version not in DOWNLOADED:
        raise ValueError(
            f"unknown version {version!r}; known: {', '.join((*DOWNLOADED, INSTALLED))}"
        )
    folder = _folder() / version
    if problem := _download(version, folder):
        pytest.fail(problem, pytrace=False)
    with _alone(folder):
        return importlib.import_module(_PACKAGE)


def _folder() -> Path:
    return Path(os.environ.get("ANYFORMER_ORACLES") or _REPOSITORY / ".oracles").resolve()


def _installed() -> ModuleType:
    found = importlib.metadata.version("x-transformers")
    if found != INSTALLED:
        pytest.fail(f"x-transformers {found} is installed, the tests want {INSTALLED}", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(_PACKAGE)


@functools.cache  # a failed download is not tried again by the next test
def _download(version: str, folder: Path) -> str | None:
    """Fill the folder if it isn't there yet, whole or not at all; return what went wrong."""
    if folder.is_dir():
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if folder.is_dir():  # another worker was faster
            return None
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{version}.") as scratch:
            target = Path(scratch) / version
            problem = _pip_install(target, f"x-transformers=={version}")
            if problem is None:
                target.rename(folder)
            return problem


def _pip_install(target: Path, *requirements: str) -> str | None:
    """Put packages alone into a folder; modules are compiled as they are imported, a small part."""
    requirement = " ".join(requirements)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-input", "--no-compile"]
    command += ["--target", str(target), *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the parity oracle {requirement} was not downloaded within {_PIP_SECONDS} seconds"
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        return f"pip could not download the parity oracle {requirement}:\n{said}"
    return None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let this folder's copy of the package be the only one, then put everything back."""
    others = _take_out()
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.path.remove(str(folder))
        _take_out()
        sys.modules.update(others)


def _take_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return {name: sys.modules.pop(name) for name in names}
