"""The oracles load side by side and run."""

import sys
from pathlib import Path

import pytest
import torch

from tests.parity import oracles

VERSIONS = (*oracles.DOWNLOADED, oracles.INSTALLED)


def _attention(version: str) -> type:
    package = oracles.x_transformers(version)
    return package.x_transformers.Attention


def test_versions_live_side_by_side():
    classes = {version: _attention(version) for version in VERSIONS}
    assert len(set(classes.values())) == len(VERSIONS)
    files = {Path(oracles.x_transformers(version).__file__ or "") for version in VERSIONS}
    assert len(files) == len(VERSIONS)
    for version in oracles.DOWNLOADED:
        file = Path(oracles.x_transformers(version).__file__ or "")
        assert file.parent.parent.name == version


@pytest.mark.parametrize("version", oracles.DOWNLOADED)
def test_downloaded_version_leaves_no_trace(version):
    installed = oracles.x_transformers(oracles.INSTALLED)
    path = list(sys.path)
    oracles.x_transformers.__wrapped__(version)
    assert sys.path == path
    assert sys.modules["x_transformers"] is installed
    assert oracles.x_transformers(version) is oracles.x_transformers(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_small_decoder_runs(version):
    package = oracles.x_transformers(version)
    layers = package.Decoder(dim=16, depth=1, heads=2)
    model = package.TransformerWrapper(num_tokens=11, max_seq_len=8, attn_layers=layers)
    logits = model(torch.randint(0, 11, (2, 8)))
    assert logits.shape == (2, 8, 11)
    assert torch.isfinite(logits).all()


def test_unknown_version_is_refused():
    with pytest.raises(ValueError, match="unknown version"):
        oracles.x_transformers("1.0.0")


def test_failing_pip_fails_the_test(tmp_path):
    problem = oracles._pip_install(tmp_path / "target", "no-index-has-this-name===0")
    assert problem is not None
    assert "no-index-has-this-name" in problem
