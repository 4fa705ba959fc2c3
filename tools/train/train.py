#!/usr/bin/env python3
"""Trains an embedded model: train.py --model dense|looped --data DIR --out DIR

Needs PyTorch 2.5 or newer and a CUDA GPU for flex attention; --attention masked runs anywhere, slowly (smoke tests)."""
import argparse
import contextlib
import json
import math
import pathlib
import time

import torch
from torch import nn

import attention
from loss import Loss
from model import DENSE, LOOPED, Model

SHAPES = dict(dense=DENSE, looped=LOOPED)
DEFAULTS = dict(dense=dict(steps=9000, lr=3e-3), looped=dict(steps=7600, lr=2.5e-3))


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


def rate_at(step, args):
    """A linear warm-up times a cosine down to 2 %."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / args.steps))
    return args.lr * min(1, (step + 1) / args.warm_up) * (0.02 + 0.98 * cosine)


def batches(rows, size):
    """Rows in a new random order each epoch, for ever."""
    while True:
        order = torch.randperm(len(rows), device=rows.device)
        for first in range(0, len(rows) - size + 1, size):
            words = rows[order[first : first + size]].int()
            yield (words & 4095).long(), (words >> 12).long()


def train(model, rows, make_mask, args):
    cuda = rows.device.type == "cuda"
    optimizer = optimizer_of(model, args.lr, cuda)
    loss_of = Loss(model).to(rows.device)
    if args.attention == "flex":
        loss_of = torch.compile(loss_of, dynamic=False)
    history, start = [], time.time()
    for step, (tokens, classes) in zip(range(args.steps), batches(rows, args.batch)):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, args)
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


def family(shape):
    """The part of config.json that only one of the two families has."""
    if not shape.looped:
        return dict(
            model_type="llama",
            architectures=["LlamaForCausalLM"],
            tie_word_embeddings=True,
            attention_bias=False,
            mlp_bias=False,
        )
    return dict(
        model_type="ouro",
        architectures=["OuroForCausalLM"],
        tie_word_embeddings=False,
        total_ut_steps=shape.loops,
        early_exit_threshold=1.0,
        use_sliding_window=False,
        sliding_window=None,
        max_window_layers=shape.layers,
        layer_types=["full_attention"] * shape.layers,
    )


def config_of(shape):
    common = dict(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.q_heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden_act="silu",
        max_position_embeddings=2048,
        rms_norm_eps=shape.eps,
        rope_theta=shape.theta,
        rope_scaling=None,
        attention_dropout=0.0,
        initializer_range=0.02,
        use_cache=True,
        bos_token_id=0,
        eos_token_id=[0, 2],
        pad_token_id=0,
        torch_dtype="bfloat16",
    )
    return {**common, **family(shape)}


def save(model, folder, record):
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().bfloat16().contiguous().cpu() for name, p in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(model.shape), indent=1))
    (folder / "train.json").write_text(json.dumps(record))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=list(SHAPES))
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, help="9,000 dense, 7,600 looped, unless given")
    parser.add_argument("--batch", type=int, default=32, help="rows of 2,048 tokens")
    parser.add_argument("--lr", type=float, help="3e-3 dense, 2.5e-3 looped, unless given")
    parser.add_argument("--warm-up", type=int, default=300)
    parser.add_argument("--log", type=int, default=200)
    parser.add_argument("--row", type=int, default=2048, help="cut rows to this length (smoke tests)")
    parser.add_argument("--attention", choices=["flex", "masked"], default="flex")
    args = parser.parse_args()
    for name, value in DEFAULTS[args.model].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


def main():
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    make_mask, attend = attention.flex() if args.attention == "flex" else attention.masked()
    model = Model(SHAPES[args.model], attend, low_precision=device.type == "cuda").to(device)
    parameters = sum(p.numel() for p in model.parameters())
    rows = load_rows(args.data, device)[:, : args.row]
    if len(rows) < args.batch:
        raise SystemExit(f"{len(rows)} rows of data are less than one batch of {args.batch}")
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
