"""A cluster whose nodes are brokers and controllers at once: each of them votes."""

from collections.abc import Mapping
from pathlib import Path

from lab.cluster import Cluster, random_uuid
from lab.errors import LabError
from lab.jvm import STORAGE_TOOL, run_tool
from lab.settings import LOOPBACK, free_ports, node_settings, properties_text


class CombinedCluster(Cluster):
    """Brokers 1 … n, all of which are controllers, too; otherwise a `Cluster`.

    With `voters_in_log` the voters stand in the log (`kraft.version` 1, KIP-853), else in every node's settings.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        voters_in_log: bool = False,
        broker_settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, brokers, 0, broker_settings=broker_settings)
        self._voters_in_log = voters_in_log
        self._controller_ports = dict(zip(self.brokers, free_ports(brokers), strict=True))

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        voting = [f"{node}@{LOOPBACK}:{port}:{random_uuid()}" for node, port in self._controller_ports.items()]
        more = ["--initial-controllers", ",".join(voting)] if self._voters_in_log else []
        for node in self.brokers:
            self._properties(node).write_text(properties_text(self._settings(node)))
            arguments = ["format", "--cluster-id", self.cluster_id, "--config", str(self._properties(node)), *more]
            done = run_tool(STORAGE_TOOL, arguments, jars=self._jars)
            if done.exit_code != 0:
                raise LabError(f"node {node} could not be formatted: {done.stderr[-1000:].decode(errors='replace')}")

    def _settings(self, node: int) -> dict[str, str]:
        plain = f"PLAINTEXT://{LOOPBACK}:{self.ports[node]}"
        settings = node_settings(node, self.ports[node], self.log_dirs(node), self._controller_ports)
        of_a_broker = node_settings(node, self.ports[node], self.log_dirs(node), {}, self._broker_settings)
        settings |= {name: value for name, value in of_a_broker.items() if name != "controller.quorum.voters"}
        settings |= {
            "process.roles": "broker,controller",
            "listeners": f"{plain},CONTROLLER://{LOOPBACK}:{self._controller_ports[node]}",
            "advertised.listeners": f"{plain},CONTROLLER://{LOOPBACK}:{self._controller_ports[node]}",
        }
        if self._voters_in_log:
            del settings["controller.quorum.voters"]
            servers = ",".join(f"{LOOPBACK}:{port}" for port in self._controller_ports.values())
            settings["controller.quorum.bootstrap.servers"] = servers
        return settings
