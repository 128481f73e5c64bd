"""Command lines that read evidence, for tests of properties of every command; and a fake terminal."""

from io import StringIO


class Terminal(StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def evidence_commands(topic: str) -> dict[str, list[str]]:
    """Command → its arguments besides the paths, to read partition 0 of `topic` at least."""
    return {
        "scan": [],
        "compare": ["--topic", topic, "--partition", "0"],
        "transactions": [],
        "epochs": [],
        "metadata": [],
        "groups": [],
        "find": ["--offset", "0", "--topic", topic],
        "plan": ["--topic", topic, "--partition", "0"],
        "dump": ["--topic", topic],
    }


WITHOUT_EVIDENCE = {"collect", "explain", "demo", "doctor"}
"""Commands that read no evidence, or convert it to another form of evidence."""
WITH_OTHER_ARGUMENTS = {"changes", "export", "report", "verify", "recover", "salvage"}
"""Commands that need other arguments than log directories."""
