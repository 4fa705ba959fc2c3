#!/usr/bin/env python3
"""Writes rows of 2,048 packed tokens (uint16: id | weight class << 12), whole documents only.

generate.py --tokenizer DIR --out DIR [--mix plain|chain] [--workers 14] [--rows 18000] [--seed main]
generate.py --heldout FILE [--per-task 40]
generate.py --stories FILE [--raw 256] [--asked 64]

--rows are for each worker; --heldout writes prompts with exact answers; --stories writes raw stories, and prompts for
one whose answers are free but for the words they must hold."""
import argparse
import json
import multiprocessing
import pathlib
import time

from tinyworld import MIX, MIX_CHAIN, TASKS, World, tests

ROW = 2048
PADDING = 3 << 12
MIXES = dict(plain=MIX, chain=MIX_CHAIN)
STORY_TOKENS = 220  # within which an asked story must end
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def pack_row(encoder, world, buffer):
    """First document of a 48-document buffer that fits, until none does."""
    row = []
    while True:
        while len(buffer) < 48:
            document = encoder.packed(world.doc()[1])
            if len(document) <= ROW:
                buffer.append(document)
        fitting = next((i for i, document in enumerate(buffer) if len(document) <= ROW - len(row)), None)
        if fitting is None:
            return row + [PADDING] * (ROW - len(row))
        row += buffer.pop(fitting)


def worker(index, args):
    import numpy

    from encoder import Encoder

    world = World(f"train-{args.seed}-{index}", mix=MIXES[args.mix])
    encoder = Encoder.from_file(pathlib.Path(args.tokenizer) / "tokenizer.json")
    rows, buffer = numpy.empty((args.rows, ROW), dtype=numpy.uint16), []
    for i in range(args.rows):
        rows[i] = pack_row(encoder, world, buffer)
    numpy.save(pathlib.Path(args.out) / f"shard{index:03d}.npy", rows)


def rendered(document):
    return "".join(part if isinstance(part, str) else SPECIALS[part] for part, _ in document)


def write_lines(path, objects):
    with open(path, "w", encoding="utf-8") as file:
        for entry in objects:
            file.write(json.dumps(entry) + "\n")


def heldout(per_task):
    for task in TASKS:
        for test in tests(task, per_task):
            yield dict(task=task, prompt=rendered(test["prompt"]), answer=test["answer"])


def stories(raw, asked):
    world = World("lm-heldout", test=True)
    for _ in range(raw):
        (text, _), _ = world.d_story()  # the end of the document is not part of it
        yield dict(task="raw_story", text=text)
    world = World("test-story", test=True)
    for _ in range(asked):
        question, sentences, _, words = world.storyreq()
        yield dict(task="story", prompt=rendered(world.prompt([], question)), answer=" ".join(sentences), words=words,
                   max_tokens=STORY_TOKENS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer")
    parser.add_argument("--out")
    parser.add_argument("--mix", choices=list(MIXES), default="plain", help="chain adds pointer chasing (the looped model)")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rows", type=int, default=18000)
    parser.add_argument("--seed", default="main")
    parser.add_argument("--heldout")
    parser.add_argument("--per-task", type=int, default=40)
    parser.add_argument("--stories")
    parser.add_argument("--raw", type=int, default=256)
    parser.add_argument("--asked", type=int, default=64)
    args = parser.parse_args()
    if args.heldout:
        write_lines(args.heldout, heldout(args.per_task))
    if args.stories:
        write_lines(args.stories, stories(args.raw, args.asked))
    if not args.out:
        return
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    start = time.time()
    workers = [multiprocessing.Process(target=worker, args=(i, args)) for i in range(args.workers)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    if any(process.exitcode for process in workers):
        raise SystemExit("a worker failed; its traceback is above")
    print(f"generated {args.workers * args.rows * ROW / 1e6:.0f}M tokens in {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
