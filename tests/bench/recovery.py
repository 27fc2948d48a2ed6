"""SIGKILL of one of three workers to the next committed step, many times over; with --peers N also what torchrun and
torchft need on the same model and batch.

Each kill hits a random worker at a random moment of a step, once three workers train again. Figures:
  step_ms          median of undisturbed steps (each turn of the peers has its own, in the JSON file)
  detected_ms      from the kill until the coordinator decided what to do
  committed_ms     from the kill to the next committed step
  recomputed_slots slots that others had to compute in the victim's place
  stretch_ms       how much longer the disturbed step took than an undisturbed one
  beyond_ms        the same less the recomputation, priced at the cluster's pace: recomputed_slots * step_ms / slots
  rejoin_ms        from the kill until three workers train again (the agent waits longer for each start of a worker
                   that did not live for a minute)
"""
import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from typing import Any

from cluster import TARGETS, Cluster, Failed, job_text
from peer import Peers
from report import Report, build_text

targets = TARGETS
WORKERS = 3
BEYOND_MS_MOST = 100
SLOWEST_MS_MOST = 300
UNDISTURBED_STEPS = 4  # between a rejoin and the next kill
LIMIT_S = 120
ENDLESS = 10_000_000


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--kills", type=int, default=50, help="default 50")
    p.add_argument("--batch", type=int, default=128, help="samples a step; default 128")
    p.add_argument("--slots", type=int, default=16, help="slots of a step; default 16")
    p.add_argument("--peers", type=int, default=0, metavar="N", help="also N runs of each peer; default 0")


class Trial:
    """One job that goes on for ever while its workers are killed."""

    def __init__(self, cluster: Cluster, args: argparse.Namespace):
        self.cluster, self.rng = cluster, random.Random(args.seed)
        self.job = cluster.submit(job_text(ENDLESS, args.seed, args.batch, args.slots))

    def look(self) -> dict[str, Any]:
        found = self.cluster.ask("job", self.job)
        if found["job"]["state"] in ("failed", "cancelled", "finished"):
            raise Failed(f"the job {found['job']['state']}: {found['job']['why']}")
        return found

    def wait_steps(self, count: int) -> None:
        """Until all are members and `count` steps came after."""
        self.cluster.wait("three workers that train", lambda: len(self.cluster.members()) == WORKERS, LIMIT_S, 0.05)
        aim = self.look()["job"]["step"] + count
        self.cluster.wait("further steps", lambda: self.look()["job"]["step"] >= aim, LIMIT_S)

    def kill(self, step_ms: float) -> dict[str, Any]:
        before = len(self.look()["recoveries"])
        victim = self.rng.choice(self.cluster.members())
        time.sleep(self.rng.random() * step_ms / 1e3)
        killed = time.time()
        os.kill(victim["pid"], signal.SIGKILL)

        def committed() -> list[dict[str, Any]]:
            new = self.look()["recoveries"][before:]
            return new if new and new[0]["committed_ms"] is not None else []

        recovery = self.cluster.wait("the next committed step", committed, LIMIT_S, 0.2)[0]
        self.cluster.wait("the rejoin", lambda: len(self.cluster.members()) == WORKERS, LIMIT_S, 0.05)
        noticed_ms = recovery["time_ms"] - killed * 1e3
        return {"victim": victim["name"], "step": recovery["step"],
                "detected_ms": noticed_ms + recovery["detected_ms"],
                "committed_ms": noticed_ms + recovery["committed_ms"],
                "recomputed_slots": recovery["recomputed_slots"], "rejoin_ms": (time.time() - killed) * 1e3}


def price(kills: list[dict[str, Any]], steps: list[dict[str, Any]], slots: int) -> float:
    """Adds stretch_ms and beyond_ms to each kill; gives back the undisturbed step time."""
    ms = {s["step"]: s["ms"] for s in steps}
    # The history may name the disturbed step or the one before it.
    near = {s for k in kills for s in range(k["step"] - 1, k["step"] + 2)}
    step_ms = statistics.median(v for s, v in ms.items() if s not in near and s > 10)
    for k in kills:
        disturbed = max(ms[s] for s in range(k["step"] - 1, k["step"] + 2) if s in ms)
        k["stretch_ms"] = disturbed - step_ms
        k["beyond_ms"] = k["stretch_ms"] - k["recomputed_slots"] * step_ms / slots
    return step_ms


def ours(args: argparse.Namespace, report: Report) -> tuple[float, list[dict[str, Any]]]:
    with Cluster(args.programs, nodes=WORKERS) as cluster:
        trial = Trial(cluster, args)
        trial.wait_steps(20)
        kills = []
        for n in range(1, args.kills + 1):
            recent = [s["ms"] for s in cluster.ask("job", trial.job, "--steps")["steps"]][-20:]
            kills.append(trial.kill(statistics.median(recent)))
            report.say(f"kill {n}: {kills[-1]['victim']}, next step committed {kills[-1]['committed_ms']:.0f} ms later")
            trial.wait_steps(UNDISTURBED_STEPS)
        return price(kills, cluster.ask("job", trial.job, "--steps")["steps"], args.slots), kills


def theirs(args: argparse.Namespace, report: Report) -> dict[str, list[dict[str, Any]]]:
    peers = Peers(args.peers_folder)
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="perdura-bench-") as folder:
        for script, name, settings in (("torchrun_restart.py", "torchrun", ("default", "restarts", "best")),
                                       ("torchft_kill.py", "torchft", ("default", "best"))):
            for setting in settings:
                runs = peers.run(script, folder, setting, "--runs", str(args.peers), "--batch", str(args.batch),
                                 "--seed", str(args.seed))
                found[f"{name}_{setting}"] = runs
                for r in runs:
                    if "failed" in r:
                        report.say(f"{name} {setting}, run {r['run']}: {r['failed']}")
    return found


def run(args: argparse.Namespace) -> None:
    report = Report("recovery", build=build_text(args.programs), seed=args.seed, workers=WORKERS, batch=args.batch,
                    slots=args.slots, kills=args.kills, runs_of_each_peer=args.peers)
    step_ms, kills = ours(args, report)
    report.figure("step_ms", [step_ms])
    for key in ("detected_ms", "committed_ms", "recomputed_slots", "stretch_ms", "rejoin_ms"):
        report.figure(key, [k[key] for k in kills])
    beyond = [k["beyond_ms"] for k in kills]
    report.figure("beyond_ms", beyond, BEYOND_MS_MOST)
    report.figure("beyond_ms_slowest", beyond, SLOWEST_MS_MOST, of="max")
    report.keep(perdura=kills)
    if args.peers:
        for name, runs in theirs(args, report).items():
            good = [r for r in runs if "failed" not in r]
            report.figure(f"{name}_committed_ms", [r["committed_ms"] for r in good])
            report.keep(**{name: runs})
    report.write()
