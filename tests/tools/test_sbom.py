"""The bill of materials: all that is needed, in the versions that are there, and no other."""

import json
from importlib.metadata import version

import pytest

from tools.sbom import document, main, needs


@pytest.fixture(scope="module")
def bill():
    return document(set())


def test_what_is_needed_is_listed_as_installed(bill):
    parts = {part["name"]: part["version"] for part in bill["components"]}
    for name in ("torch", "numpy", "safetensors", "tokenizers", "rich", "sympy", "mdurl"):
        assert parts[name] == version(name)
    assert "pytest" not in parts
    assert bill["metadata"]["component"]["name"] == "anyformer"
    stated = {part["name"]: part["licenses"] for part in bill["components"] if "licenses" in part}
    assert stated["torch"] and stated["numpy"]


def test_the_graph_holds_together(bill):
    """Every part is reached from the package, and every name in the graph is a part."""
    own = bill["metadata"]["component"]["bom-ref"]
    below = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    met, ahead = set(), [own]
    while ahead:
        ref = ahead.pop()
        if ref not in met:
            met.add(ref)
            ahead += below[ref]
    refs = [part["bom-ref"] for part in bill["components"]]
    assert met == {own, *refs} == below.keys()
    assert len(refs) == len(set(refs))
    assert "+" not in "".join(refs)  # addresses are quoted


def test_extras_and_markers():
    lines = ["a", "b; python_version < '3'", "c; extra == 'x'"]
    assert [r.name for r in needs(lines, set())] == ["a"]
    assert [r.name for r in needs(lines, {"x"})] == ["a", "c"]
    assert "pyarrow" in {part["name"] for part in document({"parquet"})["components"]}
    with pytest.raises(SystemExit, match="no extra 'tests'"):
        document({"tests"})


def test_the_same_each_time(tmp_path, bill, capsys):
    main([str(tmp_path / "a" / "sbom.json")])
    main([])
    text = (tmp_path / "a" / "sbom.json").read_text()
    assert text == capsys.readouterr().out
    assert json.loads(text) == bill
