"""Answers as JSON, to be compared byte by byte but for what depends on where the evidence lies."""

import json
from pathlib import Path
from typing import Any

from kafka_forensics.export.json_document import document
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.results import ScanResult


def text(result: ScanResult, place: str | Path) -> str:
    """The JSON document, with `PLACE` for the path of the input and without `advice`, whose commands name the input."""
    answer = json.loads("".join(document(result)).replace(str(place), "PLACE"))
    answer["tool"]["engine"] = "any"
    for finding in answer["findings"]:
        del finding["advice"]
    return json.dumps(answer, indent=1)


def without_payloads(result: ScanResult, place: str | Path) -> str:
    """The same without what needs the keys and values that a bundle does not hold."""
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
    """Such a text without what pseudonyms change: whose state is where its hash does not put it, the order of rows, messages that
    are cut, bytes of small files, sizes and positions in logs whose records hold names, CRCs, and lengths that no batch has."""
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
    """Take a name out of objects, all the way down."""
    if isinstance(value, dict):
        value.pop(name, None)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            forget(item, name)
