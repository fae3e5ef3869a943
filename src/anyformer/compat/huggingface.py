"""transformers' class names over our models: `from anyformer.compat.huggingface import BertModel`.

Every name comes from the families' tables: <Name>Config, the class of each task, AutoConfig,
AutoModel, AutoModelFor…, AutoTokenizer. No class has a module of its own: an instance is a
Model, and its class says which family and task it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.checkpoint import load, swap
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.native import Origin
from anyformer.compat.hf_config import Config, config_class, stem
from anyformer.compat.hf_pairs import joined
from anyformer.errors import CheckpointError, InputError, known_or_raise
from anyformer.model.inputs import signed
from anyformer.model.model import Model
from anyformer.parts.init import initialise

AUTO = {  # name -> task; None: the bare model, or whatever the folder has
    "AutoModel": "base",
    "AutoModelForPreTraining": "pretraining",
    "AutoModelForMaskedLM": "masked-lm",
    "AutoModelForCausalLM": "causal-lm",
    "AutoModelForSeq2SeqLM": "seq2seq-lm",
    "AutoModelForNextSentencePrediction": "next-sentence",
    "AutoModelForSequenceClassification": "sequence-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForImageClassification": "image-classification",
    "AutoModelForMaskedImageModeling": "masked-image",
}
LABELS = {  # task -> the labels that a batch for it has, where not `labels`
    "base": (),
    "encoder": (),
    "masked-image": (),
    "question-answering": (),  # start_positions and end_positions, which the class's name says
    "beam-question-answering": (),
    "double-heads": ("labels", "mc_labels"),
}
SATISFIED = {  # options of from_pretrained that are always so here
    "use_safetensors": True,
    "trust_remote_code": False,
    "low_cpu_mem_usage": True,
    "weights_only": True,
}


class Named(Model):
    """A model under the name of a transformers class; abstract."""

    family: ClassVar[str]
    task: ClassVar[str | None]  # None: several, the config says which
    generation_config: Any = None  # PEFT looks for it
    _stated: tuple[S.Model, Config] | None = None  # the config, and of which spec

    def __init__(self, config: Config):
        fields = config.to_dict()
        known = FAMILIES[self.family]
        task = known.task(self.task, fields)
        super().__init__(known.spec_of(fields, task))
        self.origin = Origin(self.family, task, fields)

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **options: Any) -> Model:
        """The model of a folder or hub name, in evaluation mode."""
        return _pretrained(name, cls.family, cls.task, options)

    @classmethod
    def from_encoder_decoder_pretrained(
        cls, encoder: str | os.PathLike[str], decoder: str | os.PathLike[str]
    ) -> Model:
        """Two pretrained models as one; their cross-attention starts fresh."""
        if not cls.family.endswith("encoder-decoder"):
            raise InputError(
                "from_encoder_decoder_pretrained is of EncoderDecoderModel and Vision…"
            )
        model = joined(cls.family, encoder, decoder)
        model.__class__ = cls
        return model

    @property
    def config(self) -> Config:
        """The config of this model's spec, the same object as long as the spec is."""
        if self._stated is None or self._stated[0] is not self.spec:
            assert isinstance(self.origin, Origin)
            family, task = FAMILIES[self.origin.family], self.origin.task
            fields = family.config_of(self.spec, task, self.origin.config)
            self._stated = (self.spec, config_class(self.origin.family)(**fields))
        return self._stated[1]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return next(self.parameters()).dtype

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """How many numbers the model learns, with or without its tables of vectors."""
        tables = [m for m in self.modules() if isinstance(m, nn.Embedding)]
        left_out = {id(m.weight) for m in tables if exclude_embeddings}
        counted = [p for p in self.parameters() if id(p) not in left_out]
        return sum(p.numel() for p in counted if p.requires_grad or not only_trainable)

    def get_input_embeddings(self) -> nn.Module | None:
        """The token table."""
        return self.embed.token

    def resize_token_embeddings(self, count: int) -> nn.Module | None:
        """Give the token table, and the head's, another number of rows; old rows stay."""
        known = S.override(self.spec, "embed.source.vocab", count)
        changed = swap(self, known)
        self.spec, self.embed, self.head = changed.spec, changed.embed, changed.head
        self.report = changed.report
        return self.embed.token

    def prepare_inputs_for_generation(self, input_ids: Tensor, **given: Any) -> dict[str, Any]:
        """The arguments of the next call; `generate` doesn't ask, PEFT looks for the name."""
        return {"input_ids": input_ids, **given}

    def init_weights(self) -> None:
        """Draw all weights anew."""
        for model in (self, self.encoder) if self.encoder is not None else (self,):
            initialise(model, model.spec.init, model.spec.dim, len(model.stack.schedule))


def _pretrained(
    name: str | os.PathLike[str], family: str | None, task: str | None, options: dict[str, Any]
) -> Model:
    """Load a model and give it the class of its family and task."""
    given = dict(options)
    for key, value in SATISFIED.items():
        if given.pop(key, value) != value:
            raise InputError(f"from_pretrained: {key} is always {value} here; leave it out")
    dtype = given.pop("dtype", given.pop("torch_dtype", None))
    device = given.pop("device_map", None)
    count = given.pop("num_labels", None)
    labels = given.pop("id2label", None)
    given.pop("label2id", None)  # the inverse of id2label
    revision = given.pop("revision", None)
    if given:
        taken = "dtype, device_map, num_labels, id2label, label2id, revision"
        raise InputError(f"from_pretrained takes {taken}, not {', '.join(sorted(given))}")
    found = config_of(name, revision).model_type
    if family is not None and found != family:
        raise CheckpointError(
            f"{name} holds a {found} model, not {family}: use {stem(FAMILIES[found])}Model and "
            "its kin, or AutoModel…"
        )
    if task is not None:
        known_or_raise(task, FAMILIES[found].tasks, f"task of {found}", CheckpointError)
    model = load(
        name,
        task,
        dtype=None if dtype == "auto" else dtype,
        device=None if device == "auto" else device,
        revision=revision,
        labels=list(labels.values()) if labels is not None else count,
    )
    assert isinstance(model.origin, Origin)
    model.__class__ = model_class(FAMILIES[found].tasks[model.origin.task].architecture)
    return model


def config_of(name: str | os.PathLike[str], revision: str | None = None) -> Config:
    """The config of a folder or hub name."""
    return Config.from_pretrained(name, revision=revision)


class Auto:
    """A class that finds out which family a folder or a config is of; abstract."""

    task: ClassVar[str]

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **options: Any) -> Model:
        """The model of a folder or hub name with the head of this class's task."""
        known = FAMILIES[config_of(name, options.get("revision")).model_type]
        several = cls.task not in known.tasks and known.base not in known.tasks
        return _pretrained(name, None, None if several else _own(cls.task, known.base), options)

    @classmethod
    def from_config(cls, config: Config) -> Model:
        """A fresh model of a config with the head of this class's task."""
        known = FAMILIES[config.model_type]
        task = known_or_raise(
            _own(cls.task, known.base), known.tasks, f"task of {config.model_type}", CheckpointError
        )
        return model_class(known.tasks[task].architecture)(config)


def _own(task: str, base: str) -> str:
    return base if task == "base" else task


def _architectures() -> dict[str, tuple[str, str | None]]:
    """transformers' class names: the family and the task, None where several share a class."""
    found: dict[str, tuple[str, str | None]] = {}
    for family in FAMILIES.values():
        for name, task in family.tasks.items():
            several = task.architecture in found
            found[task.architecture] = (family.model_type, None if several else name)
    return found


def _labels(family: str, task: str | None) -> tuple[str, ...]:
    """The labels that a batch for a task has."""
    if task == "pretraining":
        head = FAMILIES[family].spec_of({"model_type": family}, task).head
        assert isinstance(head, S.Pretraining)
        beside = "next_sentence_label" if head.asks == "next" else "sentence_order_label"
        return ("labels", beside)
    return LABELS.get(task or "", ("labels",))


def _forward(labels: tuple[str, ...]) -> Callable[..., Any]:
    """A model's forward with a signature of its own, where transformers' Trainer finds labels."""

    @signed(*labels)
    def forward(self: Model, input_ids: Tensor | None = None, **named: Any) -> Any:
        """Read one batch; see anyformer.model.inputs.Inputs for the arguments."""
        return Model.forward(self, input_ids, **named)

    return forward


_MADE: dict[str, type] = {}


def model_class(name: str) -> type[Any]:
    """The class of that name, the same each time."""
    if name not in _MADE:
        family, task = _architectures()[name]
        said = {"family": family, "task": task, "__module__": __name__}
        said |= {
            "config_class": config_class(family),
            "__doc__": f"{family}, {task or 'any task'}.",
            "forward": _forward(_labels(family, task)),
        }
        _MADE[name] = type(name, (Named,), said)
    return _MADE[name]


def _auto(name: str) -> type:
    said = {"task": AUTO[name], "__module__": __name__, "__doc__": f"Any family, {AUTO[name]}."}
    return _MADE.setdefault(name, type(name, (Auto,), said))


def _configs() -> dict[str, str]:
    return {f"{stem(f)}Config": f.model_type for f in FAMILIES.values()}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "AutoConfig":
        return Config
    if name == "AutoTokenizer":  # needs the library that the extra `text` brings
        return import_module("anyformer.compat.hf_tokenizer").AutoTokenizer
    known_or_raise(name, __dir__(), "name of transformers here:", AttributeError)
    if name in AUTO:
        return _auto(name)
    return config_class(_configs()[name]) if name in _configs() else model_class(name)


def __dir__() -> list[str]:
    return sorted([*AUTO, "AutoConfig", "AutoTokenizer", *_configs(), *_architectures()])
