"""Who descends from whom: branches, and in each the recipes under the one that they change."""

from __future__ import annotations

from collections.abc import Iterator

TREE = """
plain stacks
  encoder
  decoder
  encoder-decoder
encoders
  bert
    distilbert
    roberta
      xlm-roberta
      roberta-prelayernorm
    albert
    electra
    big-bird
    xlm
    deberta
      deberta-v2
        deberta-v3
    modernbert
decoders
  gpt
    gpt2
      ctrl
      gpt3
        opt
      gpt-neo
        gpt-j
          gpt-neox
      llama
        mistral
        qwen2
          qwen3
        gemma2
          gemma3
  transformer-xl
encoder-decoders
  bert2bert
  bart
    mbart
    m2m-100
    bigbird-pegasus
  t5
    t5-1-1
vision
  vit
recursive
  recursive-roberta
  recursive-gpt2
"""


def lines() -> Iterator[tuple[int, str]]:
    """Each line's level, 0 for branches, and its name."""
    for line in TREE.strip().splitlines():
        name = line.lstrip()
        yield (len(line) - len(name)) // 2, name
