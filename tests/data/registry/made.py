"""Archives made for tests: wheels that pip accepts, sdists, and the artefacts that name them."""

import hashlib
import io
import pathlib
import tarfile
import zipfile

from anyformer.data.registry.entry import Artefact

BOMB = "import pathlib\npathlib.Path({marker!r}).touch()\n"


def wheel(folder: pathlib.Path, members: dict[str, bytes], project="grain") -> Artefact:
    info = f"{project}-1.0.dist-info"
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": kind.encode(),
        f"{info}/RECORD": b"",
    }
    file = folder / f"{project}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in whole.items():
            archive.writestr(name, content)
    return artefact(file, project)


def sdist(folder: pathlib.Path, members: dict[str, bytes], project="grain") -> Artefact:
    file = folder / f"{project}-1.0.tar.gz"
    file.write_bytes(tarball({f"{project}-1.0/{name}": c for name, c in members.items()}))
    return artefact(file, project)


def tarball(members: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return whole.getvalue()


def artefact(file: pathlib.Path, project: str) -> Artefact:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return Artefact(project, "1.0", file.name, len(content), digest)
