"""`anyformer tokenizer`: train one on texts, or see what one does to a text."""

from __future__ import annotations

import argparse
from pathlib import Path

from anyformer.cli import data
from anyformer.errors import DataError

EXAMPLE = """\
anyformer tokenizer train bpe --data my-texts/ --vocab 8000 --out my-tokenizer
anyformer tokenizer train wordpiece --style bert --data corpus.jsonl --out my-tokenizer
anyformer tokenizer show my-tokenizer "some text" """.rstrip()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("action", choices=["train", "show"], help="what to do")
    parser.add_argument("words", nargs="*", metavar="KIND|FOLDER TEXT", help="train: bpe, ...")
    parser.add_argument("--data", nargs="+", metavar="PATH", help="train: texts, or a data set")
    parser.add_argument("--vocab", type=int, default=8000, help="ids in all (default: 8000)")
    parser.add_argument("--style", help="gpt, bert, t5, roberta, bart or plain")
    parser.add_argument("--extra", nargs="+", default=[], help="more special tokens")
    parser.add_argument("--sentinels", type=int, help="how many <extra_id_N> (t5: 100)")
    parser.add_argument("--cased", action="store_true", help="wordpiece: keep capitals")
    parser.add_argument("--out", metavar="DIR", help="train: the folder to write")
    data.reading(parser)


def run(args: argparse.Namespace) -> int:
    """Do what is asked."""
    return _train(args) if args.action == "train" else _show(args)


def _train(args: argparse.Namespace) -> int:
    from anyformer.data.corpus import texts_of
    from anyformer.data.train_tokenizer import MAKERS, train

    if len(args.words) != 1 or not args.out:
        raise DataError(f"name one kind of {', '.join(MAKERS)}, and --out DIR")
    if Path(args.out, "tokenizer.json").exists():
        raise DataError(f"{args.out} has a tokenizer already: choose another folder")
    if not args.data and args.words[0] != "bytes":
        raise DataError("tokenizer train needs --data PATH or a data set's name")
    given = [Path(word) for word in args.data or []]
    what = args.data[0] if len(given) == 1 else given
    texts = texts_of(what, **data.options(args)).texts() if args.data else ()
    more = {"sentinels": args.sentinels} if args.sentinels is not None else {}
    more |= {"lowercase": False} if args.cased else {}
    made = train(args.words[0], texts, args.vocab, args.style, args.extra, **more)
    made.save(args.out)
    print(f"{args.out}: {made!r}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from anyformer.data.tokenizer import Tokenizer

    if not args.words:
        raise DataError("name the folder of a tokenizer, and a text to try it on")
    tokenizer = Tokenizer.load(args.words[0])
    print(tokenizer)
    for text in args.words[1:]:
        ids = tokenizer.encode(text)
        print(" ".join(repr(token)[1:-1] for token in tokenizer.tokens(text)))
        print(f"{len(ids)} tokens: {ids}\nback: {tokenizer.decode(ids)!r}")
    return 0
