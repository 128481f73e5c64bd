"""Results as JSON, for comparison byte by byte, without what depends on where the evidence is."""

import json
from pathlib import Path
from typing import Any

from kafka_forensics.export.json_document import document
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.results import ScanResult


def text(result: ScanResult, place: str | Path) -> str:
    """The JSON document, with `PLACE` for the path of the input and without `advice`, whose commands contain the path."""
    objects = json.loads("".join(document(result)).replace(str(place), "PLACE"))
    objects["tool"]["engine"] = "any"
    for finding in objects["findings"]:
        del finding["advice"]
    return json.dumps(objects, indent=1)


def without_payloads(result: ScanResult, place: str | Path) -> str:
    """`text` without what needs keys and values, which a bundle does not have."""
    objects = json.loads(text(result, place).replace(".kfb", ""))
    for partition in objects["partitions"]:
        del partition["key_placement"]
    del objects["summary"]["findings"]
    objects["findings"] = [finding for finding in objects["findings"] if finding["kind"] != "KEY_PLACEMENT"]
    for finding in objects["findings"]:
        finding["evidence"].pop("record_bytes", None)
        remove_key(finding["evidence"], "key_hash")
    return json.dumps(objects, indent=1)


def without_order(text: str) -> str:
    """A `without_payloads` document without what pseudonyms change.

    These are misplaced coordinator state, the order of rows, truncated messages, bytes of small files, sizes and positions in logs
    whose records contain names, CRCs, and lengths that no batch has.
    """
    objects = json.loads(text)
    objects["summary"] = {name: count for name, count in objects["summary"].items() if not name.startswith("bytes_")}
    for partition in objects["partitions"]:
        for replica in partition["replicas"] if partition["topic"] in WITNESS_TOPICS else ():
            del replica["bytes"]
    objects["findings"] = [finding for finding in objects["findings"] if finding["kind"] != "COORDINATOR_STATE_MISPLACED"]
    objects["incidents"] = [incident for incident in objects["incidents"] if incident["cause"] != "settings"]
    for finding in objects["findings"]:
        del finding["message"]
        for name in ("stored_crc", "computed_crc", "declared_length"):
            remove_key(finding["evidence"], name)
        if finding["kind"] == "CHECKPOINT_MALFORMED" or finding["topic"] in WITNESS_TOPICS:
            del finding["byte_start"], finding["byte_end"]
    for incident in objects["incidents"]:
        del incident["findings"]
    for name in ("partitions", "findings", "incidents"):
        objects[name].sort(key=json.dumps)
    return json.dumps(objects, indent=1)


def remove_key(value: Any, name: str) -> None:
    """Remove a key from nested objects."""
    if isinstance(value, dict):
        value.pop(name, None)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            remove_key(item, name)
