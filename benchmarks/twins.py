"""The models that race in `families`, ours and their peers of the same sizes, without dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from anyformer import spec as S
from anyformer.checkpoint import families
from anyformer.checkpoint.family import FAMILIES as FORMATS
from anyformer.objectives.base import IGNORED, Batch, Objective
from anyformer.objectives.causal import NextToken
from anyformer.objectives.image import ImageClassification
from anyformer.recipes import recipe

assert families  # importing it makes the formats known
MASKED = 0.15  # of the tokens of a row
TINY = {"dim": 32, "depth": 2, "heads": 2, "vocab": 300}
Options = dict[str, Any]  # of a configuration of transformers
STILL: Options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NO_DROPOUT: Options = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
ENDS: Options = {"bos_token_id": 0, "eos_token_id": 1, "use_cache": False}
BASE: Options = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072,
}  # fmt: skip
SMALL: Options = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64,
}  # fmt: skip
PAIR: Options = {"d_model": 768, "use_cache": False} | {
    f"{side}_{field}": value
    for side in ("encoder", "decoder")
    for field, value in (("layers", 6), ("attention_heads", 12), ("ffn_dim", 3072))
}
SMALL_PAIR: Options = {"vocab_size": 300, "d_model": 32} | {
    f"{side}_{field}": value
    for side in ("encoder", "decoder")
    for field, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 64))
}


@dataclass(frozen=True)
class Family:
    """A model of ours and its peers, and the rows that they read."""

    name: str
    ours: Callable[[bool], S.Model]  # tiny or not
    theirs: Callable[[S.Model], nn.Module]  # of the same sizes
    rows: int
    length: int = 0  # tokens of a row; images have their own
    masked: bool = False
    paired: bool = False
    hand: bool = False  # a minimal model written by hand beside
    graph: bool = False  # beside, steps of ours as one CUDA graph
    compiled: bool = False  # the peer compiled too, on a GPU, without being asked for
    float8: bool = False  # beside, ours with wide maps in float8

    def batch(self, spec: S.Model, device: str, tiny: bool) -> Batch:
        """Random tokens, or images and their classes."""
        rows, length = (2, 16) if tiny else (self.rows, self.length)
        source = spec.embed.source
        if isinstance(source, S.Patches):
            pixels = torch.randn(rows, source.channels, source.image, source.image)
            found = {"pixel_values": pixels, "labels": torch.randint(2, (rows,))}
            return {name: x.to(device) for name, x in found.items()}
        assert isinstance(source, S.Tokens)
        draw = lambda: torch.randint(4, source.vocab, (rows, length))
        ids, labels = draw(), draw()
        if self.masked:
            labels = torch.where(torch.rand(rows, length) < MASKED, ids, IGNORED)
        found = {"input_ids": ids, "labels": labels}
        if self.paired:
            found["decoder_input_ids"] = draw()
        return {name: ids.to(device) for name, ids in found.items()}

    def objective(self, spec: S.Model) -> Objective:
        """What a step of ours learns."""
        if isinstance(spec.embed.source, S.Patches):
            return ImageClassification(labels=("no", "yes")).bind(None, spec)
        return NextToken(cross=True)


def sizes(spec: S.Model) -> dict[str, int]:
    first = spec.stack.block[0].branch
    assert isinstance(first, S.Attention) and isinstance(spec.embed.source, S.Tokens)
    sizes = {"dim": spec.dim, "depth": spec.stack.depth, "heads": first.heads}
    return {**sizes, "vocab": spec.embed.source.vocab}


def _hf(name: str, config: str, **options: Any) -> nn.Module:
    import transformers

    made = getattr(transformers, config)(**options)
    return getattr(transformers, name)(made)


def _gpt2(spec: S.Model) -> nn.Module:
    size = sizes(spec)
    return _hf(
        "GPT2LMHeadModel", "GPT2Config", vocab_size=size["vocab"], n_embd=size["dim"],
        n_layer=size["depth"], n_head=size["heads"], n_positions=1024, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def _encoder(name: str, config: str, spec: S.Model, **more: Any) -> nn.Module:
    size = sizes(spec)
    return _hf(
        name, config, vocab_size=size["vocab"], hidden_size=size["dim"],
        num_hidden_layers=size["depth"], num_attention_heads=size["heads"],
        intermediate_size=4 * size["dim"], max_position_embeddings=512,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more,
    )  # fmt: skip


def _bert(spec: S.Model) -> nn.Module:
    return _encoder("BertForMaskedLM", "BertConfig", spec)


def _deberta(spec: S.Model) -> nn.Module:
    return _encoder(
        "DebertaV2ForMaskedLM", "DebertaV2Config", spec, relative_attention=True,
        position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, type_vocab_size=0,
        pos_att_type=["p2c", "c2p"], max_relative_positions=-1, position_biased_input=False,
    )  # fmt: skip


def _t5(spec: S.Model) -> nn.Module:
    size, feed = sizes(spec), spec.stack.block[-1].branch
    assert isinstance(feed, S.FeedForward)
    return _hf(
        "T5ForConditionalGeneration", "T5Config", vocab_size=size["vocab"],
        d_model=size["dim"], d_kv=size["dim"] // size["heads"], d_ff=feed.hidden,
        num_layers=size["depth"], num_decoder_layers=size["depth"], num_heads=size["heads"],
        dropout_rate=0.0, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip


def _words(spec: S.Model, **head: Any) -> S.Model:
    """With a head over the vocabulary, as masked tokens are told."""
    return S.override(spec, "head", S.Vocabulary(tied=True, bias=True, dense=True, **head))


def _our_gpt2(**size: int) -> Callable[[bool], S.Model]:
    return lambda tiny: recipe("gpt2", length=1024, dropout=0.0, **(TINY if tiny else size))


def _our_bert(tiny: bool) -> S.Model:
    spec = recipe("bert", dropout=0.0, **({**TINY, "length": 512} if tiny else {}))
    return _words(spec, norm=S.LayerNorm(eps=1e-12))


def _our_deberta(tiny: bool) -> S.Model:
    spec = recipe("deberta-v3", dropout=0.0, **(TINY if tiny else {}))
    return _words(spec, norm=S.LayerNorm(eps=1e-7))


def _our_t5(tiny: bool) -> S.Model:
    base = {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072}
    return recipe("t5", dropout=0.0, **({**TINY, "hidden": 64} if tiny else base))


def twin(name: str, model: str, options: Options, tiny: Options, **kind: Any) -> Family:
    """A class of transformers, and ours as its configuration is read."""

    def config(small: bool) -> Any:
        import transformers

        return getattr(transformers, f"{model.split('For')[0]}Config")(
            **{**options, **(tiny if small else {})}
        )

    def spec(small: bool) -> S.Model:
        found = config(small)
        known = FORMATS[found.model_type]
        task = next(task for task, one in known.tasks.items() if one.architecture == model)
        return known.spec_of(found.to_dict(), task)

    def theirs(spec: S.Model) -> nn.Module:
        import transformers

        return getattr(transformers, model)(config(spec.dim == TINY["dim"]))

    return Family(name, spec, theirs, **kind)


FAMILIES = (
    Family("gpt2", _our_gpt2(), _gpt2, 32, 1024, hand=True, graph=True, compiled=True),
    Family("bert", _our_bert, _bert, 64, 512, masked=True, graph=True),
    Family("deberta-v3", _our_deberta, _deberta, 16, 512, masked=True, graph=True),
    Family("t5", _our_t5, _t5, 16, 1024, paired=True, graph=True),
    Family("gpt2-350m", _our_gpt2(dim=1024, depth=24, heads=16), _gpt2, 16, 1024, hand=True,
           compiled=True, graph=True),
    Family("gpt2-1.3b", _our_gpt2(dim=2048, depth=24, heads=16), _gpt2, 8, 1024, hand=True,
           compiled=True, graph=True, float8=True),
    twin("roberta", "RobertaForMaskedLM", STILL | {"max_position_embeddings": 514}, SMALL,
         rows=64, length=512, masked=True),
    twin("electra", "ElectraForMaskedLM", STILL | BASE | {"embedding_size": 768}, SMALL, rows=64,
         length=512, masked=True),
    twin("albert", "AlbertForMaskedLM", STILL | BASE, SMALL, rows=64, length=512, masked=True),
    twin("distilbert", "DistilBertForMaskedLM", {"dropout": 0.0, "attention_dropout": 0.0},
         {"vocab_size": 300, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
         rows=64, length=512, masked=True),
    twin("modernbert", "ModernBertForMaskedLM", {},
         SMALL | dict.fromkeys(("pad_token_id", "cls_token_id", "bos_token_id"), 0)
         | dict.fromkeys(("sep_token_id", "eos_token_id"), 1), rows=64, length=512, masked=True),
    twin("bart", "BartForConditionalGeneration", NO_DROPOUT | PAIR, SMALL_PAIR, rows=32,
         length=512, paired=True),
    twin("gpt-neo", "GPTNeoForCausalLM", {
        "hidden_size": 768, "num_layers": 12, "num_heads": 12, "resid_dropout": 0.0,
        "embed_dropout": 0.0, "attention_dropout": 0.0, "use_cache": False,
        "attention_types": [[["global", "local"], 6]], "bos_token_id": 0, "eos_token_id": 0,
    }, {"vocab_size": 300, "hidden_size": 32, "num_layers": 2, "num_heads": 2,
        "attention_types": [[["global", "local"], 1]]}, rows=32, length=1024),
    twin("gpt-neox", "GPTNeoXForCausalLM", BASE | ENDS, SMALL, rows=32, length=1024),
    twin("opt", "OPTForCausalLM", NO_DROPOUT | ENDS,
         SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 32}, rows=32, length=1024),
    twin("llama", "LlamaForCausalLM", BASE | ENDS | {"intermediate_size": 2048}, SMALL, rows=32,
         length=1024),
    twin("vit", "ViTForImageClassification", STILL, SMALL | {"image_size": 32, "patch_size": 8},
         rows=128),
)  # fmt: skip
