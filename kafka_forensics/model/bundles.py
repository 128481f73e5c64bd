"""The description in a bundle."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_forensics.model.offset_ranges import range_argument


@dataclass(frozen=True, slots=True)
class BundleDescription:
    """Where, how and of what a bundle was made."""

    broker: int | str | None
    paths: tuple[str, ...]
    """Absolute paths on the machine where it was made."""
    is_deep: bool
    """Whether every batch was decoded."""
    live: bool
    is_selected: bool
    """Whether it has only selected partitions."""
    transaction_partitions: int
    """A lower bound for the partitions of `__transaction_state`; stated because pseudonyms of ids no longer show it."""
    redaction: str | None
    """The name of the key of its pseudonyms; None: it has real names."""

    def collect_command(self, records: Iterable[str]) -> str:
        """The command that makes another bundle, with `records`: values of `--with-records`."""
        name, output = ("", "records.kfb") if self.broker is None else (f"{self.broker}=", f"broker-{self.broker}-records.kfb")
        paths = shlex.join(f"{name}{path}" for path in self.paths)
        wanted = " ".join(f"--with-records {shlex.quote(value)}" for value in records)
        options = f"--live {wanted}" if self.live else wanted
        return f"kafka-forensics collect {paths or 'LOG_DIR'} {options} --output {shlex.quote(output)}"


def records_argument(topic: str, partition: int, start: int, end: int) -> str:
    """A value of `--with-records`: the records of `[start, end)`."""
    return f"{topic}:{partition}:{range_argument(start, end)}"
