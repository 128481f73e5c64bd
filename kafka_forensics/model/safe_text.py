"""Text from evidence, made safe for terminals and pages.

A file name may contain an escape sequence that rewrites the screen, a line break that forges a row, or a bidirectional mark that
shows `exe.jpg` as `gpj.exe`. Characters without a visible form become escapes.
"""

from typing import Final

_INVISIBLE_LETTERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)
"""Fillers, joiners and variation selectors: Unicode counts them as letters or marks, but they are invisible."""
_SHORT_ESCAPES: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_BYTE_SURROGATES: Final = range(0xDC80, 0xDD00)


def printable(text: str | bytes) -> str:
    r"""`text` with an escape for each character that is not plainly visible: `\t`, `\x1b`, `\u202e`, `\U000e0001`.

    Bytes are decoded as UTF-8. An invalid byte, or one that a file name has as a lone surrogate, is shown as `\xff`. Safe text is
    returned unchanged, so text may be escaped twice.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isprintable() and letter not in _INVISIBLE_LETTERS else _escaped(letter) for letter in text)


def unquoted(text: str | bytes) -> str:
    r"""`text` as `printable`, and each backtick as `\x60`: backticks mark commands in our sentences."""
    return printable(text).replace("`", r"\x60")


def _escaped(letter: str) -> str:
    code = ord(letter)
    if letter in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[letter]
    if code < 0x80 or code in _BYTE_SURROGATES:
        return f"\\x{code if code < 0x80 else code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
