#!/usr/bin/env python3
"""Trains tessera-dense: train.py --data DIR --out DIR [--steps 9000]

Needs PyTorch 2.5 or newer and a CUDA GPU for flex attention; --attention masked runs anywhere, slowly (smoke tests)."""
import argparse
import contextlib
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, MLP_WIDTH, VOCAB = 256, 6, 8, 2, 64, 768, 2048
THETA, EPS, STD = 1e4, 1e-6, 0.03
CLASS_WEIGHTS = [0.05, 1.0, 0.4, 0.0]  # prompt, answer, story, padding


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)
        return (y * self.weight).to(x.dtype)


def linear(inputs, outputs, std=STD):
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, 0, std)
    return layer


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = linear(HIDDEN, Q_HEADS * HEAD_DIM)
        self.k_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = linear(Q_HEADS * HEAD_DIM, HIDDEN, STD / math.sqrt(2 * LAYERS))

    def forward(self, x, cos, sin, mask, attend):
        batch, length, _ = x.shape

        def heads(y, count):
            return y.view(batch, length, count, HEAD_DIM).transpose(1, 2)

        def rotate(y):
            a, b = y.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(y.dtype)

        q = rotate(heads(self.q_proj(x), Q_HEADS))
        k = rotate(heads(self.k_proj(x), KV_HEADS))
        v = heads(self.v_proj(x), KV_HEADS)
        q, k, v = (y.to(v.dtype) for y in (q, k, v))
        out = attend(q, k, v, mask)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = linear(HIDDEN, MLP_WIDTH)
        self.up_proj = linear(HIDDEN, MLP_WIDTH)
        self.down_proj = linear(MLP_WIDTH, HIDDEN, STD / math.sqrt(2 * LAYERS))

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()
        self.mlp = Mlp()
        self.input_layernorm = Norm(HIDDEN)
        self.post_attention_layernorm = Norm(HIDDEN)

    def forward(self, h, *rest):
        h = h + self.self_attn(self.input_layernorm(h), *rest)
        return h + self.mlp(self.post_attention_layernorm(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        nn.init.normal_(self.embed_tokens.weight, 0, 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm(HIDDEN)


class Model(nn.Module):
    """Parameter names are those of the checkpoint."""

    def __init__(self, attend, low_precision):
        super().__init__()
        self.model = Decoder()
        self.attend, self.low_precision = attend, low_precision

    def forward(self, tokens, mask):
        device = tokens.device
        exponent = torch.arange(0, HEAD_DIM, 2, device=device, dtype=torch.float32) / HEAD_DIM
        angle = torch.arange(tokens.shape[1], device=device, dtype=torch.float32)[:, None] * THETA**-exponent
        h = self.model.embed_tokens(tokens)
        if self.low_precision:
            h = h.bfloat16()
        for layer in self.model.layers:
            h = layer(h, angle.cos(), angle.sin(), mask, self.attend)
        return self.model.norm(h)

    def loss(self, tokens, classes, mask):
        """Weighted loss, and (weighted, on answers only) for the log."""
        h = self(tokens, mask)[:, :-1]
        logits = F.linear(h, self.model.embed_tokens.weight.to(h.dtype)).float().reshape(-1, VOCAB)
        each = F.cross_entropy(logits, tokens[:, 1:].reshape(-1), reduction="none")
        target = classes[:, 1:].reshape(-1)
        weight = torch.tensor(CLASS_WEIGHTS, device=tokens.device)[target]
        answers = (target == 1).float()
        weighted = (each * weight).sum() / weight.sum()
        return weighted, torch.stack(
            [weighted.detach(), ((each * answers).sum() / answers.sum().clamp(min=1)).detach()]
        )


def document_numbers(tokens):
    """Documents end with id 0; attention stays inside a document."""
    ends = (tokens == 0).long().cumsum(1)
    return torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), 1)


def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    make = torch.compile(create_block_mask, dynamic=False)

    def mask(tokens):
        number = document_numbers(tokens)

        def visible(b, h, q, k):
            return (q >= k) & (number[b, q] == number[b, k])

        return make(visible, tokens.shape[0], None, tokens.shape[1], tokens.shape[1], device=tokens.device)

    return mask, lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


def masked():
    def mask(tokens):
        number, length = document_numbers(tokens), tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        return (number[:, :, None] == number[:, None, :]) & causal

    def attend(q, k, v, mask):
        k, v = (y.repeat_interleave(Q_HEADS // KV_HEADS, 1) for y in (k, v))
        scores = (q @ k.transpose(-1, -2)).float() * HEAD_DIM**-0.5
        return scores.masked_fill(~mask[:, None], -1e30).softmax(-1).to(v.dtype) @ v

    return mask, attend


def load_rows(folder, device):
    import numpy

    shards = sorted(pathlib.Path(folder).glob("shard*.npy"))
    if not shards:
        raise SystemExit(f"{folder} holds no shard*.npy; generate.py writes them")
    return torch.cat([torch.from_numpy(numpy.load(shard).astype(numpy.int16)) for shard in shards]).to(device)


def optimizer_of(model, rate, cuda):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8, **(dict(fused=True) if cuda else {}))


def train(model, rows, make_mask, args):
    device = rows.device
    cuda = device.type == "cuda"
    optimizer = optimizer_of(model, args.lr, cuda)
    loss_of = torch.compile(model.loss, dynamic=False) if args.attention == "flex" else model.loss
    order, next_row, history, start = None, len(rows), [], time.time()
    for step in range(args.steps):
        cosine = 0.5 * (1 + math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / args.warm_up) * (0.02 + 0.98 * cosine)
        if next_row + args.batch > len(rows):
            order, next_row = torch.randperm(len(rows), device=device), 0
        words = rows[order[next_row : next_row + args.batch]].int()
        next_row += args.batch
        tokens, classes = (words & 4095).long(), (words >> 12).long()
        with torch.autocast("cuda", dtype=torch.bfloat16) if cuda else contextlib.nullcontext():
            loss, logged = loss_of(tokens, classes, make_mask(tokens))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % args.log == 0 or step + 1 == args.steps:
            history.append((step + 1, round(time.time() - start, 1), [round(x, 4) for x in logged.tolist()]))
            print(*history[-1], flush=True)
    return history, time.time() - start


def save(model, folder, record):
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().bfloat16().contiguous().cpu() for name, p in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = dict(
        model_type="llama",
        architectures=["LlamaForCausalLM"],
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=MLP_WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=Q_HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        hidden_act="silu",
        max_position_embeddings=2048,
        rms_norm_eps=EPS,
        rope_theta=THETA,
        rope_scaling=None,
        attention_dropout=0.0,
        initializer_range=0.02,
        use_cache=True,
        bos_token_id=0,
        eos_token_id=[0, 2],
        pad_token_id=0,
        torch_dtype="bfloat16",
        tie_word_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
    )
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "train.json").write_text(json.dumps(record))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--batch", type=int, default=32, help="rows of 2,048 tokens")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warm-up", type=int, default=300)
    parser.add_argument("--log", type=int, default=200)
    parser.add_argument("--row", type=int, default=2048, help="cut rows to this length (smoke tests)")
    parser.add_argument("--attention", choices=["flex", "masked"], default="flex")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    make_mask, attend = flex() if args.attention == "flex" else masked()
    model = Model(attend, low_precision=device.type == "cuda").to(device)
    parameters = sum(p.numel() for p in model.parameters())
    rows = load_rows(args.data, device)[:, : args.row]
    print(f"{parameters} parameters, {rows.numel() / 1e6:.0f}M tokens of data")
    history, seconds = train(model, rows, make_mask, args)
    settings = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    tokens = args.steps * args.batch * args.row
    save(
        model,
        args.out,
        dict(args=settings, params=parameters, steps=args.steps, tokens=tokens, seconds=seconds, hist=history),
    )


if __name__ == "__main__":
    main()
