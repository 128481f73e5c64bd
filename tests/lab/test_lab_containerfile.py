"""The instructions of a Containerfile that change no system."""

from pathlib import Path

import pytest

from lab.containerfile import Stage, apply, build


def test_instructions_change_the_stage_and_copy_without_compiled_files(tmp_path: Path) -> None:
    context, stage = tmp_path / "context", Stage(tmp_path / "root")
    (context / "package" / "__pycache__").mkdir(parents=True)
    (context / "package" / "module.py").write_text("1")
    (context / "LICENSE").write_text("free")
    for name, argument in (
        ("WORKDIR", "/source"),
        ("COPY", "LICENSE ./"),
        ("COPY", "package package"),
        ("ENV", "PATH=/opt/bin:$PATH QUIET=1"),
        ("USER", "10001:10001"),
        ("ENTRYPOINT", '["program"]'),
        ("CMD", '["--help"]'),
    ):
        apply(name, argument, stage, {}, context)
    assert sorted(path.relative_to(stage.root).as_posix() for path in stage.root.rglob("*") if path.is_file()) == [
        "source/LICENSE",
        "source/package/module.py",
    ]
    assert not list(stage.root.rglob("__pycache__"))
    arguments = stage.start(*stage.entrypoint, *stage.arguments)
    assert arguments[:4] == ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups"]
    assert arguments[-5:] == ["PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "QUIET=1", "program", "--help"]


def test_a_later_stage_copies_from_an_earlier_one(tmp_path: Path) -> None:
    first, last = Stage(tmp_path / "first"), Stage(tmp_path / "last")
    (first.root / "opt" / "program").mkdir(parents=True)
    (first.root / "opt" / "program" / "python").symlink_to("/usr/bin/python")
    apply("COPY", "--from=build /opt/program /opt/program", last, {"build": first}, tmp_path)
    assert (last.root / "opt" / "program" / "python").readlink() == Path("/usr/bin/python")


@pytest.mark.parametrize(
    "line", ["FROM debian", "ADD a b", "COPY --chmod=1 a b", "COPY a b", "HEALTHCHECK NONE", "RUN a \\", "VOLUME /x"]
)
def test_other_instructions_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "Containerfile").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"unknown|of the file|continued"):
        build(tmp_path / "Containerfile", tmp_path)
