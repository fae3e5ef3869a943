"""Models that break the rules of recursion, for test_rules.py."""

from anyformer.recipes import recipe
from anyformer.spec import (
    Act,
    Attention,
    Exit,
    Explicit,
    FeedForward,
    LayerNorm,
    Loop,
    Looped,
    Lora,
    Route,
    Shared,
    Sublayer,
    Superblocks,
    Vocabulary,
    override,
)

SIZES = {"dim": 16, "depth": 4, "heads": 2, "vocab": 11, "length": 8}
ENCODER, DECODER = recipe("encoder", **SIZES), recipe("decoder", **SIZES)
BOTH = recipe("encoder-decoder", **SIZES)
ROUND = override(ENCODER, "stack.schedule", Shared(unique=2, order="cycle"))
ONWARD = override(DECODER, "stack.schedule", Shared(unique=2, order="cycle"))
CODA = override(DECODER, "stack.schedule", Looped(prelude=1, core=1, coda=1, loops=2))
SEQUENCE = override(ENCODER, "stack.schedule", Shared(unique=2))
EXPERT = Route(choice="expert")
POST = (
    Sublayer(branch=Attention(heads=2), place="post"),
    Sublayer(branch=FeedForward(), place="post"),
)
ASKED = override(override(ROUND, "stack.block", POST), "head", Vocabulary(enhanced=8))

# rule -> (sound model, changes that break it, changes that heal it)
LOOP_CASES = {
    "loop goes round": (
        ENCODER,
        {"stack.loop": Loop(inject="add")},
        {"stack.schedule": Shared(unique=1)},
    ),
    "loop runs forwards": (
        ROUND,
        {"stack.loop": Loop(step="learned"), "stack.reversible": True},
        {"stack.reversible": False},
    ),
    "zeros are filled": (
        ROUND,
        {"stack.loop": Loop(start="zeros")},
        {"stack.loop.inject": "add"},
    ),
    "window sees the input": (
        ROUND,
        {"stack.loop": Loop(window=1)},
        {"stack.loop.inject": "stable"},
    ),
    "drawn rounds": (
        ROUND,
        {"stack.loop": Loop(mean=3)},
        {"stack.loop.drawn": "poisson"},
    ),
    "keys of the first turn": (
        ROUND,
        {"stack.loop": Loop(keys="first"), "stack.own": ("attention",)},
        {"stack.own": ("feedforward",)},
    ),
    "exit is the end": (
        CODA,
        {"stack.loop": Loop(halt=Exit())},
        {"stack.loop.halt": Act()},
    ),
    "capacity by round": (
        ROUND,
        {"stack.loop": Loop(halt=Route(choice="expert", capacity=(1.0,)))},
        {"stack.loop.halt.capacity": (1.0, 0.5)},
    ),
    "rounds choose along the row": (
        ONWARD,
        {"stack.loop": Loop(halt=EXPERT)},
        {"stack.loop.halt.future": True},
    ),
}

LOOP_MORE = [
    ("loop goes round", ENCODER, {"stack.loop": Loop(step="learned")}),
    ("loop goes round", ENCODER, {"stack.loop": Loop(keys="first")}),
    ("loop goes round", SEQUENCE, {"stack.loop": Loop(drawn="uniform")}),
    ("loop goes round", SEQUENCE, {"stack.loop": Loop(halt=Act())}),
    (
        "loop goes round",
        ENCODER,
        {
            "stack.schedule": Superblocks(layers=2, repeat=2, norm=LayerNorm()),
            "stack.loop": Loop(inject="add"),
        },
    ),
    ("loop runs forwards", ASKED, {"stack.loop": Loop(inject="add")}),
    ("zeros are filled", ROUND, {"stack.loop": Loop(start="zeros", inject="add", halt=EXPERT)}),
    ("drawn rounds", ROUND, {"stack.loop": Loop(drawn="uniform", mean=2)}),
    ("drawn rounds", ROUND, {"stack.loop": Loop(most=2)}),
    ("drawn rounds", ROUND, {"stack.loop": Loop(step="learned", drawn="uniform", most=3)}),
    ("drawn rounds", ROUND, {"stack.loop": Loop(halt=Route(), drawn="uniform", most=3)}),
    (
        "drawn rounds",
        ROUND,
        {"stack.loop": Loop(drawn="poisson", most=3), "stack.own": ("norm",)},
    ),
    (
        "keys of the first turn",
        ROUND,
        {"stack.loop": Loop(keys="first"), "stack.lora": Lora(rank=2, on=("k", "up"))},
    ),
    ("keys of the first turn", ROUND, {"stack.loop": Loop(keys="first", inject="add", window=1)}),
    ("exit is the end", ONWARD, {"stack.loop": Loop(halt=Exit()), "head": None}),
    (
        "exit is the end",
        BOTH,
        {"encoder.stack.schedule": Shared(unique=1), "encoder.stack.loop": Loop(halt=Exit())},
    ),
    ("capacity by round", ROUND, {"stack.loop": Loop(halt=Route(capacity=(1.0, 0.5)))}),
]

SOUND = [
    (ROUND, Loop(drawn="poisson", most=9, inject="add", window=4)),
    (ROUND, Loop(halt=EXPERT)),
    (ONWARD, Loop(halt=Exit())),
    (SEQUENCE, Loop(step="coordinates", keys="first")),
    (override(ENCODER, "stack.schedule", Explicit(order=(0, 1, 0, 1))), Loop(halt=Act())),
]
