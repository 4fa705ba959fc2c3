"""The two embedded models in PyTorch; the names of the parameters are those of the checkpoints.

A looped model runs its layers several times. The final norm is part of each loop: the normed state enters the next one."""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    loops: int
    theta: float
    eps: float

    @property
    def looped(self):
        return self.loops > 1


DENSE = Shape(
    hidden=256, layers=6, q_heads=8, kv_heads=2, head_dim=64, mlp=768, vocab=2048, loops=1, theta=1e4, eps=1e-6
)
LOOPED = Shape(
    hidden=256, layers=3, q_heads=4, kv_heads=4, head_dim=64, mlp=768, vocab=2048, loops=4, theta=1e6, eps=1e-6
)

# Standard deviations of the initial weights.
INNER, HEAD, GATE = 0.03, 0.02, 0.01
EMBEDDING_TIED, EMBEDDING_UNTIED = 0.02, 0.5


def residual(shape):
    """Of the matrices that write into the residual stream."""
    return INNER / math.sqrt(2 * shape.layers)


def linear(inputs, outputs, std=INNER, bias=False):
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, 0, std)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Norm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.hidden))
        self.eps = shape.eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.q_proj = linear(shape.hidden, shape.q_heads * shape.head_dim)
        self.k_proj = linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.v_proj = linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.o_proj = linear(shape.q_heads * shape.head_dim, shape.hidden, residual(shape))

    def forward(self, x, cos, sin, mask, attend):
        batch, length, _ = x.shape

        def heads(y, count):
            return y.view(batch, length, count, self.shape.head_dim).transpose(1, 2)

        q = rotate(heads(self.q_proj(x), self.shape.q_heads), cos, sin)
        k = rotate(heads(self.k_proj(x), self.shape.kv_heads), cos, sin)
        v = heads(self.v_proj(x), self.shape.kv_heads)
        return self.o_proj(attend(q, k, v, mask).transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj = linear(shape.hidden, shape.mlp)
        self.up_proj = linear(shape.hidden, shape.mlp)
        self.down_proj = linear(shape.mlp, shape.hidden, residual(shape))

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A looped model norms the output of each branch too, before it is added (sandwich norms)."""

    def __init__(self, shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = Norm(shape)
        self.post_attention_layernorm = Norm(shape)
        self.sandwich = shape.looped
        if self.sandwich:
            self.input_layernorm_2 = Norm(shape)
            self.post_attention_layernorm_2 = Norm(shape)

    def forward(self, h, *rest):
        branch = self.self_attn(self.input_layernorm(h), *rest)
        h = h + (self.input_layernorm_2(branch) if self.sandwich else branch)
        branch = self.mlp(self.post_attention_layernorm(h))
        return h + (self.post_attention_layernorm_2(branch) if self.sandwich else branch)


class Decoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.embed_tokens.weight, 0, EMBEDDING_UNTIED if shape.looped else EMBEDDING_TIED)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)
        if shape.looped:
            self.early_exit_gate = linear(shape.hidden, 1, GATE, bias=True)


class Model(nn.Module):
    """`attend(q, k, v, mask)` is one of attention.py; low_precision keeps the residual stream in bf16."""

    def __init__(self, shape, attend, low_precision):
        super().__init__()
        self.shape, self.attend, self.low_precision = shape, attend, low_precision
        self.model = Decoder(shape)
        if shape.looped:
            self.lm_head = linear(shape.hidden, shape.vocab, HEAD)

    def angles(self, tokens):
        """[tokens][head_dim / 2]; the same in every loop."""
        exponent = torch.arange(0, self.shape.head_dim, 2, device=tokens.device, dtype=torch.float32)
        position = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        return position[:, None] * self.shape.theta ** (-exponent / self.shape.head_dim)

    def forward(self, tokens, mask):
        """The hidden state after each loop: a list of one element for a dense model."""
        angles = self.angles(tokens)
        cos, sin = angles.cos(), angles.sin()
        h = self.model.embed_tokens(tokens)
        if self.low_precision:
            h = h.bfloat16()
        states = []
        for _ in range(self.shape.loops):
            for layer in self.model.layers:
                h = layer(h, cos, sin, mask, self.attend)
            h = self.model.norm(h)
            states.append(h)
        return states

    def logits(self, h):
        weight = self.lm_head.weight if self.shape.looped else self.model.embed_tokens.weight
        return F.linear(h, weight.to(h.dtype)).float()

    def exit_gate(self, h):
        """Before the sigmoid, which gives the share of rows that should leave here."""
        return self.model.early_exit_gate(h).float().squeeze(-1)
