"""Archives that lie about their sizes or names are refused; nothing is unpacked to disk."""

import gzip
import io
import zipfile

import pytest

from anyformer.data.registry import archive
from anyformer.errors import DataError
from tests.data.registry import made

TEXT = {
    "grain/text.txt": b"wheat and barley\n",
    "grain/more.txt": b"rye\n",
    "grain/code.py": b"1\n",
}


@pytest.mark.parametrize("make", [made.wheel, made.sdist])
def test_members_are_found_by_pattern(shelf, make):
    file = shelf / make(shelf, TEXT).file
    assert dict(archive.members(file, ("grain/*.txt",))) == dict(list(TEXT.items())[:2])
    assert dict(archive.members(file, ("grain/code.py",))) == {"grain/code.py": b"1\n"}


@pytest.mark.parametrize("make", [made.wheel, made.sdist])
def test_a_missing_member_is_named(shelf, make):
    with pytest.raises(DataError, match=r"has no grain/oats\.txt"):
        list(archive.members(shelf / make(shelf, TEXT).file, ("grain/oats.txt",)))


@pytest.mark.parametrize("make", [made.wheel, made.sdist])
def test_a_bomb_is_refused(shelf, make):
    file = shelf / make(shelf, {"zeros": bytes(10_000_000)}).file
    assert file.stat().st_size < 20_000
    with pytest.raises(DataError, match="unpacks to more than it may"):
        list(archive.members(file, ("zeros",), largest=1_000_000))


def test_a_bomb_beside_the_wanted_member_is_refused_too(shelf):
    file = shelf / made.sdist(shelf, {"zeros": bytes(10_000_000), "text": b"x"}).file
    with pytest.raises(DataError, match="unpacks to more than it may"):
        list(archive.members(file, ("text",), whole=1_000_000))


def test_a_zip_that_states_a_small_size_is_not_believed():
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as made_zip:
        made_zip.writestr("zeros", bytes(1_000_000))
    small, large = (10).to_bytes(4, "little"), (1_000_000).to_bytes(4, "little")
    with pytest.raises(DataError):
        list(archive.members(whole.getvalue().replace(large, small), ("zeros",), largest=1000))


@pytest.mark.parametrize("name", ["../escape.txt", "/etc/escape.txt", "a/../../escape.txt", "a\\b"])
def test_names_that_lead_out_are_refused(shelf, name):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as made_zip:
        made_zip.writestr(name, b"x")
    for content in (whole.getvalue(), made.tarball({name: b"x"})):
        with pytest.raises(DataError, match="leads out of its archive"):
            list(archive.members(content, ("*",)))


def test_links_are_no_members():
    import tarfile

    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as made_tar:
        info = tarfile.TarInfo("top/link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made_tar.addfile(info)
    with pytest.raises(DataError, match="has no link"):
        list(archive.members(whole.getvalue(), ("link",)))


@pytest.mark.parametrize("cut", [0, 1, 30, -40, -5])
@pytest.mark.parametrize("make", [made.wheel, made.sdist])
def test_damage_is_an_ordinary_error(shelf, make, cut):
    file = shelf / make(shelf, {"grain/text.txt": bytes(range(256)) * 40}).file
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DataError):
        list(archive.members(file, ("grain/text.txt",)))


def test_gzip_within_limits_only():
    content = gzip.compress(bytes(100_000))
    assert archive.unzipped(content, "zeros.gz") == bytes(100_000)
    with pytest.raises(DataError, match="unpacks to more"):
        archive.unzipped(content, "zeros.gz", largest=1000)
    with pytest.raises(DataError, match="damaged gzip"):
        archive.unzipped(content[:-9], "zeros.gz")
