"""The JSON Schemas of the package's documents."""

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import SCHEMA_VERSION


def json_schema(command: str = "scan") -> Json:
    """The JSON Schema (2020-12) of a command's document; `$defs/line` of scan's describes a line of its JSON Lines.

    The schema of `compare` refers to the schema of `scan` by its `$id`.
    """
    text = files("kafka_forensics").joinpath("schema", f"{command}-{SCHEMA_VERSION}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def validate(command: str, *instances: Any, definition: str | None = None) -> None:
    """Validate documents against a command's schema, or against one of its definitions. Raises ValidationError."""
    resources = [Resource.from_contents(json_schema(name)) for name in {"scan", command}]
    registry: Registry[Any] = Registry().with_resources([(str(resource.id()), resource) for resource in resources])
    reference = {"$ref": f"urn:kafka-forensics:{command}-{SCHEMA_VERSION}#/$defs/{definition}"}
    schema = json_schema(command) if definition is None else reference
    for instance in instances:
        Draft202012Validator(schema, registry=registry).validate(instance)
