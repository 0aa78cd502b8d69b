"""UTF-8 bytes as tokens, as in ByT5 (Xue et al. 2022): the id of a byte is its value plus an offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.tokenizers.added import AddedToken, AddedTokens, open_added
from engine.text.tokenizers.left_to_right import LeftToRight


@dataclass(frozen=True, slots=True)
class BytesSettings:
    """`text` of config.json for the kind "bytes".

    offset: id of byte 0.
    prompt: text before each source.
    added: added token by symbol.
    """

    offset: int
    prompt: str = ""
    added: Mapping[str, AddedToken] = field(default_factory=dict)


class Utf8Bytes(LeftToRight):
    """A tokenizer by `BytesSettings`."""

    def __init__(self, settings: BytesSettings, added: AddedTokens) -> None:
        self._offset, self._prompt, self._added = settings.offset, settings.prompt, added

    def encode(self, text: str) -> list[int]:
        return self.encode_target(self._prompt + text)

    def encode_target(self, text: str) -> list[int]:
        return self._added.encode(text, lambda part: [byte + self._offset for byte in part.encode()])

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self._bytes(int(token)) for token in tokens).decode("utf-8", "ignore")

    def _bytes(self, token: int) -> bytes:
        if token in self._added.shown:
            return self._added.shown[token].encode()
        return bytes([token - self._offset]) if 0 <= token - self._offset < 256 else b""

    def words(self, tokens: Sequence[int], *, target: bool) -> list[int]:
        spaces = [int(token) - self._offset == 32 for token in tokens]
        return [i for i, space in enumerate(spaces) if not space and (not i or spaces[i - 1])]

    def word(self, tokens: Sequence[int], *, target: bool) -> str:
        return self.decode(tokens).strip()

    def pieces(self, tokens: Sequence[int], *, target: bool) -> list[str]:
        return [self._added.symbols.get(int(token)) or self._symbol(int(token)) for token in tokens]

    def _symbol(self, token: int) -> str:
        code = token - self._offset
        return chr(code) if 32 <= code < 127 else f"<0x{code:02X}>" if 0 <= code < 256 else f"<{code}>"


def open_utf8_bytes(bundle: Bundle) -> Utf8Bytes:
    """Open the tokenizer of a bundle by `BytesSettings`. Raises BundleError on wrong settings."""
    settings, most = bundle.text_settings(BytesSettings), bundle.config.target_vocab - 256
    if not 0 <= settings.offset <= most:
        raise BundleError(
            f"{bundle.path}: text.offset is {settings.offset}, not 0 to {most}; convert the bundle again"
        )
    return Utf8Bytes(settings, open_added(bundle, settings.added))
