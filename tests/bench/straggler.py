"""One of three workers becomes half as fast as the others: how many steps until the job is as fast as the best share of
slots allows; and how often it changes its mind.

All workers are held to a share of a core, so that cores stay free, and one later to half of it. From the step under way
when that happens:
  steps_until     until three steps in a row are, in the median, within 5% of the best that an integer share of slots
                  allows: the undisturbed step with the busiest worker's slots priced at its pace then
  throughput      of the later half of the steps that are watched, over that best: 1 is as good as it gets
  without         the same over the undisturbed step's throughput, for reading
  changes         plans that took effect meanwhile: more than a few is flapping
"""
import argparse
import re
import statistics
from typing import Any

from cluster import TARGETS, Cluster, Failed, job_text
from report import Report, build_text
from throttle import Throttle

targets = TARGETS
WORKERS = 3
SLOW = "node-2"
STEPS_MOST = 10
NEAR = 0.05
WINDOW = 3  # steps whose median counts
LIMIT_S = 600
ENDLESS = 10_000_000


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--turns", type=int, default=5, help="default 5")
    p.add_argument("--share", type=float, default=0.5, help="of a core, for each worker; default 0.5")
    p.add_argument("--before", type=int, default=20, help="undisturbed steps; default 20")
    p.add_argument("--steps", type=int, default=40, help="watched after that; default 40")
    p.add_argument("--batch", type=int, default=128, help="samples a step; default 128")
    p.add_argument("--slots", type=int, default=32, help="slots of a step; default 32")
    p.add_argument("--sharding", default="replicated", choices=["replicated", "optimizer", "gradients", "parameters"])


def busiest(slots: int, paces: list[float]) -> float:
    """The time of the busiest worker, when slots go one by one to whoever is done with them first; that is the best."""
    counts = [0] * len(paces)
    for _ in range(slots):
        n = min(range(len(paces)), key=lambda i: (counts[i] + 1) * paces[i])
        counts[n] += 1
    return max(c * p for c, p in zip(counts, paces))


def wait_step(cluster: Cluster, job: str, step: int) -> None:
    def is_there() -> bool:
        now = cluster.ask("job", job)["job"]
        if now["state"] in ("failed", "cancelled"):
            raise Failed(f"the job {now['state']}: {now['why']}")
        return now["step"] >= step

    cluster.wait(f"step {step}", is_there, LIMIT_S, 0.25)


def turn_of(args: argparse.Namespace) -> dict[str, Any]:
    # From the start, for the mean time of a slot is over all of them.
    with Cluster(args.programs, nodes=WORKERS) as cluster, Throttle(cluster, args.share) as throttle:
        job = cluster.submit(job_text(ENDLESS, args.seed, args.batch, args.slots,
                                      {"sharding": args.sharding, "replicas": 2, "elastic.evict_slow": False}))
        cluster.wait("the workers to train", lambda: len(cluster.members()) == WORKERS, LIMIT_S, 0.5)
        first = cluster.ask("job", job)["job"]["step"] + 5
        wait_step(cluster, job, first + args.before)
        members = cluster.members()
        slot_ms = statistics.median(m["slot_ms"] for m in members)
        most_slots = max(m["slots"] for m in members)
        slowed_at = cluster.ask("job", job)["job"]["step"] + 1
        throttle.shares[SLOW] = args.share / 2
        wait_step(cluster, job, slowed_at + args.steps)
        ms = {s["step"]: s["ms"] for s in cluster.ask("job", job, "--steps")["steps"]}
        events = cluster.events()
    usual = statistics.median(ms[s] for s in range(first, slowed_at))
    # What a step takes beside the slots of its busiest worker stays as it is.
    paces = [slot_ms] * (WORKERS - 1) + [2 * slot_ms]
    best = usual - most_slots * slot_ms + busiest(args.slots, paces)
    after = [ms[s] for s in range(slowed_at, slowed_at + args.steps)]
    good = (n for n in range(len(after) - WINDOW + 1)
            if statistics.median(after[n:n + WINDOW]) <= best / (1 - NEAR))
    changes = [e for e in events if e["kind"] == "plan_effective"
               and int(re.search(r"step (\d+)", e["reason"]).group(1)) >= slowed_at]
    later = statistics.median(after[len(after) // 2:])
    return {"usual_ms": usual, "best_ms": best, "slot_ms": slot_ms, "after_ms": after, "changes": len(changes),
            "steps_until": next(good, args.steps), "throughput": best / later, "without": usual / later,
            "events": [e["reason"] for e in changes]}


def run(args: argparse.Namespace) -> None:
    report = Report("straggler", build=build_text(args.programs), seed=args.seed, workers=WORKERS, share=args.share,
                    batch=args.batch, slots=args.slots, sharding=args.sharding, turns=args.turns, steps=args.steps)
    turns = []
    for n in range(1, args.turns + 1):
        turns.append(turn_of(args))
        t = turns[-1]
        report.say(f"turn {n}: {t['usual_ms']:.0f} ms a step, then after {t['steps_until']} steps within 5% of "
                   f"{t['best_ms']:.0f} ms")
    report.figure("usual_ms", [t["usual_ms"] for t in turns])
    report.figure("best_ms", [t["best_ms"] for t in turns])
    report.figure("steps_until", [t["steps_until"] for t in turns], STEPS_MOST)
    for key in ("throughput", "without", "changes"):
        report.figure(key, [t[key] for t in turns])
    report.keep(turns=turns)
    report.write()
