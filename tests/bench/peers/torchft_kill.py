"""torchft: a lighthouse and several replica groups of one process (Gloo); SIGKILL of one, to the next committed step.

Settings: default  as shipped: heartbeat timeout 5000 ms, operations 60 s
          best     the shortest that were found to work: heartbeats each 50 ms, timeout 300 ms, operations 2 s
Prints one JSON line a run:
  committed_ms  from the kill to the first step that all survivors committed without the victim
  gap_ms        the same, from the last step committed with it
  step_ms       median of undisturbed steps with all groups
  failed        instead of these: what did not happen in time
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from typing import Callable

import torchft

import worker_log

HERE = os.path.dirname(os.path.abspath(__file__))
VICTIM = 1
KILL_AFTER_STEP = 20
BEST_LIGHTHOUSE = ["--heartbeat_timeout_ms", "300", "--join_timeout_ms", "300", "--quorum_tick_ms", "10"]
BEST_WORKER = {"HEARTBEAT_MS": "50", "TIMEOUT_S": "2"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Run:
    def __init__(self, folder: str, setting: str, batch: int, groups: int, limit_s: float):
        self.folder, self.groups, self.limit_s = folder, groups, limit_s
        self.survivors = [g for g in range(groups) if g != VICTIM]
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        port = free_port()
        best = setting == "best"
        self.env = dict(os.environ, TORCHFT_LIGHTHOUSE=f"http://localhost:{port}", OMP_NUM_THREADS="1",
                        STOP=f"{folder}/stop", ROWS=str(batch // groups), **(BEST_WORKER if best else {}))
        program = os.path.join(os.path.dirname(os.path.dirname(torchft.__file__)), "bin", "torchft_lighthouse")
        lighthouse = [sys.executable, program, "--min_replicas", "1", "--bind", f"127.0.0.1:{port}",
                      *(BEST_LIGHTHOUSE if best else [])]
        self.processes = [self.start(lighthouse, "lighthouse", {})]
        self.workers = [self.start([sys.executable, "-W", "ignore", f"{HERE}/torchft_worker.py"], f"group{g}",
                                   {"GROUP": str(g), "LOG": f"{folder}/group{g}.log"}) for g in range(groups)]
        self.processes += self.workers

    def start(self, command: list[str], name: str, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        with open(f"{self.folder}/{name}.txt", "a") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, env={**self.env, **env})

    def steps(self, group: int, members: int) -> list[float]:
        log = worker_log.read(f"{self.folder}/group{group}.log", "step")
        return [e.at for e in log if e.numbers[1] == members]

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        give_up = time.time() + self.limit_s
        while not is_so():
            ended = [p.args for i, p in enumerate(self.processes) if p.poll() is not None and i != 1 + VICTIM]
            if ended:
                raise TimeoutError(f"{what}: {ended[0][1:]} ended, see {self.folder}")
            if time.time() > give_up:
                raise TimeoutError(f"{what}: not within {self.limit_s:.0f} s, see {self.folder}")
            time.sleep(0.01)

    def measure(self, rng: random.Random) -> dict:
        self.wait("start", lambda: all(len(self.steps(g, self.groups)) >= KILL_AFTER_STEP
                                        for g in range(self.groups)))
        steps = self.steps(self.survivors[0], self.groups)
        step_s = statistics.median(b - a for a, b in zip(steps[5:], steps[6:]))
        time.sleep(rng.random() * step_s)
        killed = time.time()
        self.workers[VICTIM].send_signal(signal.SIGKILL)

        # A false alarm of the short timeouts may have committed with fewer before the kill.
        def after(group: int) -> list[float]:
            return [at for at in self.steps(group, self.groups - 1) if at > killed]

        self.wait("next step", lambda: all(map(after, self.survivors)))
        first = max(after(g)[0] for g in self.survivors)
        last = min(self.steps(g, self.groups)[-1] for g in self.survivors)
        return {"committed_ms": round((first - killed) * 1e3, 1), "gap_ms": round((first - last) * 1e3, 1),
                "step_ms": round(step_s * 1e3, 1)}

    def end(self) -> None:
        open(self.env["STOP"], "w").close()
        time.sleep(0.3)
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", help="for logs; emptied")
    p.add_argument("setting", choices=["default", "best"])
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--batch", type=int, default=126, help="samples a step, over all groups")
    p.add_argument("--workers", type=int, default=3, help="groups")
    p.add_argument("--limit-s", type=float, default=150, help="longest wait for anything")
    p.add_argument("--seed", type=int, default=1, help="of when in a step the kill comes")
    args = p.parse_args()
    rng = random.Random(args.seed)
    for n in range(args.runs):
        run = Run(f"{args.folder}/torchft-{args.setting}", args.setting, args.batch, args.workers, args.limit_s)
        try:
            found = run.measure(rng)
        except TimeoutError as e:
            found = {"failed": str(e)}
        finally:
            run.end()
        print(json.dumps({"run": n, **found}), flush=True)


if __name__ == "__main__":
    main()
