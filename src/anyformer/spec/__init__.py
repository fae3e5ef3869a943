"""The model as data: a tree of frozen nodes, from the standard library alone."""

from anyformer.spec.attention import (
    Attention,
    Entmax15,
    Mod,
    Sigmoid,
    SoftCap,
    Softmax,
    Sparsemax,
    Temperature,
    TopK,
    Weigh,
)
from anyformer.spec.edit import Change, diff, get, override, parse
from anyformer.spec.feedforward import Activation, FeedForward
from anyformer.spec.model import (
    Branch,
    Classes,
    Embed,
    Head,
    Init,
    Model,
    Patches,
    Pooler,
    Project,
    Source,
    Stack,
    Sublayer,
    Tokens,
    Values,
    Vocabulary,
)
from anyformer.spec.node import KINDS, from_dict, from_json, make, to_dict, to_json
from anyformer.spec.norm import LayerNorm, Norm, RMSNorm, ScaleNorm
from anyformer.spec.position import (
    XL,
    Absolute,
    ALiBi,
    Buckets,
    Learned,
    Relative,
    Rotary,
    Shaw,
    Sinusoidal,
    Untied,
)
from anyformer.spec.residual import Add, Gated, Residual, ReZero, Scaled
from anyformer.spec.rules import check, problems
from anyformer.spec.schedule import (
    Explicit,
    Layout,
    Looped,
    Plain,
    Sandwich,
    Schedule,
    Shared,
    Superblocks,
    layout,
)

__all__ = [name for name in dir() if not name.startswith("_")]
