"""LibreTranslate's contract: translate.py, languages.py (with detection), files.py, suggest.py."""

from typing import Final

from server.contract import Contract
from server.contracts.libretranslate import files, languages, suggest, translate
from server.contracts.libretranslate.languages import served_codes

CONTRACT: Final = Contract(
    routers=(translate.router, languages.router, files.router, suggest.router),
    paths=("/translate", "/detect", "/languages", "/translate_file", "/download_file/*", "/suggest"),
    open_paths=("/languages", "/download_file/*"),
    stored_paths=("/suggest",),
    text_fields=frozenset({"q"}),
    single_fields=frozenset({"q", "source", "target", "format", "alternatives"}),  # as Flask reads forms
    key_fields=("api_key",),
    codes=served_codes,
)
