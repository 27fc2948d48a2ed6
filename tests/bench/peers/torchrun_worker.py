"""DDP worker of torchrun_restart.py: one thread, torch.save each 10 steps, resumes from the newest one.

Logs to $RUN_FOLDER/rank<N>.log: proc <pid>, load <step resumed from>, step <number>.
"""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import Data, flow_loss, make_model, make_optimizer
from worker_log import Log

SAVE_EACH = 10

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = os.environ["RUN_FOLDER"]
log = Log(f"{folder}/rank{rank}.log")
log.write("proc", os.getpid())
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = make_model()
network = DistributedDataParallel(model)
optimizer = make_optimizer(model)
data = Data()
checkpoint, step = f"{folder}/checkpoint.pt", 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
log.write("load", step)
rows = int(os.environ["BATCH"]) // ranks
while step < int(os.environ["STEPS"]):
    step += 1
    optimizer.zero_grad()
    flow_loss(network, data.batch(step, rows, rank)).backward()
    optimizer.step()
    log.write("step", step)
    if step % SAVE_EACH == 0 and rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
dist.destroy_process_group()
