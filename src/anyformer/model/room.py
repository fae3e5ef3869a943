"""Whether a model can be in memory at all, said before any of it is taken."""

from __future__ import annotations

import os

import torch

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.model.census import census

FARTHEST = 1 << 60  # bytes that shapes alone may speak of


def check_room(spec: S.Model) -> None:
    """Raise where a model's weights are more than the memory of the device they are made on."""
    parameters = census(spec).size()
    probe = torch.empty(0)  # where, and in which dtype, tensors are made now
    needs, have = parameters * probe.itemsize, _memory(probe.device)
    if needs > have:
        raise SpecError(
            f"the model has {parameters:,} parameters, {needs / 2**30:,.1f} GiB in {probe.dtype}, "
            f"beyond the {have / 2**30:,.1f} GiB of {probe.device}: lower dim, depth or vocab"
        )


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "cpu" and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return FARTHEST
