"""What the laboratory tells its nodes, and how it waits."""

from pathlib import Path

import pytest

from lab.errors import LabTimeoutError
from lab.jvm import wait_until
from lab.settings import node_settings

CONTROLLERS = {101: 5001, 100: 5000}


@pytest.mark.parametrize(("node", "role", "scheme"), [(100, "controller", "CONTROLLER"), (1, "broker", "PLAINTEXT")])
def test_a_node_has_one_role_and_listens_on_loopback_only(node: int, role: str, scheme: str) -> None:
    settings = node_settings(node, 5000, [Path("/a"), Path("/b")], CONTROLLERS, {"replica.lag.time.max.ms": "9"})
    assert settings["process.roles"] == role
    assert settings["listeners"] == f"{scheme}://127.0.0.1:5000"
    assert settings["controller.quorum.voters"] == "100@127.0.0.1:5000,101@127.0.0.1:5001"
    assert all("127.0.0.1" in value for key, value in settings.items() if key.endswith("listeners"))
    assert ("log.cleaner.backoff.ms" in settings) == (role == "broker")
    assert (settings["replica.lag.time.max.ms"], settings["log.dirs"]) == ("9", "/a,/b")  # what an experiment asks for wins


def test_waiting_is_bounded_and_says_for_what() -> None:
    with pytest.raises(LabTimeoutError, match="the moon"):
        wait_until("the moon", lambda: False, timeout_seconds=0.05, step_seconds=0.01)
    answers = iter([False, False, True])
    wait_until("the third answer", lambda: next(answers), timeout_seconds=5, step_seconds=0.001)
    assert next(answers, None) is None
