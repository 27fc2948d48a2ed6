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
from safetensors.torch import load_file


def load(folder: str | os.PathLike) -> DiTTransformer2DModel:
    model = DiTTransformer2DModel.from_config(DiTTransformer2DModel.load_config(folder))
    positions = model.pos_embed.pos_embed
    del model.pos_embed.pos_embed
    model.pos_embed.register_buffer("pos_embed", torch.zeros_like(positions), persistent=True)
    for block in model.transformer_blocks:
        block.norm1.emb.time_proj = Timesteps(256, flip_sin_to_cos=True, downscale_freq_shift=0)
    model.load_state_dict(load_file(os.path.join(folder, "diffusion_pytorch_model.safetensors")))
    return model.eval()
