"""Both forms of kernels: what they answer, which must be one, and which of them plain calls run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_forensics.parsers.kernels.compiling import Kernel, use_compiled, using_compiled
from kafka_forensics.parsers.kernels.records import readable

FORMS = ("interpreted", "compiled")


def both(kernel: Kernel[Any], data: bytes, *arguments: Any) -> Any:
    """The answer of both forms of a kernel that looks at `data`, which must be one; what they write into, the second overwrites."""
    answers = [getattr(kernel, form)(readable(data, compiled=form == "compiled"), *arguments) for form in FORMS]
    assert answers[0] == answers[1]
    return answers[0]


@contextmanager
def kernels(*, compiled: bool) -> Iterator[None]:
    """Plain calls of kernels run this form, whatever the environment says, and then the one that they ran before."""
    before = using_compiled()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KAFKA_FORENSICS_KERNELS", raising=False)
        use_compiled(compiled)
        try:
            yield
        finally:
            use_compiled(before)
