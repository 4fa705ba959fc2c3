"""Encodes generated documents: the tokenizer's own pre-tokenization on ASCII text, with a cache of words."""
import re

# Digits one by one, then the byte-level pattern.
PATTERN = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s+(?![^\s0-9])|\s+")
CLASS_SHIFT = 12  # a packed word is id | weight class << 12
ID_MASK = (1 << CLASS_SHIFT) - 1


class Encoder:
    def __init__(self, tokenizer):
        """`tokenizer` is a tokenizers.Tokenizer."""
        self.tokenizer = tokenizer
        self.cache = {}

    @classmethod
    def from_file(cls, path):
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(path)))

    def text(self, text):
        ids = []
        for word in PATTERN.findall(text):
            found = self.cache.get(word)
            if found is None:
                found = self.cache[word] = self.tokenizer.encode(word, add_special_tokens=False).ids
            ids += found
        return ids

    def packed(self, document):
        """Packed words of a document, a list of (text or special token id, weight class)."""
        words = []
        for part, weight_class in document:
            bits = weight_class << CLASS_SHIFT
            words += [part | bits] if isinstance(part, int) else [token | bits for token in self.text(part)]
        return words

    def ids(self, document):
        return [word & ID_MASK for word in self.packed(document)]
