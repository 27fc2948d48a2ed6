"""torchrun's elastic restart: SIGKILL of one of several DDP ranks, to the first step that was never completed before.

Settings: default  plain torchrun (no restarts): the job ends, and a supervisor starts torchrun again at once
          restarts --max-restarts 3
          best     the same with a fresh store an attempt (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1); without it restarts
                   find the dead ranks' addresses and may hang (PyTorch issue 135712)
Prints one JSON line a run:
  committed_ms  from the kill to the first new step
  step_ms       median of undisturbed steps
  redone_steps  steps computed again, from the checkpoint of at most 10 steps before
  failed        instead of these: why no new step came
"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

import worker_log

HERE = os.path.dirname(os.path.abspath(__file__))
KILL_AFTER_STEP = 25


def steps_of(folder: str, rank: int) -> list[worker_log.Entry]:
    return worker_log.read(f"{folder}/rank{rank}.log", "step")


def end_workers(folder: str, ranks: int) -> None:
    """Ends what a hung run left: only processes that this run's workers logged."""
    for rank in range(ranks):
        for entry in worker_log.read(f"{folder}/rank{rank}.log", "proc"):
            try:
                with open(f"/proc/{entry.numbers[0]}/cmdline") as f:
                    if "torchrun_worker" in f.read():
                        os.kill(entry.numbers[0], signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass


def launcher(folder: str, setting: str, batch: int, ranks: int) -> "subprocess.Popen[bytes]":
    env = dict(os.environ, RUN_FOLDER=folder, BATCH=str(batch), STEPS=str(KILL_AFTER_STEP + 10), OMP_NUM_THREADS="1")
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               str(ranks)]
    if setting != "default":
        command += ["--max-restarts", "3"]
    if setting == "best":
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with open(f"{folder}/output.txt", "a") as output:
        return subprocess.Popen([*command, f"{HERE}/torchrun_worker.py"], env=env, stdout=output, stderr=output)


def run_once(folder: str, setting: str, batch: int, ranks: int, limit_s: float, rng: random.Random) -> dict:
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    job = launcher(folder, setting, batch, ranks)
    try:
        while not any(e.numbers[0] >= KILL_AFTER_STEP for e in steps_of(folder, 1)):
            if job.poll() is not None:
                return {"failed": f"torchrun ended before the kill, see {folder}/output.txt"}
            time.sleep(0.005)
        before = steps_of(folder, 0)
        step_s = statistics.median(b.at - a.at for a, b in zip(before[5:], before[6:]))
        time.sleep(rng.random() * step_s)
        victim = worker_log.read(f"{folder}/rank1.log", "proc")[-1].numbers[0]
        killed = time.time()
        os.kill(victim, signal.SIGKILL)
        if setting == "default":
            job.wait()
            job = launcher(folder, setting, batch, ranks)
        try:
            job.wait(limit_s)
        except subprocess.TimeoutExpired:
            return {"failed": f"no end {limit_s:.0f} s after the kill"}
        done = max(e.numbers[0] for rank in range(ranks) for e in steps_of(folder, rank) if e.at <= killed)
        new = [e.at for e in steps_of(folder, 0) if e.at > killed and e.numbers[0] > done]
        if not new:
            return {"failed": f"torchrun gave up {time.time() - killed:.1f} s after the kill"}
        resumed = worker_log.read(f"{folder}/rank0.log", "load")[-1].numbers[0]
        return {"committed_ms": round((new[0] - killed) * 1e3, 1), "step_ms": round(step_s * 1e3, 1),
                "redone_steps": done - resumed}
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
        end_workers(folder, ranks)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", help="for logs and checkpoints; emptied")
    p.add_argument("setting", choices=["default", "restarts", "best"])
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--batch", type=int, default=128, help="samples a step, over all ranks")
    p.add_argument("--workers", type=int, default=2, help="ranks")
    p.add_argument("--limit-s", type=float, default=60, help="a run that has not ended so long after the kill is hung")
    p.add_argument("--seed", type=int, default=1, help="of when in a step the kill comes")
    args = p.parse_args()
    rng = random.Random(args.seed)
    for run in range(args.runs):
        found = run_once(f"{args.folder}/torchrun-{args.setting}", args.setting, args.batch, args.workers, args.limit_s,
                         rng)
        print(json.dumps({"run": run, **found}), flush=True)


if __name__ == "__main__":
    main()
