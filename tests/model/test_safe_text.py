"""`printable` escapes all invisible characters, and no visible one."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.safe_text import printable, unquoted

ANY_TEXT = st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None), max_size=40) | st.text(
    st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs", "Mn"]), max_size=10
)


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        ("audit-0", "audit-0"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x07\x7f\x00", r"\x07\x7f\x00"),
        ("a\tb\r\nc", r"a\tb\r\nc"),
        ("\x9b31m\x85", r"\u009b31m\u0085"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\u2066\u2069\u200e\u200f\u061c", r"\u2066\u2069\u200e\u200f\u061c"),
        ("\u200b\u200d\ufeff\u2060", r"\u200b\u200d\ufeff\u2060"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800x", r"\ud800x"),
        ("\udcff", r"\xff"),
        ("\ue000\U000e0041", r"\ue000\U000e0041"),
        ("\u3164\ufe0f\u034f", r"\u3164\ufe0f\u034f"),
        ("Zürich, Παρίσι, 東京, القاهرة, हिन्दी, 🙂", "Zürich, Παρίσι, 東京, القاهرة, हिन्दी, 🙂"),
        (b"key\xff\x1b", r"key\xff\x1b"),
        ("naïve".encode(), "naïve"),
    ],
)
def test_examples_are_escaped(raw: str | bytes, escaped: str) -> None:
    assert printable(raw) == escaped


@given(ANY_TEXT)
def test_invisible_characters_are_escaped(text: str) -> None:
    escaped = printable(text)
    assert not {unicodedata.category(letter) for letter in escaped} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    escaped.encode("utf-8")


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_plain_text_is_unchanged(text: str) -> None:
    assert printable(text) == text


@given(ANY_TEXT)
def test_unquoted_text_has_no_backtick_and_is_printable(raw: str) -> None:
    assert "`" not in unquoted(raw)
    assert unquoted(unquoted(raw)) == printable(unquoted(raw)) == unquoted(raw)
    assert unquoted("a `b`") == r"a \x60b\x60"
