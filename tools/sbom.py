"""`python -m tools.sbom [--extra NAME] [FILE]`: a software bill of materials (CycloneDX 1.6 JSON).

It lists what `pip install anyformer` brings into this environment: the package of this repository,
all it depends on, directly or not, in the versions that are installed, their licences as they state
them, and who needs whom. The same environment gives the same file: no clock, no random number.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 120  # characters of a licence's name; what is longer is its whole text
Graph = dict[str, set[str]]


def needs(lines: list[str], extras: set[str]) -> list[Requirement]:
    """The requirements that hold in this environment."""
    found = map(Requirement, lines)
    asked = [{"extra": extra} for extra in sorted(extras)] or [{"extra": ""}]
    return [r for r in found if r.marker is None or any(map(r.marker.evaluate, asked))]


def walk(wanted: list[Requirement], parent: str, graph: Graph, parts: dict[str, Any]) -> None:
    """Add requirements and theirs to the graph, whatever is met once."""
    graph.setdefault(parent, set())
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        try:
            found = distribution(name)
        except PackageNotFoundError as missing:
            raise SystemExit(
                f"{name}, which {parent} needs, is not installed: pip install it"
            ) from missing
        graph[parent].add(ref(name, found.version))
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key not in parts:
            parts[key] = component(name, found)
            below = needs(found.requires or [], requirement.extras)
            walk(below, ref(name, found.version), graph, parts)


def ref(name: str, version: str) -> str:
    """A package's address (purl) in the index."""
    return f"pkg:pypi/{name}@{quote(version)}"


def component(name: str, found: Distribution) -> dict[str, Any]:
    """What the document says of a package."""
    about = {
        "type": "library",
        "bom-ref": ref(name, found.version),
        "name": name,
        "version": found.version,
        "purl": ref(name, found.version),
    }
    told = licences(found)
    return {**about, **({"licenses": told} if told else {})}


def licences(found: Distribution) -> list[dict[str, Any]]:
    """The licence that a package states: an expression, else names."""
    about: dict[str, Any] = found.metadata.json
    if about.get("license_expression"):
        return [{"expression": about["license_expression"]}]
    lines: list[str] = about.get("classifier", [])
    marked = [line.rpartition(" :: ")[2] for line in lines if line.startswith("License :: ")]
    stated = re.sub(r"\s+", " ", about.get("license", "")).strip()
    names = marked or [stated] * (0 < len(stated) <= LONGEST)
    return [{"license": {"name": name}} for name in dict.fromkeys(names)]


def document(extras: set[str]) -> dict[str, Any]:
    """The bill of materials of this repository in this environment."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = about["optional-dependencies"]
    strange = extras - optional.keys()
    if strange:
        raise SystemExit(f"no extra {min(strange)!r}; there are {', '.join(sorted(optional))}")
    lines = [*about["dependencies"], *(line for extra in extras for line in optional[extra])]
    own = ref(about["name"], about["version"])
    graph: Graph = {}
    parts: dict[str, Any] = {}
    walk(needs(lines, set()), own, graph, parts)
    unique = {part["bom-ref"]: part for part in parts.values()}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": about["name"],
                "version": about["version"],
                "purl": own,
                "licenses": [{"expression": about["license"]}],
            }
        },
        "components": [unique[key] for key in sorted(unique)],
        "dependencies": [
            {"ref": key, "dependsOn": sorted(below)} for key, below in sorted(graph.items())
        ],
    }


def main(words: list[str] | None = None) -> int:
    """Write the document to a file, or print it."""
    parser = argparse.ArgumentParser(prog="python -m tools.sbom", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="(default: printed)")
    parser.add_argument("--extra", action="append", default=[], help="of pyproject.toml, as test")
    asked = parser.parse_args(words)
    text = json.dumps(document(set(asked.extra)), indent=1) + "\n"
    if asked.file is None:
        sys.stdout.write(text)
        return 0
    asked.file.parent.mkdir(parents=True, exist_ok=True)
    asked.file.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
