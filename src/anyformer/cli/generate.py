"""`anyformer generate`: a model writes on, into the terminal, as its tokens come."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from anyformer.errors import InputError

if TYPE_CHECKING:
    from anyformer.data.tokenizer import Tokenizer
    from anyformer.model.model import Model

EXAMPLE = """\
anyformer generate my-gpt2/ "Once upon a time" --temperature 0.8 --top-p 0.95 --seed 1
anyformer generate my-t5/ "translate English to German: Hello" --num-beams 4
anyformer generate my-gpt2/ --chat --stop "User:"
cat story.txt | anyformer generate my-gpt2/ - --max-new-tokens 300"""

NEW = 200  # tokens that are written, where there is room
NUMBERS = {  # flags of numbers, and what they say
    "--temperature": "draw tokens, bolder above 1 and safer below",
    "--top-p": "draw from the likeliest tokens that together have this probability",
    "--min-p": "draw from tokens with this share of the likeliest one's probability",
    "--typical-p": "draw from the tokens of most usual information that have this probability",
    "--entmax-alpha": "draw by α-entmax, as 1.5, in place of softmax",
    "--repetition-penalty": "above 1, tokens that are there already are less likely",
    "--length-penalty": "of beams: above 0, longer texts are better",
}
COUNTS = {
    "--top-k": "draw from the k likeliest tokens",
    "--no-repeat-ngram-size": "no n tokens in a row come twice",
    "--min-new-tokens": "write so many at least",
    "--num-beams": "look for the likeliest text with so many at a time",
    "--num-return-sequences": "write so many texts",
    "--seed": "the same seed gives the same text",
    "--prefill": "read so many tokens of a prompt at a time (default: as memory allows)",
}
DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p", "entmax_alpha", "seed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("model", metavar="MODEL", help="a folder or a name of the hub")
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="what is continued; -, or none: standard input"
    )
    parser.add_argument("--max-new-tokens", type=int, default=NEW, help=f"(default: {NEW})")
    for kind, flags in ((float, NUMBERS), (int, COUNTS)):
        for flag, says in flags.items():
            parser.add_argument(flag, type=kind, help=says)
    parser.add_argument("--sample", action="store_true", help="draw tokens, not the likeliest ones")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end where this is written")
    parser.add_argument("--language", metavar="FROM:TO", help="translate, as en:de (M2M-100)")
    parser.add_argument("--memory", type=int, help="positions that a Transformer-XL remembers")
    parser.add_argument("--draft", metavar="MODEL", help="a smaller model that guesses ahead")
    parser.add_argument(
        "--chat", action="store_true", help="go on with each line of input; nothing is read twice"
    )
    parser.add_argument(
        "--turn", default="{}\n", metavar="TEXT", help="a line of a chat as the model reads it"
    )
    parser.add_argument(
        "--decoder", choices=("auto", "static", "growing"), default="auto",
        help="static is faster once its twin is made (default: auto, static where that pays)",
    )  # fmt: skip
    parser.add_argument("--device", help="as cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--dtype", help="as bfloat16 (default: that of the file)")


def run(args: argparse.Namespace) -> int:
    """Write on."""
    from anyformer.checkpoint import hub, load
    from anyformer.checkpoint.tokenizer import tokenizer
    from anyformer.generate.folder import defaults_of

    if args.chat and (args.draft or args.num_beams or args.num_return_sequences):
        raise InputError("--chat writes one text as it comes: leave beams, texts and draft out")
    if args.decoder != "auto" and (args.chat or args.draft):
        raise InputError("--chat and --draft have decoders of their own: leave --decoder out")
    if args.max_new_tokens < 1:
        raise InputError(f"--max-new-tokens must be at least 1, not {args.max_new_tokens}")
    prompt = None if args.chat else _prompt(args.prompt)
    words = tokenizer(args.model)
    if args.language:
        words = words.with_languages(*_languages(args.language))
    model = load(args.model, dtype=args.dtype, device=_device(args.device))
    options = defaults_of(hub.folder_of(args.model), words) | _options(args, words)
    if args.chat:
        return _chat(model, words, args, options)
    assert prompt is not None
    ids = words.encode(prompt, special=model.encoder is not None)
    if not ids:
        raise InputError("the prompt is empty: give a text to continue")
    for piece in _written(model, words, ids, args, options):
        print(piece, end="", flush=True)
    print()
    return 0


def _prompt(given: str | None) -> str:
    """The prompt, or what standard input holds."""
    if given not in (None, "-"):
        return str(given)
    if given is None and sys.stdin.isatty():
        raise InputError("there is no prompt: give one, or --chat")
    return sys.stdin.read().removesuffix("\n")


def _languages(given: str) -> tuple[str, str]:
    """The language that is read and the one that is written."""
    source, _, target = given.partition(":")
    if not source or not target:
        raise InputError(f"--language {given} is not of the form FROM:TO, as en:de")
    return source, target


def _device(name: str | None) -> str:
    import torch

    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def _options(args: argparse.Namespace, words: Tokenizer) -> dict[str, Any]:
    """The options of generate that flags ask for."""
    names = [flag[2:].replace("-", "_") for flag in (*NUMBERS, *COUNTS)]
    found = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.sample or any(name in found for name in DRAWN):
        found["do_sample"] = True
    if args.stop:
        found |= {"stop_strings": args.stop, "decode": words.decode}
    if args.memory is not None:
        found["mem_len"] = args.memory
    return found


def _written(
    model: Model,
    words: Tokenizer,
    ids: list[int],
    args: argparse.Namespace,
    options: dict[str, Any],
) -> Iterator[str]:
    """Pieces of the text: as tokens come where there is one, else whole texts."""
    from anyformer.checkpoint import load
    from anyformer.generate import generate, stream
    from anyformer.generate.chat import fits
    from anyformer.generate.telling import Telling

    room = fits(model, ids, args.max_new_tokens)
    if room < args.max_new_tokens and args.max_new_tokens != NEW:
        print(f"the model has room for {room} new tokens behind this prompt", file=sys.stderr)
    asked: dict[str, Any] = options | {"max_new_tokens": room}
    if args.draft or asked.get("num_beams", 1) > 1 or asked.get("num_return_sequences", 1) > 1:
        small = load(args.draft, device=_device(args.device)) if args.draft else None
        own = None if args.draft else args.decoder
        found = generate(model, [ids], draft=small, decoder=own, **asked).tolist()
        start = len(ids) if model.encoder is None else 1
        yield "\n\n".join(words.decode(row[start:]) for row in found)
        return
    telling = Telling(words.decode, ids if model.encoder is None else ())
    for step in stream(model, [ids], decoder=args.decoder, **asked):
        yield telling.add(int(step.tokens[0]))
    yield telling.end()


def _chat(model: Model, words: Tokenizer, args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Read lines, answer each, until there are none."""
    from anyformer.generate.chat import Chat
    from anyformer.generate.telling import Telling

    chat = Chat(model, **options)
    first = [args.prompt] if args.prompt not in (None, "-") else []
    for line in _lines(first):
        ids = words.encode(args.turn.replace("{}", line))
        if not ids:
            continue
        telling = Telling(words.decode, ids)
        for token in chat.say(ids, args.max_new_tokens):
            print(telling.add(token), end="", flush=True)
        print(telling.end(), flush=True)
    return 0


def _lines(first: list[str]) -> Iterator[str]:
    """The lines of a chat: the prompt, then those of standard input, asked for in a terminal."""
    yield from first
    asks = "> " if sys.stdin.isatty() else ""
    while True:
        print(asks, end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line.removesuffix("\n")
