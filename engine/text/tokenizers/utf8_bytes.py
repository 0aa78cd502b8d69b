"""UTF-8 bytes as tokens, as ByT5 has them (Xue et al. 2022): a byte's id is its value plus a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.left_to_right import LeftToRight


@dataclass(frozen=True, slots=True)
class BytesSettings:
    """`text` of config.json for the kind "bytes".

    offset: the id of byte 0.
    prompt: what is written before each source.
    """

    offset: int
    prompt: str = ""


class Utf8Bytes(LeftToRight):
    """A tokenizer by `BytesSettings`; an id is the value of a byte plus an offset."""

    beginning: tuple[int, ...] = ()

    def __init__(self, offset: int, prompt: str = "") -> None:
        self._offset, self._prompt = offset, prompt

    def lacks(self, character: str) -> bool:
        return False

    def encode(self, text: str) -> list[int]:
        return self.encode_target(self._prompt + text)

    def encode_target(self, text: str) -> list[int]:
        return [byte + self._offset for byte in text.encode()]

    def decode(self, tokens: Sequence[int]) -> str:
        codes = (int(token) - self._offset for token in tokens)
        return bytes(code for code in codes if 0 <= code < 256).decode("utf-8", "ignore")

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        spaces = [int(token) - self._offset == 32 for token in tokens]
        return [i for i, space in enumerate(spaces) if not space and (not i or spaces[i - 1])]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self.decode(tokens).strip()

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        codes = [int(token) - self._offset for token in tokens]
        return [chr(c) if 32 <= c < 127 else f"<0x{c:02X}>" if 0 <= c < 256 else f"<{c}>" for c in codes]


def open_utf8_bytes(bundle: Bundle) -> Utf8Bytes:
    """Open a tokenizer by `BytesSettings`. Raises BundleError on wrong ones."""
    settings, most = bundle.text_settings(BytesSettings), bundle.config.target_vocab - 256
    if not 0 <= settings.offset <= most:
        raise BundleError(
            f"{bundle.path}: text.offset is {settings.offset}, not 0 to {most}; convert the bundle again"
        )
    return Utf8Bytes(settings.offset, settings.prompt)
