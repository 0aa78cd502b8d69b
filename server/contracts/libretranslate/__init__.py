"""LibreTranslate's contract: translate.py, languages.py (and detection), files.py."""

from typing import Final

from server.contract import Contract
from server.contracts.libretranslate import files, languages, translate

CONTRACT: Final = Contract(
    routers=(translate.router, languages.router, files.router),
    paths=("/translate", "/detect", "/languages", "/translate_file", "/download_file/*"),
    open_paths=("/languages", "/download_file/*"),
)
