"""A task at work: one input gives a result, many give an iterator of results."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from anyformer.errors import AnyformerError, InputError
from anyformer.tasks.base import Job, Record
from anyformer.tasks.flow import Failure, flow
from anyformer.tasks.progress import Bar


@final
class Tool:
    """What `anyformer.task` gives: call it with one input, with fields, or with any iterable."""

    def __init__(self, name: str, job: Job):
        self.name, self.job = name, job

    def __call__(self, inputs: Any = None, **fields: Any) -> Any:
        """The result of one input, or an iterator of results in the order of many.

        One input is a text, an image or a mapping of fields, or its fields by name. Many are any
        iterable of those, an open file of lines among them, which is read as results are taken.
        """
        if inputs is None or fields:
            if inputs is not None:
                fields = {self.job.fields[0]: inputs, **fields}
            if not fields:
                raise InputError(f"{self.name} needs an input: {self._wanted()}")
            return self._one(fields)
        if self._single(inputs):
            return self._one(inputs)
        if not isinstance(inputs, Iterable):
            raise InputError(f"input 1: {self._wanted()}, not {type(inputs).__name__}")
        return self._many(inputs)

    def numbered(self, items: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        """Results or Failures of inputs that have numbers; one that is an error stays one."""
        return flow(self.job, ((number, self._record(value)) for number, value in items))

    def _one(self, value: Any) -> Any:
        for found in self.numbered([(1, value)]):
            return self._told(found) if isinstance(found, Failure) else found

    def _many(self, inputs: Iterable[Any]) -> Iterator[Any]:
        total = len(inputs) if isinstance(inputs, Sized) else None
        with Bar(self.name, total, self.job.options.progress) as bar:
            for found in self.numbered(enumerate(inputs, 1)):
                bar.step()
                if not isinstance(found, Failure):
                    yield found
                elif self.job.options.on_error != "skip":
                    yield self._told(found)

    def _told(self, failure: Failure) -> dict[str, Any] | None:
        """What becomes of an input that has no result."""
        how = self.job.options.on_error
        if how == "raise":
            raise failure.error
        bare = str(failure.error).removeprefix(f"input {failure.number}: ")
        return {"error": bare, "input": failure.number} if how == "return" else None

    def _single(self, inputs: Any) -> bool:
        """Whether what is given is one input."""
        if isinstance(inputs, str | bytes | Mapping | Path):
            return True
        if isinstance(inputs, io.IOBase):
            return False
        if isinstance(inputs, np.ndarray | torch.Tensor):
            return self.job.images and inputs.ndim <= 3
        return self.job.images and not isinstance(inputs, Iterable)

    def _record(self, value: Any) -> Record | AnyformerError:
        """An input as a record under our names of its fields; what is no input is an error."""
        if isinstance(value, AnyformerError):
            return value
        if isinstance(value, Mapping):
            return self._named(value)
        main = self.job.fields[0]
        if self.job.images:
            return {main: value}
        if len(self._needed()) == 1 and isinstance(value, str):
            return {main: value.rstrip("\r\n")}
        return InputError(f"an input must be {self._wanted()}, not {_kind(value)}")

    def _named(self, value: Mapping[str, Any]) -> Record | AnyformerError:
        asked = self.job.options.fields
        found = dict[str, Any]()
        for name in self.job.fields:
            for theirs in (asked.get(name), name, self.job.same.get(name)):
                if theirs is not None and value.get(theirs) is not None:
                    found[name] = value[theirs]
                    break
        found = self.job.settled(found)
        missing = [name for name in self._needed() if name not in found]
        if missing:
            has = ", ".join(map(str, value)) or "nothing"
            return InputError(
                f"it has no {missing[0]!r} but {has}: name the field to read, as "
                f"fields={{{missing[0]!r}: …}} (--field {missing[0]}=…)"
            )
        return found

    def _needed(self) -> tuple[str, ...]:
        return self.job.needed()

    def _wanted(self) -> str:
        """What an input of this task is, in words."""
        names = ", ".join(map(repr, self._needed()))
        if self.job.images:
            return "an image: its file, its bytes, an array or a PIL image"
        one = "a text, or " if len(self._needed()) == 1 else ""
        return f"{one}a mapping with {names}"


def _kind(value: Any) -> str:
    hint = ", which open() turns into its lines" if isinstance(value, Path) else ""
    return f"{type(value).__name__}{hint}"
