"""What looks at the documentation site: a server of this machine alone, and a browser that notes what goes wrong."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build/site"
# Pages are published below a folder of their host, where a link that begins with / leads nowhere.
FOLDER = "/plait/"
SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}


def pytest_keyboard_interrupt() -> None:
    """Ctrl-C ends the browser as well, so that what tests have open cannot be closed any more."""
    print("\ntest-docs: interrupted", file=sys.stderr)
    sys.stderr.flush()
    os._exit(130)


class Pages(SimpleHTTPRequestHandler):
    """Serves the site as the forge does: below a folder, with a page for wrong addresses."""

    def translate_path(self, path: str) -> str:
        if not path.startswith(FOLDER):
            return str(SITE / "nothing")
        return super().translate_path("/" + path.removeprefix(FOLDER))

    def send_error(self, code: int, *_: Any) -> None:
        page = (SITE / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A server whose browser may leave in the middle of an answer."""

    def handle_error(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with Server(("127.0.0.1", 0), partial(Pages, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{FOLDER}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = os.environ["CHROME_BIN"]
    with sync_playwright() as playwright:
        try:
            # No name leads anywhere, so that nothing leaves the machine even where a page asks for it.
            found = playwright.chromium.launch(
                executable_path=path, args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
            )
        except Error as error:
            pytest.exit(f"test-docs: {path} does not start: {error.message.splitlines()[0]}", 1)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens a page of the site on a screen; at the end there must have been no error and no request to elsewhere."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def open_page(path: str, screen: str = "desktop", scheme: Any = "light") -> Page:
        context = browser.new_context(**SCREENS[screen], color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(60_000)  # machines that run tests may be busy
        missing = None if (SITE / path).exists() else address + path

        def note(what: str, url: str) -> None:
            if url != missing:
                wrong.append(f"{what}: {url}")

        def request(request: Request) -> None:
            if not request.url.startswith((address, "data:", "blob:")):
                note("from elsewhere", request.url)

        def message(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                note(message.text, message.location["url"])

        context.on("request", request)
        context.on("response", lambda r: r.status < 400 or note(str(r.status), r.url))
        context.on("console", message)
        context.on("weberror", lambda e: note(str(e.error), e.page.url if e.page else ""))
        page = context.new_page()
        page.goto(address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong
