"""Text from evidence made safe to show: names, values and numbers of strangers must not reach a terminal as they are.

A file name may hold an escape sequence that rewrites the screen, a line break that forges a row, or a bidirectional mark that
makes `gpj.exe` of `exe.jpg`. All that has no visible form of its own is written as an escape; letters of all languages stay.
"""

from typing import Final

_INVISIBLE_LETTERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)
"""Fillers, joiners and variation selectors that Unicode counts as letters or marks although nothing is drawn for them."""
_SHORT: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_BYTE_SURROGATES: Final = range(0xDC80, 0xDD00)


def printable(text: str | bytes) -> str:
    r"""`text` with everything that is not plainly visible as an escape: `\t`, `\x1b`, `\u202e`, `\U000e0001`.

    Bytes are read as UTF-8. A byte that is none, or that came through a file name as a lone surrogate, is shown as `\xff`. What is
    already safe comes back unchanged, so escaping twice does no harm.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each.isprintable() and each not in _INVISIBLE_LETTERS else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x80:
        return f"\\x{code:02x}"
    if code in _BYTE_SURROGATES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
