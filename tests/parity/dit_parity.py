"""The DiT's prediction and gradient beside PyTorch's, in fp32, on the same parameters and batch.

    PYTHON dit_parity.py DUMP_PROGRAM

PYTHON must have PyTorch (tests/bench/peers/setup.sh makes one); without it the test is skipped, and says so.
"""
import json
import os
import subprocess
import sys
import tempfile

SKIPPED = 77
TOLERANCE = 2e-5  # of an array's norm; both sides round in fp32, in different orders

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"SKIPPED: no PyTorch in {sys.executable} ({missing}); tests/bench/peers/setup.sh installs one")
    sys.exit(SKIPPED)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench", "peers"))
from model import DiT  # noqa: E402

# Our names, and those of the peer's model.
NAMES = [("patch.", "embed."), ("label.weight", "label.weight"), ("time.0.", "time1."), ("time.2.", "time2."),
         ("head.condition.", "ada."), ("head.", "out."), (".condition.", ".ada."), (".mlp.0.", ".up."), (".mlp.2.", ".down.")]


def peer_name(name: str) -> str:
    for ours, theirs in NAMES:
        if ours in name:
            return name.replace(ours, theirs, 1)
    return name


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        with open(f"{folder}/index.json") as f:
            index = json.load(f)

        def array(name: str, kind: type = np.float32) -> torch.Tensor:
            return torch.from_numpy(np.fromfile(f"{folder}/{name}", kind))

        batch = index["batch"]
        noisy, target = array("noisy").view(batch, 1, 28, 28), array("target").view(batch, 1, 28, 28)
        time, label = array("time"), array("label", np.int64)
        parameters, gradient, predicted = array("parameters"), array("gradient"), array("predicted").view(batch, 1, 28, 28)

    model = DiT()
    theirs = dict(model.named_parameters())
    ours = {}
    for p in index["parameters"]:
        name, count = peer_name(p["name"]), int(np.prod(p["shape"]))
        part = slice(p["first"], p["first"] + count)
        ours[name] = gradient[part].view_as(theirs[name])
        theirs[name].data.copy_(parameters[part].view_as(theirs[name]))
    if ours.keys() != theirs.keys():
        print(f"FAILED: parameters differ: {sorted(ours.keys() ^ theirs.keys())}")
        return 1

    out = model(noisy, time, label)
    loss = (out - target).square().sum() / out[0].numel()
    loss.backward()
    errors = {"prediction": relative_error(predicted, out.detach()), "loss": abs(index["loss"] / float(loss) - 1)}
    errors |= {f"gradient of {name}": relative_error(ours[name], p.grad) for name, p in theirs.items() if p.grad is not None}
    worst = max(errors, key=lambda name: errors[name])
    for name, error in errors.items():
        if not error < TOLERANCE:
            print(f"FAILED: {name}: relative error {error:.2g}, allowed {TOLERANCE:.2g}")
    print(f"{len(errors)} arrays; prediction {errors['prediction']:.2g}, worst {errors[worst]:.2g} ({worst}); torch {torch.__version__}")
    return int(not errors[worst] < TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
