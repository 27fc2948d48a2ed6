"""What a peer's worker did when: lines of "unix-time event number...", written by the worker, read by the bench."""
import time
from typing import NamedTuple


class Entry(NamedTuple):
    at: float
    event: str
    numbers: list[int]


class Log:
    def __init__(self, path: str):
        self.file = open(path, "a", buffering=1)

    def write(self, event: str, *numbers: int, at: float | None = None) -> None:
        self.file.write(" ".join([f"{at or time.time():.4f}", event, *map(str, numbers)]) + "\n")


def read(path: str, event: str | None = None) -> list[Entry]:
    """All whole lines; those of one event if given. A file that is not there yet is empty."""
    try:
        with open(path) as f:
            lines = f.read().split("\n")[:-1]
    except FileNotFoundError:
        return []
    entries = [Entry(float(w[0]), w[1], [int(n) for n in w[2:]]) for w in map(str.split, lines)]
    return [e for e in entries if event in (None, e.event)]
