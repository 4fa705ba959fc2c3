#!/usr/bin/env python3
"""The looped architecture (Ouro) in plain PyTorch, and golden files of the embedded looped model.

  python3 tools/golden/looped_golden.py models/tessera-looped models/tessera-dense/heldout.jsonl OUT
  python3 tools/golden/looped_golden.py models/tessera-looped tests/golden/tessera-looped.json tests/golden

The first writes, for the end of one held-out prompt and every loop, in f32 on the CPU:
OUT/tessera-looped.logits.f32   [loops][every 8th token][vocab]
OUT/tessera-looped.exits.f32    [loops][tokens], the sigmoid of the exit gate
OUT/tessera-looped.hidden.f32   [loops][every 8th token][hidden], the state after the final norm
OUT/tessera-looped.json         tokens, positions and sizes
The second keeps the logits and exits beside that json and writes the hidden states of its tokens only. The same run's own
logits and exits must be the kept ones within 1e-5, and the json gets what was found and with which PyTorch. It needs no
tokenizer.
"""
import json
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

TOKENS, EVERY = 96, 8
AGREE = 1e-5  # two versions of PyTorch, of the largest logit


def read_weights(path):
    """A safetensors file of bf16 tensors, widened exactly."""
    data = bytearray(path.read_bytes())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16", (name, entry["dtype"])
        first, last = entry["data_offsets"]
        part = torch.frombuffer(data, dtype=torch.bfloat16, count=(last - first) // 2, offset=start + first)
        weights[name] = part.reshape(entry["shape"]).float()
    return weights


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, cosines, sines):
    """Half-split: component i pairs with i + head_dim / 2. x is [heads][tokens][head_dim]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)


class Looped:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_weights(folder / "model.safetensors")
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


def save(out, name, parts):
    torch.stack(list(parts)).numpy().astype("<f4").tofile(out / f"tessera-looped.{name}.f32")


def write_json(out, facts):
    (out / "tessera-looped.json").write_text(json.dumps(facts, indent=1))


def heldout_tokens(folder, heldout):
    from tokenizers import Tokenizer

    line = json.loads(next(l for l in open(heldout) if json.loads(l)["task"] == "needle_short"))
    encode = Tokenizer.from_file(str(folder / "tokenizer.json")).encode
    return encode(line["prompt"], add_special_tokens=False).ids[-TOKENS:]


def difference(kept, parts, scale):
    kept = torch.frombuffer(bytearray(kept.read_bytes()), dtype=torch.float32)
    return float((kept - torch.stack(list(parts)).flatten()).abs().max() / scale)


def add_hidden(model, golden, out):
    """Hidden states for the tokens of a golden that is there."""
    facts = json.loads(golden.read_text())
    with torch.no_grad():
        logits, exits, hidden = zip(*model.run(torch.tensor(facts["tokens"])))
    picked = facts["positions"]
    logits = [x[picked] for x in logits]
    of_logits = difference(golden.with_suffix(".logits.f32"), logits, max(x.abs().max() for x in logits))
    of_exits = difference(golden.with_suffix(".exits.f32"), exits, 1)
    print(f"kept golden files: logits differ by {of_logits:.1e} of the largest, exit probabilities by {of_exits:.1e}")
    assert max(of_logits, of_exits) <= AGREE, "this is not the model, or not the text, of the kept golden files"
    save(out, "hidden", [x[picked] for x in hidden])
    facts["hidden_made"] = dict(torch=torch.__version__, device="cpu", logits_differ=float(f"{of_logits:.1e}"),
                                exits_differ=float(f"{of_exits:.1e}"))
    write_json(out, facts)


def make_all(model, folder, heldout, out):
    tokens = heldout_tokens(folder, heldout)
    with torch.no_grad():
        logits, exits, hidden = zip(*model.run(torch.tensor(tokens)))
    picked = list(range(EVERY - 1, len(tokens), EVERY))
    save(out, "logits", [x[picked] for x in logits])
    save(out, "exits", exits)
    save(out, "hidden", [x[picked] for x in hidden])
    write_json(out, dict(torch=torch.__version__, tokens=tokens, positions=picked, loops=len(logits),
                         vocab=model.config["vocab_size"], hidden=model.config["hidden_size"]))
    print(len(tokens), "tokens,", len(logits), "loops, best of last:", [int(x[-1].argmax()) for x in logits])


def main():
    folder, source, out = (Path(argument) for argument in sys.argv[1:4])
    model = Looped(folder)
    if source.suffix == ".json":
        add_hidden(model, source, out)
    else:
        make_all(model, folder, source, out)


if __name__ == "__main__":
    main()
