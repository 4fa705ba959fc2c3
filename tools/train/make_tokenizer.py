#!/usr/bin/env python3
"""Trains the byte-level BPE (2,048 entries) on generated documents: make_tokenizer.py OUT"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from encoder import Encoder
from tinyworld import World

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
    " + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def texts(documents):
    world = World("tok")
    for _ in range(documents):
        for part, _ in world.doc()[1]:
            if isinstance(part, str):
                yield part


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(30000), trainer)
    return tokenizer


def config():
    return dict(
        tokenizer_class="PreTrainedTokenizerFast",
        add_prefix_space=False,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        additional_special_tokens=SPECIALS[1:],
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        added_tokens_decoder={
            str(i): dict(content=s, lstrip=False, rstrip=False, normalized=False, single_word=False, special=True)
            for i, s in enumerate(SPECIALS)
        },
    )


def check(tokenizer, documents=3000):
    """The fast encoder must agree with the library on whole documents."""
    encoder, world = Encoder(tokenizer), World("check")
    for _ in range(documents):
        document = world.doc()[1]
        text = "".join(part if isinstance(part, str) else SPECIALS[part] for part, _ in document)
        if encoder.ids(document) != tokenizer.encode(text, add_special_tokens=False).ids:
            sys.exit(f"the fast encoder differs from the tokenizer on {text[:200]!r}")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    check(tokenizer)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(config(), indent=1))
    print(f"tokenizer: {tokenizer.get_vocab_size()} entries in {out}")


if __name__ == "__main__":
    main()
