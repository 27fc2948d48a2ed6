"""One torchft replica group of one process (Gloo), for torchft_kill.py.

Logs to $LOG: built, healed, then step|retry <step> <groups that took part>. Ends when the file $STOP is there.
"""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from model import Data, flow_loss, make_model, make_optimizer
from worker_log import Log

log = Log(os.environ["LOG"])
torch.set_num_threads(1)
group, rows = int(os.environ["GROUP"]), int(os.environ["ROWS"])
store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
model = make_model()
plain_optimizer = make_optimizer(model)
timeout = timedelta(seconds=float(os.environ.get("TIMEOUT_S", "60")))
limits = {}
if "TIMEOUT_S" in os.environ:
    limits = {"timeout": timeout, "connect_timeout": timeout, "quorum_timeout": max(timeout, timedelta(seconds=10))}


def load(state: dict) -> None:
    model.load_state_dict(state["model"])
    plain_optimizer.load_state_dict(state["optimizer"])
    log.write("healed")


manager = Manager(pg=ProcessGroupGloo(timeout=timeout), min_replica_size=1, load_state_dict=load,
                  state_dict=lambda: {"model": model.state_dict(), "optimizer": plain_optimizer.state_dict()},
                  rank=0, world_size=1, store_addr="localhost", store_port=store.port, replica_id=f"group_{group}",
                  heartbeat_interval=timedelta(milliseconds=int(os.environ.get("HEARTBEAT_MS", "100"))), **limits)
network, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, plain_optimizer)
data = Data()
log.write("built")
while not os.path.exists(os.environ["STOP"]):
    step = manager.current_step()
    optimizer.zero_grad()
    flow_loss(network, data.batch(step + 1, rows, group)).backward()
    optimizer.step()
    committed = manager.current_step() > step
    log.write("step" if committed else "retry", manager.current_step(), manager.num_participants())
log.write("end")
os._exit(0)  # the manager's threads do not end by themselves
