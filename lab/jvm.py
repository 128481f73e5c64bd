"""Runs Java processes: tools to their end, and servers that can be frozen, killed and stopped by their process id."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.errors import LabError, LabTimeoutError
from lab.kafka_jars import kafka_jars

TOOL_TIMEOUT_SECONDS: Final = 60
STOP_TIMEOUT_SECONDS: Final = 60
DUMP_LOG_SEGMENTS: Final = "org.apache.kafka.tools.DumpLogSegments"
LEADER_ELECTION: Final = "org.apache.kafka.tools.LeaderElectionCommand"
STORAGE_TOOL: Final = "kafka.tools.StorageTool"
KAFKA_SERVER: Final = "kafka.Kafka"
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's exit code and output."""

    exit_code: int
    stdout: bytes
    stderr: bytes


def java_command(main_class: str, arguments: Sequence[str], *, jars: Path, options: Sequence[str]) -> list[str]:
    """The command line of a Java main class. Raises LabError without a `java`."""
    java = shutil.which("java")
    if java is None:
        raise LabError("the laboratory needs Java 17 or newer (`java`)")
    return [java, *options, "-cp", f"{jars}/*", main_class, *arguments]


def run_tool(
    main_class: str,
    arguments: Sequence[str],
    *,
    directory: Path | None = None,
    jars: Path | None = None,
    timeout_seconds: float = TOOL_TIMEOUT_SECONDS,
) -> ToolResult:
    """Run a tool of Kafka in `directory` with UTF-8 output and time zone UTC. Raises LabError, subprocess.TimeoutExpired."""
    options = [*QUICK_START, QUIET, "-Xmx256m", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-Duser.timezone=UTC"]
    command = java_command(main_class, arguments, jars=jars or kafka_jars(), options=options)
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_seconds, check=False
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


def run_java(source: Path, arguments: Sequence[str], *, timeout_seconds: float = TOOL_TIMEOUT_SECONDS) -> ToolResult:
    """Compile and run one Java source file of the laboratory with Kafka's classes. Raises subprocess.TimeoutExpired."""
    return run_tool(str(source), arguments, timeout_seconds=timeout_seconds)


def wait_until(awaited: str, condition: Callable[[], bool], *, timeout_seconds: float, step_seconds: float = 0.2) -> None:
    """Poll `condition` until it is true. Raises LabTimeoutError with `awaited` in the message."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LabTimeoutError(f"not within {timeout_seconds:g} s: {awaited}")
        time.sleep(step_seconds)


class JavaServer:
    """A server process; its output goes to the file `output`, and signals go only to its process id."""

    def __init__(
        self,
        name: str,
        main_class: str,
        arguments: Sequence[str],
        *,
        output: Path,
        jars: Path,
        options: Sequence[str] = ("-Xmx384m",),
    ) -> None:
        command = java_command(main_class, arguments, jars=jars, options=[*QUICK_START, *options])
        self.name = name
        self.output = output
        self.frozen = False
        with output.open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until the process has ended, also while it is frozen."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code (negative: ended by that signal), or None while the process runs."""
        return self._process.poll()

    def freeze(self) -> None:
        """Suspend the process (SIGSTOP); its files, sockets and memory stay."""
        self._process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Resume a frozen process (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        """Kill the process (SIGKILL) as in a crash; no error if it has ended."""
        self._process.kill()
        self._process.wait(timeout=STOP_TIMEOUT_SECONDS)

    def stop(self, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> bool:
        """Stop the process (SIGTERM); False if it did not end within `timeout_seconds` and was killed."""
        if not self.running:
            return True
        if self.frozen:
            self.thaw()
        self._process.terminate()
        try:
            self._process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def last_words(self, size: int = 2000) -> str:
        """The last `size` bytes of the process's output, for an error message."""
        return self.output.read_bytes()[-size:].decode(errors="replace") if self.output.exists() else ""

    def mentions(self, text: str) -> bool:
        """Whether the process's output contains `text`."""
        return text.encode() in self.output.read_bytes()
