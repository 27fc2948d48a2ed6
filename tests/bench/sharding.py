"""Step time with sharded state, two workers of one thread each, beside PyTorch FSDP2 with Gloo on the same model; and
what each level holds.

Turns of each level and its peer alternate. Ours holds each tile once (replicas = 1), as FSDP2 does. Figures, by level:
  LEVEL_step_ms          median of a turn's steps, clipping and EMA included
  LEVEL_fsdp_step_ms     FSDP2 on the same batch, freed after forward (parameters) or kept (gradients, optimizer: FSDP2
                         does not shard optimizer state alone)
  LEVEL_zero_step_ms     of optimizer: DDP with ZeroRedundancyOptimizer, for reading
  LEVEL_ratio            LEVEL_step_ms / LEVEL_fsdp_step_ms of the same turn
  LEVEL_cpu_ms, LEVEL_cpu_ratio   processor time a step of all threads of all processes
  LEVEL_worker_memory_mb peak resident set of the larger worker
Every level has to end with the bits of replicated state.
"""
import argparse
from typing import Any

from cluster import TARGETS, Failed
from peer import Peers
from report import Report, build_text
from step import WORKERS, ours, theirs

targets = TARGETS
LEVELS = ["replicated", "optimizer", "gradients", "parameters"]
ASKED = ("optimizer", "parameters")
PEER_OF = {"optimizer": "gradients", "gradients": "gradients", "parameters": "parameters"}
RATIO_MOST = 1.0


def add_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS, help="default: all")
    p.add_argument("--turns", type=int, default=3, help="of each; default 3")
    p.add_argument("--steps", type=int, default=60, help="measured in a turn; default 60")
    p.add_argument("--warmup", type=int, default=20, help="steps before them; default 20")
    p.add_argument("--batch", type=int, default=128, help="samples a step; default 128")
    p.add_argument("--slots", type=int, default=16, help="slots of a step, ours; default 16")
    p.add_argument("--pass-slots", type=int, default=4, help="slots that share a gather, ours; default 4")
    p.add_argument("--no-peers", action="store_true", help="ours alone")


def turn_of(level: str, peers: Peers | None, args: argparse.Namespace, report: Report) -> dict[str, Any]:
    """One turn of ours and of the peers of this level."""
    mine = ours(args, {"sharding": level, "replicas": 1, "batch.pass_slots": args.pass_slots})
    turn: dict[str, Any] = {"perdura": mine}
    line = f"{level}: {mine['step_ms']:.0f} ms"
    if peers and level in PEER_OF:
        turn["fsdp"] = theirs(peers, args, PEER_OF[level], script="fsdp_step.py")
        line += f", FSDP2 {turn['fsdp']['step_ms']:.0f} ms"
        if level == "optimizer":
            turn["zero"] = theirs(peers, args, "optimizer", script="fsdp_step.py")
            line += f", DDP with ZeroRedundancyOptimizer {turn['zero']['step_ms']:.0f} ms"
    report.say(line)
    return turn


def show(level: str, turns: list[dict[str, Any]], report: Report) -> None:
    def each(who: str, key: str) -> list[float]:
        return [t[who][key] for t in turns]

    report.figure(f"{level}_step_ms", each("perdura", "step_ms"))
    report.figure(f"{level}_cpu_ms", each("perdura", "cpu_ms"))
    report.figure(f"{level}_worker_memory_mb", each("perdura", "worker_memory_mb"))
    if "fsdp" in turns[0]:
        report.figure(f"{level}_fsdp_step_ms", each("fsdp", "step_ms"))
        report.figure(f"{level}_fsdp_cpu_ms", each("fsdp", "cpu_ms"))
        for key, name in (("step_ms", "ratio"), ("cpu_ms", "cpu_ratio")):
            most = RATIO_MOST if name == "ratio" and level in ASKED else None
            report.figure(f"{level}_{name}", [t["perdura"][key] / t["fsdp"][key] for t in turns], most)
    if "zero" in turns[0]:
        report.figure(f"{level}_zero_step_ms", each("zero", "step_ms"))


def run(args: argparse.Namespace) -> None:
    peers = None if args.no_peers else Peers(args.peers_folder)
    report = Report("sharding", build=build_text(args.programs), seed=args.seed, workers=WORKERS, batch=args.batch,
                    slots=args.slots, pass_slots=args.pass_slots, turns=args.turns, steps_in_a_turn=args.steps,
                    warmup=args.warmup)
    turns: dict[str, list[dict[str, Any]]] = {level: [] for level in args.levels}
    for n in range(1, args.turns + 1):
        report.say(f"turn {n}")
        for level in args.levels:
            turns[level].append(turn_of(level, peers, args, report))
    for level in args.levels:
        show(level, turns[level], report)
    hashes = sorted({t["perdura"]["final_hash"] for all_turns in turns.values() for t in all_turns})
    report.say(f"final hash {', '.join(hashes)}" + ("" if len(hashes) == 1 else ": they DIFFER"))
    report.keep(turns=turns)
    report.write()
    if len(hashes) != 1:
        raise Failed("the same job ended with different bits")
