"""`anyformer show`: a model's modules, parameters, FLOPs and memory, without building it."""

from __future__ import annotations

import argparse

from anyformer.cli import read
from anyformer.cli.doctor import place_arguments, place_of, reasons
from anyformer.cli.text import columns, in_bytes, tree
from anyformer.errors import InputError
from anyformer.model.census import census
from anyformer.model.count import Count, Part, count, memory
from anyformer.spec import Model, to_json

EXAMPLE = """\
anyformer show bert depth=6 stack.block.0.branch.kv_heads=4 --length 128
anyformer show gpt2 --json > mine.json && anyformer show mine.json --flat
anyformer show t5 --plan --length 1024"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "model", metavar="MODEL", help="a recipe, a JSON file of a spec, or a folder"
    )
    parser.add_argument(
        "settings",
        metavar="key=value",
        nargs="*",
        help="options of the recipe, or dotted paths into the spec, where * is every item",
    )
    parser.add_argument(
        "--length", type=int, help="positions (default: those the model has, or 512)"
    )
    parser.add_argument("--batch", type=int, default=1, help="sequences (default: 1)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the spec as JSON instead")
    form.add_argument("--flat", action="store_true", help="print every parameter's key and shape")
    form.add_argument(
        "--plan", action="store_true",
        help="print which backend runs each attention here, and why not a faster one",
    )  # fmt: skip
    place_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the model."""
    if not args.plan and (args.device or args.dtype):
        raise InputError("--device and --dtype are for --plan: add it, or leave them out")
    spec = read.model(args.model, args.settings)
    if args.json:
        print(to_json(spec))
    elif args.flat:
        shapes = census(spec).keys()
        print(*columns([(key, " × ".join(map(str, s))) for key, s in shapes.items()]), sep="\n")
    elif args.plan:
        print(*plan_of(spec, args), sep="\n")
    else:
        costs = costs_of(spec, args.length, args.batch)
        print(*tree(census(spec)), "", *costs, sep="\n")
    return 0


def plan_of(spec: Model, args: argparse.Namespace) -> list[str]:
    """The lines of a table of attentions and what runs them, then the reasons."""
    from anyformer.laws.ways import ways  # torch's modules, which other forms don't need

    place = place_of(args)
    found = ways(spec, args.length, args.batch, **place)
    rows = [("work", "attention asks for", "queries", "keys", "runs on")]
    rows += [(w.work, w.asks, f"{w.queries:,}", f"{w.keys:,}", w.backend) for w in found]
    title = f"on {place['device']}, {args.dtype_name}"
    return [title, "", *columns(rows), "", *reasons(found)]


def costs_of(spec: Model, length: int | None, batch: int) -> list[str]:
    """The lines of a table of parameters and FLOPs by part, and of the memory in float32."""
    counted = count(spec, length, batch)
    needs = memory(spec, counted.length, batch)
    rows = [("part", "parameters", "share", "forward FLOPs", "share")]
    rows += [_row(part, counted) for part in counted.parts]
    rows.append(_row(Part("total", counted.parameters, counted.flops), counted))
    memories = [
        ("parameters", in_bytes(needs.parameters)),
        ("key-value cache", in_bytes(needs.cache)),
        ("activations, training (estimate)", in_bytes(needs.activations)),
    ]
    return [
        *columns(rows),
        "",
        f"{counted.embedding:,} parameters in lookup tables, {counted.non_embedding:,} elsewhere",
        "",
        f"memory in float32 at length {counted.length:,}, batch {batch:,}",
        *columns(memories),
    ]


def _row(part: Part, whole: Count) -> tuple[str, ...]:
    return (
        part.name,
        f"{part.parameters:,}",
        f"{part.parameters / max(whole.parameters, 1):.1%}",
        f"{part.flops:,}",
        f"{part.flops / max(whole.flops, 1):.1%}",
    )
