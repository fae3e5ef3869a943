"""Text as its tokens come."""

from __future__ import annotations

from collections.abc import Iterable

from anyformer.generate.options import Decode

HALF = "\ufffd"  # what a part of a character decodes to


class Telling:
    """Gives the text of each new token as soon as it is whole, spaces as in the whole text."""

    def __init__(self, decode: Decode, before: Iterable[int] = ()):
        self.decode = decode
        self.ids = list(before)[-8:]  # a few, since a token's text depends on those before it
        self.context, self.told = 0, len(self.ids)

    def add(self, token: int) -> str:
        """The text that one more token completes, often "" within a character."""
        self.ids.append(token)
        return self._tell(last=False)

    def end(self) -> str:
        """What is left, parts of characters too."""
        return self._tell(last=True)

    def _tell(self, last: bool) -> str:
        before = self.decode(self.ids[self.context : self.told])
        whole = self.decode(self.ids[self.context :])
        if len(whole) <= len(before) or (whole.endswith(HALF) and not last):
            return ""
        self.context, self.told = self.told, len(self.ids)
        return whole[len(before) :]
