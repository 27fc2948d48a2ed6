"""A cluster of Perdura's processes on this machine for a benchmark, steered through `perdura --json`."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Callable

TARGETS = ["perdura", "perdura-coordinator", "perdura-node", "perdura-worker"]  # what a cluster runs
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_LIMIT_S = 60
END_LIMIT_S = 10
TAG = "PERDURA_BENCH"  # in the environment of every process of the cluster


class Failed(Exception):
    pass


def job_text(steps: int, seed: int, batch: int, slots: int, fields: dict[str, Any] | None = None) -> str:
    """The reference job (every other field is its default), without checkpoints: the peers write none either.

    `fields` are further ones, "elastic.rebalance": False."""
    tables: dict[str, dict[str, Any]] = {
        "": {"name": "bench", "seed": seed, "steps": steps}, "batch": {"size": batch, "slots": slots},
        "optimizer": {"warmup_steps": min(50, steps)}, "checkpoint": {"interval_steps": 1000000}}
    for field, value in (fields or {}).items():
        table, _, key = field.rpartition(".")
        tables.setdefault(table, {})[key] = value
    # JSON's text, numbers and booleans are TOML's.
    return "".join((f"[{table}]\n" if table else "") + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())
                   for table, values in tables.items())


def cpu_ms(pid: int) -> float:
    """Processor time of all threads of a process so far; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(") ", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) * 1e3 / TICKS_PER_S


def peak_memory_mb(pid: int) -> float:
    """Largest resident set so far (VmHWM), shared pages counted in full, in millions of bytes."""
    with open(f"/proc/{pid}/status") as f:
        kib = re.search(r"VmHWM:\s+(\d+)", f.read())
    return int(kib.group(1)) * 1024 / 1e6 if kib else 0.0


class Cluster:
    """with Cluster(programs, nodes=2) as c: ...; afterwards none of its processes is left."""

    def __init__(self, programs: str, nodes: int):
        self.programs, self.node_count = programs, nodes
        self.folder = tempfile.mkdtemp(prefix="perdura-bench-")
        self.tag = f"{TAG}={os.getpid()}-{os.path.basename(self.folder)}"
        self.children: list[subprocess.Popen[bytes]] = []
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.admin = self.address = ""

    def __enter__(self) -> "Cluster":
        try:
            self.start_all()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.end(keep_logs=kind is not None)

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        key, value = self.tag.split("=")
        with open(f"{self.folder}/{name}.out", "wb") as output:
            child = subprocess.Popen(arguments, env=dict(os.environ, **{key: value}), stdout=output, stderr=output)
        self.children.append(child)
        return child

    def start_all(self) -> None:
        logs = f"{self.folder}/logs"
        settings = f"{self.folder}/cluster.toml"
        os.mkdir(logs)
        open(settings, "w").close()
        coordinator = self.start("coordinator", f"{self.programs}/perdura-coordinator", "--config", settings, "--port",
                                 "0", "--admin-port", "0", "--data", f"{self.folder}/data", "--log", logs)

        def ready() -> "re.Match[str] | None":
            if coordinator.poll() is not None:
                raise Failed(f"the coordinator ended with {coordinator.returncode}")
            with open(f"{self.folder}/coordinator.out") as f:
                return re.search(r"^ready port=(\d+) admin=(\d+)$", f.read(), re.M)

        ports = self.wait("the coordinator to be ready", ready)
        self.admin = f"127.0.0.1:{ports.group(2)}"
        self.address = f"127.0.0.1:{ports.group(1)}"
        for n in range(1, self.node_count + 1):
            self.start_node(f"node-{n}")
        self.wait("the workers to join", lambda: len(self.living_workers()) == self.node_count)

    def start_node(self, name: str) -> "subprocess.Popen[bytes]":
        """A node of one worker, with a host label of its own: as if it were a machine."""
        node = self.start(name, f"{self.programs}/perdura-node", "--join", self.address, "--name", name, "--devices",
                          "1", "--host-label", name, "--log", f"{self.folder}/logs")
        self.nodes[name] = node
        return node

    def wait(self, what: str, is_so: Callable[[], Any], limit_s: float = START_LIMIT_S, every_s: float = 0.1) -> Any:
        give_up = time.monotonic() + limit_s
        while not (found := is_so()):
            if time.monotonic() > give_up:
                raise Failed(f"{what}: not within {limit_s:g} s")
            time.sleep(every_s)
        return found

    def ask(self, *words: str) -> Any:
        done = subprocess.run([f"{self.programs}/perdura", "--admin", self.admin, *words, "--json"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"perdura {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return json.loads(done.stdout)

    def events(self) -> list[dict[str, Any]]:
        """All that were written, in their order."""
        found: list[dict[str, Any]] = []
        while page := self.ask("events", "--after", str(found[-1]["sequence"] if found else 0), "-n", "500"):
            found += page
        return found

    def submit(self, text: str) -> str:
        path = f"{self.folder}/job.toml"
        with open(path, "w") as f:
            f.write(text)
        return self.ask("submit", path)["job"]

    def living_workers(self) -> list[dict[str, Any]]:
        return [w for w in self.ask("workers") if w["state"] not in ("dead", "fenced")]

    def members(self) -> list[dict[str, Any]]:
        return [w for w in self.ask("workers") if w["state"] == "member"]

    def processes(self) -> list[int]:
        """Every process of this cluster, also those whose parents died."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if self.tag.encode() in f.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def end(self, keep_logs: bool = False) -> None:
        try:
            self.ask("shutdown")
            self.wait("the cluster to end", lambda: all(c.poll() is not None for c in self.children), END_LIMIT_S)
        except Failed:
            pass
        while left := self.processes():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for child in self.children:
                child.poll()
            time.sleep(0.01)
        for child in self.children:
            child.wait()
        if keep_logs:
            print(f"# its logs: {self.folder}", flush=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
