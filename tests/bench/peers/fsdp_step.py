"""Step time of PyTorch FSDP2 (fully_shard) with Gloo: ranks of one thread each, on 127.0.0.1.

Each block of the model is a unit of its own, the root takes the rest.
Settings: parameters  freed after each unit's forward and gathered again for its backward (ZeRO-3)
          gradients   kept from forward to backward (ZeRO-2): FSDP2 does not shard optimizer state alone
          optimizer   no FSDP2: DDP with ZeroRedundancyOptimizer (ZeRO-1), for reading beside it
Prints JSON lines as ddp_step.py does, the setup first, then one a measured step, then the processor time a step.
"""
import argparse
import json
import os
import sys
import time

from ddp_step import launch


def shard(model, sharding: str, ranks: int):
    """The network to call, its optimizer, and its parameters as this rank holds them."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    from model import make_optimizer

    if sharding == "optimizer":
        network = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=2e-3, weight_decay=0.01,
                                            fused=True)
        return network, optimizer
    mesh = init_device_mesh("cpu", (ranks,))
    keep = {"mesh": mesh, "reshard_after_forward": sharding == "parameters"}
    for block in model.blocks:
        fully_shard(block, **keep)
    fully_shard(model, **keep)
    return model, make_optimizer(model)


def held(parameters) -> list:
    """This rank's part of each."""
    return [p.to_local() if hasattr(p, "to_local") else p for p in parameters]


def train(args: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from model import Data, flow_loss, make_model

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = make_model(args.seed)
    count = sum(p.numel() for p in model.parameters())
    network, optimizer = shard(model, args.sharding, ranks)
    parameters = list(model.parameters())
    ema = [p.detach().clone() for p in held(parameters)]
    data = Data(args.seed)
    rows = args.batch // ranks
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "ranks": ranks, "batch": args.batch, "seed": args.seed,
                          "sharding": args.sharding, "clip": args.clip, "ema": args.ema, "parameters": count}))
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
                torch._foreach_lerp_(ema, held(parameters), 1 - args.ema)
        value = loss.item()
        if step > args.warmup:
            now = time.perf_counter()
            if rank == 0:
                print(json.dumps({"step": step, "loss": value, "ms": round((now - before) * 1e3, 3)}), flush=True)
            before = now
    spent = torch.tensor([(time.process_time() - cpu) * 1e3 / args.steps])
    dist.all_reduce(spent)
    if rank == 0:
        print(json.dumps({"cpu_ms": round(spent.item(), 3)}))
    dist.destroy_process_group()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sharding", choices=["optimizer", "gradients", "parameters"])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--batch", type=int, default=128, help="samples a step, over all ranks")
    p.add_argument("--warmup", type=int, default=20, help="steps not measured")
    p.add_argument("--steps", type=int, default=100, help="steps measured")
    p.add_argument("--clip", type=float, default=1.0, help="global norm; 0: no clipping")
    p.add_argument("--ema", type=float, default=0.995, help="decay; 0: none")
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
