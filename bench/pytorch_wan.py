"""Wan's transformer in plain PyTorch, for machines that have torch and not diffusers.

The parameters have the names that diffusers gives them, and the operations are those of its
WanTransformer3DModel for text to video. Where diffusers is installed, too,

    python3 bench/pytorch_wan.py

compares both. Shapes: B batch, L image tokens, N heads, K head dimension.
"""
import math

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.LayerNorm):
    """A layer norm that computes in fp32."""
    def forward(self, x):
        weight = None if self.weight is None else self.weight.float()
        bias = None if self.bias is None else self.bias.float()
        return functional.layer_norm(x.float(), self.normalized_shape, weight, bias,
                                     self.eps).type_as(x)


def rotate(x, cos, sin):
    """Turns pairs of [B, N, L, K]; cos and sin are [L, K / 2]."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, width, heads, eps):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])
        self.norm_q, self.norm_k = (nn.RMSNorm(width, eps=eps) for _ in range(2))

    def forward(self, x, text=None, turns=None):
        source = x if text is None else text
        q, k = self.norm_q(self.to_q(x)), self.norm_k(self.to_k(source))
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for y in (q, k, self.to_v(source)))
        if turns is not None:
            q, k = rotate(q, *turns), rotate(k, *turns)
        y = functional.scaled_dot_product_attention(q.type_as(v), k.type_as(v), v)
        return self.to_out[0](y.transpose(1, 2).flatten(2))


class Gelu(nn.Module):
    def __init__(self, width, ffn):
        super().__init__()
        self.proj = nn.Linear(width, ffn)

    def forward(self, x):
        return functional.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, width, ffn):
        super().__init__()
        self.net = nn.ModuleList([Gelu(width, ffn), nn.Identity(), nn.Linear(ffn, width)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


class Block(nn.Module):
    def __init__(self, width, heads, ffn, eps):
        super().__init__()
        self.norm1 = Norm(width, eps, elementwise_affine=False)
        self.attn1 = Attention(width, heads, eps)
        self.attn2 = Attention(width, heads, eps)
        self.norm2 = Norm(width, eps)
        self.ffn = FeedForward(width, ffn)
        self.norm3 = Norm(width, eps, elementwise_affine=False)
        self.scale_shift_table = nn.Parameter(torch.randn(1, 6, width) / width ** 0.5)

    def forward(self, x, text, time, turns):
        parts = (self.scale_shift_table + time.float()).chunk(6, 1)
        shift, scale, gate, ffn_shift, ffn_scale, ffn_gate = parts
        y = (self.norm1(x.float()) * (1 + scale) + shift).type_as(x)
        x = (x.float() + self.attn1(y, turns=turns) * gate).type_as(x)
        x = x + self.attn2(self.norm2(x.float()).type_as(x), text)
        y = (self.norm3(x.float()) * (1 + ffn_scale) + ffn_shift).type_as(x)
        return (x.float() + self.ffn(y).float() * ffn_gate).type_as(x)


class Two(nn.Module):
    """Two linear layers and what is between them."""
    def __init__(self, inner, width, act):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(inner, width), nn.Linear(width, width)
        self.act = act

    def forward(self, x):
        return self.linear_2(self.act(self.linear_1(x)))


class Conditions(nn.Module):
    def __init__(self, width, text_dim, freq_dim):
        super().__init__()
        self.freq_dim = freq_dim
        self.time_embedder = Two(freq_dim, width, functional.silu)
        self.time_proj = nn.Linear(width, 6 * width)
        self.text_embedder = Two(text_dim, width,
                                 lambda x: functional.gelu(x, approximate="tanh"))

    def forward(self, timestep, text):
        half = self.freq_dim // 2
        steps = torch.arange(half, dtype=torch.float32, device=timestep.device)
        angles = timestep[:, None].float() * torch.exp(-math.log(10000) * steps / half)
        waves = torch.cat((angles.cos(), angles.sin()), -1)
        time = self.time_embedder(waves.to(self.time_proj.weight.dtype))
        return time, self.time_proj(functional.silu(time)), self.text_embedder(text)


class WanTransformer(nn.Module):
    """One frame and patches of 2 x 2, as diffusers' WanTransformer3DModel without an image."""
    def __init__(self, layers, heads, head_dim, ffn, text_dim, freq_dim=256, channels=16,
                 eps=1e-6):
        super().__init__()
        width = heads * head_dim
        self.head_dim, self.channels = head_dim, channels
        self.patch_embedding = nn.Conv3d(channels, width, (1, 2, 2), (1, 2, 2))
        self.condition_embedder = Conditions(width, text_dim, freq_dim)
        self.blocks = nn.ModuleList(Block(width, heads, ffn, eps) for _ in range(layers))
        self.norm_out = Norm(width, eps, elementwise_affine=False)
        self.proj_out = nn.Linear(width, channels * 4)
        self.scale_shift_table = nn.Parameter(torch.randn(1, 2, width) / width ** 0.5)

    def turns(self, rows, columns, device):
        """Cosines and sines [L, K / 2]: frame, row and column have parts of the head's pairs."""
        side = 2 * (self.head_dim // 6)
        angles = []
        for size, position in ((self.head_dim - 2 * side, torch.zeros(rows * columns)),
                               (side, torch.arange(rows).repeat_interleave(columns)),
                               (side, torch.arange(columns).repeat(rows))):
            speeds = 10000.0 ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
            angles.append(position[:, None].double() * speeds)
        angles = torch.cat(angles, 1).to(device)
        return angles.cos().float(), angles.sin().float()

    def forward(self, latents, timestep, text, return_dict=False):
        batch, _, frames, height, width = latents.shape
        turns = self.turns(height // 2, width // 2, latents.device)
        x = self.patch_embedding(latents).flatten(2).transpose(1, 2)
        time, parts, text = self.condition_embedder(timestep, text)
        parts = parts.unflatten(1, (6, -1))
        for block in self.blocks:
            x = block(x, text, parts, turns)
        shift, scale = (self.scale_shift_table + time[:, None]).chunk(2, 1)
        x = self.proj_out((self.norm_out(x.float()) * (1 + scale) + shift).type_as(x))
        x = x.view(batch, frames, height // 2, width // 2, 1, 2, 2, self.channels)
        return (x.permute(0, 7, 1, 4, 2, 5, 3, 6).flatten(6, 7).flatten(4, 5).flatten(2, 3),)


def compare():
    """Both compute the same bits in fp32, and in bf16 what rounding leaves."""
    from pytorch import wan
    torch.manual_seed(0)
    for layers, heads, head_dim, ffn, text_dim, side in ((2, 5, 32, 640, 96, (8, 8)),
                                                         (1, 2, 128, 512, 96, (6, 10))):
        theirs = wan(layers, heads, head_dim, ffn, text_dim)
        ours = WanTransformer(layers, heads, head_dim, ffn, text_dim)
        for parameter in theirs.parameters():
            nn.init.normal_(parameter, std=0.1)
        ours.load_state_dict(theirs.state_dict())
        latents, text = torch.randn(2, 16, 1, *side), torch.randn(2, 12, text_dim)
        for dtype, most in ((torch.float32, 0), (torch.bfloat16, 1e-2)):
            with torch.no_grad():
                a, b = (model.to(dtype)(latents.to(dtype), torch.tensor([500, 30]),
                                        text.to(dtype), return_dict=False)[0].float()
                        for model in (theirs, ours))
            error = ((a - b).norm() / a.norm()).item()
            print(f"{layers} blocks, {heads} heads of {head_dim}, {dtype}: {error:.2g}")
            assert error <= most


if __name__ == "__main__":
    compare()
