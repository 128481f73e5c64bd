"""Results as JSON, for comparison byte by byte, without what depends on where the evidence is."""

import json
from pathlib import Path
from typing import Any

from kafka_forensics.export.json_document import document
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.results import ScanResult


def text(result: ScanResult, place: str | Path) -> str:
    """The JSON document, with `PLACE` for the path of the input and without `advice`, whose commands contain the path."""
    answer = json.loads("".join(document(result)).replace(str(place), "PLACE"))
    answer["tool"]["engine"] = "any"
    for finding in answer["findings"]:
        del finding["advice"]
    return json.dumps(answer, indent=1)


def without_payloads(result: ScanResult, place: str | Path) -> str:
    """`text` without what needs keys and values, which a bundle does not have."""
    answer = json.loads(text(result, place).replace(".kfb", ""))
    for partition in answer["partitions"]:
        del partition["key_placement"]
    del answer["summary"]["findings"]
    answer["findings"] = [finding for finding in answer["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    for finding in answer["findings"]:
        finding["evidence"].pop("record_bytes", None)
        forget(finding["evidence"], "key_hash")
    return json.dumps(answer, indent=1)


def without_order(text: str) -> str:
    """A `without_payloads` document without what pseudonyms change.

    These are misplaced coordinator state, the order of rows, truncated messages, bytes of small files, sizes and positions in logs
    whose records contain names, CRCs, and lengths that no batch has.
    """
    answer = json.loads(text)
    answer["summary"] = {name: count for name, count in answer["summary"].items() if not name.startswith("bytes_")}
    for partition in answer["partitions"]:
        for replica in partition["replicas"] if partition["topic"] in WITNESS_TOPICS else ():
            del replica["bytes"]
    answer["findings"] = [finding for finding in answer["findings"] if finding["kind"] != "COORDINATOR_STATE_MISPLACED"]
    answer["incidents"] = [incident for incident in answer["incidents"] if incident["cause"] != "settings"]
    for finding in answer["findings"]:
        del finding["message"]
        for name in ("stored_crc", "computed_crc", "declared_length"):
            forget(finding["evidence"], name)
        if finding["kind"] == "CHECKPOINT_MALFORMED" or finding["topic"] in WITNESS_TOPICS:
            del finding["byte_start"], finding["byte_end"]
    for incident in answer["incidents"]:
        del incident["findings"]
    for name in ("partitions", "findings", "incidents"):
        answer[name].sort(key=json.dumps)
    return json.dumps(answer, indent=1)


def forget(value: Any, name: str) -> None:
    """Remove a key from nested objects."""
    if isinstance(value, dict):
        value.pop(name, None)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            forget(item, name)
