"""With full disks, failing reads and changing copies, the output is whole or missing."""

import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.questions.salvage import MANIFEST, partition_files, salvaging
from kafka_forensics.questions.salvage.copy_and_hash import OutputFile, cancel
from kafka_forensics.storage import copying
from kafka_forensics.storage.disks import UNFINISHED
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import ByteFile
from tests.questions.salvage.salvaged import NAME, batches_of, check_output, log_of, of_first, salvaged_of
from tests.support.brokers import put_replica, put_segment


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Two copies of a log in two segments, damaged at different places."""
    batches = batches_of(8)
    parts = b"".join(batches[:4]), b"".join(batches[4:])
    put_replica(tmp_path / "in", 1, {0: parts[0], 8: parts[1][:-40] + b"\0" + parts[1][-39:]}, high_watermark=16)
    put_replica(tmp_path / "in", 2, {0: parts[0][:-40] + b"\0" + parts[0][-39:], 8: parts[1]}, high_watermark=16)
    return tmp_path / "in"


def nothing_left(output: Path) -> bool:
    """Whether neither the output nor the unfinished directory exists."""
    return not output.exists() and not output.with_name(output.name + UNFINISHED).exists()


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("write", errno.ENOSPC),
        ("write", errno.EFBIG),
        ("fsync", errno.EIO),
        ("open", errno.ENOSPC),
        ("mkdir", errno.EDQUOT),
        ("rename", errno.ENOSPC),
    ],
)
def test_disk_errors_leave_nothing(copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Each call that creates or changes a file fails in turn; at the end none fails."""
    real = getattr(os, call)
    output, failing, message = tmp_path / "out", 0, ""
    left = [0]

    def failed(*arguments: object, **options: object) -> object:
        ours = call in ("write", "fsync") or str(arguments[0]).startswith(str(output))
        if ours and (call != "open" or int(str(arguments[1])) & os.O_CREAT):
            left[0] -= 1
            if left[0] < 0:
                assert call == "fsync" or not output.exists()
                raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    while True:
        left[0] = failing
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failed)
            patched.setattr(copying, "_HAS_COPY_FILE_RANGE", False)
            try:
                salvaged_of(copies, output)
            except UsageError as error:
                message = str(error)
        if left[0] >= 0:
            break
        if call == "fsync" and output.exists():
            check_output(copies, output)  # only its name was not on disk
            shutil.rmtree(output)
        else:
            assert message.startswith(f"cannot write {output}")
        assert nothing_left(output)
        failing += 1
    assert failing > (0 if call in ("mkdir", "rename") else 5)
    check_output(copies, output)


def test_links_to_the_output_are_followed(copies: Path, tmp_path: Path) -> None:
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    (tmp_path / "way").symlink_to("disk")
    (tmp_path / "link").symlink_to("disk/empty")
    for output in (tmp_path / "way" / "new", tmp_path / "link"):
        salvaged_of(copies, output)
        check_output(copies, output)
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["empty", "new"]
    assert (tmp_path / "link").is_symlink()


def test_a_mount_point_is_refused_before_anything_is_created(copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    output.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == output)
    with pytest.raises(UsageError, match="is a mount point") as refused:
        salvaged_of(copies, output)
    assert str(output / "salvaged") in str(refused.value.hint)
    assert list(output.iterdir()) == []
    assert not output.with_name(output.name + UNFINISHED).exists()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_fsync_is_accepted(
    copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    salvaged_of(copies, tmp_path / "out")
    check_output(copies, tmp_path / "out")


def test_the_directory_of_a_killed_salvage_is_not_overwritten(copies: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.with_name(output.name + UNFINISHED).mkdir()
    with pytest.raises(UsageError, match="already exists"):
        salvaged_of(copies, output)
    assert not output.exists()


def test_an_unreadable_copy_refuses_its_partition(copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = b"".join(batches_of(3))
    (copies / "broker-1" / "other-0").mkdir()
    put_segment(copies / "broker-1" / "other-0", 0, batches)
    whole = copying.copy_range

    def fails(file: ByteFile, path: str, start: int, end: int, to: int, appended: copying.Appended) -> None:
        if NAME in path:
            raise SourceError(path, "input/output error")
        whole(file, path, start, end, to, appended)

    monkeypatch.setattr(partition_files, "copy_range", fails)
    salvaged = salvaged_of(copies, tmp_path / "out")
    assert [(refused.topic, refused.kind) for refused in salvaged.refused] == [("orders", "not_readable")]
    assert not of_first(tmp_path / "out").exists()
    assert log_of(tmp_path / "out", "other-0") == batches
    assert "orders" in (tmp_path / "out" / MANIFEST).read_text()
    assert "orders" not in of_first(tmp_path / "out", "recovery-point-offset-checkpoint").read_text()
    check_output(copies, tmp_path / "out")


def test_copying_ahead_ends_before_a_refused_partition_is_removed(
    copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second segment is being copied, for some time, when its copy is cancelled because the first failed."""
    whole, copying_now, seen, second_began = copying.copy_range, list[str](), list[list[str]](), threading.Event()
    remove = salvaging._Salvager._remove

    def fails_at_the_first(file: ByteFile, path: str, start: int, end: int, to: int, appended: copying.Appended) -> None:
        copying_now.append(path)
        if f"{8:020d}" not in path:
            copying_now.remove(path)
            raise SourceError(path, "input/output error")
        second_began.set()
        time.sleep(0.1)
        whole(file, path, start, end, to, appended)
        copying_now.remove(path)

    def cancelled(files: Iterable[OutputFile]) -> None:
        assert second_began.wait(20)
        cancel(files)

    def removed(self: salvaging._Salvager, key: tuple[str, int]) -> None:
        seen.append([*copying_now])
        remove(self, key)

    monkeypatch.setattr(partition_files, "copy_range", fails_at_the_first)
    monkeypatch.setattr(partition_files, "cancel", cancelled)
    monkeypatch.setattr(salvaging._Salvager, "_remove", removed)
    assert [refused.kind for refused in salvaged_of(copies, tmp_path / "out").refused] == ["not_readable"]
    assert seen == [[]]
    assert not of_first(tmp_path / "out").exists()


def test_ctrl_c_leaves_nothing(copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_files, "copy_range", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        salvaged_of(copies, tmp_path / "out")
    assert nothing_left(tmp_path / "out")


def test_a_copy_that_changes_meanwhile_is_refused(copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = copying.copy_range

    def changed(file: ByteFile, path: str, start: int, end: int, to: int, appended: copying.Appended) -> None:
        whole(file, path, start, end - 1, to, appended)
        copying.write_all(to, b"\xff")

    monkeypatch.setattr(partition_files, "copy_range", changed)
    assert [refused.kind for refused in salvaged_of(copies, tmp_path / "out").refused] == ["not_sound"]
    assert not of_first(tmp_path / "out").exists()


def test_a_copy_that_is_shorter_now_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(6000))
    with (
        LocalSource(str(tmp_path)).open("in") as file,
        partition_files.new_file(tmp_path / "short") as to,
        pytest.raises(SourceError, match="now ends at byte 6000"),
    ):
        copying.copy_range(file, "in", 5000, 6001, to)
