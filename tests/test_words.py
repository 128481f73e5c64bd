"""Words that no sentence for users contains: outputs, messages, help and pages use plain English."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = (
    *(
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/*.md",
        "docs/*/*.md",
        "examples/*.ipynb",
        "examples/*.py",
    ),
    *("kafka_forensics/**/*.py", "kafka_forensics/**/*.md", "kafka_forensics/**/*.html", "kafka_forensics/schema/*.json"),
)
"""Files with text for users. Of Python files it is every literal but `ALLOWED_LITERALS`, and the docstrings of commands; of JSON
Schemas, the descriptions.
"""

WORDS: Final = (
    r"so that|so as to|lest|where(?:of|by|upon|fore)|there(?:of|by|in|upon)|here(?:of|by|upon|with)|[wt]hence|of which none",
    r"behind",
    r"(?:its|their|his|her) own",
    r"alike|apart|amid|anew|upon|till|nay|ere|albeit|nought|besides",
    r"gone|said|asked|hears?|hearing",
    r"tell|tells|telling|told|untold|foretells?|foretold|foreseen|heard",
    r"be had",
    r"(?:bear|bears|bearing|bore|borne) (?:\w+ )?out",
    r"(?:go|goes|went) with|stands? still|and the like|no one|whom|riddles?",
    r"(?<!there )(?:is|are|was|were|be) no(?= \w)(?! (?:longer|more|less|fewer|later|earlier|larger|smaller)\b)",
    r"here is to say|(?:is|are) not here|is to be (?:said|told|seen|had)|as it were",
    r"makes? (?:no|any) sense",
    r"kept down|keep down|in silence|for good|beheaded|gravest|gravity",
    r"say(?= --)|says? so with|speaks? (?:of|for|against)|a word of|(?:its|their|the \w+'s|last) word|by right|lawfully",
    r"mend|mends|mended|mending|seal|seals|sealed",
    r"as (?:far|long) as (?:it|they) (?:can|may) be",
)
"""Patterns of words, without regard to case."""
WORD: Final = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})(?![\w-])", re.IGNORECASE)

CODE_WORD: Final = re.compile(
    r"\b(?:so that|so as to|lest|where(?:of|by|upon)|anew|alike|apart|besides|gone|said|asked|told|mend(?:s|ed)?|sealed)\b",
    re.IGNORECASE,
)
"""Words of the list that no docstring and no comment of the package contains."""
NAME_PARTS: Final = frozenset(
    [
        *("alike", "anew", "apart", "asked", "beheaded", "believed", "foretell", "foretold", "gone", "lone", "mended", "mine"),
        *("noticed", "said", "sealed", "sought", "told", "whereof"),
    ]
)
"""Parts of names that say nothing to a reader of Kafka's documentation."""

ALLOWED: Final = {
    "cannot tell which": "a person reads it",
    "behind, ahead:": "values of the column agreement_with_reference",
}
"""Text that may stand although a pattern matches in it, and why."""
ALLOWED_LITERALS: Final = frozenset({"asked", "behind", "mend", "mending", "said", "seal.json"})
"""Literals without a space that may stand: names and values in data, not words of a sentence."""


def test_no_sentence_for_users_has_a_word_of_the_list() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {words}" for path in checked_files() for text in texts_of(path) for words in words_in(text)
    ]
    assert not found, f"{len(found)} sentences\n" + "\n".join(found)


def test_no_docstring_or_comment_has_a_word_of_the_list() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text[max(0, word.start() - 40) : word.end() + 40]}"
        for path in sorted((ROOT / "kafka_forensics").rglob("*.py"))
        for text in _explanations(path.read_text())
        for word in CODE_WORD.finditer(text)
    ]
    assert not found, f"{len(found)} sentences\n" + "\n".join(found)


def test_no_name_is_a_riddle() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "kafka_forensics").rglob("*.py"))
        for name in _names(ast.parse(path.read_text()))
        if NAME_PARTS & set(name.lower().split("_"))
    }
    assert not found, f"{len(found)} names\n" + "\n".join(sorted(found))


@pytest.mark.parametrize(
    "text",
    [
        "the log was cut, so that readers get nothing",
        "the batches behind it are good",
        "a log of its own",
        "this is no plan",
        "--limit goes with --topic",
        "what was lost cannot be told",
        "the newest segment is gone",
        "if the file can still be had",
        "where the checkpoint bears out its epoch",
        "if it was copied in part, say --partial",
    ],
)
def test_a_sentence_with_a_word_of_the_list_is_found(text: str, tmp_path: Path) -> None:
    module, page, kind, notebook, template, schema = (
        tmp_path / name for name in ("a.py", "a.md", "A.md", "a.ipynb", "a.html", "a.json")
    )
    module.write_text(f"def f(x):\n    raise ValueError(f'{{x}}: {text}')\n")
    page.write_text(f"# Page\n\n{text.replace(' ', chr(10), 1)}\n")
    kind.write_text(f"message: {{% if told %}}{{{{ x or '{text}' }}}}{{% endif %}}\n")
    notebook.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": [text]}]}))
    template.write_text(f"<p>{text}</p>\n")
    schema.write_text(json.dumps({"properties": {"x": {"description": text}}}))
    for path in (module, page, kind, notebook, template, schema):
        assert [word for found in texts_of(path) for word in words_in(found)], path.name


@pytest.mark.parametrize(
    "text", ['"""Told in a docstring, which is not for users."""', 'KEY = "said"', 'KEY = "told_by"', "x = 1  # behind it"]
)
def test_keys_comments_and_docstrings_are_not_sentences(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"{text}\n")
    assert not [word for found in texts_of(path) for word in words_in(found)]


def test_a_literal_of_one_word_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('WORDS = ["alike"]\n')
    assert [word for found in texts_of(path) for word in words_in(found)]


def test_code_in_pages_is_not_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("`told_by` and {{ told_by }}\n\n```\nso that\n```\n")
    assert not [word for found in texts_of(path) for word in words_in(found)]


def checked_files() -> Iterator[Path]:
    """All files with text for users."""
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))


def words_in(text: str) -> list[str]:
    """The words of the list in a text, each with the text around it."""
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    return [text[max(0, word.start() - 40) : word.end() + 40] for word in WORD.finditer(text)]


def texts_of(path: Path) -> Iterator[str]:
    """The texts for users in a file."""
    text = path.read_text()
    match path.suffix:
        case ".py":
            parts = _literals(ast.parse(text), "cli/commands" in path.as_posix())
            yield from (part for part in parts if part.strip() not in ALLOWED_LITERALS)
        case ".ipynb":
            cells = json.loads(text)["cells"]
            yield from (_prose("".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown")
        case ".json":
            yield from re.findall(r'"description": "(.*)"', text)
        case _:
            yield from (" ".join(part.split()) for part in _prose(text).split("\n\n"))


_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)|<(?:style|script).*?</(?:style|script)>|<[^>]*>|<!--.*?-->", re.DOTALL)
_TAG: Final = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")


def _prose(page: str) -> str:
    """A page without code: of tags of a template only the texts in quotation marks."""
    page = _TAG.sub(lambda tag: " ".join(_QUOTED.findall(tag[0])), _FENCE.sub("", page))
    return _CODE.sub(" ", page)


def _literals(tree: ast.Module, is_command: bool) -> Iterator[str]:
    """All string literals but docstrings; docstrings of functions if they are help texts."""
    nodes = list(ast.walk(tree))
    unread = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and not (is_command and isinstance(node.value, ast.Constant) and node.col_offset)
    }
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            unread.update(map(id, node.values))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unread:
            yield node.value


def _explanations(code: str) -> Iterator[str]:
    """Docstrings and comments, without the code in them."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(_CODE.sub(" ", node.value.value).split())
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield _CODE.sub(" ", token.string)


def _names(tree: ast.Module) -> Iterator[str]:
    """Names of functions, classes, parameters, attributes and variables, where they are declared."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
