"""Step time of PyTorch DDP with Gloo: ranks of one thread each, on 127.0.0.1.

Prints JSON lines. First the setup: {"torch", "ranks", "batch", ...}. Then one a measured step, as rank 0 sees it:
  step    number, from 1, warm-up counted
  loss    mean over rank 0's part of the batch (DDP does not reduce it)
  ms      wall time from the end of the step before to the end of this one: batch drawn, forward, backward with the
          all-reduce, clipping, optimizer, EMA
Last, over the measured steps:
  cpu_ms  processor time of all threads of all ranks, a step; other load on the machine hardly changes it
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(ranks: int) -> int:
    """Starts this script once a rank and waits; a rank that fails ends the others."""
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(ranks),
               OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    started = [subprocess.Popen([sys.executable, "-W", "ignore", *sys.argv], env=dict(env, RANK=str(r)))
               for r in range(ranks)]
    codes = [None] * ranks
    while None in codes and not any(codes):
        time.sleep(0.1)
        codes = [p.poll() for p in started]
    for p in started:
        if p.poll() is None:
            p.kill()
            p.wait()
    return max(abs(c or 0) for c in codes)


def train(args: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from model import Data, flow_loss, make_model, make_optimizer

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = make_model(args.seed)
    parameters = list(model.parameters())
    ema = [p.detach().clone() for p in parameters]
    if args.compile:
        model = torch.compile(model)
    options = {"gradient_as_bucket_view": True, "static_graph": True} if args.tuned else {}
    network = DistributedDataParallel(model, **options)
    optimizer = make_optimizer(model)
    data = Data(args.seed)
    rows = args.batch // ranks
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "ranks": ranks, "batch": args.batch, "seed": args.seed,
                          "clip": args.clip, "ema": args.ema, "tuned": args.tuned, "compile": args.compile,
                          "parameters": sum(p.numel() for p in parameters)}))
    for step in range(1, args.warmup + args.steps + 1):
        if step == args.warmup + 1:
            dist.barrier()
            before, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss = flow_loss(network, data.batch(step, rows, rank))
        loss.backward()
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(parameters, args.clip, foreach=True)
        optimizer.step()
        if args.ema > 0:
            with torch.no_grad():
                torch._foreach_lerp_(ema, parameters, 1 - args.ema)
        value = loss.item()
        if step > args.warmup:
            now = time.perf_counter()
            if rank == 0:
                print(json.dumps({"step": step, "loss": value, "ms": round((now - before) * 1e3, 3)}))
            before = now
    spent = torch.tensor([(time.process_time() - cpu) * 1e3 / args.steps])
    dist.all_reduce(spent)
    if rank == 0:
        print(json.dumps({"cpu_ms": round(spent.item(), 3)}))
    dist.destroy_process_group()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--batch", type=int, default=128, help="samples a step, over all ranks")
    p.add_argument("--warmup", type=int, default=20, help="steps not measured")
    p.add_argument("--steps", type=int, default=100, help="steps measured")
    p.add_argument("--clip", type=float, default=1.0, help="global norm; 0: no clipping")
    p.add_argument("--ema", type=float, default=0.995, help="decay; 0: none")
    p.add_argument("--tuned", action="store_true", help="gradient_as_bucket_view and static_graph")
    p.add_argument("--compile", action="store_true", help="torch.compile; give a longer warm-up")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if args.batch % args.ranks:
        p.error("--batch is not a multiple of --ranks")
    if "RANK" not in os.environ:
        return launch(args.ranks)
    train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
