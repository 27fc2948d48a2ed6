"""SIGKILL of one of four workers to the next committed step, many times over and for each way to shard; joins and
drains after that; with --peers N also what torchrun and torchft need on the same model and batch.

Each kill hits a random worker at a random moment of a step, once all workers train again. Figures, by level:
  LEVEL_step_ms          median of undisturbed steps (each turn of the peers has its own, in the JSON file)
  LEVEL_detected_ms      from the kill until the coordinator decided what to do
  LEVEL_committed_ms     from the kill to the next committed step
  LEVEL_extra_ms         the same less one undisturbed step
  LEVEL_recomputed_slots slots that others had to compute in the victim's place
  LEVEL_stretch_ms       how much longer the disturbed step took than an undisturbed one
  LEVEL_beyond_ms        the same less the recomputation at the cluster's pace: recomputed_slots * step_ms / slots
  LEVEL_rejoin_ms        from the kill until all workers train again (the agent waits longer for each start of a worker
                         that did not live for a minute)
Of joins and drains, with each worker held to a share of a core so that cores are free: how much longer the longest step
took from the proposal of the new plan to the third step under it, in percent of an undisturbed one: before the plan
took effect, one of the members that there were; after it, the longer of theirs and the new ones'.
  LEVEL_join_percent     a newcomer whose process is up learns and becomes a member
  LEVEL_drain_percent    a node's agent gets a SIGTERM: its worker hands over and is let go
  LEVEL_usual_percent    the same of as many steps in a row where nothing happens: what the measurement itself spreads
Of the peers, which replicate all state: PEER_SETTING_extra_ms as above, and ours (replicated) over it, median and tail.
"""
import argparse
import os
import random
import re
import signal
import statistics
import tempfile
import time
from typing import Any

from cluster import TARGETS, Cluster, Failed, job_text
from peer import Peers
from report import Report, build_text
from throttle import Throttle

targets = TARGETS
LEVELS = ["replicated", "optimizer", "gradients", "parameters"]
BEYOND_MS_MOST = 100
SLOWEST_MS_MOST = 300
JOIN_PERCENT_MOST = 20
TIMES_SHORTER = 40  # than the peers at their defaults
UNDISTURBED_STEPS = 4  # between a rejoin and the next kill
AROUND = 3  # steps under a new plan that are looked at
LIMIT_S = 120
ENDLESS = 10_000_000
PEER_SETTINGS = {"torchrun": ("torchrun_restart.py", ("default", "restarts", "best")),
                 "torchft": ("torchft_kill.py", ("default", "best"))}


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS, help="default: all")
    p.add_argument("--workers", type=int, default=4, help="default 4")
    p.add_argument("--replicas", type=int, default=2, help="holders of each tile where state is sharded; default 2")
    p.add_argument("--kills", type=int, default=50, help="of each level; default 50")
    p.add_argument("--joins", type=int, default=5, help="of each level, and as many drains; default 5")
    p.add_argument("--share", type=float, default=0.35, help="of a core, a worker in joins and drains; default 0.35")
    p.add_argument("--batch", type=int, default=128, help="samples a step; default 128")
    p.add_argument("--slots", type=int, default=16, help="slots of a step; default 16")
    p.add_argument("--peers", type=int, default=0, metavar="N", help="also N runs of each peer; default 0")


class Trial:
    """One job that goes on for ever while its workers are killed, come and go."""

    def __init__(self, cluster: Cluster, level: str, args: argparse.Namespace, **elastic: Any):
        self.cluster, self.workers, self.rng = cluster, cluster.node_count, random.Random(args.seed)
        fields = {"sharding": level, "replicas": args.replicas, **{f"elastic.{k}": v for k, v in elastic.items()}}
        self.job = cluster.submit(job_text(ENDLESS, args.seed, args.batch, args.slots, fields))

    def look(self) -> dict[str, Any]:
        found = self.cluster.ask("job", self.job)
        if found["job"]["state"] in ("failed", "cancelled", "finished"):
            raise Failed(f"the job {found['job']['state']}: {found['job']['why']}")
        return found

    def steps(self) -> list[dict[str, Any]]:
        return self.cluster.ask("job", self.job, "--steps")["steps"]

    def wait_steps(self, count: int) -> None:
        aim = self.look()["job"]["step"] + count
        self.cluster.wait("further steps", lambda: self.look()["job"]["step"] >= aim, LIMIT_S, 0.2)

    def wait_members(self, count: int, every_s: float = 0.05) -> None:
        self.cluster.wait(f"{count} workers that train", lambda: len(self.cluster.members()) == count, LIMIT_S, every_s)

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
        self.wait_members(self.workers)
        noticed_ms = recovery["time_ms"] - killed * 1e3
        return {"victim": victim["name"], "step": recovery["step"],
                "detected_ms": noticed_ms + recovery["detected_ms"],
                "committed_ms": noticed_ms + recovery["committed_ms"],
                "recomputed_slots": recovery["recomputed_slots"], "rejoin_ms": (time.time() - killed) * 1e3}


def price(kills: list[dict[str, Any]], steps: list[dict[str, Any]], slots: int) -> float:
    """Adds extra_ms, stretch_ms and beyond_ms to each kill; gives back the undisturbed step time."""
    ms = {s["step"]: s["ms"] for s in steps}
    # The history may name the disturbed step or the one before it.
    near = {s for k in kills for s in range(k["step"] - 1, k["step"] + 2)}
    step_ms = statistics.median(v for s, v in ms.items() if s not in near and s > 10)
    for k in kills:
        disturbed = max(ms[s] for s in range(k["step"] - 1, k["step"] + 2) if s in ms)
        k["extra_ms"] = k["committed_ms"] - step_ms
        k["stretch_ms"] = disturbed - step_ms
        k["beyond_ms"] = k["stretch_ms"] - k["recomputed_slots"] * step_ms / slots
    return step_ms


def kills_of(level: str, args: argparse.Namespace, report: Report) -> dict[str, Any]:
    with Cluster(args.programs, nodes=args.workers) as cluster:
        trial = Trial(cluster, level, args)
        trial.wait_members(args.workers)
        trial.wait_steps(20)
        kills = []
        for n in range(1, args.kills + 1):
            recent = [s["ms"] for s in trial.steps()][-20:]
            kills.append(trial.kill(statistics.median(recent)))
            report.say(f"{level}, kill {n}: {kills[-1]['victim']}, next step committed "
                       f"{kills[-1]['committed_ms']:.0f} ms later")
            trial.wait_steps(UNDISTURBED_STEPS)
        return {"step_ms": price(kills, trial.steps(), args.slots), "kills": kills}


class History:
    """When each step was committed, and what changed plans."""

    def __init__(self, steps: list[dict[str, Any]], events: list[dict[str, Any]]):
        self.ms = {s["step"]: s["ms"] for s in steps}
        self.changes: list[dict[str, Any]] = []  # in the order of their steps
        proposed = 0
        for e in events:
            if e["kind"] == "plan_proposed":
                proposed = e["time_ms"]
            elif e["kind"] == "plan_effective":
                # Written when that step's verdict came, so it says when the steps before it were committed.
                self.changes.append({"step": int(re.search(r"step (\d+)", e["reason"]).group(1)),
                                     "before_ms": e["time_ms"] - proposed, "joins": False, "leaves": False})
            elif e["kind"] in ("worker_joined", "worker_left") and self.changes:
                self.changes[-1]["joins" if e["kind"] == "worker_joined" else "leaves"] = True

    def median(self, first: int, end: int) -> float:
        return statistics.median(v for s, v in self.ms.items() if first <= s < end)

    def first_touched(self, change: dict[str, Any]) -> int:
        """The step under way when the plan was proposed."""
        step, left = change["step"], change["before_ms"]
        while step - 1 in self.ms and left > self.ms[step]:
            left -= self.ms[step]
            step -= 1
        return step

    def delays(self, rest: int) -> dict[str, list[float]]:
        """Percent, of each join and drain with `rest` quiet steps on both sides; and of as many of those before it."""
        found: dict[str, list[float]] = {"join": [], "drain": [], "usual": []}
        ends = [0, *(c["step"] for c in self.changes), max(self.ms)]
        for n, change in enumerate(self.changes, 1):
            first, step = self.first_touched(change), change["step"]
            last = step + AROUND
            if change["joins"] == change["leaves"] or first - rest <= ends[n - 1] or last + rest > ends[n + 1]:
                continue
            before = self.median(first - rest, first)
            after = max(before, self.median(last + 1, last + 1 + rest))
            longest = max(self.ms[s] / (before if s <= step else after) for s in range(first, last + 1))
            found["join" if change["joins"] else "drain"].append(100 * (longest - 1))
            quiet = range(first - rest, min(first, first - rest + last + 1 - first))
            found["usual"].append(100 * (max(self.ms[s] for s in quiet) / before - 1))
        return found


def come_and_go(trial: Trial, name: str, rest: int) -> None:
    """A newcomer joins, trains, and is drained by a notice; `rest` steps after each."""
    node = trial.cluster.start_node(name)
    trial.wait_members(trial.workers + 1, 0.5)
    trial.wait_steps(rest)
    node.send_signal(signal.SIGTERM)
    trial.cluster.wait("the agent to end", lambda: node.poll() is not None, LIMIT_S, 0.5)
    if node.returncode != 0:
        raise Failed(f"the drained agent ended with {node.returncode}")
    trial.wait_steps(rest)


def changes_of(level: str, args: argparse.Namespace, report: Report) -> dict[str, list[float]]:
    rest = 12
    with Cluster(args.programs, nodes=args.workers - 1) as cluster:
        trial = Trial(cluster, level, args, rebalance=False, evict_slow=False)
        trial.wait_members(args.workers - 1)
        with Throttle(cluster, args.share):
            trial.wait_steps(2 * rest)
            for n in range(1, args.joins + 1):
                come_and_go(trial, f"newcomer-{n}", 2 * rest)
                report.say(f"{level}: newcomer {n} has come and gone")
        if trial.look()["recoveries"]:
            raise Failed("a join or a drain led to a recovery")
        return History(trial.steps(), cluster.events()).delays(rest)


def theirs(args: argparse.Namespace, report: Report) -> dict[str, list[dict[str, Any]]]:
    peers = Peers(args.peers_folder)
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="perdura-bench-") as folder:
        for name, (script, settings) in PEER_SETTINGS.items():
            for setting in settings:
                runs = peers.run(script, folder, setting, "--runs", str(args.peers), "--batch", str(args.batch),
                                 "--workers", str(args.workers), "--seed", str(args.seed))
                found[f"{name}_{setting}"] = runs
                for r in runs:
                    if "failed" in r:
                        report.say(f"{name} {setting}, run {r['run']}: {r['failed']}")
    return found


def show(level: str, found: dict[str, Any], report: Report) -> None:
    if "kills" in found:
        report.figure(f"{level}_step_ms", [found["step_ms"]])
        for key in ("detected_ms", "committed_ms", "extra_ms", "recomputed_slots", "stretch_ms", "rejoin_ms"):
            report.figure(f"{level}_{key}", [k[key] for k in found["kills"]])
        beyond = [k["beyond_ms"] for k in found["kills"]]
        report.figure(f"{level}_beyond_ms", beyond, BEYOND_MS_MOST)
        report.figure(f"{level}_beyond_ms_slowest", beyond, SLOWEST_MS_MOST, of="max")
    if "changes" in found:
        usual = found["changes"]["usual"]
        report.figure(f"{level}_usual_percent", usual, of="max")
        report.figure(f"{level}_join_percent", found["changes"]["join"], JOIN_PERCENT_MOST, of="max")
        report.figure(f"{level}_drain_percent", found["changes"]["drain"], max(usual, default=0.0), of="max")


def compare(kills: list[dict[str, Any]], peers: dict[str, list[dict[str, Any]]], report: Report) -> None:
    mine = [k["extra_ms"] for k in kills]
    for name, runs in peers.items():
        good = [r["committed_ms"] - r["step_ms"] for r in runs if "failed" not in r]
        report.figure(f"{name}_extra_ms", good)
        if not good or not mine:
            continue
        most = 1 / TIMES_SHORTER if name.endswith("_default") else 1.0 if name == "torchft_best" else None
        report.figure(f"perdura_over_{name}", [statistics.median(mine) / statistics.median(good)], most)
        report.figure(f"perdura_over_{name}_tail", [max(mine) / max(good)], most)


def run(args: argparse.Namespace) -> None:
    report = Report("recovery", build=build_text(args.programs), seed=args.seed, workers=args.workers,
                    replicas=args.replicas, batch=args.batch, slots=args.slots, kills=args.kills, joins=args.joins,
                    share=args.share, runs_of_each_peer=args.peers)
    found: dict[str, dict[str, Any]] = {}
    for level in args.levels:
        found[level] = kills_of(level, args, report) if args.kills else {}
        if args.joins:
            found[level]["changes"] = changes_of(level, args, report)
    for level in args.levels:
        show(level, found[level], report)
    report.keep(perdura=found)
    if args.peers:
        peers = theirs(args, report)
        compare(found[args.levels[0]].get("kills", []), peers, report)
        report.keep(peers=peers)
    report.write()
