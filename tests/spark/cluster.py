"""A real standalone cluster of Spark on loopback, from the pip package: a master, two workers, and drivers, each a process.

Each process leads a session of the operating system, by which all its descendants are found and ended.
"""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from tests.support.places import ROOT

NEWEST: Final = sys.executable
OLDER_VERSION: Final = os.environ.get("OLDER_SPARK", "4.0")
OLDER: Final = str(ROOT / f".venv-spark{OLDER_VERSION}" / "bin" / "python")
"""Interpreters with the newest supported Spark and an older one, for which `make` creates the environment."""
WORKERS: Final = 2
SECONDS_TO_START: Final = 60.0
SECONDS_TO_STOP: Final = 20.0
SECONDS_OF_A_SCAN: Final = 300.0
QUICK_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for short-lived JVMs: quick start, few threads."""
_DRIVE: Final = "import sys; sys.path.append(sys.argv[1]); from tests.spark.driver import main; main()"
"""The driver runs outside of the project, because its workers would otherwise import the package from the current directory."""
_SUBMITTED: Final = (
    "driver.bindAddress=127.0.0.1",
    "driver.host=127.0.0.1",
    "log.level=WARN",
    "ui.enabled=false",
    "sql.shuffle.partitions=2",
)
_MEMORY: Final = ("--driver-memory", "512m", "--executor-memory", "512m")
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
PYTHON_DAEMON: Final = "pyspark.daemon"
"""In the command lines of executors, and of the Python processes that they start."""


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    parent: int
    session: int
    command: str


def processes() -> list[Running]:
    """All processes of this machine except zombies and those that end meanwhile."""
    runnings = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, parent, _, session = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:4]
            command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state not in "ZX":
                runnings.append(Running(int(name), int(parent), int(session), command))
    return runnings


def executors(session: int) -> list[int]:
    return [running.pid for running in processes() if running.session == session and EXECUTOR in running.command]


def python_workers(session: int) -> list[int]:
    runnings = [running for running in processes() if running.session == session and PYTHON_DAEMON in running.command]
    daemons = {running.pid for running in runnings}
    return [running.pid for running in runnings if running.parent in daemons]


def has_open(pid: int, below: Path, end: str = ".log") -> bool:
    """Whether a process has a file open that is below a directory and whose name ends with `end`."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.endswith(end) and target.startswith(f"{below}{os.sep}"):
                    return True
    return False


def peak_memory(pid: int) -> int:
    """The peak resident memory of a process in bytes (`VmHWM`); 0 if the process ended."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return 0 if found is None else int(found[1]) << 10
    return 0


def wait_until(met: Callable[[], bool], what: str, seconds: float, pause: float = 0.05) -> None:
    """Return once `met`. Raises AssertionError when it takes too long."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(pause)


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process that leads a session, then all other processes of the session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_STOP)
    deadline = time.monotonic() + SECONDS_TO_STOP
    while remaining := [running.pid for running in processes() if running.session == process.pid]:
        if process.poll() is None or time.monotonic() > deadline:
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        process.poll()
    process.wait(SECONDS_TO_STOP)


@cache
def spark_home(python: str) -> str:
    """The directory of the pip package of Spark that an interpreter has."""
    command = [python, "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def spark_environment(folder: Path, python: str = sys.executable) -> dict[str, str]:
    """The environment of Spark's processes: the pip package of `python`, loopback, and directories below `folder`."""
    for name in ("conf", "local"):  # two workers that both make `local` at once: one of them could start no executor
        (folder / name).mkdir(parents=True, exist_ok=True)
    unrelated = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return unrelated | {
        "SPARK_HOME": spark_home(python),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOG_DIR": str(folder / "log"),
        "SPARK_PID_DIR": str(folder / "pid"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


def submitted(
    script: Path,
    arguments: Sequence[Path | str],
    *,
    master: str,
    folder: Path,
    environment: dict[str, str],
    options: Sequence[str] = (),
) -> "subprocess.CompletedProcess[str]":
    settings = [word for setting in _SUBMITTED for word in ("--conf", f"spark.{setting}")]
    command = [os.path.join(environment["SPARK_HOME"], "bin", "spark-submit"), "--master", master, *_MEMORY, *options, *settings]
    command += [str(script), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False)


@dataclass
class Cluster:
    """A running cluster: the URL of its master, the interpreter of workers and drivers, and its worker processes."""

    url: str
    folder: Path
    python: str
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def executors(self) -> list[int]:
        return [pid for worker in self.workers for pid in executors(worker.pid)]

    def python_workers(self) -> list[int]:
        return [pid for worker in self.workers for pid in python_workers(worker.pid)]

    def executor_stderr(self) -> str:
        """What all executors wrote to standard error."""
        return "\n".join(file.read_text(errors="replace") for file in sorted((self.folder / "work").glob("*/*/stderr")))


@contextlib.contextmanager
def spark_process(
    log: Path, environment: dict[str, str], wanted: str, *arguments: str
) -> "Iterator[tuple[subprocess.Popen[bytes], str]]":
    """A process of Spark, and the text of its log that matches `wanted`, which shows that it is up; ended with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [os.path.join(environment["SPARK_HOME"], "bin", "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=environment,
            start_new_session=True,
        )
    matches: list[str] = []

    def is_up() -> bool:
        text = log.read_text(errors="replace")
        assert process.poll() is None, f"{log.name}: ended before it was up: {text[-2000:]}"
        matches[:] = re.findall(wanted, text)
        return bool(matches)

    try:
        wait_until(is_up, log.name, SECONDS_TO_START, pause=0.1)
        yield process, matches[0]
    finally:
        end(process)


@contextlib.contextmanager
def cluster(folder: Path, python: str = sys.executable) -> Iterator[Cluster]:
    """A cluster of the Spark that `python` has, with two workers of one core, that runs during the block.

    The workers have different loopback addresses, because Spark runs a speculative attempt of a task only on another host.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = spark_environment(folder, python)
    with contextlib.ExitStack() as stack:

        def start(name: str, wanted: str, *arguments: str, host: str = "127.0.0.1") -> "tuple[subprocess.Popen[bytes], str]":
            address = ("--host", host, "--port", "0", "--webui-port", "0")
            variables = environment | {"SPARK_LOCAL_IP": host}
            return stack.enter_context(spark_process(folder / f"{name}.log", variables, wanted, *arguments, *address))

        _, url = start("master", r"Starting Spark master at (spark://\S+)", _MASTER)
        running = Cluster(url, folder, python)
        for number in range(1, WORKERS + 1):
            arguments = (_WORKER, "--cores", "1", "--memory", "1g", url)
            worker, _ = start(f"worker-{number}", "Successfully registered with master", *arguments, host=f"127.0.0.{number}")
            running.workers.append(worker)
        yield running


class Driver:
    """A process with a Spark session that runs scans and exports on request: `tests.spark.driver`."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._python = python
        self.log = folder / "driver.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [python, "-W", "ignore", "-c", _DRIVE, str(ROOT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
                env=spark_environment(folder, python),
                start_new_session=True,
            )

    def session(self, master: str, *, python: str | None = None, **settings: str) -> None:
        """End the session and start a new one; workers run `python` or the driver's interpreter. Settings have `_` for `.`."""
        self._send({"do": "session", "master": master, "python": python or self._python, "settings": settings})
        self.take().ok()

    def scan(self, *paths: Path | str, **options: Any) -> "Answer":
        self.send_scan(*paths, **options)
        return self.take()

    def send_scan(self, *paths: Path | str, **options: Any) -> None:
        """Request a scan with fields of `ScanOptions` and `TaskSizes`, and `as_the_command` for the errors of the command."""
        self._send({"do": "scan", "paths": [str(path) for path in paths], **options})

    def export(self, *paths: Path | str, output: Path, **options: Any) -> "Answer":
        self.send_export(*paths, output=output, **options)
        return self.take()

    def send_export(self, *paths: Path | str, output: Path, **options: Any) -> None:
        """Request an export with payloads, with fields of `ScanOptions`, `facts` and `split_bytes`."""
        self._send({"do": "export", "paths": [str(path) for path in paths], "output": str(output), **options})

    def _send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def ready(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout(), selectors.EVENT_READ)
            return bool(selector.select(0))

    def take(self) -> "Answer":
        """The answer to the last request. Raises AssertionError if none comes."""
        wait_until(lambda: self.ready() or self.process.poll() is not None, "the driver's answer", SECONDS_OF_A_SCAN)
        line = self._stdout().readline()
        assert line, f"the driver ended: {self.log.read_text(errors='replace')[-4000:]}"
        return Answer(json.loads(line))

    def _stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS_TO_STOP)

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(SECONDS_TO_STOP)
        end(self.process)
        self._stdout().close()


@dataclass(frozen=True)
class Answer:
    values: dict[str, Any]

    def ok(self) -> "Answer":
        """Itself. Raises AssertionError for an error."""
        assert "error" not in self.values, self.values
        return self

    @property
    def document(self) -> str:
        return str(self.ok().values["document"])

    @property
    def tasks(self) -> dict[str, int]:
        """Fact → number of its tasks in an export."""
        return dict(self.ok().values["tasks"])

    @property
    def error(self) -> tuple[str, str, str]:
        """(class, text, hint) of the error. Raises AssertionError if there was none."""
        assert "error" in self.values, self.values
        return self.values["error"], self.values["text"], self.values["hint"] or ""


@contextlib.contextmanager
def driver(folder: Path, python: str = sys.executable) -> Iterator[Driver]:
    started = Driver(folder, python)
    try:
        yield started
    finally:
        started.close()
