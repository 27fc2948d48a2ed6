"""Exported weights in diffusers' DiT: the same prediction as ours, and back again with the same bits, in one file and in
shards.

    PYTHON diffusers_parity.py EXPORT_PROGRAM

PYTHON must have PyTorch (tests/bench/peers/setup.sh) and diffusers (tests/parity/setup.sh); without them the test is
skipped, and says so.
"""
import os
import subprocess
import sys
import tempfile

import packages

np, torch = packages.require("numpy"), packages.require("torch")
os.environ["HF_HUB_OFFLINE"] = "1"
diffusers = packages.require("diffusers")
load_file = packages.require("safetensors.torch").load_file

# Of the norm: both sides are fp32 and round in different orders.
TOLERANCE = 2e-5


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def check_plain(folder: str) -> int:
    """Every parameter under our own name, where the flat vector has it."""
    flat = torch.from_numpy(np.fromfile(f"{folder}/parameters", np.float32))
    tensors = load_file(f"{folder}/plain/model.safetensors")
    shapes = {"patch.weight": (128, 16), "position": (49, 128), "label.weight": (11, 128), "head.bias": (16,)}
    for name, shape in shapes.items():
        assert tuple(tensors[name].shape) == shape, name
    assert sum(t.numel() for t in tensors.values()) == flat.numel()
    assert torch.equal(tensors["patch.weight"].flatten(), flat[:128 * 16])
    assert torch.equal(tensors["head.bias"], flat[-16:])
    return len(tensors)


def check_back(program: str, folder: str, model: torch.nn.Module) -> None:
    for name, size in (("one", "1GB"), ("shards", "300KB")):
        model.save_pretrained(f"{folder}/{name}/transformer", max_shard_size=size)
        subprocess.run([program, "check", folder, f"{folder}/{name}"], check=True)
    assert os.path.exists(f"{folder}/shards/transformer/diffusion_pytorch_model.safetensors.index.json"), "no shards"


def main() -> int:
    torch.set_num_threads(1)
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "make", folder], check=True)

        def array(name: str, kind: type = np.float32) -> torch.Tensor:
            return torch.from_numpy(np.fromfile(f"{folder}/{name}", kind))

        exported = f"{folder}/diffusers/transformer"
        sys.path.insert(0, exported)
        from perdura_dit import load  # as it lies beside the weights
        model = load(exported)
        noisy, predicted = array("noisy").view(-1, 1, 28, 28), array("predicted").view(-1, 1, 28, 28)
        with torch.no_grad():
            theirs = model(noisy, timestep=1000 * array("time"), class_labels=array("label", np.int64)).sample
        error = relative_error(predicted, theirs)
        plain = check_plain(folder)
        check_back(program, folder, model)
        subprocess.run([program, "check", folder, f"{folder}/diffusers"], check=True)
        subprocess.run([program, "check", folder, f"{folder}/plain"], check=True)

        # diffusers' own class takes them, too, but for what it has no setting for: positions and frequencies.
        _, info = diffusers.DiTTransformer2DModel.from_pretrained(exported, low_cpu_mem_usage=False, output_loading_info=True)
        left = {key: sorted(names) for key, names in info.items() if names}
        if left != {"unexpected_keys": ["pos_embed.pos_embed"]}:
            print(f"FAILED: DiTTransformer2DModel does not take the weights: {left}")
            return 1
    print(f"prediction: relative error {error:.2g}, allowed {TOLERANCE:.2g}; {plain} plain tensors; diffusers "
          f"{diffusers.__version__}, torch {torch.__version__}")
    return int(not error < TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
