"""A pytest plugin that runs every kernel as interpreted Python, so that a mutated kernel need not be compiled."""

import os

from kafka_forensics.parsers.kernels import compiling

os.environ["KAFKA_FORENSICS_KERNELS"] = "interpreted"
compiling.use_compiled(compiled=False)
compiling.Kernel.compiled = property(lambda kernel: kernel.interpreted)  # type: ignore[assignment,method-assign]
