"""State dicts of x-transformers, read into our models and written from them.

Complete or complain: every key of theirs is read, known to say nothing, or named in an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint import keymap
from anyformer.checkpoint.keymap import Row, row
from anyformer.compat.describe import ends_normed
from anyformer.compat.keys import RELEASES, inside, outside
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.model.model import Model
from anyformer.spec.walk import head_dim, models, selves

LATEST = "2.31.10"
# what stands before the keys of a model and of the encoder in it, by what wraps them
LEADS = {"layers": ("",), "wrapper": ("",), "loss": ("net.",), "pair": ("decoder.net.", "encoder.")}
Constants = dict[str, Tensor]


def read(model: Model, wrap: str, state: Mapping[str, Tensor], release: str) -> None:
    """Fill a model with a state of theirs; what is missing, unknown or unlike is an error."""
    ours, where = model.state_dict(), f"a state of x-transformers {release}"
    rows, fixed, dead = _table(model.spec, ours, wrap, release)
    for key, value in fixed.items():
        if key in state and not _same(state[key], value):
            raise CheckpointError(f"{where} holds another {key!r} than the one that is fixed here")
    theirs = {key: t for key, t in state.items() if key not in fixed and key not in dead}
    zeros = {key: torch.zeros_like(ours[key]) for key in _spare(ours, rows, release)}
    found = zeros | keymap.load(theirs, rows, ours.keys() - zeros.keys(), where)
    for key, value in found.items():
        if ours[key].shape != value.shape:
            shapes = f"{tuple(value.shape)}, not {tuple(ours[key].shape)}"
            raise CheckpointError(f"{where} gives {key!r} the shape {shapes}")
    model.load_state_dict(found)


def write(model: Model, wrap: str, release: str) -> dict[str, Tensor]:
    """The state of theirs that a model's weights are."""
    ours = {key: t.detach() for key, t in model.state_dict().items()}
    rows, fixed, dead = _table(model.spec, ours, wrap, release)
    spare = _spare(ours, rows, release)
    for key in spare:
        if ours[key].any():
            raise CheckpointError(
                f"{release} has no place for {key!r}, which is not zero: write release='0.12.3'"
            )
    saved = keymap.save({k: t for k, t in ours.items() if k not in spare}, rows)
    return {key: t.clone() for key, t in saved.items()} | fixed | dead


def _spare(ours: dict[str, Tensor], rows: list[Row], release: str) -> list[str]:
    """Our biases that a release does without: zeros are the same."""
    known = {key for item in rows for key in item.ours}
    bare = RELEASES[release].bare
    return [key for key in ours if bare and key.endswith("bias") and key not in known]


def _table(
    spec: S.Model, ours: dict[str, Tensor], wrap: str, release: str
) -> tuple[list[Row], Constants, Constants]:
    """The rows of a model, their keys that are fixed here, and their keys that nothing reads."""
    known_or_raise(release, RELEASES, "release of x-transformers", CheckpointError)
    named = RELEASES[release]
    rows, fixed, dead = list[Row](), Constants(), Constants()
    for (own, model), lead in zip(models(spec), LEADS[wrap], strict=True):
        layers = lead if wrap == "layers" else f"{lead}attn_layers."
        rows += _under(outside(model, named), lead, own)
        rows += _under(inside(model, named), layers, own)
        fixed |= _fixed(model, lead, layers)
        if ends_normed(model.stack) and not named.slots:  # the wrapper's norm is used in its place
            last = sum(map(len, S.layout(model.stack).blocks)) - 1
            dead[f"{layers}layers.{last}.0.weight"] = torch.ones(model.dim)
            dead[f"{layers}layers.{last}.0.bias"] = torch.zeros(model.dim)
        if own and not named.bare and isinstance(model.embed.source, S.Tokens):
            dead[f"{lead}to_logits.weight"] = torch.zeros(model.embed.source.vocab, model.dim)
            dead[f"{lead}to_logits.bias"] = torch.zeros(model.embed.source.vocab)
    if spec.share_tokens:
        rows.append(row(f"encoder.{named.token}.weight", "embed.token.weight"))
    return [item for item in rows if all(key in ours for key in item.ours)], fixed, dead


def _same(theirs: Tensor, value: Tensor) -> bool:
    found = theirs.cpu().float()
    return found.shape == value.shape and torch.allclose(found, value, rtol=1e-4)


def _under(rows: Iterable[Row], theirs: str, ours: str) -> Iterator[Row]:
    for r in rows:
        yield Row(tuple(theirs + k for k in r.theirs), tuple(ours + k for k in r.ours), r.steps)


def _fixed(model: S.Model, lead: str, layers: str) -> Constants:
    """Frequencies and scales that their state holds and our spec says."""
    waves = lambda size, theta: theta ** -(torch.arange(0, size, 2) / size)
    found: Constants = {}
    for attention in selves(model.stack):
        if attention.rotary is not None:
            size = attention.rotary.dims or head_dim(attention, model.dim)
            found[f"{layers}rotary_pos_emb.inv_freq"] = waves(size, attention.rotary.theta)
        if attention.infused is not None:
            found[f"{layers}pia_pos_emb.inv_freq"] = waves(model.dim, attention.infused.theta)
    if isinstance(model.embed.position, S.Sinusoidal):
        found[f"{lead}pos_emb.scale"] = torch.tensor([model.embed.position.scale])
    return found
