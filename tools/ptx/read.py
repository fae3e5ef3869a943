"""PTX from text to lines that can be built into steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTHS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64}
THREADS = 1024  # of a program at most
ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.S)
SHARED = re.compile(r"(?:\.align (\d+) )?\.[busf](8|16|32|64) ([\w$]+)(?:\[(\d*)\])?")
FILE = re.compile(r"^\s*\.file\s+(\d+)\s+\"(?:[^\"]*/)?([\w.]+)\"", re.M)
PLACE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)[^\n]*\n")
PARAMETER = re.compile(r"\.param\s+\.(\w+)[^,]*?([\w$]+)\s*(?:,|$)")
LABEL = re.compile(r"\s*([\w$%]+):(?!:)")
NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+)U?")


@dataclass(frozen=True)
class Register:
    """A register: its name, with the number of the braces it was declared in."""

    name: str


@dataclass(frozen=True)
class Number:
    """A constant, as bits."""

    bits: int
    kind: str = "int"  # or f32, f64


@dataclass(frozen=True)
class Place:
    """An address: what it begins from, and bytes beyond."""

    base: Operand
    offset: int = 0


@dataclass(frozen=True)
class Many:
    """Several operands in braces."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Word:
    """A name that is no register: a label, a symbol, a parameter or a special register."""

    name: str


Operand = Register | Number | Place | Many | Word


@dataclass(frozen=True)
class Line:
    """An instruction: who executes it, what it is, on what, and where it comes from."""

    words: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None  # and whether it is turned around
    source: str
    text: str

    @property
    def name(self) -> str:
        """All of the instruction's words."""
        return ".".join(self.words)


@dataclass
class Kernel:
    """A kernel's parameters, registers by width, shared memory of its own, lines and labels."""

    name: str
    parameters: list[tuple[str, str]]  # kind, name
    widths: dict[str, int] = field(default_factory=dict)
    families: dict[str, int] = field(default_factory=dict)  # by prefix, as of `%r<100>`
    shared: dict[str, int] = field(default_factory=dict)  # where, from the start
    threads: int = THREADS  # at most
    own: int = 0  # bytes of shared memory without what a launch adds
    added: dict[str, int] = field(default_factory=dict)  # names of where that begins: alignment
    lines: list[Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def width(self, name: str) -> int | None:
        """Bits of a register; none for what isn't one."""
        if name in self.widths:
            return self.widths[name]
        family = re.fullmatch(r"(%[a-z]+)\d+", name)
        return self.families.get(family[1]) if family else None


def read(text: str, name: str = "") -> Kernel:
    """The kernel of that name, or the first of a text."""
    entries = list(ENTRY.finditer(text))
    found = next((x for x in entries if name in ("", x[1])), None)
    if not found:
        raise ValueError(f"there is no .entry {name} in this PTX".replace("  ", " "))
    most = re.search(r"\.(?:max|req)ntid\s+(\d+)", found[3])
    kernel = Kernel(
        found[1], PARAMETER.findall(found[2]), threads=int(most[1]) if most else THREADS
    )
    reader = _Reader(kernel)
    for line in re.findall(r"^[^/\n]*\.shared [^;\n]*(?=;)", text[: entries[0].start()], re.M):
        reader.declared(re.sub(r"\s+", " ", line[line.index(".shared") :]))
    reader.body(text[found.end() :], dict(FILE.findall(text)))
    align = max(kernel.added.values(), default=1)
    kernel.own = -(-kernel.own // align) * align
    return kernel


def _statements(text: str, files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Of a body: braces, labels and statements, each with the line of source it comes from."""
    source, depth, at = "", 0, 0
    rest = re.sub(r"//(?! [\w.]+\.py:\d)[^\n]*", "", text)
    while True:
        note = re.compile(r"\s*\.loc\s+[^\n]*?//\s*([\w.]+:\d+)[^\n]*\n").match(rest, at)
        if note:
            source, at = note[1], note.end()
            continue
        place = PLACE.match(rest, at)
        if place and files.get(place[1], "").endswith(".cu"):
            source, at = f"{files[place[1]]}:{place[2]}", place.end()
            continue
        skip = re.compile(r"\s*(\.loc\s[^\n]*\n|//[^\n]*\n)").match(rest, at)
        if skip:
            at = skip.end()
            continue
        blank = re.compile(r"\s*").match(rest, at)
        at = blank.end() if blank else at
        if at >= len(rest):
            raise ValueError("the body of a kernel has no end")
        if rest[at] in "{}":
            depth += 1 if rest[at] == "{" else -1
            if depth < 0:
                return
            yield rest[at], source
            at += 1
            continue
        label = LABEL.match(rest, at)
        if label:
            yield label[1] + ":", source
            at = label.end()
            continue
        end = rest.index(";", at)
        yield re.sub(r"\s+", " ", rest[at:end]).strip(), source
        at = end + 1


class _Reader:
    """Fills a kernel, brace by brace."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.scopes: list[dict[str, str]] = [{}]
        self.count = 0

    def body(self, text: str, files: dict[str, str]) -> None:
        for statement, source in _statements(text, files):
            if statement == "{":
                self.scopes.append({})
                self.count += 1
            elif statement == "}":
                self.scopes.pop()
            elif statement.endswith(":"):
                self.kernel.labels[statement[:-1]] = len(self.kernel.lines)
            elif statement.startswith("."):
                self.declared(statement)
            elif statement:
                self.kernel.lines.append(self.line(statement, source))

    def declared(self, statement: str) -> None:
        kind, rest = statement.split(" ", 1)
        if kind == ".reg":
            width, names = rest.split(" ", 1)
            bits = WIDTHS.get(width[1:]) or int(re.sub(r"\D", "", width))
            for name in names.replace(" ", "").split(","):
                family = re.fullmatch(r"(%[a-z]+)<\d+>", name)
                if family:
                    self.kernel.families[family[1]] = bits
                else:
                    self.kernel.widths[self.named(name)] = bits
        elif kind == ".shared":
            self.shared(rest)
        elif kind not in (".pragma", ".branchtargets"):
            raise ValueError(f"an unknown directive: {statement}")

    def shared(self, rest: str) -> None:
        """Of a size, or beginning where a launch adds some."""
        found = SHARED.fullmatch(rest)
        if not found:
            raise ValueError(f"shared memory of an unknown form: {rest}")
        item, name, count = int(found[2]) // 8, found[3], found[4]
        align = int(found[1] or item)
        at = -(-self.kernel.own // align) * align
        if count == "":
            self.kernel.added[name] = align
            return
        self.kernel.shared[self.named(name)] = at
        self.kernel.own = at + item * int(count or 1)

    def named(self, name: str) -> str:
        """The name that something declared here has elsewhere."""
        if len(self.scopes) == 1:
            return name
        self.scopes[-1][name] = f"{name}@{self.count}"
        return self.scopes[-1][name]

    def line(self, statement: str, source: str) -> Line:
        guard, text = None, statement
        if statement.startswith("@"):
            who, statement = statement.split(" ", 1)
            guard = Register(self.known(who.lstrip("@!"))), who.startswith("@!")
        name, _, rest = statement.partition(" ")
        operands = tuple(map(self.operand, _split(rest)))
        return Line(tuple(name.split(".")), operands, guard, source, text)

    def known(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def operand(self, text: str) -> Operand:
        text = text.strip()
        if text.startswith("{"):
            return Many(tuple(map(self.operand, _split(text[1:-1]))))
        if text.startswith("["):
            base, plus, offset = text[1:-1].replace(" ", "").partition("+")
            return Place(self.operand(base), int(offset, 0) if plus else 0)
        if "|" in text:
            return Many(tuple(map(self.operand, text.split("|"))))
        if NUMBER.fullmatch(text):
            return _number(text)
        name = self.known(text)
        return Word(name) if self.kernel.width(name) is None else Register(name)


def _number(text: str) -> Number:
    if text[:2] in ("0f", "0F"):
        return Number(int(text[2:], 16), "f32")
    if text[:2] in ("0d", "0D"):
        return Number(int(text[2:], 16), "f64")
    return Number(int(text.rstrip("U"), 0))


def _split(text: str) -> list[str]:
    """What commas outside of braces and brackets part."""
    parts, depth, last = [], 0, 0
    for i, sign in enumerate(text):
        depth += (sign in "{[") - (sign in "}]")
        if sign == "," and not depth:
            parts.append(text[last:i])
            last = i + 1
    return [*parts, text[last:]] if text.strip() else []
