"""`anyformer verify`: a folder's outputs here beside those of Hugging Face's library."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyformer.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from anyformer.model.model import Model

EXAMPLE = """\
anyformer verify my-bert
anyformer verify org/name --task masked-lm --tolerance 1e-4"""
FIELDS = ("last_hidden_state", "pooler_output", "logits", "start_logits", "end_logits")
FIELDS += ("mc_logits", "reconstruction")
ROWS = 4


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("folder", metavar="FOLDER", help="a folder, or a name of the hub")
    parser.add_argument("--task", help="the head to compare (default: the folder's own)")
    parser.add_argument("--length", type=int, default=32, help="positions (default: 32)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest difference, relative to the largest number (default: 1e-4)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; 0 if everything agrees, 1 if not."""
    import torch
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from anyformer.checkpoint import hub, load
    from anyformer.checkpoint.native import Origin

    folder = hub.folder_of(args.folder)
    ours = load(folder, args.task, dtype="float32")
    if not isinstance(ours.origin, Origin):
        raise CheckpointError(f"{folder} is of no published family: there is nothing to compare")
    theirs = peer(folder, ours)
    inputs = drawn(ours, theirs, args.length, args.seed)
    with torch.no_grad():
        found, wanted = ours(**inputs), theirs(**inputs)
    table = Table("output", "shape", "largest number", "largest difference", "", box=box.SIMPLE)
    fields = [name for name in FIELDS if both(name, found, wanted)]
    results = [compared(getattr(found, n), wanted[n], real(n, inputs)) for n in fields]
    good = [gap <= args.tolerance * max(1.0, largest) for largest, gap in results]
    for name, (largest, gap), passed in zip(fields, results, good, strict=True):
        shape = " × ".join(map(str, wanted[name].shape))
        table.add_row(name, shape, f"{largest:.4g}", f"{gap:.2e}", "pass" if passed else "FAIL")
    agree = bool(good) and all(good)
    print(f"{folder}: {ours.origin.family}, {type(theirs).__name__}")
    Console().print(table, end="")
    print("pass" if agree else "FAIL", f"at a tolerance of {args.tolerance:g}")
    return 0 if agree else 1


def peer(folder: Path, ours: Model) -> Any:
    """The model of the same folder in Hugging Face's library, in float32.

    What the folder has no weights for, a fresh head, both have from here.
    """
    theirs, missing = None, {"everything"}
    kind = peer_class(ours.origin)
    if (folder / "config.json").is_file():
        theirs, missing = peer_loaded(kind, folder)
    if missing:
        print(f"not in the folder, so written from here: {', '.join(sorted(missing)[:5])}")
        with tempfile.TemporaryDirectory() as scratch:
            ours.save_pretrained(scratch, "huggingface")
            theirs, _ = peer_loaded(kind, Path(scratch))
    assert theirs is not None
    return theirs.float().eval()


def peer_class(origin: Any) -> Any:
    """The class there that has a family's architecture."""
    from anyformer.checkpoint.family import FAMILIES

    try:
        import transformers
    except ImportError as error:
        raise CheckpointError(
            "verify compares with Hugging Face's library, which is not here: "
            "pip install transformers"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    name = FAMILIES[origin.family].tasks[origin.task].architecture
    kind = getattr(transformers, name, None)
    if kind is None:
        raise CheckpointError(
            f"transformers {transformers.__version__} has no {name}: install a version that has "
            "it, or choose another --task"
        )
    return kind


def peer_loaded(kind: Any, folder: Path) -> tuple[Any, set[str]]:
    """Their model of a folder, and the keys that it lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, about = kind.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    return model, set(about["missing_keys"])


def drawn(ours: Model, theirs: Any, length: int, seed: int) -> dict[str, Tensor]:
    """Random inputs of a batch of four, of which three are padded on the right."""
    import torch

    from anyformer import spec as S

    spec, draw = ours.spec, torch.Generator().manual_seed(seed)
    if isinstance(spec.head, S.Choices | S.Double):
        flat = drawn_ids(spec, theirs, length, draw)
        if isinstance(spec.head, S.Double):  # which reads padding there
            flat.pop("attention_mask")
        return {key: x.view(ROWS // 2, 2, -1) for key, x in flat.items()}
    reads = spec if spec.encoder is None else spec.encoder
    source = reads.embed.source
    if isinstance(source, S.Tokens):
        inputs = drawn_ids(reads, theirs, length, draw)
    else:
        config = theirs.config
        config = config.encoder if spec.encoder is not None else config
        shape = (ROWS, config.num_channels, config.image_size, config.image_size)
        inputs = {"pixel_values": torch.randn(shape, generator=draw)}
    if spec.encoder is not None:
        ids = drawn_ids(spec, theirs, max(length // 2, 1), draw)["input_ids"]
        inputs["decoder_input_ids"] = ids
    return inputs


def drawn_ids(spec: Any, theirs: Any, length: int, draw: Any) -> dict[str, Tensor]:
    """Ids without the padding's and a mask; the rows are shorter and shorter."""
    import torch

    vocab, said = spec.embed.source.vocab, theirs.config.to_dict()
    tables = (said.get("max_position_embeddings"), getattr(spec.embed.position, "length", None))
    length = max(min([length, *(int(most) - 2 for most in tables if most)]), 1)
    pad = said.get("pad_token_id")
    ids = torch.randint(0, vocab, (ROWS, length), generator=draw)
    ids = torch.where(ids == pad, (ids + 1) % vocab, ids) if pad is not None else ids
    sizes = torch.tensor([max(length * (ROWS - i) // ROWS, 1) for i in range(ROWS)])
    mask = (torch.arange(length) < sizes[:, None]).long()
    return {"input_ids": ids.where(mask.bool(), pad or 0), "attention_mask": mask}


def both(name: str, found: Any, wanted: Any) -> bool:
    """Whether both sides have an output."""
    return getattr(found, name, None) is not None and wanted.get(name) is not None


def real(name: str, inputs: dict[str, Tensor]) -> Tensor | None:
    """Which positions (B, N) of an output count: padding does not."""
    mask = inputs.get("attention_mask")
    decoded = "decoder_input_ids" in inputs or name == "pooler_output"
    return None if decoded or mask is None or mask.ndim != 2 else mask.bool()


def compared(found: Tensor, wanted: Tensor, keep: Tensor | None) -> tuple[float, float]:
    """The largest number and the largest difference."""
    if found.shape != wanted.shape:
        return float(wanted.abs().max()), float("inf")
    if keep is not None and wanted.ndim > 1 and wanted.shape[:2] == keep.shape:
        found, wanted = found[keep], wanted[keep]
    gap = (found - wanted).abs().max()
    return float(wanted.abs().max()), float(gap) if gap.isfinite() else float("inf")
