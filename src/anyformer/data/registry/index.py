"""Files of a package index by their exact names (PEP 503 and PEP 691): read, never run."""

from __future__ import annotations

import base64
import html.parser
import json
import netrc
import os
import re
import ssl
import urllib.parse
import urllib.request
import urllib.response
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from anyformer.data.registry.entry import Artefact
from anyformer.data.registry.pip import Settings, hidden
from anyformer.errors import DataError

PAGE = 64 * 1024**2  # the largest page that is read
BLOCK = 1024**2
TIMEOUT = 60.0
SIMPLE = "application/vnd.pypi.simple.v1"
ACCEPT = f"{SIMPLE}+json, {SIMPLE}+html;q=0.2, text/html;q=0.1"


Open = Callable[[str], urllib.response.addinfourl]


class _Anchors(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base: str | None = None
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = dict(attrs).get("href")
        if link and tag == "a":
            self.links.append(link)
        elif link and tag == "base" and self.base is None:
            self.base = link


def download(artefact: Artefact, settings: Settings, target: IO[bytes]) -> None:
    """Write the file of an artefact, from the first place of the user's settings that has it."""
    tried: list[str] = []
    open_ = _opener(settings)
    for place in _places(artefact, settings):
        try:
            for link in _links(place, open_):
                if _name(link) == artefact.file:
                    return _copy(link, artefact, open_, target)
            tried.append(f"{hidden(place)}: no such file")
        except (OSError, ValueError) as error:
            tried.append(f"{hidden(place)}: {hidden(str(error)) or type(error).__name__}")
    raise DataError("; ".join(tried) or "pip is told to use no index, and no find-links are set")


def _places(artefact: Artefact, settings: Settings) -> Iterator[str]:
    """Addresses of pages and folders: find-links first, then the project's page of each index."""
    for link in settings.links:
        yield link if "://" in link else Path(os.path.expanduser(link)).absolute().as_uri()
    project = re.sub(r"[-_.]+", "-", artefact.project).lower()
    for index in settings.indexes:
        yield f"{index.rstrip('/')}/{project}/"


def _name(link: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(link).path.rpartition("/")[2])


def _links(place: str, open_: Open) -> list[str]:
    """Addresses of the files that a page or folder lists."""
    parts = urllib.parse.urlsplit(place)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        if path.is_dir() and not (path / "index.html").is_file():
            return [file.as_uri() for file in path.iterdir() if file.is_file()]
        if path.is_dir():
            place = place.rstrip("/") + "/index.html"
    with open_(place) as page:
        body = page.read(PAGE + 1)
        base = page.geturl()  # pages may have moved
    if len(body) > PAGE:
        raise ValueError(f"its page is larger than {PAGE} bytes")
    return [urllib.parse.urljoin(base, link) for link in _listed(body.decode("utf-8", "replace"))]


def _listed(text: str) -> list[str]:
    if text.lstrip().startswith("{"):
        files = json.loads(text).get("files", [])
        return [str(file["url"]) for file in files if isinstance(file, dict) and "url" in file]
    parser = _Anchors()
    parser.feed(text)
    return [urllib.parse.urljoin(parser.base or "", link) for link in parser.links]


def _copy(link: str, artefact: Artefact, open_: Open, target: IO[bytes]) -> None:
    """Copy a file, but no more bytes than the artefact has."""
    left = artefact.size
    with open_(link) as source:
        while block := source.read(BLOCK):
            left -= len(block)
            if left < 0:
                raise ValueError(f"{artefact.file} there has more than {artefact.size} bytes")
            target.write(block)


def _opener(settings: Settings) -> Open:
    """A function that opens an address by https, http or file, the user's way."""
    context = ssl.create_default_context(cafile=settings.certificates)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
    if settings.proxy:
        handlers.append(
            urllib.request.ProxyHandler(dict.fromkeys(("http", "https"), settings.proxy))
        )
    opener = urllib.request.build_opener(*handlers)

    def open_(address: str) -> urllib.response.addinfourl:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in {"https", "http", "file"}:
            raise ValueError(f"addresses of {parts.scheme or 'no'} kind are not read")
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")
        request = urllib.request.Request(bare.geturl(), headers={"Accept": ACCEPT})
        login = _login(parts)
        if login:
            request.add_unredirected_header("Authorization", f"Basic {login}")
        return opener.open(request, timeout=TIMEOUT)

    return open_


def _login(parts: urllib.parse.SplitResult) -> str | None:
    """Name and password of an address, or of the user's netrc file, as HTTP wants them."""
    if parts.scheme == "file" or not parts.hostname:
        return None
    user, password = parts.username, parts.password
    if user is None:
        try:
            found = netrc.netrc().authenticators(parts.hostname)
        except (OSError, netrc.NetrcParseError):
            return None
        if not found:
            return None
        user, password = found[0], found[2]
    both = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
    return base64.b64encode(both.encode()).decode()
