"""Jobs of Spark: each has a name, ends if no executor works for it, and fails with one sentence.

A thread looks at the stages that run, on Classic by the status tracker, on Connect by the progress that the server reports.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from kafka_forensics.errors import ForensicsError
from kafka_forensics.spark.sessions import is_connect, job_errors, readable_spark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo

LIMIT_SETTING: Final = "spark.kafka_forensics.executorTimeout"
"""Seconds after which a job ends for which no executor works; 0: it waits forever."""
_LIMIT_SECONDS: Final = "600"
WARN_SECONDS: Final = 60.0
POLL_SECONDS: Final = 1.0
_DESCRIPTION: Final = "spark.job.description"


class Stages(NamedTuple):
    """The tasks of the stages that run."""

    running: int
    done: int


def collected(frame: "DataFrame", what: str) -> "pa.Table":
    """The rows of a DataFrame, computed by the job `what`, which is its name in Spark's UI; its end is logged for level INFO.

    Raises UsageError and ForensicsError with one sentence, also if no executor works for the job.
    """
    with readable_spark_errors(), _watched(frame.sparkSession, what):
        started = time.monotonic()
        table = frame.toArrow()
    logging.getLogger(__name__).info("Spark's job (%s) took %.1f s", what, time.monotonic() - started)
    return table


@contextmanager
def _watched(spark: "SparkSession", what: str) -> Iterator[None]:
    """A block whose job has a name and is watched, unless a policy of the cluster forbids the methods that this takes."""
    with ExitStack() as block:
        watch: Watch | None = None
        with suppress(*job_errors()):
            job = (_connect_job if is_connect(spark) else _classic_job)(spark, what, f"kafka-forensics-{uuid4().hex}")
            watch = Watch(what, _settings(spark), block.enter_context(job))
        if watch is None:
            yield
            return
        try:
            with watch.during():
                yield
        except job_errors() as error:
            if watch.reason is None:
                raise
            raise ForensicsError(watch.reason) from error


class RunningJob(NamedTuple):
    """How to look at a job and how to cancel it: `stages` gives None if none runs."""

    stages: "Callable[[], Stages | None]"
    cancel: Callable[[], object]


@contextmanager
def _classic_job(spark: "SparkSession", what: str, tag: str) -> Iterator[RunningJob]:
    """A job of a Classic session, with a description; its stages are all that run in the application."""
    context = spark.sparkContext
    tracker = context.statusTracker()

    def stages() -> Stages | None:
        active = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
        counts = [(stage.numActiveTasks, stage.numCompletedTasks) for stage in active]
        return Stages(*map(sum, zip(*counts, strict=True))) if counts else None

    before = context.getLocalProperty(_DESCRIPTION)
    try:
        context.setJobDescription(f"kafka-forensics: {what}")
        context.addJobTag(tag)  # SparkSession.interruptTag cancels only from the thread that set a tag
        yield RunningJob(stages, partial(context.cancelJobsWithTag, tag))
    finally:
        with suppress(*job_errors(), OSError):  # Java has ended
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]
            context.removeJobTag(tag)


@contextmanager
def _connect_job(spark: "SparkSession", _what: str, tag: str) -> Iterator[RunningJob]:
    """A job of a Connect session, with a tag; its stages are those of the server's last report."""
    last: list[Stages] = []

    def take(stages: "Iterable[StageInfo]", inflight_tasks: int, **_: object) -> None:
        done = [stage.num_completed_tasks for stage in stages]
        last[:] = [Stages(inflight_tasks, sum(done))] if done else []

    handler: Any = take
    spark.registerProgressHandler(handler)
    spark.addTag(tag)
    try:
        yield RunningJob(lambda: last[0] if last else None, partial(spark.interruptTag, tag))
    finally:
        spark.removeTag(tag)
        spark.removeProgressHandler(handler)


class Settings(NamedTuple):
    """Of the watch: `requested` are Spark's settings of executors."""

    limit: float
    requested: str


def _settings(spark: "SparkSession") -> Settings:
    limit = str(spark.conf.get(LIMIT_SETTING, _LIMIT_SECONDS))
    names = ("spark.executor.memory", "spark.executor.cores", "spark.executor.pyspark.memory")
    requested = {name: spark.conf.get(name, "") for name in names}
    return Settings(
        float(limit) if re.fullmatch(r"\d+(?:\.\d+)?", limit) else float(_LIMIT_SECONDS),
        ", ".join(f"{name} {value}" for name, value in requested.items() if value) or "spark.executor.memory",
    )


class Watch:
    """Looks at a job from another thread: `reason` says why it was cancelled, None if it was not."""

    def __init__(self, what: str, settings: Settings, job: RunningJob) -> None:
        self.reason: str | None = None
        self._what, self._settings, self._job = what, settings, job
        self._over = threading.Event()

    @contextmanager
    def during(self) -> Iterator[None]:
        """Look at the job as long as the block lasts."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(POLL_SECONDS)  # a lost cluster does not answer

    def _watch(self) -> None:
        with suppress(*job_errors(), OSError):  # Java or the server has ended, so the job itself fails, too
            self._poll()

    def _poll(self) -> None:
        last_progress = time.monotonic()
        done, warned = 0, False
        while not self._over.wait(POLL_SECONDS):
            now, seen = time.monotonic(), self._job.stages()
            if seen is None or seen.running or seen.done != done:
                last_progress, warned = now, False
            done = done if seen is None else seen.done
            if seen is None or self._over.is_set():
                continue
            if not warned and now - last_progress >= WARN_SECONDS:
                warned = True
                logging.getLogger(__name__).warning("%s", self._waiting(now - last_progress))
            if 0 < self._settings.limit <= now - last_progress:
                self.reason = f"{self._waiting(now - last_progress)}; {LIMIT_SETTING} {self._settings.limit:g} seconds are over"
                self._job.cancel()
                return

    def _waiting(self, seconds: float) -> str:
        return (
            f"no executor has worked on the job ({self._what}) for {seconds:.0f} seconds: a worker must have memory and cores"
            f" for one ({self._settings.requested}), and other jobs must leave them free"
        )
