"""The reference model and its training step in PyTorch: what every peer here trains.

DiT (adaLN-Zero) on Fashion-MNIST, rectified flow with logit-normal times, fp32. A batch is a function of (seed, step,
rank) only, and is drawn in the training thread: a loader's process would take a core from the trainers.
"""
import gzip
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

DATA = os.environ.get("PERDURA_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
NULL_CLASS = 10
LABEL_DROP = 0.1


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.ada = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(F.silu(condition)).chunk(6, 1)
        rows, tokens, width = x.shape
        qkv = self.qkv(modulate(self.norm1(x), shift1, scale1))
        q, k, v = qkv.view(rows, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, tokens, width)
        x = x + gate1.unsqueeze(1) * self.out(h)
        h = modulate(self.norm2(x), shift2, scale2)
        return x + gate2.unsqueeze(1) * self.down(F.gelu(self.up(h), approximate="tanh"))


class DiT(nn.Module):
    def __init__(self, width: int = 128, depth: int = 4, heads: int = 2, patch: int = 4, side: int = 28):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch * patch, width)
        self.position = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.label = nn.Embedding(NULL_CLASS + 1, width)
        self.time1, self.time2 = nn.Linear(256, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.ada, self.out = nn.Linear(width, 2 * width), nn.Linear(width, patch * patch)
        for layer in (self.ada, self.out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.register_buffer("frequencies", torch.exp(-math.log(1e4) * torch.arange(128) / 128), persistent=False)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        rows, p, n = x.shape[0], self.patch, x.shape[-1] // self.patch
        z = x.view(rows, 1, n, p, n, p).permute(0, 2, 4, 1, 3, 5).reshape(rows, n * n, p * p)
        angles = t[:, None] * 1000 * self.frequencies
        times = self.time2(F.silu(self.time1(torch.cat([angles.cos(), angles.sin()], 1))))
        condition = times + self.label(y)
        z = self.embed(z) + self.position
        for block in self.blocks:
            z = block(z, condition)
        shift, scale = self.ada(F.silu(condition)).chunk(2, 1)
        z = self.out(modulate(self.norm(z), shift, scale))
        return z.view(rows, n, n, 1, p, p).permute(0, 3, 1, 4, 2, 5).reshape(rows, 1, n * p, n * p)


def make_model(seed: int = 1) -> DiT:
    torch.manual_seed(seed)
    return DiT()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01, fused=True)


class Data:
    """Fashion-MNIST, held as bytes; batch() gives (images in [-1, 1], labels, times, noise)."""

    def __init__(self, seed: int = 1):
        self.seed = seed
        with gzip.open(f"{DATA}/train-images-idx3-ubyte.gz") as f:
            self.images = torch.from_numpy(np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28).copy())
        with gzip.open(f"{DATA}/train-labels-idx1-ubyte.gz") as f:
            self.labels = torch.from_numpy(np.frombuffer(f.read(), np.uint8, offset=8).astype(np.int64))

    def batch(self, step: int, rows: int, rank: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        g = torch.Generator().manual_seed((self.seed * 1000003 + step) * 64 + rank)
        index = torch.randint(0, len(self.labels), (rows,), generator=g)
        labels = torch.where(torch.rand(rows, generator=g) < LABEL_DROP, NULL_CLASS, self.labels[index])
        images = self.images[index].float() / 127.5 - 1
        times = torch.sigmoid(torch.randn(rows, generator=g))
        return images, labels, times, torch.randn(images.shape, generator=g)


def flow_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    images, labels, times, noise = batch
    t = times.view(-1, 1, 1, 1)
    return F.mse_loss(model((1 - t) * images + t * noise, times, labels), noise - images)
