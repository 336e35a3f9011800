"""A byte-level byte-pair tokenizer, with files as GPT-2's: vocab.json and merges.txt."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

# Endings such as 'll; letters, digits or signs with the space before them; spaces, the last of which goes with them.
WORD = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def printable() -> dict[int, str]:
    """Returns a character for each byte: its own where it shows, else one from 256 on, so that files are readable."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


class Tokenizer:
    """Text to numbers of tokens and back. Merges, in their order, join two tokens that often stand together."""

    def __init__(self, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
        self.vocabulary, self.merges = vocabulary, merges
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.token = {i: token for token, i in vocabulary.items()}
        self.character = printable()
        self.byte = {c: b for b, c in self.character.items()}
        self.known: dict[str, list[int]] = {}  # words that were split before

    @staticmethod
    def join(parts: list[str], pair: tuple[str, str]) -> list[str]:
        """Returns the parts of a word with each occurrence of a pair as one."""
        out: list[str] = []
        for part in parts:
            if out and (out[-1], part) == pair:
                out[-1] += part
            else:
                out.append(part)
        return out

    @classmethod
    def learn(cls, text: str, merges: int) -> Tokenizer:
        """Returns a tokenizer that has joined the most frequent pair of a text, again and again."""
        character = printable()
        counts = Counter(WORD.findall(text))
        words = [([character[b] for b in word.encode()], n) for word, n in counts.items()]
        found: list[tuple[str, str]] = []
        for _ in range(merges):
            pairs: Counter[tuple[str, str]] = Counter()
            for parts, n in words:
                for pair in pairwise(parts):
                    pairs[pair] += n
            if not pairs:
                break
            best = max(pairs, key=lambda p: (pairs[p], p))
            found.append(best)
            words = [(cls.join(parts, best) if best[0] in parts else parts, n) for parts, n in words]
        tokens = [*character.values(), *("".join(pair) for pair in found), "<|endoftext|>"]
        return cls({token: i for i, token in enumerate(dict.fromkeys(tokens))}, found)

    def encode(self, text: str) -> list[int]:
        return [number for word in WORD.findall(text) for number in self.split(word)]

    def split(self, word: str) -> list[int]:
        """Returns the numbers of the tokens of a word."""
        if word not in self.known:
            parts = [self.character[b] for b in word.encode()]
            while len(parts) > 1:
                first = min(pairwise(parts), key=lambda pair: self.rank.get(pair, len(self.rank)))
                if first not in self.rank:
                    break
                parts = self.join(parts, first)
            self.known[word] = [self.vocabulary[part] for part in parts]
        return self.known[word]

    def decode(self, numbers: list[int]) -> str:
        parts = "".join(self.token[i] for i in numbers)
        return bytes(self.byte[c] for c in parts).decode(errors="replace")

    def save(self, folder: Path) -> None:
        (folder / "vocab.json").write_text(json.dumps(self.vocabulary, ensure_ascii=False), encoding="utf-8")
        lines = ["#version: 0.2", *(" ".join(pair) for pair in self.merges)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        return cls(vocabulary, [tuple(line.split()) for line in lines if line and not line.startswith("#version")])
