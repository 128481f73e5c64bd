"""The Spark session of a command: made for it, watched while it works, and stopped after it.

Spark's Java says much on standard error that is none of the user's business. What it says goes through a pipe here: how far its
stages are becomes our progress.
"""

import logging
import os
import re
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli.interrupts import Children
from kafka_forensics.cli.options import Workplace
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Destination
from kafka_forensics.errors import ForensicsError
from kafka_forensics.spark.sessions import JavaWords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_forensics.spark.sessions import Session

_STAGES: Final = re.compile(rb"\[Stage (\d+):[^\]]*?\((\d+) \+ \d+\) / (\d+)\]")


@contextmanager
def stopping(screen: Destination, place: Workplace, jobs: int, *, quiet: bool) -> "Iterator[Session]":
    """A session of a Connect server, of a master, or of this machine with `jobs` cores; stopped at the end.

    Raises UsageError where it cannot be had.
    """
    from kafka_forensics.spark import default_builder, session
    from kafka_forensics.spark.sessions import failures_told, shown

    remote = place.spark_remote
    where = remote or place.spark_master or f"local[{jobs},4]"
    _say(screen, f"starting Spark ({where})" if remote is None else f"connecting to Spark ({shown(where)})", quiet=quiet)
    logging.getLogger().addHandler(logging.NullHandler())  # else a library's complaint would come with a trace on stderr
    if remote is not None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we say what goes wrong; its library would log it as well
    with (
        Children() as children,
        Progress(screen, quiet=quiet, tasks=True) as progress,
        JavaWords(partial(_stages_told, progress)) as heard,
    ):
        with failures_told(where, heard), heard.child():
            if remote is not None:  # with local[N] a server of our own
                spark = session(remote=remote)
            else:
                spark = default_builder(where).config("spark.ui.showConsoleProgress", "true").getOrCreate()
        with _used(spark, children):
            yield spark


@contextmanager
def _used(spark: "Session", children: Children) -> "Iterator[None]":
    """Stop a session at the end; one that is gone already cannot be stopped, and that was told."""
    from kafka_forensics.spark.sessions import failures_told

    children.listen()  # Spark has its own way with interruptions, which traces of its talk with Java come of
    try:
        with failures_told():
            yield
    finally:
        if not children.interrupted:
            with suppress(ForensicsError), failures_told():
                spark.stop()


def _say(screen: Destination, words: str, *, quiet: bool) -> None:
    if not quiet and screen.stream.isatty():
        screen.stream.write(words + "\n")
        screen.stream.flush()


def _stages_told(progress: Progress, line: bytes) -> None:
    """How far Spark's stages are, if that is what Java says in a line."""
    stages = _STAGES.findall(line)
    if stages:
        progress(sum(int(done) for _, done, _ in stages), sum(int(total) for _, _, total in stages))
