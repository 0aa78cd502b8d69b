"""Fixtures for the page: servers, a browser, and helpers to use the page."""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.served import server, until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MODELS = Path(__file__).parents[3] / "models"
TEXT = "Das ist gut. Wer bist du? Tom wohnt seit zwei Jahren mit seiner Frau Maria in einem Haus in Boston."
EXTRAS = dict.fromkeys(("scores", "alignment", "coverage", "timings"), True)


@pytest.fixture(scope="module")
def place():
    with server(frontend_timeout=50) as (client, house, _):
        yield client, house


@pytest.fixture(scope="module")
def shipped():
    """A server with the shipped models, which have placeholder symbols and three languages."""
    if not (MODELS / "tatoeba-de-en").is_dir():
        pytest.skip("the shipped models are not there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.bundles", lambda: MODELS)
        opened = ExitStack()
        settings = {"lanes": ((1, 4), (5, 8)), "verify": False}
        client, house, _ = opened.enter_context(server(service_settings=settings, frontend_timeout=50))
    with opened:
        yield client, house


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium: apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (the extra `dev`)")
    with playwright.sync_playwright() as found:
        chromium = found.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Opens the page of a server. At the end, checks that it requested no other host and had no errors."""
    problems, contexts = [], []

    def make(client, path="/", *, expected="", **options):
        """expected: pattern of console messages that are allowed, such as a refused request."""
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(home) else problems.append(asked.url))
        page.on(
            "console",
            lambda said: None if expected and re.search(expected, said.text) else note_message(said),
        )
        home = str(client.base_url)
        page.goto(home.rstrip("/") + path)
        shown(page, "document.querySelector('#version').textContent.includes('.')")
        return page

    def note_message(message):
        if message.type in ("error", "warning"):
            problems.append(message.text)

    yield make
    for context in contexts:
        context.close()
    assert problems == []


def shown(page, condition):
    """Wait until a condition in JavaScript holds (Playwright's way needs `eval`: forbidden)."""
    until(lambda: page.evaluate(f"Boolean({condition})"))


def answer_of(client, text=TEXT, source="auto", **more):
    """Return the answer of the API to the same request."""
    body = {"q": text, "source": source, "target": "en", "alternatives": 3} | EXTRAS | more
    return client.post("/translate", json=body).raise_for_status().json()


def translate(page, text=TEXT):
    """Enter a text at once, like pasting, and wait for its translation."""
    page.fill("#text", text)
    finished(page)


def finished(page):
    ready = "!document.querySelector('#copy').hidden && !document.querySelector('#answer').matches('.stale')"
    shown(page, f"{ready} && !document.body.matches('.busy')")


@contextmanager
def paused_after(house, steps, model="toy-de-en"):
    """Pause the decoder after some steps, until the yielded event is set."""
    stepper = house.service.repository.loaded[model].engine.lanes[1].stepper
    launch, go, count = stepper.launch, threading.Event(), 0

    def slow(*args, **kwargs):
        nonlocal count
        count += 1
        if count > steps:
            go.wait(300)
        return launch(*args, **kwargs)

    stepper.launch = slow
    try:
        yield go
    finally:
        go.set()
        del stepper.launch


def open_map(page):
    """Open the heat map, which is closed at first."""
    page.evaluate("document.querySelector('#attention').open = true")


def own_words(page, *rows):
    """Type words and their translations into the list, after the existing rows."""
    page.evaluate("document.querySelector('#phrases').open = true")
    for word, into in rows:
        fields = (
            page.locator("#phrases-list li")
            .nth(page.locator("#phrases-list li").count() - 1)
            .locator("input")
        )
        fields.nth(0).fill(word)
        fields.nth(1).fill(into)


def values(page):
    rows = page.locator("#phrases-list li").all()
    return [tuple(field.input_value() for field in row.locator("input").all()) for row in rows]


def error_of(page):
    page.locator("#error").wait_for()
    return page.inner_text("#error-text")
