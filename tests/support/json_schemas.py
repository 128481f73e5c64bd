"""The JSON Schemas of the package's documents."""

import json
from importlib.resources import files

from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import SCHEMA_VERSION


def json_schema(command: str = "scan") -> Json:
    """The JSON Schema (2020-12) of a command's document; `$defs/line` of scan's describes a line of its JSON Lines.

    That of `compare` refers to that of `scan` by its `$id`.
    """
    text = files("kafka_forensics").joinpath("schema", f"{command}-{SCHEMA_VERSION}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
