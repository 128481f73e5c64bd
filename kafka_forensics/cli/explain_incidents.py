"""A known incident as a page: what happened, by what it is known again, which versions; docs/incidents.md shows the trees."""

from collections.abc import Iterator

from kafka_forensics.analysis.incidents import Signature, Weight
from kafka_forensics.judging.partitions import SIGNATURES


def incident_page(name: str) -> str | None:
    """A page of Markdown on the incidents of this issue or row (`KAFKA-10751`, `d6`), in any case; None if there is none."""
    wanted = _plain(name.strip().removeprefix("row "))
    signatures = [signature for signature in SIGNATURES if wanted in _names(signature)]
    return "\n\n".join("\n\n".join(_blocks(signature)) for signature in signatures) + "\n" if signatures else None


def _names(signature: Signature) -> Iterator[str]:
    """What the incident may be called: its row, its issue, and the issue's number where more is said of it."""
    yield signature.incident
    if signature.issue is not None:
        yield _plain(signature.issue)
        yield _plain(signature.issue.split(" ")[0])


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-")


def _blocks(signature: Signature) -> Iterator[str]:
    """The page in paragraphs."""
    issue = "no issue" if signature.issue is None else signature.issue
    yield f"# {signature.incident}: {issue}"
    yield f"{signature.summary[:1].upper()}{signature.summary[1:]}. Named by `INCIDENT_SIGNATURE`."
    lists = (
        ("What must be there for a match", (Weight.MUST,)),
        ("What speaks for it besides", (Weight.EXPECTED, Weight.EXTRA)),
        ("What speaks against it", (Weight.AGAINST,)),
    )
    for heading, weights in lists:
        told = [f"- {condition.text}" for condition in signature.conditions if condition.weight in weights]
        if told:
            yield "\n".join([f"**{heading}.**", "", *told])
    yield f"**Affected.** {signature.affected_versions}."
    yield f"**Fixed in.** {', '.join(signature.fixed_in) or 'no release is known to fix it'}."
    yield (
        "**What to do next.** Find out which version ran at that time; the other findings of the partition say what it cost."
        " `kafka-forensics explain incident-signature` says how far such a likeness goes, and docs/incidents.md, row"
        f" {signature.incident}, shows what is named and what is not."
    )
