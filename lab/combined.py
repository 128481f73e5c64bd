"""A cluster in combined mode: every node is a broker and a controller, and so a voter of the quorum."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.cluster import Cluster, random_uuid
from lab.errors import LabError, LabTimeoutError
from lab.jvm import STORAGE_TOOL, run_tool, wait_until
from lab.salvaged_start import METADATA
from lab.settings import LOOPBACK, free_ports, node_settings, properties_text

QUORUM_TOOL: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES_TOOL: Final = "org.apache.kafka.tools.FeatureCommand"
_ELECTED_WITHIN_SECONDS: Final = 60
_CHANGED_WITHIN_SECONDS: Final = 90


class CombinedCluster(Cluster):
    """A `Cluster` of brokers 1 … n that are all controllers too.

    With `voters_in_log` the voters are in the metadata log (`kraft.version` 1, KIP-853), else in every node's settings.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        voters_in_log: bool = False,
        version_jars: Path | None = None,
        log_dirs: int = 1,
        broker_settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, brokers, 0, version_jars=version_jars, log_dirs=log_dirs, broker_settings=broker_settings)
        self._voters_in_log = voters_in_log
        self._refused = ""
        self._controller_ports = dict(zip(self.brokers, free_ports(brokers), strict=True))

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        voters = [f"{node}@{LOOPBACK}:{port}:{random_uuid()}" for node, port in self._controller_ports.items()]
        options = ["--initial-controllers", ",".join(voters)] if self._voters_in_log else []
        for node in self.brokers:
            self._properties(node).write_text(properties_text(self._settings(node)))
            arguments = ["format", "--cluster-id", self.cluster_id, "--config", str(self._properties(node)), *options]
            done = run_tool(STORAGE_TOOL, arguments, jars=self._jars)
            if done.exit_code != 0:
                raise LabError(f"node {node} could not be formatted: {done.stderr[-1000:].decode(errors='replace')}")

    def _settings(self, node: int) -> dict[str, str]:
        plain = f"PLAINTEXT://{LOOPBACK}:{self.ports[node]}"
        settings = node_settings(node, self.ports[node], self.log_dirs(node), self._controller_ports)
        broker_settings = node_settings(node, self.ports[node], self.log_dirs(node), {}, self._broker_settings)
        settings |= {name: value for name, value in broker_settings.items() if name != "controller.quorum.voters"}
        settings |= {
            "process.roles": "broker,controller",
            "listeners": f"{plain},CONTROLLER://{LOOPBACK}:{self._controller_ports[node]}",
            "advertised.listeners": plain,
        }
        if self._voters_in_log:
            settings["advertised.listeners"] = settings["listeners"]  # versions before 3.9 refuse a CONTROLLER listener here
            del settings["controller.quorum.voters"]
            servers = ",".join(f"{LOOPBACK}:{port}" for port in self._controller_ports.values())
            settings["controller.quorum.bootstrap.servers"] = servers
        return settings

    def quorum_leader(self) -> int | None:
        """The leader of the quorum by the newest `quorum-state` of the running nodes; None if it names none."""
        states = []
        for node in self.running():
            path = self.log_dir(node) / METADATA / "quorum-state"
            if path.exists():
                states.append(json.loads(path.read_text()))
        newest = max(states, key=lambda state: int(state["leaderEpoch"]), default=None)
        return None if newest is None or newest["leaderId"] < 0 else int(newest["leaderId"])

    def change_leader(self) -> None:
        """Kill the leader of the quorum, and restart it after the other nodes elect another leader."""
        wait_until("the quorum has a leader", lambda: self.quorum_leader() is not None, timeout_seconds=_ELECTED_WITHIN_SECONDS)
        leader = self.quorum_leader()
        others = [node for node in self.brokers if node != leader]
        killed = [node for node in self.brokers if node == leader]
        self.kill(*killed)
        wait_until("another leads", lambda: self.quorum_leader() in others, timeout_seconds=_ELECTED_WITHIN_SECONDS)
        self.start(*killed)

    def leave(self, node: int) -> None:
        """Remove a node from the voters (KIP-853); it stays a broker and an observer."""
        leaving = ["remove-controller", "--controller-id", str(node), "--controller-directory-id", self._directory_id(node)]
        self._change(leaving, (), lambda: node not in self.voters())

    def join(self, node: int) -> None:
        """Add a node to the voters (KIP-853)."""
        self._change(["add-controller"], ["--command-config", str(self._properties(node))], lambda: node in self.voters())

    def take_voters_into_log(self) -> None:
        """Upgrade `kraft.version` to 1 in a cluster whose voters are in its settings; the settings stay."""
        self._ask(FEATURES_TOOL, ["upgrade", "--feature", "kraft.version=1"])

    def voters(self) -> list[int]:
        """The voters that the leader of the quorum reports."""
        status = self._ask(QUORUM_TOOL, ["describe", "--status"])
        line = next(line for line in status.splitlines() if line.startswith("CurrentVoters:"))
        return sorted(map(int, re.findall(r'"id": ?(\d+)', line)))

    def _change(self, arguments: Sequence[str], first: Sequence[str], is_done: Callable[[], bool]) -> None:
        """Request a change of the voters until it is done: a leader that is busy or newly elected refuses it."""

        def done() -> bool:
            try:
                self._ask(QUORUM_TOOL, arguments, first)
            except LabError as error:
                self._refused = str(error)
            return is_done()

        try:
            wait_until(f"{arguments[0]} is done", done, timeout_seconds=_CHANGED_WITHIN_SECONDS, step_seconds=1.0)
        except LabTimeoutError as error:
            raise LabError(f"{error}; {self._refused}") from error

    def _directory_id(self, node: int) -> str:
        lines = (self.log_dir(node) / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))

    def _ask(self, tool: str, arguments: Sequence[str], first: Sequence[str] = ()) -> str:
        """Run one of Kafka's tools against the cluster and return its stdout. Raises LabError if it fails."""
        done = run_tool(tool, ["--bootstrap-server", self.bootstrap, *first, *arguments], jars=self._jars)
        if done.exit_code != 0:
            raise LabError(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-1000:].decode(errors='replace')}")
        return done.stdout.decode()
