#!/usr/bin/env python3
"""The looped architecture (Ouro) in plain PyTorch, and golden files of the embedded looped model.

  python3 tools/golden/looped_golden.py models/tessera-looped models/tessera-dense/heldout.jsonl OUT

writes, for the end of one held-out prompt and every loop, in f32 on the CPU:
OUT/tessera-looped.logits.f32   [loops][every 8th token][vocab]
OUT/tessera-looped.exits.f32    [loops][tokens], the sigmoid of the exit gate
OUT/tessera-looped.hidden.f32   [loops][every 8th token][hidden], the state after the final norm
OUT/tessera-looped.json         tokens, positions and sizes
"""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

TOKENS, EVERY = 96, 8


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, cosines, sines):
    """Half-split: component i pairs with i + head_dim / 2. x is [heads][tokens][head_dim]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)


class Looped:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        self.eps = self.config["rms_norm_eps"]

    def layer(self, index, h, cosines, sines):
        def w(name):
            return self.weights[f"model.layers.{index}.{name}.weight"]

        def heads(x, count):
            return x.view(len(x), count, -1).transpose(0, 1)

        q_heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        x = rms_norm(h, w("input_layernorm"), self.eps)
        q = rotate(heads(x @ w("self_attn.q_proj").T, q_heads), cosines, sines)
        k = rotate(heads(x @ w("self_attn.k_proj").T, kv_heads), cosines, sines)
        v = heads(x @ w("self_attn.v_proj").T, kv_heads)
        k, v = (y.repeat_interleave(q_heads // kv_heads, 0) for y in (k, v))
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        future = torch.ones(len(h), len(h), dtype=torch.bool).triu(1)
        attended = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        out = attended.transpose(0, 1).reshape(len(h), -1) @ w("self_attn.o_proj").T
        h = h + rms_norm(out, w("input_layernorm_2"), self.eps)
        x = rms_norm(h, w("post_attention_layernorm"), self.eps)
        out = (F.silu(x @ w("mlp.gate_proj").T) * (x @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
        return h + rms_norm(out, w("post_attention_layernorm_2"), self.eps)

    def run(self, tokens):
        """Per loop: logits, exit probabilities, hidden states."""
        dim = self.config["head_dim"]
        frequencies = self.config["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.arange(len(tokens), dtype=torch.float64)[:, None] * frequencies
        cosines, sines = angles.cos().float(), angles.sin().float()
        h = self.weights["model.embed_tokens.weight"][tokens]
        for _ in range(self.config["total_ut_steps"]):
            for index in range(self.config["num_hidden_layers"]):
                h = self.layer(index, h, cosines, sines)
            h = rms_norm(h, self.weights["model.norm.weight"], self.eps)  # inside the recurrence
            gate = h @ self.weights["model.early_exit_gate.weight"].T + self.weights["model.early_exit_gate.bias"]
            yield h @ self.weights["lm_head.weight"].T, torch.sigmoid(gate[:, 0]), h


def main():
    folder, heldout, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    line = json.loads(next(l for l in open(heldout) if json.loads(l)["task"] == "needle_short"))
    encode = Tokenizer.from_file(str(folder / "tokenizer.json")).encode
    tokens = encode(line["prompt"], add_special_tokens=False).ids[-TOKENS:]
    model = Looped(folder)
    with torch.no_grad():
        logits, exits, hidden = zip(*model.run(torch.tensor(tokens)))
    picked = list(range(EVERY - 1, len(tokens), EVERY))
    for name, parts in (("logits", [x[picked] for x in logits]), ("exits", exits), ("hidden", [x[picked] for x in hidden])):
        torch.stack(list(parts)).numpy().astype("<f4").tofile(out / f"tessera-looped.{name}.f32")
    facts = dict(torch=torch.__version__, tokens=tokens, positions=picked, loops=len(logits),
                 vocab=model.config["vocab_size"], hidden=model.config["hidden_size"])
    (out / "tessera-looped.json").write_text(json.dumps(facts, indent=1))
    print(len(tokens), "tokens,", len(logits), "loops, best of last:", [int(x[-1].argmax()) for x in logits])


if __name__ == "__main__":
    main()
