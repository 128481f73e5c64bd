"""A plugin for pytest: both forms of every kernel are the interpreted one, so that a mutated kernel need not be compiled."""

import os

from kafka_forensics import compiled

os.environ["KAFKA_FORENSICS_KERNELS"] = "interpreted"
compiled.use_compiled(compiled=False)
compiled.Kernel.compiled = property(lambda kernel: kernel.interpreted)  # type: ignore[assignment]
