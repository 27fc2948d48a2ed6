"""What every benchmark prints and keeps: the machine, then a line a figure, then all of it as JSON.

A line is `name: median [least..most] (asked: bound) ok|short`; without a bound it is for reading beside the others.
"""
import json
import os
import platform
import statistics
import subprocess
import sys
from typing import Any, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUIET_LOAD = 0.5  # load average above which the machine is not ours alone


def machine() -> dict[str, Any]:
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    with open("/proc/meminfo") as f:
        kib = int(f.readline().split()[1])
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(),
            "memory_gib": round(kib / 2**20, 1), "kernel": platform.release(),
            "load_before": round(os.getloadavg()[0], 2)}


def build_text(programs: str) -> str:
    """What `perdura --version` says, and the commit that was measured."""
    perdura = f"{programs}/perdura"
    version = ""
    if os.path.exists(perdura):  # a benchmark of a part builds that part alone
        version = subprocess.run([perdura, "--version"], capture_output=True, text=True).stdout
    commit = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, "describe", "--always", "--dirty"],
                            capture_output=True, text=True).stdout
    return f"{' '.join(version.split())} ({commit.strip() or 'no commit'})".lstrip()


class Report:
    def __init__(self, name: str, **setup: Any):
        self.name = name
        self.document: dict[str, Any] = {"benchmark": name, "machine": machine(), **setup, "figures": {}}
        m = self.document["machine"]
        print(f"# {name} on {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, Linux {m['kernel']}")
        for key, value in setup.items():
            print(f"# {key}: {value}")
        if m["load_before"] > QUIET_LOAD:
            print(f"# load average before the start: {m['load_before']}; others use this machine, times are noisy")
        sys.stdout.flush()

    def figure(self, name: str, values: Sequence[float], most: float | None = None, of: str = "median") -> None:
        """One line of several measurements; `of` says which of them the bound is for: median or max."""
        if not values:
            print(f"{name}: nothing was measured" + ("" if most is None else f" (asked: <= {most:g}) short"))
            self.document["figures"][name] = {"values": [], "ok": None if most is None else False}
            return
        median, value = statistics.median(values), max(values)
        value = median if of == "median" else value
        spread = "" if len(values) == 1 else f" [{min(values):.4g}..{max(values):.4g}]"
        asked = "" if most is None else f" (asked: <= {most:g}) {'ok' if value <= most else 'short'}"
        print(f"{name}: {value:.4g}{spread}{asked}", flush=True)
        self.document["figures"][name] = {"value": value, "of": of, "median": median, "min": min(values),
                                          "max": max(values), "asked_at_most": most,
                                          "ok": None if most is None else value <= most, "values": list(values)}

    def say(self, line: str) -> None:
        print(f"# {line}", flush=True)

    def keep(self, **details: Any) -> None:
        self.document.update(details)

    def write(self) -> None:
        folder = os.path.join(ROOT, "build", "bench")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{self.name}.json")
        with open(path, "w") as f:
            json.dump(self.document, f, indent=1)
            f.write("\n")
        print(f"# all of it: {os.path.relpath(path, os.getcwd())}")
