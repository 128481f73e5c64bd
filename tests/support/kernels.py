"""Runs both forms of a kernel (interpreted and compiled), and chooses the form that plain calls run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_forensics.parsers.kernels.compiling import Kernel, use_compiled, using_compiled
from kafka_forensics.parsers.kernels.records import readable

FORMS = ("interpreted", "compiled")


def call_both_forms(kernel: Kernel[Any], data: bytes, *arguments: Any) -> Any:
    """The answer of a kernel on `data`, which both forms must give; the second form overwrites output arrays of the first."""
    answers = [getattr(kernel, form)(readable(data, compiled=form == "compiled"), *arguments) for form in FORMS]
    assert answers[0] == answers[1]
    return answers[0]


@contextmanager
def kernels(*, compiled: bool) -> Iterator[None]:
    """Make plain calls of kernels run this form, whatever the environment says; afterwards the form they ran before."""
    before = using_compiled()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KAFKA_FORENSICS_KERNELS", raising=False)
        use_compiled(compiled)
        try:
            yield
        finally:
            use_compiled(before)
