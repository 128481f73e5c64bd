"""Command lines that read evidence, for what every one of them owes; and a terminal to say it on."""

from io import StringIO


class Terminal(StringIO):
    """What is written to a screen."""

    def isatty(self) -> bool:
        return True


def reading(topic: str) -> dict[str, list[str]]:
    """Command → what it is given beside the paths, to look at partition 0 of `topic` or at more."""
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
"""Commands that read no evidence, or make something of it that is read as evidence is."""
OF_THEIR_OWN = {"changes", "export", "report", "verify", "recover", "salvage"}
"""Commands that are given something else than log directories alone."""
