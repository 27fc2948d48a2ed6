"""Loads weights that `perdura ckpt export` wrote into diffusers' DiT:

    from perdura_dit import load
    model = load("FOLDER/transformer")
    prediction = model(images, timestep=1000 * t, class_labels=labels).sample    # t in [0, 1], 1 is noise

The weights are diffusers' by name and shape, with two differences that its class has no setting for: the positions are
learned (a buffer there, not saved), and the frequencies of the time's sines are 10000^(-i/128) (diffusers: -i/127).
"""
import os

import torch
from diffusers import DiTTransformer2DModel
from diffusers.models.embeddings import Timesteps


class PerduraDiT(DiTTransformer2DModel):
    def __init__(self, **config):
        super().__init__(**config)
        positions = torch.zeros_like(self.pos_embed.pos_embed)
        del self.pos_embed.pos_embed
        self.pos_embed.register_buffer("pos_embed", positions, persistent=True)
        for block in self.transformer_blocks:
            block.norm1.emb.time_proj = Timesteps(256, flip_sin_to_cos=True, downscale_freq_shift=0)


def load(folder: str | os.PathLike) -> PerduraDiT:
    return PerduraDiT.from_pretrained(folder, use_safetensors=True, low_cpu_mem_usage=False).eval()
