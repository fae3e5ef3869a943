"""Reports in headless Chromium: what the console says, what axe finds, what can be seen.

`python -m tests.study.browser report.html FOLDER` checks a page and writes its screenshots. The
browser is playwright's own, one on the path, or $ANYFORMER_CHROMIUM; axe-core's axe.min.js is read
from $ANYFORMER_AXE.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
    "phone-dark": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def executable() -> str | None:
    """The browser to start; None: playwright's own, if it has one."""
    return os.environ.get("ANYFORMER_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )


def missing() -> str:
    """Why no browser can be started; empty if one can."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "playwright is not installed"
    if executable():
        return ""
    with sync_playwright() as library:
        there = Path(library.chromium.executable_path).exists()
    return "" if there else "no Chromium: playwright install chromium, or set ANYFORMER_CHROMIUM"


def axe() -> Path | None:
    """The script of axe-core, where it is installed."""
    told = os.environ.get("ANYFORMER_AXE")
    return Path(told) if told and Path(told).exists() else None


@contextlib.contextmanager
def browser():
    """Headless Chromium, closed afterwards."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--headless=shell", "--disable-gpu"]
    with sync_playwright() as library:
        found = library.chromium.launch(executable_path=executable(), args=arguments)
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def opened(found, path, look="light", **more):
    """A page opened from its file, with all that its console and dialogs said and it asked for."""
    context = found.new_context(**LOOKS[look], **more)
    page, said, address = context.new_page(), [], Path(path).resolve().as_uri()

    def asked(dialog):
        said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", asked)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda r: None if r.url == address else said.append(r.url))
    page.goto(address)
    try:
        yield page, said
    finally:
        context.close()


def violations(found, path, look="light"):
    """What axe finds wrong with a page, with all that can be opened open."""
    with opened(found, path, look, bypass_csp=True) as (page, _):
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        page.add_script_tag(path=axe())
        told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return {
        rule["id"]: [node["html"][:160] for node in rule["nodes"][:3]]
        for rule in told["violations"]
    }


def main(path, folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    with browser() as found:
        for look in LOOKS:
            with opened(found, path, look) as (page, said):
                page.screenshot(path=Path(folder) / f"{look}.png", full_page=True)
                wrong = violations(found, path, look) if axe() else "axe is missing"
                print(json.dumps({"look": look, "console": said, "axe": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
