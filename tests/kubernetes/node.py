"""Nodes of Kubernetes on this machine: etcd, the control plane, kube-proxy, kubelet and containerd, as root.

The daemons and all pods of a node live in a network namespace, a mount namespace and a PID namespace of their
own, so they end with the first process of the latter, and leave neither mounts nor rules of iptables. A node
that is cut off from its network and killed is lost like a machine.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.machine import cache_folder
from tests.network import Host, Network, network
from tests.records import wait_for

_MODULES = (Path(__file__).parent / "daemons" / "go.mod").read_text()
VERSION = _MODULES.partition("k8s.io/kubernetes v")[2].split()[0]
BINARIES = cache_folder() / f"kubernetes-{VERSION}"
HELM, KUBECONFORM = BINARIES / "helm-3.22.0", BINARIES / "kubeconform-0.8.0"
SCHEMAS, POD_MONITOR = BINARIES / "schemas", BINARIES / "podmonitors.yaml"
JOBS, GIT, PAUSE = "repl.test/jobs:1", "repl.test/git-and-ssh:1", "repl.test/pause:1"
IMAGES = {JOBS: BINARIES / "jobs.tar", GIT: BINARIES / "git.tar", PAUSE: BINARIES / "pause.tar"}
SERVICES, API = "10.96.0.0/24", "10.96.0.1"
_NODES = ("node-1", "node-2")
_PODS = "10.244.0.0/16"
_PORT, _ETCD = 6443, "http://127.0.0.1:2379"
_CGROUPS = Path("/sys/fs/cgroup")
_WITHIN_S = 240.0
_IMPORT_S = 900.0  # the images are unpacked once, and kept with the binaries
_HOLD = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.sigwait({signal.SIGTERM})"


class Machine:
    """A Machine owns the namespaces and the daemons of a node, whose pods have addresses of its own."""

    def __init__(self, folder: Path, host: Host, number: int) -> None:
        self.folder, self.host, self.name = folder, host, _NODES[number]
        self.pods = f"10.244.{number}.0/24"
        self._images = BINARIES / ("containerd" if number == 0 else f"containerd-{number + 1}")
        self._cgroup = f"repl-{os.getpid()}-{number}"
        self._holder: subprocess.Popen[bytes] | None = None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def prepare(self) -> None:
        """Makes the namespaces, and starts what runs containers."""
        self.folder.mkdir(exist_ok=True)
        self._hold()
        self.shell("mount --make-rshared / && sysctl -qw net.ipv4.ip_forward=1")
        self.shell("mkdir -p /var/lib/cni && mount -t tmpfs cni /var/lib/cni")
        gateway = ".".join([*self.host.address.split(".")[:3], "1"])
        self.shell(f"ip route add default via {gateway}")
        for controller in _CGROUPS.iterdir():
            if (controller / "cgroup.procs").exists():
                (controller / self._cgroup).mkdir(exist_ok=True)
        self._write_settings()
        self._start_runtime()

    def lose(self) -> None:
        """Cuts the machine off, then kills every process of it. No connection is closed."""
        self.host.cut()
        self._kill()

    def down(self) -> None:
        """Ends every process of the machine, and removes its cgroups and its folder."""
        self._kill()
        self.host.restore()
        for controller in _CGROUPS.glob(f"*/{self._cgroup}"):
            _remove_cgroup(controller)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill(self) -> None:
        if self._holder is not None:
            child = _child(self._holder.pid)
            if child:  # the first process of the PID namespace: all others end with it
                os.kill(child, signal.SIGKILL)
            self._holder.wait(timeout=30)
        for daemon in self._daemons.values():
            daemon.wait(timeout=30)

    def log(self, daemon: str, lines: int = 30) -> str:
        """Returns the last lines of a daemon's log."""
        file = self.folder / f"{daemon}.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.exists() else ""

    def enter(self, *command: str) -> list[str]:
        """Returns a command that runs in the namespaces of the node."""
        assert self._holder is not None
        target = str(_child(self._holder.pid))
        return ["nsenter", "--target", target, "--net", "--mount", "--pid", "--", *command]

    def _hold(self) -> None:
        spaces = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
        network_namespace = f"--net=/run/netns/{self.host.namespace}"
        self._holder = subprocess.Popen(["nsenter", network_namespace, *spaces, sys.executable, "-c", _HOLD])
        holder = self._holder.pid
        wait_for(lambda: _child(holder) != 0, _WITHIN_S, about=lambda: "the namespaces of the node")

    def shell(self, text: str) -> None:
        """Runs a line of sh in the namespaces of the node."""
        subprocess.run(self.enter("sh", "-ec", text), check=True, timeout=60)

    def _start(self, name: str, *command: str | Path) -> None:
        with (self.folder / f"{name}.log").open("wb") as output:
            environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
            self._daemons[name] = subprocess.Popen(
                self.enter(*map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.folder,
            )

    def _wait(self, ready: Callable[[], bool], daemon: str) -> None:
        process = self._daemons[daemon]

        def checked() -> bool:
            assert process.poll() is None, f"{daemon} has ended:\n{self.log(daemon)}"
            return ready()

        wait_for(checked, _WITHIN_S, about=lambda: f"{daemon} did not start\n{self.log(daemon)}")

    def _start_runtime(self) -> None:
        socket = self.folder / "containerd.sock"
        self._start("containerd", "containerd", "--config", self.folder / "containerd.toml")
        self._wait(socket.exists, "containerd")
        ctr = self.enter("ctr", "-a", str(socket), "-n", "k8s.io", "images")
        known = subprocess.run([*ctr, "ls", "-q"], check=True, timeout=60, capture_output=True, text=True)
        for name, archive in IMAGES.items():
            imported = self._images / f"{archive.name}.imported"
            newest = imported.exists() and imported.stat().st_mtime >= archive.stat().st_mtime
            if not newest or name not in known.stdout.split():
                words = [*ctr, "import", str(archive)]
                subprocess.run(words, check=True, timeout=_IMPORT_S, capture_output=True)
                imported.touch()

    def start_node(self, cluster: KubernetesNode) -> None:
        """Starts the node of the cluster, and returns when it takes pods."""
        folder = self.folder
        cluster.admit(self)
        self._start("kube-proxy", BINARIES / "kube-proxy", f"--config={folder / 'proxy.json'}")
        self._start(
            "kubelet",
            BINARIES / "kubelet",
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={folder / 'client.json'}",
            f"--root-dir={folder / 'kubelet'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.host.address}",
        )
        self._wait(lambda: cluster.is_ready(self.name), "kubelet")
        for name, daemon in self._daemons.items():
            assert daemon.poll() is None, f"{name} has ended:\n{self.log(name)}"

    def _write_settings(self) -> None:
        folder = self.folder
        plugins = folder / "cni"
        plugins.mkdir()
        write_private(
            plugins / "10-bridge.conflist",
            {
                "cniVersion": "0.4.0",
                "name": "pods",
                "plugins": [
                    {
                        "type": "bridge",
                        "bridge": "pods0",
                        "isDefaultGateway": True,
                        "ipMasq": True,
                        "hairpinMode": True,
                        "ipam": {
                            "type": "host-local",
                            "dataDir": str(folder / "addresses"),
                            "ranges": [[{"subnet": self.pods}]],
                        },
                    }
                ],
            },
        )
        (folder / "containerd.toml").write_text(
            f"""version = 2
root = "{self._images}"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{plugins}"
"""
        )
        write_private(
            folder / "kubelet.json",
            {
                "kind": "KubeletConfiguration",
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "address": self.host.address,
                "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                "authorization": {"mode": "AlwaysAllow"},
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{self._cgroup}",
                "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
                "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
                "failCgroupV1": False,
                "failSwapOn": False,
                "imageGCHighThresholdPercent": 100,  # containerd 1.6 does not keep the image of sandboxes
                "nodeStatusUpdateFrequency": "3s",
                "podLogsDir": str(folder / "logs"),
                "resolvConf": "",
                "syncFrequency": "5s",
            },
        )


class KubernetesNode(Machine):
    """A KubernetesNode has the control plane, too; `kubeconfig` is the administrator's of the cluster."""

    def __init__(self, folder: Path, host: Host, spare: Host) -> None:
        super().__init__(folder, host, 0)
        self._spare = spare
        self.kubeconfig = folder / "admin.json"
        self.server = f"https://{host.address}:{_PORT}"
        self._tokens = {name: secrets.token_hex(16) for name in ("admin", *_NODES)}

    def up(self) -> None:
        """Starts the cluster, and returns when its node takes pods."""
        self.prepare()
        self._write_tokens()
        self._start_control_plane()
        self.start_node(self)

    @contextmanager
    def second(self) -> Iterator[Machine]:
        """Yields another machine, whose node takes pods; it leaves the cluster at the end."""
        machine = Machine(self.folder.with_name(f"{self.folder.name}-2"), self._spare, 1)
        try:
            machine.prepare()
            for near, far in ((self, machine), (machine, self)):
                near.shell(f"ip route replace {far.pods} via {far.host.address}")
            machine.start_node(self)
            yield machine
        finally:
            machine.down()
            self.kubectl("delete", "node", machine.name, "--ignore-not-found")

    def kubectl(self, *words: str, text: str | None = None, check: bool = True) -> str:
        """Runs kubectl as the administrator."""
        done = subprocess.run(
            [BINARIES / "kubectl", f"--kubeconfig={self.kubeconfig}", *words],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, kind: str, namespace: str, *words: str) -> list[dict[str, Any]]:
        """Returns the resources of a kind."""
        listed: dict[str, Any] = json.loads(self.kubectl("get", kind, "-n", namespace, "-o=json", *words))
        items: list[dict[str, Any]] = listed["items"]
        return items

    def _start_control_plane(self) -> None:
        folder = self.folder
        self._start("etcd", BINARIES / "etcd", "--data-dir", folder / "etcd", f"--listen-client-urls={_ETCD}",
                    f"--advertise-client-urls={_ETCD}", "--unsafe-no-fsync")  # fmt: skip
        self._start(
            "kube-apiserver",
            BINARIES / "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            f"--bind-address={self.host.address}",
            f"--advertise-address={self.host.address}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self._wait(lambda: self._answers("/readyz") == "ok", "kube-apiserver")
        certificate = folder / "certificates" / "apiserver.crt"
        self._write_kubeconfig("admin", self.kubeconfig)
        admin = f"--kubeconfig={self.kubeconfig}"
        self._start(
            "kube-controller-manager",
            BINARIES / "kube-controller-manager",
            admin,
            f"--root-ca-file={certificate}",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--node-monitor-grace-period=20s",
        )
        self._start("kube-scheduler", BINARIES / "kube-scheduler", admin, "--leader-elect=false")

    def admit(self, machine: Machine) -> None:
        """Writes what the machine logs in to the API server with."""
        self._write_kubeconfig(machine.name, machine.folder / "client.json")
        proxy = {
            "kind": "KubeProxyConfiguration",
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "clusterCIDR": _PODS,
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "hostnameOverride": machine.name,
            "mode": "iptables",
        }
        write_private(machine.folder / "proxy.json", proxy)

    def is_ready(self, name: str) -> bool:
        """Returns whether the node takes pods."""
        words = ("get", "nodes", f"--field-selector=metadata.name={name}", "-o=json")
        nodes = json.loads(self.kubectl(*words, check=False) or '{"items": []}')["items"]
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in nodes
            for condition in node["status"].get("conditions", ())
        )

    def _answers(self, path: str) -> str:
        words = ("get", "--raw", path, f"--server={self.server}", "--insecure-skip-tls-verify")
        done = subprocess.run(
            [BINARIES / "kubectl", *words, f"--token={self._tokens['admin']}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "KUBECONFIG": os.devnull},
        )
        return done.stdout

    def _write_kubeconfig(self, name: str, file: Path) -> None:
        certificate = self.folder / "certificates" / "apiserver.crt"
        cluster = {"server": self.server, "certificate-authority": str(certificate)}
        context = {"cluster": "test", "user": name, "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self._tokens[name]}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        write_private(file, config)

    def _write_tokens(self) -> None:
        users = {
            "admin": "admin,1,system:masters",
            **{name: f"system:node:{name},{name},system:nodes" for name in _NODES},
        }
        tokens = self.folder / "tokens.csv"
        tokens.touch(0o600)
        tokens.write_text("".join(f"{self._tokens[name]},{user}\n" for name, user in users.items()))
        made = ("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out")
        key = str(self.folder / "accounts.key")
        subprocess.run((*made, key), check=True, capture_output=True, timeout=60)


def write_private(file: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON that its owner alone can read."""
    file.touch(0o600)
    file.write_text(json.dumps(value))


@contextmanager
def kubernetes(folder: Path) -> Iterator[tuple[KubernetesNode, Network]]:
    """Yields a node that takes pods, and the network on which it reaches this machine."""
    with network(2) as made:
        node = KubernetesNode(folder, *made.hosts)
        try:
            node.up()
            yield node, made
        finally:
            node.down()


def _child(pid: int) -> int:
    """Returns the only child of a process, 0 while there is none."""
    try:
        listed: Sequence[str] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(listed[0]) if listed else 0


def _remove_cgroup(folder: Path) -> None:
    """Removes a cgroup and those below it; their processes have ended."""
    for below in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        below.rmdir()
    folder.rmdir()
