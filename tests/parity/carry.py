"""Weights of x-transformers' releases as weights of ours: one table of names.

Complete or complain: a key of theirs that no row knows is an error unless it is ignored by name,
and a parameter of ours that stays without a value is one too.
"""

import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

Step = Callable[[Tensor], Tensor]
NONE = r"(?!)"  # matches nothing


def _same(x: Tensor) -> Tensor:
    return x


def _mixing(x: Tensor) -> Tensor:
    """A 1x1 convolution over heads (out, in, 1, 1) as a matrix (in, out)."""
    return x[:, :, 0, 0].T


def _one_row(x: Tensor) -> Tensor:
    return x.flatten(0, -2)[0]


WHOLE: dict[str, tuple[str, Step]] = {
    r"token_emb(\.emb)?\.weight": ("embed.token.weight", _same),
    r"pos_emb\.emb\.weight": ("embed.position.weight", _same),
    r"pos_embedding": ("embed.position.weight", lambda x: x[0]),
    r"cls_token": ("embed.cls", _one_row),
    r"memory_tokens": ("embed.memory", _same),
    r"post_emb_norm\.(weight|gamma)": ("embed.norm.weight", _same),
    r"project_emb\.(weight|bias)": (r"embed.project.\1", _same),
    r"patch_to_embedding\.(weight|bias)": (r"embed.patch.\1", _same),
    r"project_in\.(weight|bias)": (r"embed.value.\1", _same),
    r"project_out\.(weight|bias)": (r"head.out.\1", _same),
    r"mlp_head\.net\.0\.0\.(weight|bias)": (r"head.hidden.\1", _same),
    r"mlp_head\.net\.[23]\.(weight|bias)": (r"head.out.\1", _same),
    r"to_logits\.(weight|bias)": (r"head.\1", _same),
    r"norm\.(weight|bias)": (r"stack.norm.\1", _same),
    r"final_norm\.gamma": ("stack.norm.weight", _same),
    r"final_norm\.g": ("stack.norm.weight", _same),
    r"rel_pos\.relative_attention_bias\.weight": ("stack.relative.0.table", _same),
}

SUBLAYER: dict[str, tuple[str, Step]] = {
    r"0\.(?:[02]\.)?(?:weight|g|gamma)": ("norm.weight", _same),
    r"0\.(?:[02]\.)?bias": ("norm.bias", _same),
    r"0\.1\.(?:weight|g|gamma)": ("after.weight", _same),
    r"0\.1\.bias": ("after.bias", _same),
    r"1\.to_([qkv])\.weight": (r"branch.\1.weight", _same),
    r"1\.to_out(?:\.0)?\.(weight|bias)": (r"branch.out.\1", _same),
    r"1\.mem_([kv])": (r"branch.memory_\1", _same),
    r"1\.collab_mixing": ("branch.collab", _same),
    r"1\.(pre|post)_softmax_proj": (r"branch.talk_\1", _same),
    r"1\.(?:attend\.)?(pre|post)_softmax_talking_heads\.weight": (r"branch.talk_\1", _mixing),
    r"1\.([qk])_rmsnorm\.gamma": (r"branch.\1_norm.weight", _one_row),
    r"1\.(?:net|ff)\.0\.0\.(weight|bias)": (r"branch.up.\1", _same),
    r"1\.(?:net|ff)\.[23]\.(weight|bias)": (r"branch.down.\1", _same),
    r"1\.g": ("residual.gain", _same),
    r"1\.gamma": ("residual.gain", lambda x: x + 1),
    r"2\.residual_scale": ("residual.gain", _same),
    r"2\.gru\.(weight_ih|weight_hh|bias_ih|bias_hh)": (r"residual.cell.\1", _same),
}
GLU = re.compile(r"1\.(?:net|ff)\.0\.proj\.(weight|bias)")  # first half the value, second the gate
INSIDE = re.compile(r"(?:attn_layers\.)?layers\.(\d+)\.(.*)")


def translate(state: dict[str, Tensor], homes: list[str], ignored: str) -> dict[str, Tensor]:
    """Their state under our names; `homes` are the paths of our sublayers in their order."""
    found: dict[str, Tensor] = {}
    for key, value in state.items():
        if re.fullmatch(ignored, key):
            continue
        for name, tensor in _rows(key, value, homes):
            assert name not in found, f"{name} is filled twice, again by {key}"
            found[name] = tensor
    return found


def _rows(key: str, value: Tensor, homes: list[str]) -> Iterator[tuple[str, Tensor]]:
    inside = INSIDE.fullmatch(key)
    if inside is None:
        bare = key.removeprefix("attn_layers.")
        yield from _looked_up(bare, key, value, WHOLE)
        return
    home, local = homes[int(inside[1])], re.sub(r"^1\.(?:fn\.)+", "1.", inside[2])
    glu = GLU.fullmatch(local)
    if glu is not None:
        up, gate = value.chunk(2)
        yield f"{home}.branch.up.{glu[1]}", up
        yield f"{home}.branch.gate.{glu[1]}", gate
        return
    for name, tensor in _looked_up(local, key, value, SUBLAYER):
        yield f"{home}.{name}", tensor


def _looked_up(
    name: str, key: str, value: Tensor, table: dict[str, tuple[str, Step]]
) -> Iterator[tuple[str, Tensor]]:
    for pattern, (ours, step) in table.items():
        found = re.fullmatch(pattern, name)
        if found is not None:
            yield found.expand(ours), step(value)
            return
    raise AssertionError(f"no row of the table knows {key!r}")


def last_norm(state: dict[str, Tensor], last: int) -> dict[str, Tensor]:
    """A post-norm state whose wrapper's norm stands where it acts: after the last sublayer."""
    home = f"attn_layers.layers.{last}.0."
    live = {key: value for key, value in state.items() if not key.startswith(home)}
    return {re.sub(r"^norm\.", home, key): value for key, value in live.items()}


def homes_of(stack: nn.Module, prefix: str = "") -> list[str]:
    """The paths of a stack's sublayers, in the order in which they run."""
    return [
        f"{prefix}stack.blocks.{b}.{j}"
        for b, block in enumerate(stack.blocks)
        for j in range(len(block))
    ]


def fill(model: nn.Module, found: dict[str, Tensor], zeros: str = NONE) -> None:
    """Load a whole state; parameters that `zeros` matches have none of theirs and become 0."""
    for name, parameter in model.named_parameters():
        if name not in found and re.fullmatch(zeros, name):
            found[name] = torch.zeros_like(parameter)
    model.load_state_dict(found, strict=True)


@torch.no_grad()
def disturb(model: nn.Module, seed: int = 0) -> None:
    """Move every parameter by noise, so that no part hides behind its fresh weights."""
    random = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))


# What a release stores otherwise than ours uses it.
GAINS = re.compile(r"stack\..*(norm|after)\.weight")
BIASES = r".*(norm|after)\.bias|.*\.branch\.out\.bias|head(\.out)?\.bias|embed\.value\.bias"


def adjust(found: dict[str, Tensor], version: str, head_dim: int) -> None:
    """Scales and offsets that a release applies to its weights, applied once."""
    table = "stack.relative.0.table"
    if table in found:
        found[table] = found[table] * head_dim**0.5
    if version == "0.12.3":
        return
    place = "embed.position.weight"
    if place in found:
        found[place] = found[place] * found[place].shape[1] ** -0.5
    if version != "2.31.10":
        return
    for name in found:
        if GAINS.fullmatch(name):
            found[name] = found[name] + 1
        elif name.endswith("talk_pre"):
            found[name] = found[name] + torch.eye(len(found[name]))


def regroup(found: dict[str, Tensor], heads: int, groups: int, head_dim: int) -> None:
    """Query heads of one key head lie apart upstream (h, h + groups, …), side by side here."""
    order = torch.arange(heads).view(-1, groups).T.flatten()
    for name, value in found.items():
        if name.endswith("branch.q.weight"):
            found[name] = value.unflatten(0, (heads, head_dim))[order].flatten(0, 1)
        elif name.endswith("branch.out.weight"):
            found[name] = value.unflatten(1, (heads, head_dim))[:, order].flatten(1)
