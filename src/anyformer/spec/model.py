"""Sublayers, stacks and whole models."""

from __future__ import annotations

from typing import Literal

from anyformer.spec.convolution import Convolution
from anyformer.spec.distance import Distances
from anyformer.spec.feedforward import Activation
from anyformer.spec.loop import Loop
from anyformer.spec.lora import Lora
from anyformer.spec.node import Above, Depth, Natural, Positive, Rate, node
from anyformer.spec.norm import LayerNorm, Norm
from anyformer.spec.parallel import Leaf, Parallel, kind_of
from anyformer.spec.position import Absolute, Relative, Untied
from anyformer.spec.residual import Add, Residual
from anyformer.spec.schedule import Own, Plain, Schedule

Branch = Leaf | Parallel


@node
class Sublayer:
    """A branch with its norm and its way into the residual stream."""

    branch: Branch
    norm: Norm | None = LayerNorm()
    place: Literal["pre", "post", "sandwich"] = "pre"  # before, after the join, around the branch
    residual: Residual = Add()
    dropout: Rate = 0.0  # on the branch's output

    @property
    def kind(self) -> str:
        """What the branch does: attention, cross, feedforward or, several at once, parallel."""
        return "parallel" if isinstance(self.branch, Parallel) else kind_of(self.branch)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The branch, or those that run side by side."""
        return self.branch.branches if isinstance(self.branch, Parallel) else (self.branch,)


@node
class Stack:
    """Blocks of sublayers, run in the order of the schedule."""

    block: tuple[Sublayer, ...]
    depth: Depth  # applications of blocks
    schedule: Schedule = Plain()
    own: tuple[Own, ...] = ()  # what each application has for itself, though its block is shared
    lora: Lora | None = None  # what each application adds to the weights that it shares
    loop: Loop | None = None  # what else happens where blocks run again
    others: tuple[tuple[Sublayer, ...], ...] = ()  # further kinds of block
    kinds: tuple[Natural, ...] = ()  # kind of each unique block, repeated; (): each kind in turn
    final_norm: Norm | None = LayerNorm()
    out: Positive | None = None  # the width that leaves it, by a map without bias; None: dim
    relative: tuple[Relative, ...] = ()  # shared by every self-attention
    untied: Untied | None = None  # shared by every self-attention
    distances: Distances | None = None  # what disentangled attentions read
    convolution: Convolution | None = None  # of the stack's input, after the first block
    reversible: bool = False  # two streams, activations recomputed (arXiv:2001.04451)
    recurrence: Natural = 0  # positions of Transformer-XL memory (arXiv:1901.02860)
    primed: bool = False  # that memory starts full of zeros, which are seen (Hugging Face's)
    layer_dropout: Rate = 0.0  # whole blocks skipped in training (arXiv:1603.09382)
    blank: bool = False  # padding is zero before and after every block (XLM)


@node
class Tokens:
    """Ids of a vocabulary; with cutoffs rarer ones have narrower vectors (arXiv:1809.10853)."""

    vocab: Positive
    cutoffs: tuple[Positive, ...] = ()  # ids from each on have a table of their own
    shrink: Positive = 1  # times narrower than the one before, then mapped to the model's dim

    @property
    def bands(self) -> tuple[tuple[int, int], ...]:
        """The first id and the end of each table."""
        return ends(self.cutoffs, self.vocab)


def ends(cutoffs: tuple[int, ...], vocab: int) -> tuple[tuple[int, int], ...]:
    """The first id and the end of what cutoffs part a vocabulary into."""
    return tuple(zip((0, *cutoffs), (*cutoffs, vocab), strict=True))


@node
class Patches:
    """Square patches of an image, flattened and projected (arXiv:2010.11929)."""

    image: Positive
    patch: Positive
    channels: Positive = 3
    cls: bool = True
    bias: bool = True


@node
class Values:
    """Vectors, projected where their size is not dim."""

    size: Positive | None = None  # None: dim, used as they are
    bias: bool = True


Source = Tokens | Patches | Values


@node
class Embed:
    """From inputs to the residual stream."""

    source: Source
    dim: Positive | None = None  # narrower tables, then a projection; None: the model's dim
    position: Absolute | None = None
    types: Natural = 0  # token types
    langs: Natural = 0  # languages: a vector for each token's, where they are said
    scale: Above = 1.0  # of the tokens' vectors
    norm: Norm | None = None
    bias: bool = True  # of the projection
    wide: bool = False  # the projection comes first, before positions, types and languages
    wide_norm: bool = False  # the norm comes after the projection, not before it
    dropout: Rate = 0.0
    memory: Natural = 0  # learned tokens in front (arXiv:2006.11527)


@node
class Vocabulary:
    """Logits over a vocabulary, where asked after a dense layer, an activation and a norm."""

    tied: bool = True  # to the token table
    bias: bool = False
    scale: Above = 1.0  # of the hidden states
    cap: Above | None = None  # logits squashed into (-cap, cap) by tanh (arXiv:2408.00118)
    dense: bool = False
    dense_bias: bool = True
    wide: bool = False  # the dense layer keeps the stream's width; else it gives the tables'
    enhanced: Positive | None = None  # positions that ask the last block, twice (2006.03654)
    act: Activation = "gelu"
    norm: Norm | None = None
    shift: bool = True  # labels of a causal model are those of the next position


@node
class Transform:
    """A dense layer of the stream's width, an activation and a norm, before a head's last map.

    With `hidden` it is a feed-forward block: a second map leads back and the input is added.
    """

    act: Activation = "gelu"
    norm: Norm | None = None
    bias: bool = True
    hidden: Positive | None = None  # the width inside a block
    dropout: Rate = 0.0  # before the first map and behind the second


@node
class Classes:
    """Logits over classes, from the first or the last token, the mean, or where a token stands."""

    count: Positive
    pool: Literal["first", "mean", "last", "marked"] = "first"
    token: Natural | None = None  # last: an id that pads; marked: the id whose last place is read
    transform: Transform | None = None  # of the pooled vector
    hidden: Positive | None = None  # an inner layer, with the activation after it
    act: Activation = "gelu"
    bias: bool = True
    pool_dropout: Rate = 0.0  # on the pooled vector, before an inner layer
    dropout: Rate = 0.0  # before the last map
    answers: Literal["one", "many", "numbers"] = "one"  # one class, each yes or no, regression


@node
class Choices:
    """One logit per sequence, to choose among the C sequences of a row (B, C, N)."""

    pool: Literal["first", "mean"] = "first"
    transform: Transform | None = None  # of the pooled vector
    hidden: Positive | None = None  # an inner layer on it, then the activation
    act: Activation = "tanh"
    pool_dropout: Rate = 0.0  # on the pooled vector
    dropout: Rate = 0.0  # before the last map


@node
class Span:
    """Where an answer starts and where it ends: two logits per position (arXiv:1606.05250).

    With `token` a question comes first, up to that id's first place: token types that aren't given
    are 0 in it and 1 behind it, and no answer is in it but at the first position.
    """

    transform: Transform | None = None
    dropout: Rate = 0.0
    token: Natural | None = None


@node
class Detect:
    """Whether each token was replaced: dense, activation, one logit (arXiv:2003.10555)."""

    act: Activation = "gelu"


@node
class Pooler:
    """A dense layer and an activation on the first token."""

    act: Activation = "tanh"


@node
class Project:
    """A linear map of every position to `size` numbers."""

    size: Positive
    transform: Transform | None = None
    bias: bool = True
    dropout: Rate = 0.0


@node
class Adaptive:
    """Log-probabilities over a vocabulary, rarer ids behind one for all of them (1609.04309).

    It uses the token tables and, but for the first ids, their maps to the model's dim.
    """

    cutoffs: tuple[Positive, ...] = ()  # ids from each on are behind a slot of their own


@node
class Pretraining:
    """Masked tokens, and how two sentences belong together from the first token, at once."""

    tokens: Vocabulary = Vocabulary()
    asks: Literal["next", "order"] = "next"  # does the second follow; are they in order
    act: Activation = "tanh"  # after an inner layer, before the last map to two classes
    dropout: Rate = 0.0  # before the last map


@node
class Double:
    """Tokens of all sequences of a row (B, C, N) and one logit for each, to choose among them.

    A sequence is judged by one position: mc_token_ids say which, else it is the last real one.
    """

    tokens: Vocabulary = Vocabulary()
    act: Activation = "identity"  # of the logit
    dropout: Rate = 0.0  # before the map to it


@node
class Pixels:
    """An image again, a square of it from each patch; what is hidden is told (arXiv:2111.09886)."""

    stride: Positive | None = None  # the square's side; None: the patch's


@node
class Beams:
    """Likely starts of an answer, likely ends behind each, and is there any (arXiv:1906.08237)."""

    starts: Positive = 5
    ends: Positive = 5  # behind each start
    norm: Norm = LayerNorm()  # of what ends are told from


Words = Vocabulary | Adaptive | Pretraining | Double
Head = Words | Classes | Choices | Span | Detect | Pooler | Project | Pixels | Beams


@node
class Init:
    """How fresh weights are drawn: normal, branch outputs smaller with depth where asked.

    By fan-in (T5's code): tables std, a map of n inputs std / sqrt(n), what else a part draws
    std / sqrt(dim), and queries smaller where scores aren't scaled.
    """

    std: Above = 0.02
    depth_scaled: bool = False  # last matrix of each branch: std / sqrt(2 · depth)
    fan: bool = False  # by fan-in; std is a factor, 1 in T5


@node
class Model:
    """A whole model. With an encoder, the stack is a decoder that reads the encoder's output."""

    dim: Positive
    embed: Embed
    stack: Stack
    head: Head | None = None
    encoder: Model | None = None
    share_tokens: bool = False  # the encoder reads this model's token table
    bridge: bool = False  # the encoder's output is mapped to this model's dim before it is read
    # a decoder that is given labels alone reads them shifted right
    start: Natural | Literal["last"] | None = None  # the id in front, or the last that isn't pad
    pad: Natural | None = None  # the id in place of ignored labels
    init: Init = Init()
