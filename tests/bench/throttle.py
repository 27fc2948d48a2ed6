"""Caps the processor share of a cluster's workers by stopping and continuing them many times a second, so that cores
stay free, or that one is slower than the others. No cgroup and no change of the programs is needed."""
import os
import signal
import threading
import time
from typing import Any

from cluster import Cluster

PERIOD_S = 0.02
LOOK_S = 0.1  # how often new lives are looked for


def children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except FileNotFoundError:
        return []


class Throttle:
    """with Throttle(cluster, 0.4) as t: ...; t.shares["node-1"] = 0.2 makes the workers of that node slower."""

    def __init__(self, cluster: Cluster, share: float):
        self.cluster, self.share = cluster, share
        self.shares: dict[str, float] = {}
        self.ending = threading.Event()
        self.seen: set[int] = set()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self) -> "Throttle":
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.ending.set()
        self.thread.join()
        for pid in self.seen:
            self.signal(pid, signal.SIGCONT)

    @staticmethod
    def signal(pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def workers(self) -> list[tuple[int, float]]:
        """Each with its share. An agent that has ended is not waited for here, so its number is nobody else's."""
        found = [(pid, self.shares.get(name, self.share)) for name, node in self.cluster.nodes.items()
                 if node.poll() is None for pid in children_of(node.pid)]
        self.seen = {pid for pid, _ in found}
        return found

    def work(self) -> None:
        looked, workers = 0.0, []
        while not self.ending.is_set():
            begin = time.monotonic()
            if begin - looked > LOOK_S:
                looked, workers = begin, self.workers()
            # Their turns begin one after the other, and all end within the period.
            turns = []
            for n, (pid, share) in enumerate(workers):
                at = PERIOD_S * (1 - share) * n / len(workers)
                turns += [(at, pid, signal.SIGCONT), (at + share * PERIOD_S, pid, signal.SIGSTOP)]
            for at, pid, number in sorted(turns):
                time.sleep(max(0.0, begin + at - time.monotonic()))
                self.signal(pid, number)
            time.sleep(max(0.0, begin + PERIOD_S - time.monotonic()))
