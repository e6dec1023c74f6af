"""A node of Kubernetes on this machine: etcd, the control plane, kube-proxy, kubelet and containerd, as root.

The daemons and all pods live in a network namespace, a mount namespace and a PID namespace of their own, so
they end with the first process of the latter, and leave neither mounts nor rules of iptables.
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

from tests.network import Host, Network, network
from tests.records import wait_for

_MODULES = (Path(__file__).parent / "daemons" / "go.mod").read_text()
VERSION = _MODULES.partition("k8s.io/kubernetes v")[2].split()[0]
BINARIES = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / f"repl/kubernetes-{VERSION}"
HELM, KUBECONFORM = BINARIES / "helm-3.22.0", BINARIES / "kubeconform-0.8.0"
SCHEMAS, POD_MONITOR = BINARIES / "schemas", BINARIES / "podmonitors.yaml"
JOBS, PAUSE = "repl.test/jobs:1", "repl.test/pause:1"
IMAGES = {JOBS: BINARIES / "jobs.tar", PAUSE: BINARIES / "pause.tar"}
NODE = "node-1"
SERVICES, API = "10.96.0.0/24", "10.96.0.1"
_PODS = "10.244.0.0/24"
_PORT, _ETCD = 6443, "http://127.0.0.1:2379"
_CGROUPS = Path("/sys/fs/cgroup")
_WITHIN_S = 240.0
_IMPORT_S = 900.0  # the images are unpacked once, and kept with the binaries
_HOLD = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.sigwait({signal.SIGTERM})"


class KubernetesNode:
    """A KubernetesNode owns the daemons of a cluster with one node; `kubeconfig` is its administrator's."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.folder, self.host = folder, host
        self.kubeconfig = folder / "admin.json"
        self.server = f"https://{host.address}:{_PORT}"
        self._tokens = {name: secrets.token_hex(16) for name in ("admin", "kubelet")}
        self._cgroup = f"repl-{os.getpid()}"
        self._holder: subprocess.Popen[bytes] | None = None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Starts the cluster, and returns when its node takes pods."""
        self._hold()
        self._shell("mount --make-rshared / && sysctl -qw net.ipv4.ip_forward=1")
        self._shell("mkdir -p /var/lib/cni && mount -t tmpfs cni /var/lib/cni")
        gateway = ".".join([*self.host.address.split(".")[:3], "1"])
        self._shell(f"ip route add default via {gateway}")
        for controller in _CGROUPS.iterdir():
            if (controller / "cgroup.procs").exists():
                (controller / self._cgroup).mkdir(exist_ok=True)
        self._write_settings()
        self._start_runtime()
        self._start_control_plane()
        self._start_node()

    def down(self) -> None:
        """Ends every process of the cluster, and removes its cgroups and its folder."""
        if self._holder is not None:
            child = _child(self._holder.pid)
            if child:
                os.kill(
                    child, signal.SIGKILL
                )  # the first process of the PID namespace: all others end with it
            self._holder.wait(timeout=30)
        for daemon in self._daemons.values():
            daemon.wait(timeout=30)
        for controller in _CGROUPS.glob(f"*/{self._cgroup}"):
            _remove_cgroup(controller)
        shutil.rmtree(self.folder, ignore_errors=True)

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

    def _shell(self, text: str) -> None:
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
            imported = BINARIES / "containerd" / f"{archive.name}.imported"
            newest = imported.exists() and imported.stat().st_mtime >= archive.stat().st_mtime
            if not newest or name not in known.stdout.split():
                words = [*ctr, "import", str(archive)]
                subprocess.run(words, check=True, timeout=_IMPORT_S, capture_output=True)
                imported.touch()

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
        for name in self._tokens:
            self._write_kubeconfig(name, certificate)
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

    def _start_node(self) -> None:
        folder = self.folder
        self._start("kube-proxy", BINARIES / "kube-proxy", f"--config={folder / 'proxy.json'}")
        self._start(
            "kubelet",
            BINARIES / "kubelet",
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={folder / 'kubelet-client.json'}",
            f"--root-dir={folder / 'kubelet'}",
            f"--hostname-override={NODE}",
            f"--node-ip={self.host.address}",
        )
        self._wait(self._node_ready, "kubelet")
        for name, daemon in self._daemons.items():
            assert daemon.poll() is None, f"{name} has ended:\n{self.log(name)}"

    def _node_ready(self) -> bool:
        for node in json.loads(self.kubectl("get", "nodes", "-o=json", check=False) or '{"items": []}')[
            "items"
        ]:
            for condition in node["status"].get("conditions", ()):
                if condition["type"] == "Ready":
                    return bool(condition["status"] == "True")
        return False

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

    def _write_kubeconfig(self, name: str, certificate: Path) -> None:
        cluster = {"server": self.server, "certificate-authority": str(certificate)}
        context = {"cluster": "test", "user": name, "namespace": "default"}
        file = self.kubeconfig if name == "admin" else self.folder / f"{name}-client.json"
        self._write(
            file,
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": name, "user": {"token": self._tokens[name]}}],
                "contexts": [{"name": "test", "context": context}],
                "current-context": "test",
            },
        )

    def _write(self, file: Path, value: Mapping[str, Any]) -> None:
        file.write_text(json.dumps(value))
        file.chmod(0o600)

    def _write_settings(self) -> None:
        folder = self.folder
        tokens = folder / "tokens.csv"
        tokens.touch(0o600)
        tokens.write_text(
            f"{self._tokens['admin']},admin,1,system:masters\n"
            f"{self._tokens['kubelet']},system:node:{NODE},2,system:nodes\n"
        )
        key = folder / "accounts.key"
        made = (
            "openssl",
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
            "-out",
            str(key),
        )
        subprocess.run(made, check=True, capture_output=True, timeout=60)
        plugins = folder / "cni"
        plugins.mkdir()
        self._write(
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
                            "ranges": [[{"subnet": _PODS}]],
                        },
                    }
                ],
            },
        )
        (folder / "containerd.toml").write_text(
            f"""version = 2
root = "{BINARIES}/containerd"
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
        self._write(
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
        self._write(
            folder / "proxy.json",
            {
                "kind": "KubeProxyConfiguration",
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "clientConnection": {"kubeconfig": str(self.kubeconfig)},
                "clusterCIDR": _PODS,
                "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
                "hostnameOverride": NODE,
                "mode": "iptables",
            },
        )


@contextmanager
def kubernetes(folder: Path) -> Iterator[tuple[KubernetesNode, Network]]:
    """Yields a node that takes pods, and the network on which it reaches this machine."""
    with network(1) as made:
        node = KubernetesNode(folder, made.hosts[0])
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
