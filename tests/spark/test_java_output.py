"""Output of Java at its start is hidden if it starts; if not, the error has the line with the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.spark.sessions import JavaOutput, StartupOutput
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = str(SAMPLES / "silent-divergence" / "broker-1")
INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"
STARTED = f"""{INCUBATOR}
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/21 16:57:36 WARN NativeCodeLoader: Unable to load native-hadoop library
Setting Spark log level to "ERROR".
"""
CREATE_FAILED = """Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
/s/bin/spark-class: line 97: CMD: bad array subscript
"""
ERROR_REPORT = """# An error report file with more information is saved as:
# /s/hs_err_pid1.log
"""


def write_stderr(output: JavaOutput, text: str) -> None:
    """Run a process that writes the text to standard error."""
    with output.child():
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", text], check=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", None),
        (STARTED, None),
        ("Error occurred during initialization of VM\nToo small maximum heap\n", "Too small maximum heap"),
        (f"Invalid initial heap size: -Xms9x\n{CREATE_FAILED}", "Invalid initial heap size: -Xms9x"),
        (
            f"#\n# There is insufficient memory\n# Native memory allocation failed\n{ERROR_REPORT}",
            "Native memory allocation failed",
        ),
        ("java.lang.X: why\n\tat a.B.c(D.java:1)\n\t... 3 more\n", "java.lang.X: why"),
        ("no \x1b[31mred\x07 \u202ehere\n\n", r"no \x1b[31mred\x07 \u202ehere"),
        ("cut off", "cut off"),
        ("x" * 100_000, "x" * 400),
    ],
)
def test_the_last_line_with_an_error_is_the_reason(text: str, reason: str | None) -> None:
    with JavaOutput(lambda _: None) as output:
        write_stderr(output, text)
        assert output.reason() == reason


def test_output_of_a_start_is_passed_on_without_the_usual_lines(capfd: pytest.CaptureFixture[str]) -> None:
    start = StartupOutput()
    with JavaOutput(start.take) as output:
        write_stderr(output, f"{STARTED}something odd\n")
        assert output.reason() == "something odd"
        assert capfd.readouterr() == ("", "")
        start.done()
    start.take(INCUBATOR.encode())
    assert capfd.readouterr() == ("", f"something odd\n{INCUBATOR}\n")


def test_a_command_prints_why_java_does_not_start(tmp_path: Path) -> None:
    """Java writes to both streams and ends."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error occurred during initialization of VM'\nprintf 'Too \\033[31msmall\\n'\nexit 1\n")
    java.chmod(0o755)
    command = [sys.executable, "-m", "kafka_forensics", "scan", SAMPLE, "--engine", "spark", "--jobs", "1", "--format", "json"]
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        r"error: Spark does not start at local[1,4]: Java ended with: Too \x1b[31msmall",
        "hint: `kafka-forensics doctor` checks Java and Spark",
    ]
