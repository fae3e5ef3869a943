"""The modules of an application's LoRA, from the spec alone."""

from __future__ import annotations

from anyformer.model.entry import Entry, entry, notes
from anyformer.spec import Lora, Sublayer
from anyformer.spec.walk import updates


def additions(spec: Lora, sub: Sublayer, dim: int) -> Entry:
    """What an application adds to the branches of a sublayer."""
    made = [
        entry(
            str(i),
            "Lora",
            *(
                entry(
                    name,
                    "Update",
                    a=size[:2],
                    b=(size[2], size[0]),
                    bias=size[2:] if bias else None,
                )
                for name, (size, bias) in updates(spec, leaf, dim).items()
            ),
            detail=notes(spec),
        )
        for i, leaf in enumerate(sub.leaves)
    ]
    return entry("lora", "ModuleList", *made)
