"""Seeded generator of the tiny world: stories, tables, sums, lists and JSON with exact answers. Standard library only.

A document is a list of (text or special token id, weight class). Classes: 0 prompt, 1 answer, 2 story, 3 padding."""
import json
import random
import zlib

from words import *


def held(*parts):
    """One combination in twelve is held out: training rejects it, tests want nothing else."""
    return zlib.crc32("|".join(map(str, parts)).encode()) % 12 == 0


def an(w):
    return (
        "an "
        if w[0].lower() in "aeiou" and (not w.startswith("uni")) or (w.startswith("ho") and w[:6] == "honest")
        else "a "
    ) + w


def cap(s):
    return s[0].upper() + s[1:]


def comma(xs):
    xs = list(xs)
    if len(xs) == 1:
        return xs[0]
    if len(xs) == 2:
        return xs[0] + " and " + xs[1]
    return ", ".join(xs[:-1]) + " and " + xs[-1]


class Character:
    """Name n; pronouns s, o, p (she, her, her), S and P capitalized; kind and adjective."""

    __slots__ = "n s o p S P kind adj".split()

    def __init__(self, n, kind, adj, she):
        self.n = n
        self.kind = kind
        self.adj = adj
        self.s, self.o, self.p = ("she", "her", "her") if she else ("he", "him", "his")
        self.S = cap(self.s)
        self.P = cap(self.p)


class World:
    """One source of randomness; the same seed gives the same documents."""

    def __init__(self, seed, test=False, mix=None):
        self.random = random.Random(seed)
        self.test = test
        self.mix = MIX if mix is None else mix

    def choice(self, xs):
        return xs[int(self.random.random() * len(xs))]

    def chance(self, x):
        return self.random.random() < x

    def ok(self, *parts):
        """Training rejects held combinations; tests want only them."""
        return held(*parts) == self.test

    def pick(self, f):
        """Rejection sampling: f() gives a tuple whose hash decides the split."""
        while True:
            t = f()
            if self.ok(*t):
                return t

    def char(self, used, kind=None, name=None, human=None):
        while True:
            n = name or self.choice(NAMES)
            if n not in used:
                break
        used.add(n)
        if kind is None and (human if human is not None else self.chance(0.45)):
            kind = (
                self.choice(["girl" if n in SHE else "boy", "child", "farmer", "baker", "painter", "sailor"])
                if n
                else "child"
            )
        elif kind is None:
            kind = self.choice(ANIMALS)
        return Character(n, kind, self.choice(KINDADJ), n in SHE)

    def open(self, h, place=None):
        pl = place or self.choice(PLACES)
        return self.choice(
            [
                f"Once upon a time, there was {an(h.adj)} {h.kind} named {h.n}. {h.n} lived {pl}.",
                f"There once was {an(h.kind)} called {h.n}, who lived {pl}.",
                f"{h.n} was {an(h.adj)} {h.kind}. {h.S} lived {pl}.",
                f"One {self.choice(WEATHER)} {self.choice(TIMES)}, {an(h.adj)} {h.kind} named {h.n} was walking {pl}.",
                f"Long ago, {an(h.kind)} named {h.n} lived {pl}. Everyone knew that {h.s} was very {h.adj}.",
                f"In a small house {pl}, there lived {an(h.adj)} {h.kind}. {h.P} name was {h.n}.",
                (
                    f"It was {an(self.choice(WEATHER))} {self.choice(TIMES)} in {self.choice(SEASON)}. {h.n} the"
                    f" {h.kind} was {pl}."
                ),
                f"This is the story of {h.n}, {an(h.adj)} {h.kind} who lived {pl}.",
                f"{h.n} the {h.kind} woke up early and went {TO[pl]}.",
            ]
        )

    def meet(self, h, f):
        return self.choice(
            [
                f"{h.p} best friend was {an(f.kind)} named {f.n}.",
                f"{h.s} had a friend called {f.n}, {an(f.adj)} {f.kind}.",
                f"{h.s} met {an(f.adj)} {f.kind} named {f.n} there.",
                f"one day {f.n} the {f.kind} came to visit {h.o}.",
                f"{h.s} often played with {f.n}, who was {an(f.kind)}.",
            ]
        )

    def filler(self, h):
        return self.choice(
            [
                f"The sun was shining and the birds were singing.",
                f"The wind was soft and the air smelled of {self.choice(PLANTS)} flowers.",
                f"It was {an(self.choice(WEATHER))} day, and {h.n} felt {self.choice(FEELGOOD)}.",
                f"{h.n} hummed a little song on the way.",
                f"{h.n} liked to eat {self.choice(FOODS)} for lunch.",
                f"{cap(an(self.choice(COLORS)))} bird flew over the trees.",
                f"Far away, a bell was ringing.",
                f"{h.n} counted the clouds in the sky.",
                f"{h.n} had never been so {self.choice(FEELGOOD)} before.",
                f"The leaves were turning {self.choice(COLORS)} and {self.choice(COLORS)}.",
                f"Some {self.choice(ANIMALS)} tracks were on the ground.",
                f"Nobody else was there that {self.choice(TIMES)}.",
                f"{h.n} sat down for a while and looked around.",
            ]
        )

    def end(self, h, f):
        b = self.choice(FEELGOOD)
        return self.choice(
            [
                f"From that day on, {h.n} and {f.n} were the best of friends.",
                f"{h.n} and {f.n} went home together, and both felt {b}.",
                f"That night {h.n} fell asleep with a smile.",
                f"{h.n} was {b}, and {f.n} was {b} too.",
                f"They laughed and danced until the moon came up.",
                f"And they lived happily ever after.",
                f"{h.n} never forgot that day.",
                f'"This was the best day ever," said {f.n}.',
                f"{h.n} told everyone about it the next day.",
                f"Then they shared some {self.choice(FOODS)} and went to bed.",
            ]
        )

    def say(self, a, txt, b=None):
        e = txt[-1]
        q = txt if e in "?!" else txt[:-1] + ","
        v = (
            self.choice(["asked", "wondered"])
            if e == "?"
            else (
                self.choice(["cried", "shouted", "called"])
                if e == "!"
                else self.choice(["said", "replied", "whispered", "answered"])
            )
        )
        return self.choice([f'"{q}" {v} {a.n}.', f'{a.n} {v}, "{txt}"', f'"{q}" {a.s} {v}.'])

    def story(self, animal=None, obj=None, name=None, name2=None, plot=None, want2=None):
        """returns (list of sentences, qa list[(q,a)], info)"""
        r = self.random
        used = set()
        if name2:
            used.add(name2)
        h = self.char(used, animal, name)
        if name2:
            used.discard(name2)
        f = self.char(used, want2, name2)
        if obj is None:
            k = self.pick(lambda: ("st", h.kind, self.choice(CARRY)))
            obj = k[2]
            objplots = False
        else:
            objplots = True
        col = self.choice(COLORS)
        O = self.choice([f"{col} {obj}", f"{col} {obj}", f"{self.choice(OBJADJ)} {col} {obj}"])
        p1, p2, p3 = r.sample(PLACES, 3)
        P = ["lost", "gift", "broken", "lie", "newfriend", "trade", "treasure", "borrow"]
        if not objplots:
            P = P + [
                "share",
                "race",
                "rain",
                "fear",
                "seed",
                "stuck",
                "cook",
                "build",
                "night",
                "share",
                "race",
                "rain",
                "fear",
                "seed",
                "stuck",
                "cook",
                "build",
            ]
        pl = plot or self.choice(P)
        s = []
        qa = []
        S = s.append
        Q = lambda q, a: qa.append((q, a))
        S(self.open(h, p1))
        if self.chance(0.5):
            S(self.filler(h))
        if pl not in ("newfriend", "stuck") and (self.chance(0.7) or want2):
            S(cap(self.meet(h, f)))
        fk = f"{f.n} the {f.kind}" if self.chance(0.4) else f.n
        if pl == "lost":
            spot = self.choice(SPOTS)
            S(
                self.choice(
                    [
                        f"{h.n} had {an(O)} and took it everywhere.",
                        f"{h.P} favorite thing was {an(O)}.",
                        f"For {h.p} birthday, {h.n} had got {an(O)}.",
                        f"{h.n} loved {h.p} {O} very much.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"But one {self.choice(TIMES)} the {obj} was gone.",
                        f"One day {h.s} lost the {obj} {p2}.",
                        f"Then, {p2}, {h.s} saw that the {obj} was missing.",
                        f"Suddenly {h.n} could not find the {obj} anywhere.",
                    ]
                )
            )
            S(
                self.say(
                    h,
                    self.choice([f"Where is my {obj}?", "Oh no!", f"I have lost my {obj}!", f"I must find my {obj}."]),
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} looked {p2}, but it was not there.",
                        f"{h.S} searched {p2} and felt very {self.choice(FEELBAD)}.",
                        f"{h.S} looked up and down {p2} until {h.s} was tired.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{fk} saw {h.o} crying and offered to help.",
                        f"Then {fk} came and helped {h.o} to look.",
                        f"{fk} heard about it and said that two can look better than one.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"At last they found the {obj} {spot} {p3}.",
                        f"Together they went {TO[p3]}, and there was the {obj}, {spot}.",
                        f"After a long time, {f.n} saw something {col} {spot} {p3}. It was the {obj}!",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} thanked {f.n} and hugged the {obj}.",
                        self.say(h, f"Thank you for your help!"),
                        f"{h.n} was so {self.choice(FEELGOOD)} that {h.s} jumped up and down.",
                    ]
                )
            )
            Q(self.choice([f"What did {h.n} lose?", f"Which thing did {h.n} lose?"]), f"{h.n} lost {an(col)} {obj}.")
            Q(f"Where did they find the {obj}?", f"They found the {obj} {spot} {p3}.")
            Q(self.choice([f"Who helped {h.n}?", f"Who helped {h.n} to look for the {obj}?"]), f"{f.n} helped {h.n}.")
        elif pl == "gift":
            S(
                self.choice(
                    [
                        f"Soon it would be the birthday of {f.n}.",
                        f"It was the birthday of {fk}, and {h.n} wanted to bring a gift.",
                        f"{h.n} knew that {f.n} would have a party.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} had no money, so {h.s} was {self.choice(FEELBAD)}.",
                        f"{h.n} thought and thought about a good gift.",
                        f"But what do you give to {an(f.adj)} {f.kind}?",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{p2.capitalize()}, {h.s} found {an(O)} {self.choice(SPOTS)}.",
                        f"So {h.s} went {TO[p2]} and made {an(O)} with {h.p} own hands.",
                        f"At a shop {p2}, {h.s} saw {an(O)} and bought it for one coin.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.S} put it in a box with {an(self.choice(COLORS))} ribbon.",
                        f"{h.S} carried it carefully all the way.",
                        f"{h.S} wrapped it in a large leaf.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"When {f.n} opened the gift, {f.s} clapped {f.p} hands.",
                        f"{f.n} opened it and smiled from ear to ear.",
                        f"{f.n} looked at the {obj} and could not speak for joy.",
                    ]
                )
            )
            S(
                self.say(
                    f, self.choice([f"I always wanted {an(obj)}!", "What a lovely gift!", "You are a true friend."])
                )
            )
            Q(
                self.choice([f"What did {h.n} give to {f.n}?", f"What was the gift for {f.n}?"]),
                f"{h.n} gave {f.n} {an(col)} {obj}.",
            )
            Q("Whose birthday was it?", f"It was the birthday of {f.n}.")
            Q(f"What color was the {obj}?", f"The {obj} was {col}.")
        elif pl == "broken":
            fx = self.choice(FIXERS)
            S(
                self.choice(
                    [
                        f"{f.n} had {an(O)}, and {h.n} wanted to play with it.",
                        f"One day {h.n} borrowed {an(O)} from {f.n}.",
                        f"{f.n} showed {h.o} {an(O)}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"But {h.n} was too fast, and the {obj} fell down and broke.",
                        f"{h.n} tripped over a stone {p2}, and the {obj} broke.",
                        f"Crack! The {obj} broke in two.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} felt {self.choice(FEELBAD)} and wanted to hide.",
                        f"{h.n} was afraid that {f.n} would be angry.",
                        f"At first {h.n} said nothing.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"Then {h.s} told the truth.",
                        f"But {h.s} went to {f.n} and said sorry.",
                        self.say(h, f"I broke your {obj}. I am so sorry."),
                    ]
                )
            )
            S(
                self.choice(
                    [
                        self.say(f, "It was an accident. We can fix it."),
                        f"{f.n} was not angry at all.",
                        f"{f.n} thought for a moment and then smiled.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"They fixed the {obj} with {fx}.",
                        f"They went {TO[p3]}, got {fx} and fixed it.",
                        f"With {fx}, the {obj} was soon as good as new.",
                    ]
                )
            )
            S(self.choice(MORAL) if self.chance(0.3) else self.filler(h))
            Q("What broke?", f"The {col} {obj} broke.")
            Q(f"What did they use to fix the {obj}?", f"They used {fx}.")
            Q(f"Who broke the {obj}?", f"{h.n} broke the {obj}.")
        elif pl == "share":
            fd, fd2 = r.sample(FOODS, 2)
            S(
                self.choice(
                    [
                        f"{h.n} had a basket full of {fd}.",
                        f"{h.n} found some {fd} {p2}.",
                        f"{h.n} was about to eat some {fd}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"Then {fk} came by. {f.S} had nothing to eat.",
                        f"{fk} was sitting there, very hungry.",
                        f"{h.n} saw that {f.n} was thin and tired.",
                    ]
                )
            )
            S(self.say(f, self.choice(["I am so hungry.", "May I have a bite?", "I have not eaten all day."])))
            S(
                self.choice(
                    [
                        f"{h.n} did not want to share at first, but then {h.s} gave {f.n} half of the {fd}.",
                        f"So {h.n} gave {f.o} some of the {fd}.",
                        f"{h.n} smiled and shared the {fd} with {f.o}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"The next {self.choice(SEASON)}, {h.n} had no food, but {f.n} brought {h.o} some {fd2}.",
                        f"Later, when {h.n} was hungry, {f.n} came with a plate of {fd2}.",
                        f"In return, {f.n} gave {h.o} some {fd2} the next day.",
                    ]
                )
            )
            S(
                self.choice(
                    MORAL[:1] + MORAL[3:4] + ["They ate together and told jokes.", "It tasted better than ever."]
                )
            )
            Q(f"What did {h.n} share with {f.n}?", f"{h.n} shared the {fd}.")
            Q(f"What did {f.n} give to {h.n}?", f"{f.n} gave {h.n} some {fd2}.")
            Q("Who was hungry first?", f"{f.n} was hungry first.")
        elif pl == "race":
            hw = self.chance(0.5)
            W, L = (h, f) if hw else (f, h)
            S(
                self.choice(
                    [
                        f"{f.n} said that {f.s} was the fastest of all.",
                        f"{h.n} and {f.n} both liked to run.",
                        self.say(h, "Let us have a race!"),
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"They would run from the old tree {TO[p2]}.",
                        f"The race would end {p2}.",
                        f"The first one {p2} would win.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        "One, two, three, go!",
                        f"The {self.choice(ANIMALS)} said go, and off they went.",
                        "Everyone came to watch.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{L.n} was faster at first, but {L.s} stopped to eat some {self.choice(FOODS)}.",
                        f"{L.n} was so sure to win that {L.s} took a nap.",
                        f"Half way, {L.n} fell over a root.",
                        f"{L.n} took the wrong path.",
                    ]
                )
            )
            S(
                self.choice(
                    [f"{W.n} kept going and won the race.", f"So {W.n} came first.", f"{W.n} ran past {L.o} and won."]
                )
            )
            S(
                self.choice(
                    [
                        f"{L.n} was not angry and said well done.",
                        self.say(L, "You ran so well!"),
                        f"{W.n} gave {L.n} a hug.",
                    ]
                )
            )
            Q("Who won the race?", f"{W.n} won the race.")
            Q("Where did the race end?", f"The race ended {p2}.")
            Q("Who lost the race?", f"{L.n} lost the race.")
        elif pl == "rain":
            hide = self.choice(
                [
                    "under a big tree",
                    "in a cave",
                    "in an old barn",
                    "under a bridge",
                    "in a hollow log",
                    "in a small hut",
                    "under a rock",
                    "in an empty boat",
                ]
            )
            g = self.choice(["tag", "hide and seek", "catch", "pirates", "a guessing game", "cards"])
            S(self.choice([f"{h.n} and {f.n} were playing {g} {p2}.", f"They went {TO[p2]} to play {g}."]))
            S(
                self.choice(
                    [
                        "Suddenly the sky became dark.",
                        "Then big gray clouds came.",
                        "A drop of rain fell on the ground, and then another.",
                    ]
                )
            )
            S(
                self.choice(
                    ["It began to rain very hard.", "Thunder rolled over the hills.", "The storm was loud and cold."]
                )
            )
            S(
                self.choice(
                    [
                        f"They ran and hid {hide}.",
                        f"{f.n} knew a dry place {hide}, so they waited there.",
                        self.say(f, f"Quick, we can hide {hide}!") + " And so they did.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} was {self.choice(FEELBAD)}, but {f.n} told {h.o} a funny story.",
                        f"They sang songs to pass the time.",
                        f"{f.n} held the hand of {h.n}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        "After an hour the rain stopped, and a rainbow came out.",
                        "Then the sun came back, and everything was shining.",
                        "At last the storm was over.",
                    ]
                )
            )
            Q("Where did they hide?", f"They hid {hide}.")
            Q("What were they playing?", f"They were playing {g}.")
            Q("Where were they playing?", f"They were playing {p2}.")
        elif pl == "fear":
            fe = self.choice(FEARS)
            S(
                self.choice(
                    [
                        f"{h.n} was afraid of {fe}.",
                        f"There was one thing that {h.n} did not like: {fe}.",
                        f"Everyone knew that {h.n} feared {fe}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"Because of that, {h.s} never went {TO[p2]}.",
                        f"{h.S} often stayed at home for that reason.",
                        (
                            f"The other {h.kind}s laughed at {h.o}."
                            if h.kind in ANIMALS
                            else f"The others laughed at {h.o}."
                        ),
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"One {self.choice(TIMES)}, {f.n} needed help {p2}.",
                        f"Then {f.n} got lost {p2}.",
                        f"One day {f.n} called for help {p2}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} was shaking, but {h.s} took a deep breath and went.",
                        f"{h.n} closed {h.p} eyes, counted to {self.choice(NUMW[3:])}, and went on.",
                        self.say(h, "I am scared, but my friend needs me."),
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.S} found {f.n} and brought {f.o} home.",
                        f"{h.S} helped {f.n}, and nothing bad happened.",
                        f"Soon both of them were safe.",
                    ]
                )
            )
            S(
                self.choice(
                    [f"After that, {h.n} was not so afraid of {fe}.", MORAL[5], self.say(f, f"You are so brave!")]
                )
            )
            Q(f"What was {h.n} afraid of?", f"{h.n} was afraid of {fe}.")
            Q(f"Where did {f.n} need help?", f"{f.n} needed help {p2}.")
        elif pl == "seed":
            pt = self.choice(PLANTS)
            S(
                self.choice(
                    [
                        f"{h.n} found a tiny {pt} seed.",
                        f"{fk} gave {h.o} {an(pt)} seed.",
                        f"An old {self.choice(JOBS)} sold {h.o} {an(pt)} seed.",
                    ]
                )
            )
            S(self.choice([f"{h.S} planted it {p2}.", f"{h.S} put it into the ground {p2}."]))
            S(
                self.choice(
                    [
                        f"Every {self.choice(TIMES[:3])}, {h.s} gave it water.",
                        f"{h.S} watered it each day and sang to it.",
                        f"{h.S} waited for {self.choice(NUMW[2:])} days, but nothing came up.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        self.say(f, "You must be patient."),
                        f"{f.n} said that it would never grow.",
                        f"{h.n} was {self.choice(FEELBAD)}, but {h.s} did not give up.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"One {self.choice(TIMES[:2])}, a small green leaf came out.",
                        "Then it rained, and the seed began to grow.",
                        f"In {self.choice(SEASON)}, a little plant was there.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"It grew and grew until it was taller than {h.n}.",
                        f"Soon the {pt} was big and beautiful.",
                        f"Everybody came to see the {pt}.",
                    ]
                )
            )
            Q(f"What did {h.n} plant?", f"{h.n} planted {an(pt)} seed.")
            Q("Where was the seed planted?", f"The seed was planted {p2}.")
        elif pl == "treasure":
            t2 = self.choice([o for o in CARRY if o != obj])
            S(
                self.choice(
                    [
                        f"One {self.choice(TIMES)}, {h.n} found an old map {self.choice(SPOTS)}.",
                        f"{f.n} had an old map with {an(self.choice(COLORS))} cross on it.",
                        f"{cap(an(self.choice(ANIMALS)))} told them about a treasure.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"They followed the map {TO[p2]} and then {TO[p3]}.",
                        f"The way went {TO[p2]}. From there they walked {TO[p3]}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        "It was a long way, and their feet hurt.",
                        f"They had only some {self.choice(FOODS)} to eat.",
                        f"{f.n} wanted to turn back, but {h.n} said no.",
                    ]
                )
            )
            S(
                self.choice(
                    [f"{cap(p3)}, they dug a hole and found a chest.", f"There, {self.choice(SPOTS)}, was a chest."]
                )
            )
            S(
                self.choice(
                    [f"Inside the chest were {an(O)} and {an(t2)}.", f"They opened it and saw {an(O)} and {an(t2)}."]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} took the {obj}, and {f.n} took the {t2}.",
                        f"They gave the {obj} to {h.n} and the {t2} to {f.n}.",
                    ]
                )
            )
            Q("Where was the chest?", f"The chest was {p3}.")
            Q(f"What did {f.n} take?", f"{f.n} took the {t2}.")
            Q(f"What did {h.n} take?", f"{h.n} took the {obj}.")
            Q("What was in the chest?", f"{cap(an(col))} {obj} and {an(t2)} were in the chest.")
        elif pl == "stuck":
            sk = self.choice(STUCK)
            tl = self.choice(TOOLS)
            S(
                self.choice(
                    [
                        f"{p2.capitalize()}, {h.n} heard somebody crying.",
                        f"One {self.choice(TIMES)}, {h.n} went {TO[p2]} and heard a small voice.",
                    ]
                )
            )
            S(self.choice([f"It was {fk}, stuck {sk}.", f"{fk} was stuck {sk} and could not get out."]))
            S(self.say(f, self.choice(["Please help me!", "I cannot get out.", "Can you help me?"])))
            S(
                self.choice(
                    [
                        f"{h.n} pulled as hard as {h.s} could, but it did not work.",
                        f"At first {h.n} did not know what to do.",
                        f"{h.n} was too small to do it alone.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"Then {h.s} came back with {tl} and got {f.o} out.",
                        f"{h.S} ran home, got {tl}, and used it to free {f.o}.",
                        f"With {tl}, {h.s} set {f.o} free.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{f.n} thanked {h.o} many times.",
                        self.say(f, "You saved me!"),
                        f"{f.n} gave {h.o} some {self.choice(FOODS)} as a thank you.",
                    ]
                )
            )
            Q(f"Where was {f.n} stuck?", f"{f.n} was stuck {sk}.")
            Q(f"What did {h.n} use to help?", f"{h.n} used {tl}.")
            Q("Who was stuck?", f"{f.n} was stuck.")
        elif pl == "lie":
            S(self.choice([f"{f.n} owned {an(O)} and was very proud of it.", f"{f.n} had left {an(O)} {p2}."]))
            S(
                self.choice(
                    [
                        f"{h.n} took the {obj} when nobody was looking.",
                        f"{h.n} wanted it so much that {h.s} took it and hid it {p3}.",
                    ]
                )
            )
            S(self.say(f, f"Have you seen my {obj}?"))
            S(
                self.choice(
                    [
                        f"{h.n} said no, but {h.p} face turned red.",
                        f"{h.n} told a lie and ran away.",
                        self.say(h, "No, I have not."),
                    ]
                )
            )
            S(self.choice([f"That night {h.n} could not sleep.", f"All day long, {h.n} felt {self.choice(FEELBAD)}."]))
            S(
                self.choice(
                    [
                        f"In the morning {h.s} gave the {obj} back and said sorry.",
                        f"So {h.s} brought the {obj} back and told the truth.",
                    ]
                )
            )
            S(self.choice([f"{f.n} forgave {h.o}.", MORAL[2], self.say(f, "Thank you for telling me the truth.")]))
            Q(f"Who took the {obj}?", f"{h.n} took the {obj}.")
            Q(f"Whose {obj} was it?", f"It was the {obj} of {f.n}.")
            Q(f"What color was the {obj}?", f"The {obj} was {col}.")
        elif pl == "newfriend":
            S(
                self.choice(
                    [
                        f"{an(f.adj).capitalize()} {f.kind} named {f.n} had just moved {TO[p2]}.",
                        f"{f.n} was new {p2} and did not know anyone.",
                    ]
                )
            )
            S(self.choice([f"{f.S} sat alone and looked {self.choice(FEELBAD)}.", f"Nobody played with {f.o}."]))
            S(self.choice([f"{h.n} took {h.p} {O} and walked over.", f"{h.n} came with {an(O)} under {h.p} arm."]))
            S(
                self.say(
                    h,
                    self.choice(
                        [
                            "Do you want to play with me?",
                            f"You can play with my {obj}.",
                            "My name is " + h.n + ". What is your name?",
                        ]
                    ),
                )
            )
            S(self.choice([f"{f.n} smiled for the first time that day.", f"{f.n} nodded and stood up."]))
            S(
                self.choice(
                    [
                        f"They played with the {obj} until it was dark.",
                        f"All {self.choice(TIMES[:3])} they played with the {obj} {p3}.",
                    ]
                )
            )
            Q("Who was new?", f"{f.n} was new.")
            Q("What did they play with?", f"They played with the {col} {obj}.")
        elif pl == "cook":
            d = self.choice(DISHES)
            i1, i2, i3 = r.sample(INGR, 3)
            S(
                self.choice(
                    [f"{h.n} and {f.n} wanted to make {d}.", f"One {self.choice(TIMES)}, {h.n} made {d} for {f.n}."]
                )
            )
            S(self.choice([f"They needed {i1}, {i2} and {i3}.", f"The recipe said {i1}, {i2} and {i3}."]))
            S(self.choice([f"But {i3} could not be found.", f"They had {i1} and {i2}, but no {i3}."]))
            S(self.choice([f"So {f.n} went {TO[p2]} to get some.", f"{f.n} ran {TO[p2]} and came back with the {i3}."]))
            S(
                self.choice(
                    [
                        f"They mixed everything in a big {self.choice(COLORS)} bowl.",
                        f"{h.n} stirred, and {f.n} tasted.",
                        "They made a big mess and laughed.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        "It smelled wonderful.",
                        "It was the best meal ever.",
                        f"They ate it with some {self.choice(FOODS[:40])}.",
                    ]
                )
            )
            Q("What did they make?", f"They made {d}.")
            Q("What was missing?", f"The {i3} {('were' if i3.endswith('s') else 'was')} missing.")
            Q(f"Where did {f.n} go?", f"{f.n} went {TO[p2]}.")
        elif pl == "build":
            b = self.choice(BUILD)
            m1, m2 = r.sample(MATS, 2)
            S(self.choice([f"{h.n} wanted to build {b}.", f"{h.n} and {f.n} had a plan: they would build {b} {p2}."]))
            S(
                self.choice(
                    [
                        f"First they used {m1}, but it fell down.",
                        f"They made it from {m1}. Then a strong wind came, and it fell apart.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} wanted to give up.",
                        f"{h.n} kicked a stone and sat down.",
                        self.say(h, "This is too hard!"),
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"{f.n} said that {m2} would be better.",
                        self.say(f, f"Let us try {m2}."),
                        f"Then {f.n} came with a lot of {m2}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"They worked for {self.choice(NUMW[2:])} days.",
                        "All day they carried and worked.",
                        "Step by step, they began again.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"This time it was strong, and everyone liked it.",
                        f"With {m2} it did not fall down any more.",
                        f"In the end, {b} stood {p2}.",
                    ]
                )
            )
            Q("What did they build?", f"They built {b}.")
            Q("What did they use in the end?", f"They used {m2} in the end.")
            Q("What did they use first?", f"They used {m1} first.")
        elif pl == "night":
            wish = self.choice(
                [
                    "to fly",
                    "to see the sea",
                    "to sing well",
                    "to be tall",
                    "to find a friend",
                    "to touch the moon",
                    "to travel far",
                    "to be brave",
                ]
            )
            S(
                self.choice(
                    [f"At night {h.n} could not sleep.", f"One night, {h.n} went {TO[p2]} to look at the stars."]
                )
            )
            S(self.choice(["The moon was big and round.", "The sky was full of stars.", "A star fell from the sky."]))
            S(self.choice([f"{h.n} made a wish. {h.S} wished {wish}.", f"{h.n} closed {h.p} eyes and wished {wish}."]))
            S(
                self.choice(
                    [f"{f.n} sat down next to {h.o}.", f"Then {fk} came with {an(self.choice(COLORS))} blanket."]
                )
            )
            S(self.say(f, self.choice(["What did you wish for?", "The night is so quiet.", "Some wishes come true."])))
            S(self.choice([f"They talked until the morning.", f"{h.n} told {f.o} about the wish."]))
            Q(f"What did {h.n} wish?", f"{h.n} wished {wish}.")
        elif pl == "trade":
            t2 = self.choice([o for o in CARRY if o != obj])
            c2 = self.choice([x for x in COLORS if x != col])
            S(self.choice([f"{h.n} had {an(O)}.", f"{h.n} owned {an(O)}, but {h.s} did not need it any more."]))
            S(self.choice([f"{f.n} had {an(c2)} {t2}.", f"{p2.capitalize()}, {h.s} met {f.n}, who had {an(c2)} {t2}."]))
            S(self.say(f, self.choice([f"I like your {obj}.", f"Will you trade your {obj} for my {t2}?"])))
            S(self.choice([f"{h.n} thought about it and said yes.", "They shook hands."]))
            S(
                self.choice(
                    [
                        f"So {h.n} got the {t2}, and {f.n} got the {obj}.",
                        f"They traded. Now {f.n} had the {obj}, and {h.n} had the {t2}.",
                    ]
                )
            )
            S(self.choice([f"Both were {self.choice(FEELGOOD)} about the trade.", "It was a fair trade."]))
            Q(f"What does {h.n} have now?", f"{h.n} has the {c2} {t2}.")
            Q(f"What does {f.n} have now?", f"{f.n} has the {col} {obj}.")
            Q(f"Who has the {obj} now?", f"{f.n} has the {obj} now.")
        else:
            S(
                self.choice(
                    [
                        f"{h.n} needed {an(obj)} for a trip {TO[p2]}.",
                        f"{h.n} wanted to go {TO[p2]}, but {h.s} had no {obj}.",
                    ]
                )
            )
            S(self.choice([f"{h.S} asked {f.n}, who had {an(O)}.", f"{f.n} had {an(O)} {p3}."]))
            S(
                self.say(
                    f, self.choice(["You may borrow it for one day.", "Please bring it back.", "Be careful with it."])
                )
            )
            S(
                self.choice(
                    [
                        f"{h.n} used the {obj} and kept it clean.",
                        f"{h.n} had a great day {p2}.",
                        f"{cap(p2)}, {h.n} saw {an(self.choice(ANIMALS))} and {an(self.choice(ANIMALS))}.",
                    ]
                )
            )
            S(
                self.choice(
                    [
                        f"In the evening {h.s} brought the {obj} back with some {self.choice(FOODS)}.",
                        f"The next day {h.s} gave the {obj} back.",
                    ]
                )
            )
            Q(f"What did {h.n} borrow?", f"{h.n} borrowed {an(col)} {obj}.")
            Q(f"Who owned the {obj}?", f"{f.n} owned the {obj}.")
            Q(f"Where did {h.n} go?", f"{h.n} went {TO[p2]}.")
        if self.chance(0.25):
            S(self.filler(h))
        S(self.end(h, f))
        if self.chance(0.12):
            S(self.choice(MORAL))
        Q("Who is the story about?", f"The story is about {h.n} the {h.kind}.")
        return (s, qa, dict(h=h, f=f, obj=obj, col=col, plot=pl))

    def facts(self, n):
        r = self.random
        names = r.sample(NAMES, min(n, len(NAMES)))
        objs = r.sample(CARRY, n)
        pls = r.sample(PLACES, min(n, 60))
        fds = r.sample(FOODS, min(n, 48))
        jobs = r.sample(JOBS, min(n, 30))
        L = []
        qa = []
        for i in range(n):
            k = self.choice(["has", "has", "loc", "ploc", "likes", "job", "age"])
            N = names[i]
            o = objs[i]
            if k == "has":
                o = self.pick(lambda: ("has", N, self.choice(objs)))[2] if False else o
                c = self.choice(COLORS)
                L.append(
                    self.choice([f"{N} has {an(c)} {o}.", f"The {c} {o} belongs to {N}.", f"{N} owns {an(c)} {o}."])
                )
                qa += [
                    (self.choice([f"Who has the {o}?", f"Who owns the {o}?"]), f"{N} has the {o}.", "has", N, o),
                    (f"What does {N} have?", f"{N} has {an(c)} {o}.", "has", N, o),
                    (
                        self.choice([f"What color is the {o}?", f"Which color does the {o} have?"]),
                        f"The {o} is {c}.",
                        "has",
                        N,
                        o,
                    ),
                ]
            elif k == "loc":
                p = pls[i % len(pls)]
                L.append(self.choice([f"The {o} is {p}.", f"Someone put the {o} {p}.", f"You can find the {o} {p}."]))
                qa += [
                    (self.choice([f"Where is the {o}?", f"Where can I find the {o}?"]), f"The {o} is {p}.", "loc", o, p)
                ]
                if i < len(pls):
                    qa.append((f"What is {p}?", f"The {o} is {p}.", "loc", o, p))
            elif k == "ploc":
                p = pls[i % len(pls)]
                L.append(self.choice([f"{N} is {p}.", f"{N} went {TO[p]}.", f"{N} lives {p}."]))
                qa += [(f"Where is {N}?", f"{N} is {p}.", "ploc", N, p)]
                if i < len(pls):
                    qa.append((f"Who is {p}?", f"{N} is {p}.", "ploc", N, p))
            elif k == "likes" and i < len(fds):
                f = fds[i]
                L.append(
                    self.choice([f"{N} likes {f}.", f"{N} loves to eat {f}.", f"The favorite food of {N} is {f}."])
                )
                qa += [
                    (f"What does {N} like?", f"{N} likes {f}.", "lk", N, f),
                    (f"Who likes {f}?", f"{N} likes {f}.", "lk", N, f),
                ]
            elif k == "job" and i < len(jobs):
                j = jobs[i]
                L.append(self.choice([f"{N} is {an(j)}.", f"{N} works as {an(j)}."]))
                qa += [
                    (self.choice([f"What is the job of {N}?", f"What does {N} do?"]), f"{N} is {an(j)}.", "job", N, j),
                    (f"Who is the {j}?", f"{N} is the {j}.", "job", N, j),
                ]
            else:
                a = r.randint(2, 99)
                L.append(self.choice([f"{N} is {a} years old.", f"The age of {N} is {a}."]))
                qa += [(f"How old is {N}?", f"{N} is {a} years old.", "age", N, a)]
        good = [(q, a) for q, a, *k in qa if self.ok(*k)]
        r.shuffle(L)
        r.shuffle(good)
        return (L, good)

    def track(self):
        """Who has it last, where is it last."""
        r = self.random
        ns = r.sample(NAMES, 3)
        o, o2 = r.sample(CARRY, 2)
        ps = r.sample(PLACES, 4)
        s = []
        hold = {}
        where = {}
        n0 = self.choice(ns)
        c = self.choice(COLORS)
        s.append(self.choice([f"{n0} picked up the {o}.", f"{n0} took the {o}."]))
        hold[o] = n0
        where[n0] = None
        for _ in range(r.randint(2, 6)):
            k = r.random()
            if k < 0.4:
                n = self.choice(ns)
                p = self.choice(ps)
                s.append(self.choice([f"{n} went {TO[p]}.", f"{n} walked {TO[p]}.", f"Then {n} moved {TO[p]}."]))
                where[n] = p
            elif k < 0.75:
                x = self.choice(list(hold))
                a = hold[x]
                b = self.choice([n for n in ns if n != a])
                s.append(
                    self.choice(
                        [f"{a} gave the {x} to {b}.", f"{a} handed the {x} to {b}.", f"{b} got the {x} from {a}."]
                    )
                )
                hold[x] = b
            elif o2 not in hold:
                n = self.choice(ns)
                s.append(self.choice([f"{n} picked up the {o2}.", f"{n} took the {o2}."]))
                hold[o2] = n
        qa = []
        for x, n in hold.items():
            if self.ok("tr", x, n):
                qa.append((f"Who has the {x} now?", f"{n} has the {x}."))
        for n, p in where.items():
            if p and self.ok("trp", n, p):
                qa.append((f"Where is {n} now?", f"{n} is {p}."))
        r.shuffle(qa)
        return (s, qa)

    def needle(self, n, kind=None):
        r = self.random
        kind = kind or self.choice(["word", "word", "code", "code", "name", "pair"])
        if kind == "pair":
            A = r.sample(KINDADJ, min(len(KINDADJ), max(3, int(n**0.5) + 1)))
            keys = set()
            B = r.sample(ANIMALS + OBJECTS, max(3, int(n**0.5) + 3))
            allk = [a + " " + b for a in A for b in B]
            keys = r.sample(allk, min(n, len(allk)))
        elif kind == "name":
            keys = r.sample(NAMES, min(n, len(NAMES)))
        else:
            keys = r.sample(KEYW, min(n, len(KEYW)))
        if kind == "code":
            vals = ["".join((r.choice("0123456789") for _ in range(4))) for _ in keys]
        elif kind == "pair":
            vals = (
                ["".join((r.choice("0123456789") for _ in range(3))) for _ in keys]
                if self.chance(0.5)
                else [self.choice(KEYW) for _ in keys]
            )
        elif kind == "name":
            vals = (
                [self.choice(COLORS) + " " + self.choice(OBJECTS) for _ in keys]
                if self.chance(0.5)
                else [str(r.randint(100, 999)) for _ in keys]
            )
        else:
            vals = [self.choice(KEYW) for _ in keys]
        fm = r.randrange(6)
        if fm == 4:
            n = min(n, 105)
        keys = keys[:n]
        vals = vals[:n]
        ln = {0: "{}: {}", 1: "{} = {}", 2: "- {}: {}", 3: "{} -> {}", 4: "The code for {} is {}.", 5: "{}, {}"}[fm]
        sep = " " if fm == 4 else "\n"
        txt = sep.join((ln.format(k, v) for k, v in zip(keys, vals)))
        idx = [i for i in range(len(keys)) if self.ok("kv", keys[i], vals[i])] or [0]
        r.shuffle(idx)
        qa = [
            (
                self.choice(
                    [f"What is the value for {keys[i]}?", f"What is the code for {keys[i]}?", f"Look up {keys[i]}."]
                ),
                vals[i],
            )
            for i in idx[:12]
        ]
        intro = self.choice(
            ["Here is a list:\n", "Read this table.\n", "Remember these entries:\n", "These are the codes:\n", ""]
        )
        return (intro, txt, qa, (kind, idx, len(keys)))

    def haystack(self, ntok):
        r = self.random
        s = []
        while sum(map(len, s)) < ntok * 4.1:
            s += self.story()[0]
        kind = self.choice(["secret word", "magic number", "password", "name of the ship", "color of the door"])
        v = {
            "secret word": lambda: self.choice(KEYW),
            "magic number": lambda: str(r.randint(100, 9999)),
            "password": lambda: self.choice(KEYW) + " " + self.choice(KEYW),
            "name of the ship": lambda: self.choice(NAMES),
            "color of the door": lambda: self.choice(COLORS),
        }[kind]
        v = self.pick(lambda: ("hay", kind, v()))[2]
        i = r.randint(0, len(s))
        s.insert(i, f"The {kind} is {v}.")
        return (" ".join(s), (f"What is the {kind}?", v))

    def arith(self, op=None):
        r = self.random
        op = op or self.choice("++--")

        def f():
            a, b = (r.randint(0, 99), r.randint(0, 99))
            if op == "-" and b > a:
                a, b = (b, a)
            return ("ar", op, a, b)

        _, _, a, b = self.pick(f)
        v = a + b if op == "+" else a - b
        q = self.choice(
            [
                f"What is {a} {op} {b}?",
                f"Calculate {a} {op} {b}.",
                f"{a} {op} {b} = ?",
                f"What is {a} {('plus' if op == '+' else 'minus')} {b}?",
            ]
        )
        return (q, str(v), (a, op, b))

    def wordprob(self):
        r = self.random
        N = self.choice(NAMES)
        o = self.choice([f for f in FOODS if f.endswith("s")])
        h = "she" if N in SHE else "he"
        op = self.choice("+-")
        _, _, a, b = self.pick(
            lambda: ("wp", op)
            + (
                (lambda x, y: (max(x, y), min(x, y)))(r.randint(1, 99), r.randint(1, 99))
                if op == "-"
                else (r.randint(1, 99), r.randint(1, 99))
            )
        )
        if op == "+":
            q = self.choice([f"{N} has {a} {o}. Then {h} gets {b} more.", f"{N} had {a} {o} and found {b} more."])
            v = a + b
        else:
            q = self.choice([f"{N} has {a} {o}. {cap(h)} gives away {b}.", f"{N} had {a} {o} and ate {b} of them."])
            v = a - b
        return (q + f" How many {o} does {N} have now?", f"{N} has {v} {o}.")

    def count(self):
        r = self.random
        n = r.randint(1, 12)
        if self.chance(0.5):
            it = [self.choice(LISTW) for _ in range(n)]
            return (
                self.choice(["Count the words: ", "How many words are in this list: "])
                + ", ".join(it)
                + ("" if self.chance(0.5) else "."),
                str(n),
            )
        x = self.choice(LISTW)
        o = r.sample(LISTW, 3)
        k = r.randint(0, 7)
        L = [x] * k + [self.choice(o) for _ in range(r.randint(1, 6))]
        r.shuffle(L)
        k = L.count(x)
        return (f"How many times is {x} in this list: " + ", ".join(L), str(k))

    def lst(self, task=None):
        r = self.random
        task = task or self.choice(
            ["copy", "reverse", "sortw", "sortn", "first", "last", "reverse", "sortw", "sortn", "nth"]
        )
        n = r.randint(3, 8)

        def mk():
            if task == "sortn":
                return [str(x) for x in r.sample(range(0, 100), n)]
            if task != "sortw" and self.chance(0.25):
                return [str(r.randint(0, 99)) for _ in range(n)]
            return r.sample(LISTW, n)

        while True:
            L = mk()
            if self.ok("ls", task, *L):
                break
        t = ", ".join(L)
        if task == "copy":
            return (self.choice(["Repeat this list: ", "Copy this list: ", "Say this again: "]) + t, t)
        if task == "reverse":
            return (self.choice(["Reverse this list: ", "Write this list backwards: "]) + t, ", ".join(L[::-1]))
        if task == "sortw":
            return (self.choice(["Sort these words: ", "Sort this list by the alphabet: "]) + t, ", ".join(sorted(L)))
        if task == "sortn":
            return (
                self.choice(["Sort these numbers: ", "Put these numbers in order: "]) + t,
                ", ".join(sorted(L, key=int)),
            )
        if task == "first":
            return (self.choice(["What is the first item of this list: ", "Give me the first item: "]) + t, L[0])
        if task == "last":
            return (self.choice(["What is the last item of this list: ", "Give me the last item: "]) + t, L[-1])
        k = r.randint(2, min(n, 5))
        return (f"What is item number {k} of this list: " + t, L[k - 1])

    def person(self):
        r = self.random
        N = self.choice(NAMES)
        c = self.choice(COLORS)
        _, _, o = self.pick(lambda: ("js", N, self.choice(CARRY)))
        a = r.randint(2, 99)
        pl = self.choice(PLACES)
        fd = self.choice(FOODS)
        j = self.choice(JOBS)
        return (dict(name=N, age=a, color=c, object=o, place=pl.split(" ", 2)[2], food=fd, job=j), pl)

    def jwrite(self):
        r = self.random
        if self.chance(0.3):
            k = r.randint(2, 4)
            ps = [self.person()[0] for _ in range(k)]
            f = self.choice(["age", "object", "food", "job"])
            s = " ".join(
                (
                    {
                        "age": f"{p['name']} is {p['age']} years old.",
                        "object": f"{p['name']} has {an(p['object'])}.",
                        "food": f"{p['name']} likes {p['food']}.",
                        "job": f"{p['name']} is {an(p['job'])}.",
                    }[f]
                    for p in ps
                )
            )
            return (
                self.choice(
                    [f"Write a JSON list with name and {f}. ", f"Make a JSON list with the keys name and {f}. "]
                )
                + s,
                json.dumps([{"name": p["name"], f: p[f]} for p in ps]),
            )
        p, pl = self.person()
        fs = r.sample(["age", "object", "place", "food", "job"], r.randint(1, 4))
        N = p["name"]
        she = self.chance(0.5)
        s = []
        for f in fs:
            s.append(
                {
                    "age": f"{N} is {p['age']} years old.",
                    "object": f"{N} has {an(p['color'])} {p['object']}.",
                    "place": f"{N} lives {pl}.",
                    "food": f"{N} likes {p['food']}.",
                    "job": f"{N} works as {an(p['job'])}.",
                }[f]
            )
        ks = ["name"] + fs
        if "object" in fs:
            ks.append("color")
        if self.chance(0.4):
            r.shuffle(ks)
        return (
            self.choice([f"Write JSON with the keys {comma(ks)}. ", f"Turn this into JSON with {comma(ks)}. "])
            + " ".join(s),
            json.dumps({k: p[k] for k in ks}),
        )

    def jread(self):
        r = self.random
        p, pl = self.person()
        ks = list(p)
        r.shuffle(ks)
        ks = ks[: r.randint(2, 6)]
        k = self.choice(ks)
        return (
            json.dumps({x: p[x] for x in ks})
            + self.choice([f" What is the {k}?", f" Read the value of {k}.", f"\nWhat is the {k}?"]),
            str(p[k]),
        )

    def know(self):
        k = self.random.randrange(7)
        if k == 0:
            a, b = self.choice(OPP)
            if self.chance(0.5):
                a, b = (b, a)
            return (f"What is the opposite of {a}?", f"The opposite of {a} is {b}.")
        if k == 1:
            a, b = self.choice(SOUND)
            return (
                (
                    self.choice([f"What sound does a {a} make?", f"What does a {a} do?"])
                    if a != "owl"
                    else "What sound does an owl make?"
                ),
                f"{cap(an(a))} {b}.",
            )
        if k == 2:
            a, b = self.choice(THINGCOL)
            return (f"What color is {a}?", f"{cap(a)} is {b}.")
        if k == 3:
            i = self.random.randrange(7)
            return (f"What day comes after {DAYS[i]}?", f"{DAYS[(i + 1) % 7]} comes after {DAYS[i]}.")
        if k == 4:
            i = self.random.randrange(12)
            return (f"What month comes after {MONTHS[i]}?", f"{MONTHS[(i + 1) % 12]} comes after {MONTHS[i]}.")
        if k == 5:
            i = self.random.randrange(21)
            return (f"Write {i} as a word.", NUMW[i])
        g = self.random.randrange(4)
        x = self.choice([ANIMALS, FOODS, COLORS, JOBS][g])
        return (
            f"Is {x} an animal, a food, a color or a job?",
            f"{cap(x)} is {['an animal', 'a food', 'a color', 'a job'][g]}." if g != 1 else f"{cap(x)} is a food.",
        )

    def greet(self):
        return self.choice(
            [
                (
                    self.choice(["Hello!", "Hi!", "Hey there!", "Good morning!", "Hi there."]),
                    "Hello! How can I help you today?",
                ),
                (self.choice(["How are you?", "How do you do?"]), "I am fine, thank you. How can I help you?"),
                (
                    self.choice(["Who are you?", "What are you?"]),
                    "I am a tiny language model. I can tell stories, answer questions and work with lists.",
                ),
                (
                    self.choice(["What can you do?", "Help."]),
                    (
                        "I can tell stories, answer questions about facts, look things up in lists, add small numbers,"
                        " sort lists and write JSON."
                    ),
                ),
                (self.choice(["Thank you!", "Thanks."]), "You are welcome!"),
                (self.choice(["Goodbye!", "Bye.", "See you later."]), "Goodbye! Have a nice day."),
                (
                    self.choice(["Tell me a joke.", "Say something funny."]),
                    "Why did the duck cross the road? To get to the pond on the other side!",
                ),
            ]
        )

    def storyreq(self):
        k = self.random.randrange(5)
        if k <= 1:
            _, a, o = self.pick(lambda: ("st", self.choice(ANIMALS), self.choice(CARRY)))
            s, qa, i = self.story(animal=a, obj=o)
            return (
                self.choice(
                    [
                        f"Tell me a story about {an(a)} and {an(o)}.",
                        f"Write a short story about {an(a)} and {an(o)}.",
                        f"Please tell me a story with {an(a)} and {an(o)}.",
                    ]
                ),
                s,
                qa,
                (a, o),
            )
        if k == 2:
            a, b = self.random.sample(ANIMALS, 2)
            s, qa, i = self.story(animal=a, want2=b)
            return (
                self.choice(
                    [f"Tell me a story about {an(a)} and {an(b)}.", f"Write a story about {an(a)} who meets {an(b)}."]
                ),
                s,
                qa,
                (a, b),
            )
        if k == 3:
            a, b = self.random.sample(NAMES, 2)
            s, qa, i = self.story(name=a, name2=b)
            return (
                self.choice([f"Tell me a story about {a} and {b}.", f"Write a story about {a} and {b}."]),
                s,
                qa,
                (a, b),
            )
        n = self.choice(NAMES)
        o = self.pick(lambda: ("st", n, self.choice(CARRY)))[2]
        s, qa, i = self.story(name=n, obj=o)
        return (
            self.choice([f"Tell me a story about {n} and {an(o)}.", f"Write a short story about {n} and {an(o)}."]),
            s,
            qa,
            (n, o),
        )

    def chat(self, turns, system=None, long0=False):
        """A ChatML document of (question, answer) turns."""
        d = []
        if system is None and self.chance(0.3):
            system = self.choice(SYSTEMS)
        if system:
            d += [(1, 0), ("system\n" + system, 0), (2, 0), ("\n", 0)]
        for u, a in turns:
            d += [
                (1, 0),
                ("user\n" + u, 0),
                (2, 0),
                ("\n", 0),
                (1, 0),
                ("assistant\n", 0),
                (a, 2 if len(a) > 220 else 1),
                (2, 1),
                ("\n", 0),
            ]
        return d + [(0, 1)]

    def prompt(self, turns, u, system=None):
        """The generation prompt after the given turns."""
        d = []
        if system:
            d += [(1, 0), ("system\n" + system, 0), (2, 0), ("\n", 0)]
        for x, a in turns:
            d += [(1, 0), ("user\n" + x, 0), (2, 0), ("\n", 0), (1, 0), ("assistant\n", 0), (a, 0), (2, 0), ("\n", 0)]
        return d + [(1, 0), ("user\n" + u, 0), (2, 0), ("\n", 0), (1, 0), ("assistant\n", 0)]

    def qaturns(self, ctx, qa, kmax, after=True):
        k = self.random.randint(1, min(kmax, len(qa)))
        q = qa[:k]
        first = ctx + self.choice(["\n\n", "\n", " "]) + q[0][0] if self.chance(0.85) else q[0][0] + "\n\n" + ctx
        return [(first, q[0][1])] + [(self.choice(["", "", "And "]) + x if False else x, a) for x, a in q[1:]]

    def nlen(self, hi=150):
        return max(3, int(3 * (hi / 3) ** self.random.random()))

    def doc(self):
        r = self.random
        x = r.random()
        for name, p in self.mix:
            x -= p
            if x < 0:
                break
        d = getattr(self, "d_" + name)()
        return (name, d)

    def d_story(self):
        s, _, i = self.story()
        t = " ".join(s)
        if self.chance(0.3):
            s2, _, _ = self.story(name=i["h"].n, animal=i["h"].kind, name2=i["f"].n, want2=i["f"].kind)
            t += (
                self.choice(["\n\n", " "])
                + self.choice(
                    [
                        "The next day, something else happened. ",
                        "Some time later, there was another adventure. ",
                        "And this is what happened next. ",
                    ]
                )
                + " ".join(s2[1:])
            )
        if self.chance(0.15):
            t = f"The {cap(i['h'].kind)} and the {cap(i['obj'])}\n\n" + t
        return [(t, 2), (0, 1)]

    def d_chatstory(self):
        q, s, qa, _ = self.storyreq()
        t = [(q, " ".join(s))]
        self.random.shuffle(qa)
        for x in qa[: self.choice([0, 1, 2, 3])]:
            t.append(x)
        if self.chance(0.2):
            t.append(self.choice([("Thank you!", "You are welcome!"), ("Thanks.", "You are welcome!")]))
        if self.chance(0.15):
            t = [self.greet()] + t
        return self.chat(t)

    def d_storyqa(self):
        s, qa, _ = self.story()
        self.random.shuffle(qa)
        return self.chat(
            self.qaturns(self.choice(["Read this story. ", "", "", "Here is a story. "]) + " ".join(s), qa, 4)
        )

    def d_facts(self):
        while True:
            L, qa = self.facts(self.nlen(40))
            if qa:
                break
        if self.chance(0.15):
            return (
                [(" ".join(L) + " ", 0)]
                + [z for q, a in qa[:5] for z in (("\nQuestion: " + q + "\nAnswer:", 0), (" " + a, 1))]
                + [("\n", 1), (0, 1)]
            )
        return self.chat(
            self.qaturns(
                self.choice(["", "", "Facts: ", "Here are some facts. "]) + self.choice([" ", " ", "\n"]).join(L), qa, 8
            )
        )

    def d_track(self):
        while True:
            s, qa = self.track()
            if qa:
                break
        return self.chat(self.qaturns(" ".join(s), qa, 4))

    def d_needle(self):
        i, t, qa, _ = self.needle(self.nlen(150))
        k = self.random.randint(3, 12)
        qa = qa[:k]
        if self.chance(0.1):
            return (
                [(i + t, 0)]
                + [z for q, a in qa for z in (("\nQuestion: " + q + "\nAnswer:", 0), (" " + a, 1))]
                + [("\n", 1), (0, 1)]
            )
        return self.chat([(i + t + self.choice(["\n\n", "\n"]) + qa[0][0], qa[0][1])] + qa[1:])

    def chain(self, n, hops=None):
        r = self.random
        it = r.sample(KEYW, n)
        nx = dict(zip(it, it[1:] + it[:1]))
        L = [f"{a} -> {b}" for a, b in nx.items()]
        r.shuffle(L)
        qa = []
        seen = set()
        for _ in range(60):
            a = self.choice(it)
            h = hops or self.choice([1, 1, 2, 2, 2, 3, 3, 4])
            b = a
            for _ in range(h):
                b = nx[b]
            if (a, h) not in seen and self.ok("ch", a, b):
                seen.add((a, h))
                qa.append((f"Start at {a} and go {h} step{('s' if h > 1 else '')}.", b))
        return ("\n".join(L), qa)

    def d_chain(self):
        while True:
            t, qa = self.chain(self.random.randint(4, 14))
            if qa:
                break
        qa = qa[: self.random.randint(4, 12)]
        return self.chat([(self.choice(["", "Follow the arrows.\n"]) + t + "\n\n" + qa[0][0], qa[0][1])] + qa[1:])

    def d_hay(self):
        t, (q, a) = self.haystack(self.nlen(300) * 4)
        return self.chat([(t + self.choice(["\n\n", "\n", " "]) + q, a)])

    def multi(self, f, k):
        return self.chat([f()[:2] for _ in range(self.random.randint(1, k))])

    def d_arith(self):
        if self.chance(0.15):
            return [
                z
                for _ in range(self.random.randint(2, 8))
                for z in (lambda q: ((f"{q[2][0]} {q[2][1]} {q[2][2]} =", 0), (" " + q[1], 1), ("\n", 1)))(self.arith())
            ] + [(0, 1)]
        if self.chance(0.25):
            q, a, _ = self.arith()
            t = [(q, a)]
            v = int(a)
            for _ in range(self.random.randint(1, 3)):
                b = self.random.randint(1, 30)
                op = self.choice("+-")
                n = v + b if op == "+" else v - b
                if n < 0 or n > 199:
                    break
                t.append((f"Now {('add' if op == '+' else 'subtract')} {b}.", str(n)))
                v = n
            return self.chat(t)
        return self.multi(self.arith, 5)

    def d_word(self):
        return self.multi(self.wordprob, 4)

    def d_count(self):
        return self.multi(self.count, 4)

    def d_lists(self):
        return self.multi(self.lst, 4)

    def d_json(self):
        return self.multi(self.choice([self.jwrite, self.jwrite, self.jread]), 3)

    def d_know(self):
        return self.multi(self.know, 4)

    def d_greet(self):
        if self.chance(0.35):
            n = self.choice(NAMES)
            return self.chat(
                [self.choice([("What is your name?", f"My name is {n}."), ("Who are you?", f"My name is {n}.")])]
                + ([self.know()] if self.chance(0.4) else []),
                system=self.choice(
                    [f"Your name is {n}.", f"Your name is {n}. Answer briefly.", f"You are called {n}."]
                ),
            )
        return self.chat(
            [self.greet()]
            + [
                self.choice([self.know, self.greet, lambda: self.arith()[:2], lambda: self.lst()])()
                for _ in range(self.random.randint(0, 2))
            ]
        )

    def d_mixed(self):
        """A long conversation of unrelated turns."""
        t = []
        for _ in range(self.random.randint(2, 6)):
            t.append(
                self.choice(
                    [
                        self.know,
                        lambda: self.arith()[:2],
                        self.lst,
                        self.jread,
                        self.jwrite,
                        self.wordprob,
                        self.count,
                        self.greet,
                    ]
                )()
            )
        return self.chat(t)


# (document type, probability)
MIX = [
    ("story", 0.13),
    ("chatstory", 0.1),
    ("storyqa", 0.08),
    ("facts", 0.09),
    ("track", 0.05),
    ("needle", 0.11),
    ("hay", 0.02),
    ("arith", 0.12),
    ("word", 0.05),
    ("count", 0.05),
    ("lists", 0.11),
    ("json", 0.05),
    ("know", 0.01),
    ("greet", 0.01),
    ("mixed", 0.02),
]
# for looped models: adds pointer chasing
MIX_CHAIN = [(k, p * 0.91) for k, p in MIX] + [("chain", 0.09)]
TASKS = [
    "story_qa",
    "facts_qa",
    "facts_long",
    "track",
    "needle_short",
    "needle_mid",
    "needle_long",
    "needle_pair",
    "hay_long",
    "add",
    "sub",
    "word",
    "count",
    "copy",
    "reverse",
    "sort_words",
    "sort_nums",
    "pick",
    "json_write",
    "json_read",
    "chat",
    "chain1",
    "chain2",
    "chain3",
    "chain4",
]


def tests(task, n, seed=990000):
    """n held-out prompts of a task, each {task, prompt (a document), answer}."""
    world = World(f"test-{task}-{seed}", test=True)
    out = []
    r = world.random

    def one(q, a, turns=()):
        out.append(dict(task=task, prompt=world.prompt(list(turns), q), answer=a))

    while len(out) < n:
        if task == "story_qa":
            s, qa, _ = world.story()
            q, a = world.choice(qa)
            one(" ".join(s) + "\n\n" + q, a)
        elif task in ("facts_qa", "facts_long"):
            L, qa = world.facts(r.randint(4, 12) if task == "facts_qa" else r.randint(50, 60))
            if qa:
                one(" ".join(L) + "\n\n" + qa[0][0], qa[0][1])
        elif task == "track":
            s, qa = world.track()
            if qa:
                one(" ".join(s) + "\n\n" + qa[0][0], qa[0][1])
        elif task.startswith("needle"):
            k = {"needle_short": (8, 24), "needle_mid": (60, 80), "needle_long": (100, 140), "needle_pair": (60, 80)}[
                task
            ]
            i, t, qa, (kd, idx, m) = world.needle(
                r.randint(*k), "pair" if task == "needle_pair" else world.choice(["word", "code"])
            )
            if m >= k[0] and idx != [0]:
                one(i + t + "\n\n" + qa[0][0], qa[0][1])
        elif task.startswith("chain"):
            t, qa = world.chain(r.randint(8, 12), int(task[5]))
            if qa:
                one(t + "\n\n" + qa[0][0], qa[0][1])
        elif task == "hay_long":
            t, (q, a) = world.haystack(r.randint(900, 1150))
            one(t + "\n\n" + q, a)
        elif task in ("add", "sub"):
            q, a, _ = world.arith("+" if task == "add" else "-")
            one(q, a)
        elif task == "word":
            one(*world.wordprob())
        elif task == "count":
            one(*world.count())
        elif task == "copy":
            one(*world.lst("copy"))
        elif task == "reverse":
            one(*world.lst("reverse"))
        elif task == "sort_words":
            one(*world.lst("sortw"))
        elif task == "sort_nums":
            one(*world.lst("sortn"))
        elif task == "pick":
            one(*world.lst(world.choice(["first", "last", "nth"])))
        elif task == "json_write":
            one(*world.jwrite())
        elif task == "json_read":
            one(*world.jread())
        elif task == "chat":
            if world.chance(0.3):
                nm = world.choice(NAMES)
                d = world.prompt([], "What is your name?", system=f"Your name is {nm}.")
                out.append(dict(task=task, prompt=d, answer=f"My name is {nm}."))
            elif world.chance(0.5):
                one(*world.greet())
            else:
                one(*world.know())
    return out
