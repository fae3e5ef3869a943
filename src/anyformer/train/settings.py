"""How a model is trained, as data: every knob of a run, printed, compared, changed by path."""

from __future__ import annotations

from typing import Annotated, Literal

from anyformer.errors import SpecError
from anyformer.spec.node import Above, Natural, Positive, Range, Rate, node

Kind = Literal["norms", "biases", "embeddings"]
Tracker = Literal["tensorboard", "wandb", "trackio"]
Weight = Annotated[float, Range(0.0)]


@node
class AdamW:
    """Adam with decoupled weight decay (1711.05101)."""

    betas: tuple[Rate, ...] = (0.9, 0.95)
    eps: Above = 1e-8


@node
class Adafactor:
    """Second moments by rows and columns (1804.04235)."""

    beta2_decay: float = -0.8  # the exponent of the step in the decay of second moments
    eps: Above = 1e-3
    threshold: Above = 1.0  # the largest root mean square of an update


@node
class Muon:
    """Orthogonal updates for the matrices of the stacks, AdamW for everything else (2502.16982)."""

    momentum: Rate = 0.95
    nesterov: bool = True
    iterations: Positive = 5  # of Newton and Schulz
    adjust: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    betas: tuple[Rate, ...] = (0.9, 0.95)  # of the AdamW beside it
    eps: Above = 1e-8


@node
class Constant:
    """The full rate after the warm-up."""

    warmup: Natural = 0


@node
class LinearDecay:
    """A straight line from the full rate to a final fraction of it."""

    warmup: Natural = 0
    final: Rate = 0.0


@node
class Cosine:
    """Half a wave from the full rate to a final fraction of it (1608.03983)."""

    warmup: Natural = 0
    final: Rate = 0.0


@node
class InverseRoot:
    """The full rate until the warm-up ends, then falling as the root of the step (1706.03762)."""

    warmup: Positive = 1000


@node
class Trapezoid:
    """Warm-up, full rate, and a straight line down over the last share of the steps."""

    warmup: Natural = 0
    decay: Rate = 0.2  # share of the steps
    final: Rate = 0.0


@node
class Evaluation:
    """When the validation samples are read, and how many of them."""

    every: Natural = 0  # steps; 0: at the end only
    rows: Positive | None = None  # None: all
    patience: Positive | None = None  # evaluations without a better loss before a run stops
    margin: float = 0.0  # what counts as better: lower by more than this
    first: bool = False  # before the first step too


@node
class Saving:
    """When state is saved and which of it is kept."""

    every: Natural = 500  # steps; 0: at the end only
    keep: Positive = 2  # the newest ones
    best: bool = True  # the best one too, and one is saved whenever validation is better
    background: bool = True  # write while training goes on
    take: Literal["last", "best"] = "last"  # what becomes the run's model


@node
class Guard:
    """What counts as a step gone wrong; it is taken back and its batch left out."""

    # A loss so many deviations above the mean is wrong; None: NaN and Inf alone are. 6 or 8 suit
    # pretraining with large batches; of small ones the losses differ too much.
    sigma: Above | None = None
    window: Positive = 128  # steps that mean and deviation are taken over
    skips: Natural = 10  # batches left out before the run stops


@node
class Spreading:
    """How a model lies over the processes of a run; one process has all of it."""

    # ddp: a copy on each; fsdp: a shard of every weight; hsdp: copies of shards; auto: ddp where a
    # copy fits, else fsdp
    kind: Literal["auto", "ddp", "fsdp", "hsdp"] = "auto"
    tensor: Positive = 1  # processes that share the heads and channels of one model
    replicas: Positive = 1  # hsdp: copies, each over an equal number of processes


Optimiser = AdamW | Adafactor | Muon
Schedule = Constant | LinearDecay | Cosine | InverseRoot | Trapezoid


@node
class Settings:
    """All of a run but its model, its objective and its data."""

    steps: Positive = 1000
    batch: Positive = 32  # rows of a step, over all ranks
    micro: Positive | None = None  # rows of one forward pass; None: all that a rank has
    lr: Above = 3e-4
    optimiser: Optimiser = AdamW()
    weight_decay: Weight = 0.1
    undecayed: tuple[Kind, ...] = ("norms", "biases", "embeddings")
    layer_decay: Rate = 1.0  # of the rate, for each block further from the head
    frozen: tuple[str, ...] = ()  # patterns of parameter names, as embed.* or stack.blocks.0.*
    schedule: Schedule = Cosine()
    clip: Above | None = 1.0  # the largest norm of the gradient
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    float8: bool = (
        False  # products of wide maps in blocks, beside bfloat16 (anyformer.train.float8)
    )
    # What the sums between blocks are kept in: 16 bits are half of what norms read and write.
    stream: Literal["float32", "bfloat16"] = "float32"
    deterministic: bool = False  # the same bits in every run, on a GPU too, at some cost
    compile: bool = False  # each block by itself
    graph: bool = (
        False  # a step of one GPU as one CUDA graph: small models are several times faster
    )
    recompute: bool = False  # activations inside a block, in the backward pass
    ema: Rate | None = None  # decay of averaged weights, which are evaluated and kept
    evaluation: Evaluation = Evaluation()
    saving: Saving = Saving()
    guard: Guard | None = Guard()
    spreading: Spreading = Spreading()
    log_every: Positive = 10  # steps
    trackers: tuple[Tracker, ...] = ()  # beside JSON lines
    seed: Natural = 0
    draw: Natural | None = None  # the seed of the first weights; None: that of all else
    device: str = "auto"
    workers: Natural = 0  # processes that make batches ahead


def check(settings: Settings, world: int = 1) -> Settings:
    """The settings, or an error that says what doesn't go together and what would."""
    world = _readers(settings, world)
    rows, found = settings.batch // world, settings.optimiser
    if settings.batch % world:
        raise SpecError(f"batch={settings.batch} can't be shared by {world} ranks: take a multiple")
    if settings.micro is not None and rows % settings.micro:
        raise SpecError(
            f"micro={settings.micro} doesn't divide the {rows} rows of a rank: take a divisor"
        )
    if isinstance(found, AdamW | Muon) and (len(found.betas) != 2 or 1.0 in found.betas):
        raise SpecError(f"betas={found.betas} should be two numbers below 1, as (0.9, 0.95)")
    if settings.graph and (not isinstance(found, AdamW) or settings.precision == "float16"):
        raise SpecError(
            "graph=True captures steps of AdamW in float32 or bfloat16: take those, or leave it out"
        )
    if settings.float8 and settings.precision != "bfloat16":
        raise SpecError(
            f"float8=True with precision={settings.precision!r}: its products give bfloat16. Take "
            "precision='bfloat16', or leave it out"
        )
    if settings.stream == "bfloat16" and settings.precision != "bfloat16":
        raise SpecError(
            f"stream='bfloat16' with precision={settings.precision!r}: take precision='bfloat16', "
            "or leave it out"
        )
    if settings.ema is not None and settings.ema == 1.0:
        raise SpecError("ema=1.0 never changes: take a decay below 1, as 0.999, or None")
    warmup = settings.schedule.warmup
    if warmup > settings.steps:
        raise SpecError(f"warmup={warmup} is more than steps={settings.steps}: take fewer")
    if settings.saving.take == "best" and not settings.saving.best:
        raise SpecError("saving.take='best' needs saving.best=True")
    return settings


def _readers(settings: Settings, world: int) -> int:
    """The ranks that read different rows, where so many can be laid out as the settings ask."""
    if world == 1:
        return 1
    found = settings.spreading
    kind, tensor, replicas = found.kind, found.tensor, found.replicas
    data, left = divmod(world, tensor)
    if left:
        raise SpecError(f"spreading.tensor={tensor} doesn't divide {world} ranks: take a divisor")
    if tensor > 1 and data > 1 and kind == "ddp":
        raise SpecError("spreading.kind='ddp' with tensor>1: take 'fsdp' or 'hsdp'")
    if tensor > 1 and (settings.compile or settings.precision == "float16"):
        switch = "compile=True" if settings.compile else "precision='float16'"
        raise SpecError(f"{switch} doesn't go with spreading.tensor={tensor}: leave one out")
    if tensor > 1 and settings.float8:
        raise SpecError(
            f"float8=True needs whole maps, and spreading.tensor={tensor} cuts them: leave one out"
        )
    if isinstance(settings.optimiser, Adafactor) and (tensor > 1 or kind in ("fsdp", "hsdp")):
        raise SpecError("optimiser=Adafactor needs whole weights: take AdamW, or kind='ddp'")
    if (kind == "hsdp") != (replicas > 1):
        raise SpecError("spreading.replicas are those of kind='hsdp', which has 2 or more")
    if replicas > 1 and (data % replicas or data == replicas):
        raise SpecError(
            f"spreading.replicas={replicas} with {data} ranks that read rows: take a divisor that "
            "leaves 2 or more for each, or kind='ddp'"
        )
    return data
