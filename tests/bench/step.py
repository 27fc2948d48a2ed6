"""Step time with two workers of one thread each, beside PyTorch DDP with Gloo on the same model; and what the
coordinator and a node agent need meanwhile.

Ours and the peer take turns (A B C A B C), so that a change of the machine's mood hits all. Figures, one value a turn:
  perdura_step_ms       median wall time of the measured steps, as the job's history has it
  ddp_step_ms           the same of DDP with clipping and EMA, as ours has them: what the bound is against
  ddp_bare_step_ms      the same without clipping and EMA
  step_ratio            perdura_step_ms / ddp_step_ms of the same turn
  step_ratio_bare       perdura_step_ms / ddp_bare_step_ms of the same turn
  *_cpu_ms, cpu_ratio   processor time a step of all threads of all processes (ours: coordinator and agents too); other
                        load on the machine disturbs it less than wall time
  coordinator_memory_mb, node_memory_mb   peak resident set, shared pages counted in full
  coordinator_cpu_percent, node_cpu_percent   of one core, while training
"""
import argparse
import statistics
import time
from typing import Any

from cluster import TARGETS, Cluster, Failed, cpu_ms, job_text, peak_memory_mb
from peer import Peers
from report import Report, build_text

targets = TARGETS
WORKERS = 2
RATIO_MOST = 1.1
MEMORY_MB_MOST = 50
CPU_PERCENT_MOST = 1
POLL_S = 0.5


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--turns", type=int, default=5, help="of each; default 5")
    p.add_argument("--steps", type=int, default=60, help="measured in a turn; default 60")
    p.add_argument("--warmup", type=int, default=20, help="steps before them; default 20")
    p.add_argument("--batch", type=int, default=128, help="samples a step; default 128")
    p.add_argument("--slots", type=int, default=16, help="slots of a step, ours; default 16")
    p.add_argument("--no-peers", action="store_true", help="ours alone")


def watch(cluster: Cluster, job: str, warmup: int) -> dict[str, float]:
    """Samples the processes from the first measured step until the job ends; gives rates over that time."""
    status = cluster.ask("status")
    coordinator = status["cluster"]["pid"]
    nodes = [n["pid"] for n in status["nodes"]]
    everyone = [coordinator, *nodes, *(w["pid"] for w in status["workers"])]
    samples: list[tuple[float, int, dict[int, float]]] = []

    def has_ended() -> bool:
        now = cluster.ask("job", job)["job"]
        if now["state"] in ("failed", "cancelled"):
            raise Failed(f"the job {now['state']}: {now['why']}")
        if now["step"] >= warmup and now["state"] != "finished":
            samples.append((time.monotonic(), now["step"], {pid: cpu_ms(pid) for pid in everyone}))
        return now["state"] == "finished"

    cluster.wait("the job to finish", has_ended, limit_s=3600, every_s=POLL_S)
    if len(samples) < 2 or samples[-1][1] == samples[0][1]:
        raise Failed("the measured steps were over before they could be watched: ask for more --steps")
    (t0, step0, cpu0), (t1, step1, cpu1) = samples[0], samples[-1]
    percent = {pid: (cpu1[pid] - cpu0[pid]) / (t1 - t0) / 10 for pid in everyone}
    return {"worker_memory_mb": max(peak_memory_mb(w["pid"]) for w in status["workers"]),
            "cpu_ms": sum(cpu1[pid] - cpu0[pid] for pid in everyone) / (step1 - step0),
            "coordinator_cpu_percent": percent[coordinator],
            "node_cpu_percent": max(percent[pid] for pid in nodes),
            "coordinator_memory_mb": peak_memory_mb(coordinator),
            "node_memory_mb": max(peak_memory_mb(pid) for pid in nodes)}


def ours(args: argparse.Namespace, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    with Cluster(args.programs, nodes=WORKERS) as cluster:
        job = cluster.submit(job_text(args.warmup + args.steps, args.seed, args.batch, args.slots, fields))
        found: dict[str, Any] = dict(watch(cluster, job, args.warmup))
        full = cluster.ask("job", job, "--steps")
        found["final_hash"] = full["job"]["final_hash"]
        found["steps_ms"] = [s["ms"] for s in full["steps"] if s["step"] > args.warmup]
        found["step_ms"] = statistics.median(found["steps_ms"])
        return found


def theirs(peers: Peers, args: argparse.Namespace, *more: str, script: str = "ddp_step.py") -> dict[str, Any]:
    lines = peers.run(script, *more, "--warmup", str(args.warmup), "--steps", str(args.steps), "--batch",
                      str(args.batch), "--seed", str(args.seed))
    steps_ms = [line["ms"] for line in lines if "ms" in line]
    return {"setup": lines[0], "steps_ms": steps_ms, "step_ms": statistics.median(steps_ms),
            "cpu_ms": lines[-1]["cpu_ms"]}


def run(args: argparse.Namespace) -> None:
    peers = None if args.no_peers else Peers(args.peers_folder)
    report = Report("step", build=build_text(args.programs), seed=args.seed, workers=WORKERS, batch=args.batch,
                    slots=args.slots, turns=args.turns, steps_in_a_turn=args.steps, warmup=args.warmup)
    a: list[dict[str, Any]] = []
    b: list[dict[str, Any]] = []
    bare: list[dict[str, Any]] = []
    for turn in range(1, args.turns + 1):
        a.append(ours(args))
        line = f"turn {turn}: perdura {a[-1]['step_ms']:.0f} ms"
        if peers:
            b.append(theirs(peers, args, "--tuned"))
            bare.append(theirs(peers, args, "--tuned", "--clip", "0", "--ema", "0"))
            line += f", ddp {b[-1]['step_ms']:.0f} ms, without clipping and EMA {bare[-1]['step_ms']:.0f} ms"
        report.say(line)

    def each(turns: list[dict[str, Any]], key: str) -> list[float]:
        return [t[key] for t in turns]

    def ratios(key: str, peer: list[dict[str, Any]]) -> list[float]:
        return [x[key] / y[key] for x, y in zip(a, peer)]

    report.figure("perdura_step_ms", each(a, "step_ms"))
    report.figure("perdura_cpu_ms", each(a, "cpu_ms"))
    if peers:
        report.figure("ddp_step_ms", each(b, "step_ms"))
        report.figure("ddp_cpu_ms", each(b, "cpu_ms"))
        report.figure("ddp_bare_step_ms", each(bare, "step_ms"))
        report.figure("ddp_bare_cpu_ms", each(bare, "cpu_ms"))
        report.figure("step_ratio", ratios("step_ms", b), RATIO_MOST)
        report.figure("step_ratio_bare", ratios("step_ms", bare))
        report.figure("cpu_ratio", ratios("cpu_ms", b))
    for role in ("coordinator", "node"):
        report.figure(f"{role}_memory_mb", each(a, f"{role}_memory_mb"), MEMORY_MB_MOST, of="max")
        report.figure(f"{role}_cpu_percent", each(a, f"{role}_cpu_percent"), CPU_PERCENT_MOST)
    hashes = sorted({t["final_hash"] for t in a})
    report.say(f"final hash {', '.join(hashes)}" + ("" if len(hashes) == 1 else ": the turns DIFFER"))
    report.keep(perdura=a, ddp=b, ddp_bare=bare)
    report.write()
    if len(hashes) != 1:
        raise Failed("the same job ended with different bits")
