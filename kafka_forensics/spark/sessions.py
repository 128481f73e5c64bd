"""Spark sessions: on this machine quiet, on the loopback address, and with this Python interpreter for workers.

Java processes write much to standard output and error while they start, and there say why they do not start. They get a pipe of
ours, and a thread reads its other end as long as the process lives.
"""

import logging
import os
import re
import shutil
import socket
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakKeyDictionary

from kafka_forensics.errors import ForensicsError, UsageError
from kafka_forensics.model.safe_text import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession  # for packages that must not import pyspark


_READ_BYTES: Final = 4096
_MAX_LINE_BYTES: Final = 1 << 16
_LINES_KEPT: Final = 64
_MAX_REASON_LENGTH: Final = 400
_SECONDS_TO_END: Final = 2.0
_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting (?:default|Spark) log level to"
    rb"|To adjust logging level use|\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:WARN|INFO) "
)
"""Usual lines of a start."""
_NO_REASON: Final = re.compile(
    r"\s*(?:$|at |\.\.\. \d+ more|WARNING: |# An error report|# +/|#\s*$|\S*spark-class: line"
    r"|Error: Could not create the Java Virtual Machine|Error: A fatal exception has occurred)"
)
"""Lines of a failed start that do not give the reason."""


class JavaOutput:
    """A context in which `child` gives the pipe to processes; `take` gets each line of their output, also after its end."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._last: deque[bytes] = deque(maxlen=_LINES_KEPT)
        self._read, self._write = os.pipe()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The listener ends when the last process with the other end does, or with this process."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    @contextmanager
    def child(self) -> Iterator[None]:
        """Processes that are started in the block get the pipe as standard output and error, because Java uses both."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        originals = {}
        for number in (1, 2):
            with suppress(OSError):  # it is closed
                originals[number] = os.dup(number)
        for number in originals:
            os.dup2(self._write, number)
        try:
            yield
        finally:
            for number, original in originals.items():
                os.dup2(original, number)
                os.close(original)

    def reason(self) -> str | None:
        """Why the process has ended: the last line that may say so, escaped for terminals; None if there is no such line."""
        self.__exit__()
        self._listener.join(_SECONDS_TO_END)
        for line in reversed(list(self._last)):
            text = line.decode("utf-8", "backslashreplace")
            if _NO_REASON.match(text) is None and _NOISE.match(line) is None:
                return printable(text).strip().removeprefix("# ")[:_MAX_REASON_LENGTH]
        return None

    def _listen(self) -> None:
        rest = b""
        while output := os.read(self._read, _READ_BYTES):
            *lines, rest = re.split(rb"[\r\n]", rest + output)
            if len(rest) > _MAX_LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._add(line)
        if rest:
            self._add(rest)
        os.close(self._read)

    def _add(self, line: bytes) -> None:
        self._last.append(line)
        self._take(line)


class StartupOutput:
    """Writes Java's output to standard error: unusual lines of its start once it has started, and all later lines at once."""

    def __init__(self) -> None:
        self._pending: list[bytes] | None = []
        self._lock = threading.Lock()

    def take(self, line: bytes) -> None:
        """Add a line."""
        with self._lock:
            if self._pending is None:
                _write_to_stderr(line)
            elif line and _NOISE.match(line) is None:
                self._pending.append(line)

    def done(self) -> None:
        """Java has started."""
        with self._lock:
            pending, self._pending = self._pending or [], None
            for line in pending:
                _write_to_stderr(line)


def _write_to_stderr(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line + b"\n")


_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_PORTS: Final = {"sc": 15002, "spark": 7077}
_SERVER_URL: Final = re.compile(r"(sc|spark)://([^/;?]+)")
_MASTER: Final = re.compile(
    r"local(?:\[(?:\d+|\*)\s*(?:,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://[^/;?]+|yarn|k8s://.+"
)
_MASTERS: Final = "for example local, local[4], local[*], spark://host:port, yarn or k8s://https://host:port"
_CAUSE: Final = re.compile(
    r"^[\s:]*(?:Caused by: |Exception in thread \"[^\"]*\" )?((?:[\w$]+\.)*[\w$]*(?:Exception|Error)\b.*)$", re.MULTILINE
)
_NO_SPACE: Final = "No space left on device"
_WORKER: Final = re.compile(r"\(TID \d+\) \(([^\s()]+) executor")
_JAVA_ENDED: Final = "[JAVA_GATEWAY_EXITED]"
_ANSWER_SECONDS: Final = 10.0
"""Until a connection is established."""
CONNECT_SECONDS: Final = 30.0
"""Until a server of Spark Connect answers a first request; its client would retry for many minutes."""
OLDEST: Final = (4, 0)
"""The oldest pyspark with Python data sources."""
_INSTALL: Final = "pip install 'kafka-forensics[spark]'"
_JAVA: Final = "install Java 17 or newer (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
_SHORT: Final = {"spark.sql.connect.serverStacktrace.enabled": "false"}
"""Errors of Connect without the 8,000 characters of the server's stack."""
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    **_SHORT,
}


def require_pyspark() -> None:
    """Raise UsageError unless pyspark is installed and new enough."""
    try:
        import pyspark
    except ImportError as error:
        raise UsageError("pyspark is not installed", hint=_INSTALL) from error
    if _release(str(pyspark.__version__)) < OLDEST:
        raise UsageError(f"pyspark {pyspark.__version__} is too old: Python data sources need 4.0 or newer", hint=_INSTALL)


def is_connect(spark: "SparkSession") -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_server_of_client(spark: "SparkSession") -> None:
    """Raise UsageError if the client of a Connect server is newer than the server, which then lacks what it requests."""
    if (sentence := newer_than_server(spark)) is not None:
        server = str(spark.version)
        raise UsageError(sentence, hint=f"pip install 'pyspark=={server}' here, or run a newer Spark there")


def newer_than_server(spark: "SparkSession") -> str | None:
    """A sentence with both versions if the client of a Connect server is of a newer release than the server; else None."""
    import pyspark

    if not is_connect(spark):
        return None
    client, server = str(pyspark.__version__), str(spark.version)
    if _release(client) <= _release(server):
        return None
    return f"this client has Spark {client}, and the Connect server has Spark {server}: a client must not be newer than the server"


def core_count(spark: "SparkSession") -> int | None:
    """How many tasks Spark runs at once, by the plan of a small query; None if the plan does not say."""
    plan = str(spark.sql("EXPLAIN SELECT * FROM range(1)").head())
    splits = re.search(r"splits=(\d+)", plan)
    return None if splits is None else int(splits[1])


_LOGGED: "Final[WeakKeyDictionary[SparkSession, set[str]]]" = WeakKeyDictionary()


def is_new_note(spark: "SparkSession", text: str) -> bool:
    """Whether a session has not logged this note before; it has from now on."""
    logged = _LOGGED.setdefault(spark, set())
    is_new = text not in logged
    logged.add(text)
    return is_new


def warn_once(spark: "SparkSession", text: str) -> None:
    """Log a warning once a session."""
    if is_new_note(spark, text):
        logging.getLogger(__name__).warning("%s", text)


@contextmanager
def notes_once(spark: "SparkSession") -> Iterator[None]:
    """A block that logs each note about the inputs once a session."""

    def is_new(record: logging.LogRecord) -> bool:
        return is_new_note(spark, record.getMessage())

    modules = ("evidence.inputs", "evidence.options", "evidence.paths", "questions.changes.snapshots")
    loggers = [logging.getLogger(f"kafka_forensics.{module}") for module in modules]
    for logger in loggers:
        logger.addFilter(is_new)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_new)


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def require_java() -> None:
    """Raise UsageError unless Spark will find Java."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise UsageError(f"JAVA_HOME is {home}, where there is no bin/java", hint=_JAVA)
    if not home and shutil.which("java") is None:
        raise UsageError("Spark needs Java, which is not installed", hint=_JAVA)


def without_url_parameters(place: str) -> str:
    """A master or the URL of a Connect server without its parameters, one of which may be a token."""
    return re.split(r"/?[;?]", place, maxsplit=1)[0]


def job_errors() -> tuple[type[Exception], ...]:
    """The exceptions of failed jobs; a client of Connect alone has no Py4J."""
    from pyspark.errors import PySparkException

    if not _is_installed("py4j"):
        return (PySparkException,)
    from py4j.protocol import Py4JError

    return PySparkException, Py4JError


@contextmanager
def readable_spark_errors(starting: str | None = None, java: JavaOutput | None = None) -> "Iterator[None]":
    """Turn errors of Spark into one line: UsageError while it starts at the URL `starting`, else ForensicsError.

    `java` has the output of the Java process that is started in the block.
    """
    errors: list[type[Exception]] = [*job_errors(), ConnectionRefusedError, ConnectionResetError]
    if _is_installed("grpc"):
        from grpc import RpcError  # type: ignore[import-untyped]

        errors.append(RpcError)
    try:
        yield
    except tuple(errors) as error:
        reason = root_cause(str(error))
        if starting is None:
            raise known_error(str(error)) or ForensicsError(f"Spark did not finish: {reason}{_full_disk(str(error))}") from error
        if java is not None and _JAVA_ENDED in reason and (last_line := java.reason()) is not None:
            reason = f"Java ended with: {last_line}"
        reason = reason.replace(starting, without_url_parameters(starting))
        raise UsageError(
            f"Spark does not start at {without_url_parameters(starting)}: {reason}",
            hint="`kafka-forensics doctor` checks Java and Spark",
        ) from error


MORE_MEMORY: Final = "raise spark.executor.pyspark.memory if it is set, else spark.executor.memoryOverhead"
_OUT_OF_MEMORY: Final = r"\w*MemoryError|can't start new thread|Cannot allocate memory|failed to map segment|std::bad_alloc"
"""In Python, numpy, the loader of shared objects, and Arrow."""
_KNOWN: Final[tuple[tuple[str, type[UsageError | ForensicsError], str], ...]] = (
    (
        r"serialized results of \d+ tasks \(([^)]*)\) is bigger than spark\.driver\.maxResultSize \(([^)]*)\)",
        ForensicsError,
        "the answers of tasks ({0}) exceed spark.driver.maxResultSize ({1}): raise it, and spark.driver.memory to twice as much",
    ),
    (
        r"No module named '([\w.]+)'",
        UsageError,
        "Spark's workers have no module {0}: install the same kafka-forensics for their interpreter (PYSPARK_PYTHON)",
    ),
    (
        r'Cannot run program "([^"\n]+)"',
        UsageError,
        "Spark's workers cannot run {0}: set PYSPARK_PYTHON or spark.pyspark.python to a Python that every worker has",
    ),
    (
        r"(?m)^(.*(?:PYTHON_VERSION_MISMATCH|Can't get attribute).*)$",
        UsageError,
        "Spark's workers cannot do the work: {0}: install the same kafka-forensics and Python there (PYSPARK_PYTHON)",
    ),
    (
        r"java\.lang\.(OutOfMemoryError: [^\n]*)",
        ForensicsError,
        "Java has too little memory for Spark ({0}): raise spark.driver.memory and spark.executor.memory",
    ),
    (
        rf"\b({_OUT_OF_MEMORY})",
        ForensicsError,
        "Python on a worker of Spark has too little memory ({0}): " + MORE_MEMORY,
    ),
    (
        r"(Python worker exited unexpectedly|java\.net\.SocketException: (?:Connection reset|Broken pipe))",
        ForensicsError,
        "Python on a worker of Spark ended during a task, probably for lack of memory ({0}): " + MORE_MEMORY,
    ),
)
"""What a text of Spark matches → the error, and its sentence with the setting to change."""
_PROJECT_ERROR: Final = re.compile(r"kafka_forensics\.errors\.\w+: ")


def known_error(text: str) -> ForensicsError | None:
    """The error for a failure of Spark that a setting cures, None for another one; our own errors, in any words, are not."""
    for pattern, kind, sentence in () if _PROJECT_ERROR.search(text) else _KNOWN:
        if (match := re.search(pattern, text)) is not None:
            return kind(sentence.format(*map(str.strip, match.groups())))
    return None


def _full_disk(text: str) -> str:
    """Which disk of Spark's local directories is full, if Spark says so; errors about other files name their paths."""
    if _NO_SPACE not in text:
        return ""
    worker = _WORKER.search(text)
    where = "on the driver or a worker" if worker is None else f"on the worker {worker[1]}"
    return f"; the disk of Spark's local directories is full {where} (spark.local.dir or SPARK_LOCAL_DIRS, /tmp unless set)"


def root_cause(text: str) -> str:
    """The line with the innermost cause in a Java stack trace, else the first line."""
    causes = (
        re.findall(r"^\s*Caused by: (.+)$", text, re.MULTILINE)
        or _CAUSE.findall(text)
        or text.strip().splitlines()
        or ["no reason given"]
    )
    return str(causes[-1] if "Caused by: " in text else causes[0]).strip()


def builder(master: str) -> "SparkSession.Builder":
    """`spark.default_builder`."""
    require_pyspark()
    require_java()
    from pyspark.sql import SparkSession

    if _MASTER.fullmatch(master) is None:
        raise UsageError(f"there is no Spark master {without_url_parameters(master)}", hint=_MASTERS)
    _require_listening(master)
    _run_this_python()
    is_local = master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))
    return _configured(SparkSession.builder.appName("kafka-forensics").master(master), is_local=is_local)


def _configured(session_builder: "SparkSession.Builder", *, is_local: bool) -> "SparkSession.Builder":
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in (_QUIET | _LOOPBACK if is_local else _QUIET).items():
        session_builder = session_builder.config(name, value)
    return session_builder


def started(master: str) -> "SparkSession":
    """The running Classic session if there is one, else one of `builder`, whose Java writes nothing while it starts.

    Raises UsageError if it does not start.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    session_builder, output = builder(master), StartupOutput()
    with JavaOutput(output.take) as java:
        with readable_spark_errors(master, java), java.child():
            spark = session_builder.getOrCreate()
        output.done()
    return spark


def connected(remote: str) -> "SparkSession":
    """A session of a Connect server, or with `local[N]` of a server that is started here.

    Raises UsageError if its client is not completely installed, and ForensicsError if the server does not answer.
    """
    require_pyspark()
    for module, package in (("grpc", "grpcio"), ("grpc_status", "grpcio-status"), ("google.rpc", "googleapis-common-protos")):
        if not _is_installed(module):
            raise UsageError(f"the client of Spark Connect needs {package}", hint=_INSTALL)
    from pyspark.sql import SparkSession

    _require_listening(remote)
    if remote.startswith("sc://"):
        _require_spark_connect(remote)
    session_builder = SparkSession.builder.remote(remote)
    if remote.startswith("local"):
        require_java()
        _run_this_python()
        session_builder = _configured(session_builder, is_local=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to set", UserWarning)  # static options: the server has them already
        spark = session_builder.getOrCreate()
    for name, value in _SHORT.items():
        spark.conf.set(name, value)
    return spark


def _require_listening(url: str) -> None:
    """Raise UsageError unless a server listens at a `sc://` or `spark://` URL; Spark itself would retry for many minutes."""
    address = _SERVER_URL.match(url)
    if address is None:
        return
    reasons = []
    for place in address[2].split(","):
        host, _, port = place.rpartition(":") if re.search(r":\d{1,5}$", place) else (place, "", str(_PORTS[address[1]]))
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
        except (OSError, OverflowError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}".lower())
        else:
            return
    raise UsageError(f"no Spark answers at {address[0]} ({'; '.join(reasons)})", hint="is it running, and is its address right?")


def _require_spark_connect(remote: str) -> None:
    """Raise ForensicsError unless a server of Spark Connect answers the request to release a session that does not exist."""
    import uuid

    from grpc import RpcError, StatusCode
    from pyspark.sql.connect import proto
    from pyspark.sql.connect.client import DefaultChannelBuilder

    place = DefaultChannelBuilder(remote)
    request = proto.ReleaseSessionRequest(session_id=str(uuid.uuid4()))
    request.user_context.user_id = place.userId or ""
    with place.toChannel() as channel:
        stub: Any = proto.SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            stub.ReleaseSession(request, metadata=place.metadata(), timeout=CONNECT_SECONDS, wait_for_ready=True)
        except RpcError as error:
            if error.code() in (StatusCode.DEADLINE_EXCEEDED, StatusCode.UNAVAILABLE):
                raise ForensicsError(
                    f"{without_url_parameters(remote)} accepts connections,"
                    f" but did not answer like Spark Connect within {CONNECT_SECONDS:g}"
                    " seconds: is it a Spark Connect server, and is use_ssl right?"
                ) from error


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _run_this_python() -> None:
    """Let workers run the interpreter of this process, not the first python3 on PATH, which may lack this package."""
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
