"""Sessions: what a Spark on this machine needs to be quiet, to stay on the loopback address, and to run this very Python."""

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

from kafka_forensics.errors import ForensicsError, UsageError
from kafka_forensics.wording import escape_unprintable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession  # for rooms that do not know pyspark


# What a Java process says on standard error and output: much while it starts that is nobody's business, and why it did not start.
#
# It gets a pipe of ours, and a thread listens at the other end for as long as the process lives.


_PIECE: Final = 4096
_LONGEST_LINE: Final = 1 << 16
_LINES_KEPT: Final = 64
_LONGEST_REASON: Final = 400
_SECONDS_TO_END: Final = 2.0
_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting (?:default|Spark) log level to"
    rb"|To adjust logging level use|\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:WARN|INFO) "
)
"""Lines of a start in which nothing went wrong."""
_NO_REASON: Final = re.compile(
    r"\s*(?:$|at |\.\.\. \d+ more|WARNING: |# An error report|# +/|#\s*$|\S*spark-class: line"
    r"|Error: Could not create the Java Virtual Machine|Error: A fatal exception has occurred)"
)
"""Lines of a start that failed in which it is not said why."""


class JavaWords:
    """A context in which `child` gives the pipe to processes; `take` gets each line they say, also after its end."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._last: deque[bytes] = deque(maxlen=_LINES_KEPT)
        self._read, self._write = os.pipe()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The listener ends when the last process that holds the other end does, or with us."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    @contextmanager
    def child(self) -> Iterator[None]:
        """Processes that are started meanwhile get the pipe as both their outputs, for Java complains to either."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        kept = {}
        for number in (1, 2):
            with suppress(OSError):  # one that is closed
                kept[number] = os.dup(number)
        for number in kept:
            os.dup2(self._write, number)
        try:
            yield
        finally:
            for number, own in kept.items():
                os.dup2(own, number)
                os.close(own)

    def reason(self) -> str | None:
        """Why a process ended that has ended: the last line that says so, fit to be shown; None if none does."""
        self.__exit__()
        self._listener.join(_SECONDS_TO_END)
        for line in reversed(list(self._last)):
            text = line.decode("utf-8", "backslashreplace")
            if _NO_REASON.match(text) is None and _NOISE.match(line) is None:
                return escape_unprintable(text).strip().removeprefix("# ")[:_LONGEST_REASON]
        return None

    def _listen(self) -> None:
        rest = b""
        while piece := os.read(self._read, _PIECE):
            *lines, rest = re.split(rb"[\r\n]", rest + piece)
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(line)
        if rest:
            self._say(rest)
        os.close(self._read)

    def _say(self, line: bytes) -> None:
        self._last.append(line)
        self._take(line)


class QuietStart:
    """Takes what Java says while it starts: what matters of it is passed on once it has started, all else from then on at once."""

    def __init__(self) -> None:
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()

    def take(self, line: bytes) -> None:
        """One line, as it is said."""
        with self._lock:
            if self._held is None:
                _pass_on(line)
            elif line and _NOISE.match(line) is None:
                self._held.append(line)

    def done(self) -> None:
        """Java has started."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                _pass_on(line)


def _pass_on(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line + b"\n")


_HERE: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""For a Spark that is on this machine alone."""
_PORTS: Final = {"sc": 15002, "spark": 7077}
_PLACE: Final = re.compile(r"(sc|spark)://([^/;?]+)")
_MASTER: Final = re.compile(
    r"local(?:\[(?:\d+|\*)\s*(?:,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://[^/;?]+|yarn|k8s://.+"
)
_MASTERS: Final = "local, local[4], local[*], spark://host:port, yarn and k8s://https://host:port are such"
_CAUSE: Final = re.compile(
    r"^[\s:]*(?:Caused by: |Exception in thread \"[^\"]*\" )?((?:[\w$]+\.)*[\w$]*(?:Exception|Error)\b.*)$", re.MULTILINE
)
_NO_SPACE: Final = "No space left on device"
_WORKER: Final = re.compile(r"\(TID \d+\) \(([^\s()]+) executor")
_JAVA_ENDED: Final = "[JAVA_GATEWAY_EXITED]"
_ANSWER_SECONDS: Final = 10.0
"""How long a connection may take to come about."""
CONNECT_SECONDS: Final = 30.0
"""How long a server of Spark Connect may take to answer a first question; its client would ask for many minutes."""
OLDEST: Final = (4, 0)
"""The oldest pyspark with what the data source needs."""
_INSTALL: Final = "pip install 'kafka-forensics[spark]'"
_JAVA: Final = "install Java 17 or newer (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
}


def require_pyspark() -> None:
    """Raise UsageError unless pyspark is installed and new enough."""
    try:
        import pyspark
    except ImportError as error:
        raise UsageError("pyspark is not installed", hint=_INSTALL) from error
    if _release(str(pyspark.__version__)) < OLDEST:
        raise UsageError(f"pyspark {pyspark.__version__} is too old: Python data sources need 4.0 or newer", hint=_INSTALL)


def require_server_of_client(spark: "SparkSession") -> None:
    """Raise UsageError where the client of a Connect server is newer than the server: it asks for what that does not have."""
    if (sentence := newer_than_server(spark)) is not None:
        server = str(spark.version)
        raise UsageError(sentence, hint=f"pip install 'pyspark=={server}' here, or run a newer Spark there")


def newer_than_server(spark: "SparkSession") -> str | None:
    """A sentence with both versions where the client of a Connect server is of a newer release than the server; else None."""
    import pyspark

    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    client, server = str(pyspark.__version__), str(spark.version)
    if _release(client) <= _release(server):
        return None
    return f"this client is of Spark {client}, and the Connect server of Spark {server}: a client must not be the newer one"


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def require_java() -> None:
    """Raise UsageError unless Spark will find a Java to run on."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise UsageError(f"JAVA_HOME is {home}, where there is no bin/java", hint=_JAVA)
    if not home and shutil.which("java") is None:
        raise UsageError("Spark needs Java, and there is none", hint=_JAVA)


def shown(place: str) -> str:
    """A master or the URL of a Connect server as it may be shown: without its parameters, of which one may be a token."""
    return re.split(r"/?[;?]", place, maxsplit=1)[0]


@contextmanager
def failures_told(starting: str | None = None, java: JavaWords | None = None) -> "Iterator[None]":
    """Say in one line what Spark fails at meanwhile: UsageError while it starts at the place `starting`, else ForensicsError.

    `java` is what the Java process says that is started meanwhile.
    """
    from pyspark.errors import PySparkException

    kinds: list[type[Exception]] = [PySparkException, ConnectionRefusedError, ConnectionResetError]
    if _is_there("py4j"):
        from py4j.protocol import Py4JError

        kinds.append(Py4JError)
    if _is_there("grpc"):
        from grpc import RpcError  # type: ignore[import-untyped]

        kinds.append(RpcError)
    try:
        yield
    except tuple(kinds) as error:
        reason = root_cause(str(error))
        if starting is None:
            raise ForensicsError(f"Spark did not finish: {reason}{_full_disk(str(error))}") from error
        if java is not None and _JAVA_ENDED in reason and (said := java.reason()) is not None:
            reason = f"Java ended and said: {said}"
        reason = reason.replace(starting, shown(starting))
        raise UsageError(
            f"Spark does not start at {shown(starting)}: {reason}", hint="`kafka-forensics doctor` checks Java and Spark"
        ) from error


def _full_disk(text: str) -> str:
    """Which disk is full, if that is what Spark tells: that of its own local directories; ours are told with their paths."""
    if _NO_SPACE not in text:
        return ""
    worker = _WORKER.search(text)
    where = "on the driver or a worker" if worker is None else f"on the worker {worker[1]}"
    return f"; the disk of Spark's local directories is full {where} (spark.local.dir or SPARK_LOCAL_DIRS, /tmp unless set)"


def root_cause(text: str) -> str:
    """The line of a Java stack that tells its innermost cause, else the first line of all."""
    causes = (
        re.findall(r"^\s*Caused by: (.+)$", text, re.MULTILINE)
        or _CAUSE.findall(text)
        or text.strip().splitlines()
        or ["no reason given"]
    )
    return str(causes[-1] if "Caused by: " in text else causes[0]).strip()


def _require_master(master: str) -> None:
    if _MASTER.fullmatch(master) is None:
        raise UsageError(f"there is no Spark master {shown(master)}", hint=_MASTERS)


def builder(master: str) -> "SparkSession.Builder":
    """See `spark.default_builder`."""
    require_pyspark()
    require_java()
    from pyspark.sql import SparkSession

    _require_master(master)
    _require_answer(master)
    _run_this_python()
    here = master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))
    if here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = SparkSession.builder.appName("kafka-forensics").master(master)
    for name, value in (_QUIET | _HERE if here else _QUIET).items():
        made = made.config(name, value)
    return made


def started(master: str) -> "SparkSession":
    """The running Classic session if there is one, else one of `builder`, whose Java says nothing while it starts.

    Raises UsageError if it does not start.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    made, start = builder(master), QuietStart()
    with JavaWords(start.take) as java:
        with failures_told(master, java), java.child():
            spark = made.getOrCreate()
        start.done()
    return spark


def connected(remote: str) -> "SparkSession":
    """A session of a Connect server, or with `local[N]` of one that is started here.

    Raises UsageError if what its client needs is not installed, and ForensicsError if the server does not answer.
    """
    require_pyspark()
    for module, package in (("grpc", "grpcio"), ("grpc_status", "grpcio-status"), ("google.rpc", "googleapis-common-protos")):
        if not _is_there(module):
            raise UsageError(f"the client of Spark Connect needs {package}", hint=_INSTALL)
    from pyspark.sql import SparkSession

    _require_answer(remote)
    if remote.startswith("sc://"):
        _require_spark_connect(remote)
    made = SparkSession.builder.remote(remote)
    if remote.startswith("local"):
        require_java()
        _run_this_python()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for name, value in (_QUIET | _HERE).items():
            made = made.config(name, value)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to set", UserWarning)  # the server has taken them, the session may not again
        return made.getOrCreate()


def _require_answer(url: str) -> None:
    """Raise UsageError unless somebody listens where a `sc://` or `spark://` URL leads; Spark itself would try for many minutes."""
    address = _PLACE.match(url)
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
    raise UsageError(f"no Spark answers at {address[0]} ({'; '.join(reasons)})", hint="is it running, and is this its address?")


def _require_spark_connect(remote: str) -> None:
    """Raise ForensicsError unless a server of Spark Connect answers: it is asked to release a session that never was."""
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
                    f"{shown(remote)} takes connections and did not answer as Spark Connect does within {CONNECT_SECONDS:g}"
                    " seconds: is a Spark Connect server there, and is use_ssl what it wants?"
                ) from error


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _run_this_python() -> None:
    """Have the workers run the interpreter of this process, and not the first python3 on PATH, which may know nothing of us."""
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
