"""docs/clusters.md: whatever is asked of the audit there it understands, in each service's form."""

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

TEXT = (ROOT / "docs" / "clusters.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *(?:spark-submit|gcloud dataproc \w+ submit|aws emr)(?:'[^']*'|\\\n|[^'\n])*", re.MULTILINE)
SCRIPT = "nightly_audit.py"


def asked() -> Iterator[list[str]]:
    """The arguments of every audit on the page."""
    for language, block in BLOCKS:
        if language == "json":
            yield json.loads(block)["tasks"][0]["spark_python_task"]["parameters"]
            continue
        for command in COMMAND.findall(block):
            words = shlex.split(command.replace("\\\n", " "))
            if words[-1].startswith(("[", "{")):
                yield of_json(json.loads(words[-1]))
            else:
                [script] = [number for number, word in enumerate(words) if word.endswith(SCRIPT)]
                yield words[words.index("--") + 1 if "--" in words else script + 1 :]


def of_json(job: Any) -> list[str]:
    """Those of a step or a job run of EMR."""
    if isinstance(job, dict):
        return list(job["sparkSubmit"]["entryPointArguments"])
    words = job[0]["Args"]
    return list(words[[word.endswith(SCRIPT) for word in words].index(True) + 1 :])


AUDITS = list(asked())


def test_every_form_is_there() -> None:
    assert len(AUDITS) == 8


@pytest.mark.parametrize("words", AUDITS, ids=lambda words: words[0])
def test_the_audit_understands_it(words: list[str]) -> None:
    understood = runpy.run_path(str(ROOT / "examples" / SCRIPT))["parse_arguments"](words)
    assert understood.snapshot == "2026-11-25"
    [path] = understood.paths
    assert path.removesuffix("/*").endswith("/snapshots/2026-11-25")
    assert Path(understood.output).name in ("audits", "kafka")
