"""The DiT's prediction and gradient beside PyTorch's, on the same parameters and batch: in fp32, in bf16 beside
products of rounded operands (what ours are defined as), and in bf16 beside PyTorch's autocast (which rounds results, too).

    PYTHON dit_parity.py DUMP_PROGRAM

PYTHON must have PyTorch (tests/bench/peers/setup.sh makes one); without it the test is skipped, and says so.
"""
import json
import os
import subprocess
import sys
import tempfile

SKIPPED = 77
# Of an array's norm. In fp32 both sides round, in different orders. In bf16 a difference of 1e-7 rounds some operand the
# other way, by 4e-3, which from layer to layer happens to more of them: after some layers the roundings of both sides
# have nothing in common. Autocast rounds every linear layer's result, too.
TOLERANCES = {"fp32": 2e-5, "bf16": 1e-2, "bf16, autocast": 3e-2}

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


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


class RoundedProduct(torch.autograd.Function):
    """a b of operands rounded to bf16 and summed in fp32, and its derivatives in the same way."""

    @staticmethod
    def forward(ctx, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rounded(a), rounded(b))
        return rounded(a) @ rounded(b)

    @staticmethod
    def backward(ctx, d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = ctx.saved_tensors
        return rounded(d) @ b.transpose(-1, -2), a.transpose(-1, -2) @ rounded(d)


def rounded_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return (RoundedProduct.apply(rows, weight.t()) + bias).view(*x.shape[:-1], -1)


def rounded_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = RoundedProduct.apply(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return RoundedProduct.apply(scores.softmax(-1), v)


def run(model: DiT, batch: tuple, reference: str) -> torch.Tensor:
    plain = torch.nn.functional.linear, torch.nn.functional.scaled_dot_product_attention
    if reference == "bf16":
        torch.nn.functional.linear = rounded_linear
        torch.nn.functional.scaled_dot_product_attention = rounded_attention
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=reference == "bf16, autocast"):
            return model(*batch).float()
    finally:
        torch.nn.functional.linear, torch.nn.functional.scaled_dot_product_attention = plain


def compare(program: str, reference: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder, reference[:4]], check=True)
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
        return False

    inputs = noisy, time, label
    with torch.no_grad():
        exact = run(model, inputs, "fp32")
    out = run(model, inputs, reference)
    loss = (out - target).square().sum() / out[0].numel()
    loss.backward()
    errors = {"prediction": relative_error(predicted, out.detach()), "loss": abs(index["loss"] / float(loss.detach()) - 1)}
    errors |= {f"gradient of {name}": relative_error(ours[name], p.grad) for name, p in theirs.items() if p.grad is not None}
    worst = max(errors, key=lambda name: errors[name])
    allowed = TOLERANCES[reference]
    for name, error in errors.items():
        if not error < allowed:
            print(f"FAILED: {reference}: {name}: relative error {error:.2g}, allowed {allowed:.2g}")
    print(f"{reference}: {len(errors)} arrays; prediction {errors['prediction']:.2g}, worst {errors[worst]:.2g} ({worst}), "
          f"allowed {allowed:.2g}; torch {torch.__version__}")
    ours_off, theirs_off = relative_error(predicted, exact), relative_error(out.detach(), exact)
    if reference == "bf16, autocast" and not ours_off < theirs_off:
        print(f"FAILED: our prediction is {ours_off:.2g} off fp32's, autocast's {theirs_off:.2g}")
        return False
    return errors[worst] < allowed


def main() -> int:
    torch.set_num_threads(1)
    return int(not all([compare(sys.argv[1], reference) for reference in TOLERANCES]))


if __name__ == "__main__":
    sys.exit(main())
