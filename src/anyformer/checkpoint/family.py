"""A family: one published checkpoint format, read both ways from tables.

`fields` pairs config.json with the recipe's options and the spec's paths, `body` gives the key
rows of embedding and stack, `tasks` the heads. A spec that the fields can't say is refused, not
written wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint.keymap import Row
from anyformer.checkpoint.labels import with_head
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.recipes import recipe
from anyformer.spec.walk import explicit

Config = dict[str, Any]
Rows = Callable[[S.Model], Iterator[Row]]
Weights = Mapping[str, Tensor]  # read from disk one at a time
same = lambda value: value


@dataclass(frozen=True)
class Field:
    """A field of config.json: its default there, and where the spec keeps it.

    `option` is the recipe's option that it sets; else it is written to all of `paths`. It is read
    back from the first path; without any, a joint writes it.
    """

    key: str
    default: Any
    paths: tuple[str, ...]
    option: str | None = None
    read: Callable[[Any], Any] = same  # from the config's value to the spec's
    write: Callable[[Any], Any] = same  # and back
    nullable: bool = False  # null says None there, not the default

    def value(self, config: Config) -> Any:
        """What a config.json says, as the spec has it."""
        given = config.get(self.key)
        stated = given is not None or (self.nullable and self.key in config)
        return self.read(given if stated else self.default)


@dataclass(frozen=True)
class Joint:
    """What several fields of config.json say together, applied after the single fields."""

    read: Callable[[S.Model, Config], S.Model]
    write: Callable[[S.Model], Config]
    undo: Callable[[S.Model], S.Model] = same  # to the form in which the single fields look


def size(key: str, default: Any, option: str, path: str | None = None) -> Field:
    """A field that is an option of the recipe."""
    return Field(key, default, (path or option,), option)


def at(key: str, default: Any, *paths: str) -> Field:
    """A field that is the value at one or more paths."""
    return Field(key, default, paths)


def with_defaults(
    fields: tuple[Field, ...], leave: tuple[str, ...] = (), **defaults: Any
) -> tuple[Field, ...]:
    """Fields with other defaults where they are named, without those that are left out."""
    kept = (f for f in fields if f.key not in leave)
    return tuple(replace(f, default=defaults.get(f.key, f.default)) for f in kept)


def changed(tree: Any, values: Mapping[str, Any]) -> Any:
    """A spec or a part of one with the values at these paths."""
    for path, value in values.items():
        tree = S.override(tree, path, value)
    return tree


def as_it_is(config: Config, weights: Weights) -> Config:
    """The weights say nothing about the spec."""
    return config


def no_rows(spec: S.Model) -> Iterator[Row]:
    """No rows at all."""
    yield from ()


@dataclass(frozen=True)
class Part:
    """One side of an encoder-decoder as a model by itself, and its key rows."""

    take: Callable[[S.Model], S.Model]
    rows: Rows
    leaves: str  # how the keys of the other side start
    says: Config  # fields that the class itself sets
    alias: Mapping[str, str] = field(default_factory=dict)  # a key of the whole -> of the part


@dataclass(frozen=True)
class Task:
    """A head: the class that carries it, its spec, its key rows (without the body's prefix)."""

    architecture: str
    head: Callable[[S.Model, Config], S.Head | None]
    rows: Rows = no_rows
    tied: tuple[str, ...] = ()  # their keys that repeat others and are left out of files
    prefix: str | None = None  # of the body's keys, where not the family's
    part: Part | None = None  # where the file holds one side of the model alone
    older: Mapping[str, str] = field(default_factory=dict)  # a key -> what older files have for it
    alias: Mapping[str, str] = field(default_factory=dict)  # a key of the body -> in the file


@dataclass(frozen=True)
class Family:
    """One model_type."""

    model_type: str
    recipe: str
    prefix: str  # of the body's keys where there is a head
    fields: tuple[Field, ...]
    body: Rows
    tasks: dict[str, Task]
    base: str = "base"  # the task without a prefix
    ignore: tuple[str, ...] = ()  # endings of keys that hold nothing to load
    only: Config = field(default_factory=dict)  # fields of which one value alone has a part here
    joint: tuple[Joint, ...] = ()
    settle: Callable[[Config, Weights], Config] = as_it_is  # what the weights say of the spec

    @property
    def lead(self) -> str:
        """What stands before the body's keys where there is a head."""
        return f"{self.prefix}." if self.prefix else ""

    def lead_of(self, task: str) -> str:
        """What stands before the body's keys with the head of a task."""
        own = self.tasks[task].prefix
        lead = self.lead if own is None else f"{own}."
        return "" if task == self.base else lead

    def task(self, name: str | None, config: Config) -> str:
        """A task by name, or the one that config.json names as its architecture."""
        if name is not None:
            return known_or_raise(name, self.tasks, f"task of {self.model_type}", CheckpointError)
        named = (config.get("architectures") or [None])[0]
        by_class = {task.architecture: key for key, task in self.tasks.items()}
        return by_class[named] if named in by_class else self.base

    def spec_of(self, config: Config, task: str) -> S.Model:
        """The spec of a config.json with the head of a task."""
        part = self.tasks[task].part
        for key, allowed in self.only.items():
            if config.get(key, allowed) != allowed and not (part and key in part.says):
                raise CheckpointError(
                    f"config.json: {self.model_type} with {key}={config[key]!r} has no part here "
                    f"yet; {key}={allowed!r} has"
                )
        options = {
            f.option: f.value(config)
            for f in self.fields
            if f.option is not None and (f.nullable or f.value(config) is not None)
        }
        body = S.override(recipe(self.recipe, **options), "head", None)
        for f in self.fields:
            value = f.value(config) if f.option is None else None
            for path in f.paths if value is not None else ():
                body = S.override(body, path, value)
        for joint in self.joint:
            body = joint.read(body, config)
        body = body if part is None else part.take(body)
        return S.check(S.override(body, "head", self.tasks[task].head(body, config)))

    def config_of(self, spec: S.Model, task: str, kept: Config) -> Config:
        """The config.json of a spec; kept fields that say nothing about the spec stay."""
        part = self.tasks[task].part  # the fields of the whole are the kept ones
        config = self._fields(spec, kept) if part is None else kept | part.says
        config["model_type"] = self.model_type
        config["architectures"] = [self.tasks[task].architecture]
        if self.spec_of(config, task).head != spec.head:
            config = with_head(config, spec.head)
        changes = S.diff(explicit(self.spec_of(config, task)), explicit(spec))
        if changes:
            raise CheckpointError(
                f"a {self.model_type} config.json can't say {changes[0]}"
                f"{f' and {len(changes) - 1} more' if len(changes) > 1 else ''}; "
                "save it in our own format: save_pretrained(folder, format='anyformer')"
            )
        return config

    def _fields(self, spec: S.Model, kept: Config) -> Config:
        """Kept fields and what single fields and joints say of a spec."""
        config: Config = dict(kept)
        plain = spec
        for joint in self.joint:
            plain = joint.undo(plain)
        spelt = explicit(plain)
        for f in (f for f in self.fields if f.paths):
            now = S.get(plain, f.paths[0])
            now = S.get(spelt, f.paths[0]) if now is None and not f.nullable else now
            if f.key not in kept or f.value(kept) != now:  # else in the words that were read
                config[f.key] = f.write(now)
        for joint in self.joint:
            config |= joint.write(spec)
        return config

    def rows(self, spec: S.Model, task: str) -> list[Row]:
        """All rows of a model with the head of a task."""
        prefix, part, alias = self.lead_of(task), self.tasks[task].part, self.tasks[task].alias
        body = [
            Row(tuple(alias.get(k, prefix + k) for k in item.theirs), item.ours, item.steps)
            for item in (self.body(spec) if part is None else part.rows(spec))
        ]
        return [*body, *self.tasks[task].rows(spec)]


FAMILIES: dict[str, Family] = {}  # by model_type


def register(family: Family) -> Family:
    """Make a family known by its model_type."""
    FAMILIES[family.model_type] = family
    return family
