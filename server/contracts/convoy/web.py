"""GET /: the web page, from the files of server/web. GET /docs: the interactive API description.

Files of the page are under /static/VERSION/, where VERSION is a digest of them: browsers keep them for a year
and revalidate only the page.
"""

from __future__ import annotations

import hashlib
import html
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response

from server.errors import Refusal
from server.state import AppState, state_of

FOLDER: Final = Path(__file__).parents[2] / "web"
PAGE: Final = "index.html"
ICON: Final = "icon.svg"
MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# only the page's own files, and no HTML made from text
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
GUARDS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
YEAR: Final = "public, max-age=31536000, immutable"
DAY: Final = "public, max-age=86400"
ASK: Final = "no-cache"  # keep it, but revalidate it
API_FILES: Final = "/static-offline-docs"  # path of FastAPIOffline's files for /docs
# Swagger's style sheet needs a class for dark mode, which only its own top bar would set
DARK: Final = """<meta name="color-scheme" content="light dark">
<script>
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
</script>
</head>"""
OFF: Final = "The web page is disabled on this server."

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Site:
    """The files of the page by name, and their digest."""

    files: dict[str, bytes]
    version: str


@cache
def site() -> Site:
    """Return the files of the page, read once."""
    files = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in MEDIA}
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in files.items()))
    return Site(files, digest.hexdigest()[:16])


@router.get("/")
async def page(request: Request) -> Response:
    """Return the web page, with limits that no other route reports."""
    state = state_of(request)
    if not state.settings.web:
        raise Refusal("not_found", OFF)
    text = _page(state)
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'
    headers = {"Cache-Control": ASK, "ETag": tag, **GUARDS}
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type=MEDIA[".html"], headers=headers)


@router.get("/docs")
async def description(request: Request) -> HTMLResponse:
    """Return the interactive API description, light or dark like the system."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}{request.app.openapi_url}",
        title="Convoy: the API",
        swagger_js_url=f"{root}{API_FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{API_FILES}/swagger-ui.css",
        swagger_favicon_url=f"{root}/favicon.ico",
    )
    return HTMLResponse(bytes(page.body).decode().replace("</head>", DARK, 1))


@router.get("/static/{version}/{name}")
async def static(request: Request, version: str, name: str) -> Response:
    """Return a file of the web page.

    A request for another version, while servers are being replaced, gets this version's file, uncached.
    """
    data = site().files.get(name) if state_of(request).settings.web else None
    if data is None:
        raise Refusal("not_found", f"no such file: {name[:200]}")
    caching = YEAR if version == site().version else "no-store"
    return Response(data, media_type=MEDIA[Path(name).suffix], headers={"Cache-Control": caching, **GUARDS})


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    """Return the icon, which browsers request for any page."""
    if not state_of(request).settings.web:
        raise Refusal("not_found", OFF)
    headers = {"Cache-Control": DAY, **GUARDS}
    return Response(site().files[ICON], media_type=MEDIA[".svg"], headers=headers)


def _page(state: AppState) -> str:
    """Return the HTML of the page, with the server's values in its placeholders."""
    text = site().files[PAGE].decode()
    values = {"VERSION": site().version, "ALTERNATIVES": str(state.settings.alternatives_limit)}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", html.escape(value))
    return text
