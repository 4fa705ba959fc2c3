#!/usr/bin/env python3
"""Golden files of the embedded model, made with Hugging Face transformers and tokenizers.

  python3 tools/golden/hf_golden.py models/tessera-dense OUT

writes OUT/tessera-dense.logits.f32 (little-endian f32 [tokens][vocab], the model in f32 on the CPU), and
OUT/tessera-dense.json (the token list, library versions, and token ids of texts for the tokenizer's tests).
"""
import json
import sys
from pathlib import Path

import torch
import transformers

TEXTS = [
    "", " ", "Hello world", "hello  world\n\n\n  x", "It's 12345 o'clock, we'll go!", "naïve café – 東京 🙂",
    "a\tb\r\nc", "1234 56.78e9", "<|im_start|>user", "x" * 50, " leading and trailing ",
    "\u00a0nbsp\u2003em", "٣٤٥ ½ Ⅷ", "don't DON'T can't've", "__init__(self, **kw) -> None:",
]


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    line = json.loads(next(l for l in open(folder / "heldout.jsonl") if json.loads(l)["task"] == "needle_short"))
    tokens = tokenizer(line["prompt"], add_special_tokens=False)["input_ids"][-96:]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].float()
    logits.numpy().astype("<f4").tofile(out / "tessera-dense.logits.f32")
    from tokenizers import Tokenizer
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {t: raw.encode(t, add_special_tokens=False).ids for t in TEXTS}
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "What is 18 plus 72?"}],
                                         add_generation_prompt=True, tokenize=True)
    chat = chat["input_ids"] if hasattr(chat, "keys") else chat
    json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "tokens": tokens,
               "vocab": int(logits.shape[1]), "encode_with_special_tokens": special, "chat": list(chat)},
              open(out / "tessera-dense.json", "w"), ensure_ascii=True, indent=1)
    print("tokens", len(tokens), "logits", tuple(logits.shape), "best of last", int(logits[-1].argmax()))


if __name__ == "__main__":
    main()
