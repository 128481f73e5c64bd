"""What a fork's evidence says, in words: its versions, who holds them, and where Kafka cuts."""

from kafka_forensics.model.findings import Finding
from kafka_forensics.model.json_objects import Json
from kafka_forensics.wording.values import LIST_LIMIT, clean, listed, named_brokers, span


def versions_held(finding: Finding) -> str | None:
    """`epoch 2 on broker 1 against epoch 0 on brokers 2 and 3`."""
    texts = []
    for side in _sides(finding)[:LIST_LIMIT]:
        brokers, epoch = named_brokers(side.get("brokers")), side.get("epoch", -1)
        if brokers:
            texts.append(brokers if epoch in (-1, None) else f"epoch {clean(epoch)} on {brokers}")
    return " against ".join(texts) or None


def not_whole(finding: Finding) -> str | None:
    """`offsets 300 to 309 lie damaged on broker 2`: of holders of which none has all."""
    rows = finding.evidence.get("not_whole")
    damaged: dict[str, list[str]] = {}
    for row in rows[:LIST_LIMIT] if isinstance(rows, (list, tuple)) else []:
        offsets = span(row.get("offset_start"), row.get("offset_end"), "offset") if isinstance(row, dict) else None
        if offsets is not None:
            damaged.setdefault(clean(row.get("broker")), []).append(offsets)
    return " and ".join(f"{listed(spans)} lie damaged on broker {broker}" for broker, spans in damaged.items()) or None


def truncation(finding: Finding) -> str | None:
    """Where a follower would be cut; both offsets where the checkpoint file and the batches say different ones. Who is cut behind
    what is lost is not cut there."""
    known = [offset for row in _cuts(finding) for offset in (row.get("from_batches"), row.get("from_checkpoint"))]
    cuts = {offset for offset in known if isinstance(offset, int) and offset >= 0 and not _spares(finding, offset)}
    return " or ".join(map(clean, sorted(cuts))) or None


def kept_by(finding: Finding) -> str | None:
    """`leader-epoch-checkpoint`, where by that file Kafka would not cut a loss that it cuts by the batches."""
    spared = any(
        _spares(finding, row.get("from_checkpoint")) and not _spares(finding, row.get("from_batches")) for row in _cuts(finding)
    )
    return "leader-epoch-checkpoint" if spared else None


def _spares(finding: Finding, cut: object) -> bool:
    """Whether nothing of a loss is behind a cut."""
    end = finding.place.offset_end
    return finding.kind == "UNCLEAN_LOSS" and isinstance(cut, int) and end is not None and cut >= end


def _cuts(finding: Finding) -> list[Json]:
    """Rows of what the holders would be cut at."""
    rows, holders = finding.evidence.get("truncation_offsets"), finding.evidence.get("held_by") or None
    given = [row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict)]
    return [row for row in given if not isinstance(holders, list) or row.get("follower", holders[0]) in holders]


def successor(finding: Finding) -> str:
    """Whom the holders of a loss will follow: by name where the sides of the fork do not say it."""
    leaders, sides = finding.evidence.get("leaders"), _sides(finding)
    led = [side for side in sides if side.get("brokers") == leaders]
    brokers, epoch = named_brokers(leaders), finding.evidence.get("latest_epoch")
    if brokers is None or (led and len(sides) == 2):
        return "the new leader"
    return f"the new leader, {brokers}{f' in epoch {clean(epoch)}' if isinstance(epoch, int) and epoch >= 0 else ''}"


def rivals(finding: Finding) -> str | None:
    """`offsets 300 to 344 on broker 1`: what is committed of the versions that no holder of the loss has."""
    start, holders, texts = finding.evidence.get("offset"), finding.evidence.get("held_by"), []
    if not isinstance(start, int) or start < 0 or not isinstance(holders, list):
        return None
    for side in _sides(finding)[:LIST_LIMIT]:
        brokers = named_brokers(side.get("brokers"))
        ends = [end for end in (side.get("high_watermark"), side.get("log_end_offset")) if isinstance(end, int)]
        if brokers and len(ends) == 2 and min(ends) > start and not any(broker in holders for broker in side["brokers"]):
            texts.append(f"{span(start, min(ends), 'offset')} on {brokers}")
    return " and ".join(texts) or None


def _sides(finding: Finding) -> list[Json]:
    versions = finding.evidence.get("versions")
    return [side for side in versions if isinstance(side, dict)] if isinstance(versions, (list, tuple)) else []
