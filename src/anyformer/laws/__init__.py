"""The laws: what must hold of every model, whatever it is made of (docs/laws.md).

`check(spec)` says which of them a model breaks; `python -m anyformer.laws` does so by command.
"""

from anyformer.laws.check import Finding, check
from anyformer.laws.table import LAWS

__all__ = ["LAWS", "Finding", "check"]
