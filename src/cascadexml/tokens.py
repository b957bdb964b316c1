"""Texts in, token ids out: ragged, without special tokens, computed once and memory-mapped from a cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cascadexml.texts import Texts

if TYPE_CHECKING:
    import tokenizers

CHUNK = 4096
"""documents handed to the tokenizer library at a time"""


@dataclass(frozen=True)
class Template:
    """What stands around a document's own tokens, so that documents can be shortened after they were tokenised."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    empty: int
    """the one special token that an empty text becomes where the tokenizer adds none"""
    padding: int
    cls_position: int | None
    """of the `cls` token: from the start (0, 1, ...), from the end (-1, ...), or None where it has none"""

    @property
    def num_special(self) -> int:
        return len(self.prefix) + len(self.suffix)


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A fast tokenizer with its truncation and padding switched off, and its template."""

    backend: tokenizers.Tokenizer
    template: Template

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256((self.backend.to_str() + json.dumps(asdict(self.template))).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self.backend.to_str(), encoding="utf-8")
        (folder / "template.json").write_text(json.dumps(asdict(self.template), indent=1), encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Tokenizer:
        """What `save` wrote; needs neither transformers nor the encoder."""
        from tokenizers import Tokenizer as Backend

        fields = json.loads((folder / "template.json").read_text(encoding="utf-8"))
        fields |= {"prefix": tuple(fields["prefix"]), "suffix": tuple(fields["suffix"])}
        return Tokenizer(Backend.from_file(str(folder / "tokenizer.json")), Template(**fields))


def tokenizer_of(hugging_face_tokenizer: Any) -> Tokenizer:
    """Any Hugging Face tokenizer with a fast backend."""
    backend = getattr(hugging_face_tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(
            f"{type(hugging_face_tokenizer).__name__} has no fast tokenizer (tokenizer.json): convert it with "
            "transformers' AutoTokenizer(..., use_fast=True) and save it into the encoder's folder"
        )
    from tokenizers import Tokenizer as Backend

    # a copy, since the packaged MiniLM's carries truncation at 128 and padding to 128 that would hide every longer text
    backend = Backend.from_str(backend.to_str())
    backend.no_truncation()
    backend.no_padding()
    return Tokenizer(backend, _template(backend, hugging_face_tokenizer))


def _template(backend: tokenizers.Tokenizer, hugging_face_tokenizer: Any) -> Template:
    body = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    start = next((i for i in range(len(whole) - len(body) + 1) if whole[i : i + len(body)] == body), None)
    if start is None:
        raise ValueError("the tokenizer changes a text's own tokens when it adds special ones: this is not supported")
    prefix, suffix = tuple(whole[:start]), tuple(whole[start + len(body) :])
    special: dict[str, int | None] = {
        name: getattr(hugging_face_tokenizer, f"{name}_token_id", None) for name in ("cls", "eos", "bos", "unk", "pad")
    }
    cls_position = None
    if special["cls"] in prefix:
        cls_position = prefix.index(special["cls"])
    elif special["cls"] in suffix:
        cls_position = suffix.index(special["cls"]) - len(suffix)
    known = [token for name in ("eos", "bos", "unk", "pad") if (token := special[name]) is not None] or [0]
    padding = special["pad"] if special["pad"] is not None else known[0]
    return Template(prefix, suffix, known[0], padding, cls_position)


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Each document's own tokens, one after the other, cut so that limit tokens hold them with the special ones."""

    ids: np.ndarray
    """uint16 or int32"""
    offsets: np.ndarray
    """int64, one more than documents"""
    template: Template
    limit: int
    num_cut: int
    """documents that had more tokens"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, limit: int | None = None) -> np.ndarray:
        """Tokens of each document as the encoder will see them, special ones included; never 0."""
        body = np.minimum(np.diff(self.offsets), self._body_limit(limit))
        return np.maximum(body + self.template.num_special, 1)

    def pack(self, rows: np.ndarray, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (int64) of `rows`, packed without padding, and their lengths."""
        template = self.template
        body = np.minimum((self.offsets[rows + 1] - self.offsets[rows]), self._body_limit(limit))
        lengths = np.maximum(body + template.num_special, 1)
        starts = np.cumsum(lengths) - lengths
        packed = np.full(int(lengths.sum()), template.empty, dtype=np.int64)
        for position, token in enumerate(template.prefix):
            packed[starts + position] = token
        for position, token in enumerate(template.suffix):
            packed[starts + lengths - len(template.suffix) + position] = token
        within = np.arange(int(body.sum())) - np.repeat(np.cumsum(body) - body, body)
        target = np.repeat(starts + len(template.prefix), body) + within
        packed[target] = self.ids[np.repeat(self.offsets[rows], body) + within]
        return packed, lengths

    def _body_limit(self, limit: int | None) -> int:
        limit = self.limit if limit is None else min(limit, self.limit)
        return max(limit - self.template.num_special, 0)

    def take(self, rows: np.ndarray) -> TokenStore:
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.repeat(np.asarray(self.offsets)[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return TokenStore(self.ids[source], offsets, self.template, self.limit, self.num_cut)

    def followed_by(self, other: TokenStore) -> TokenStore:
        ids = np.concatenate([self.ids, other.ids])
        offsets = np.concatenate([self.offsets, np.asarray(other.offsets[1:]) + self.offsets[-1]])
        return TokenStore(ids, offsets, self.template, self.limit, self.num_cut + other.num_cut)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "ids.npy", self.ids)
        np.save(folder / "offsets.npy", self.offsets)
        about = {"limit": self.limit, "num_cut": self.num_cut}
        (folder / "tokens.json").write_text(json.dumps(about), encoding="utf-8")

    @staticmethod
    def load(folder: Path, template: Template) -> TokenStore:
        about = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
        ids = np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False)
        offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
        return TokenStore(ids, offsets, template, about["limit"], about["num_cut"])


def tokenise(texts: Texts, tokenizer: Tokenizer, limit: int) -> TokenStore:
    """All texts, by the library's own threads, in memory."""
    if limit <= tokenizer.template.num_special:
        raise ValueError(
            f"--max-tokens {limit} leaves no room beside the encoder's "
            f"{tokenizer.template.num_special} special tokens: give at least {tokenizer.template.num_special + 1}"
        )
    kind = np.uint16 if tokenizer.backend.get_vocab_size() <= 1 << 16 else np.int32
    body_limit = limit - tokenizer.template.num_special
    pieces: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    num_cut = 0
    for ids, chunk_lengths in _tokenised_chunks(texts, tokenizer, body_limit, kind):
        pieces.append(ids)
        num_cut += int((chunk_lengths > body_limit).sum())
        lengths.append(np.minimum(chunk_lengths, body_limit))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([[], *lengths]))]).astype(np.int64)
    flat = np.concatenate(pieces) if pieces else np.empty(0, kind)
    return TokenStore(flat, offsets, tokenizer.template, limit, num_cut)


def _tokenised_chunks(
    texts: Texts, tokenizer: Tokenizer, body_limit: int, kind: Any
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for chunk in texts.chunks(CHUNK):
        # the "fast" call leaves out character offsets, which nothing here reads
        encodings = tokenizer.backend.encode_batch_fast(chunk, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        kept = np.minimum(lengths, body_limit)
        flat = np.fromiter((token for row in rows for token in row[:body_limit]), kind, int(kept.sum()))
        yield flat, lengths


def tokenise_cached(texts: Texts, tokenizer: Tokenizer, limit: int, cache: Path | None = None) -> TokenStore:
    """As `tokenise`, kept in a folder named by a hash of texts, tokenizer and limit."""
    cache = cache or cache_folder() / "tokens"
    folder = cache / _cache_key(texts, tokenizer, limit)
    if not (folder / "tokens.json").exists():
        store = tokenise(texts, tokenizer, limit)
        cache.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=cache, prefix="unfinished-"))
        try:
            store.save(temporary)
            temporary.rename(folder)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            by_another_process = isinstance(error, OSError) and (folder / "tokens.json").exists()
            if not by_another_process:
                raise
    return TokenStore.load(folder, tokenizer.template)


def cache_folder() -> Path:
    """`$CASCADEXML_CACHE`, else the user's cache folder."""
    given = os.environ.get("CASCADEXML_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cascadexml"


def _cache_key(texts: Texts, tokenizer: Tokenizer, limit: int) -> str:
    digest = hashlib.sha256(f"1 {limit} {tokenizer.fingerprint} {len(texts)}".encode())
    digest.update(np.ascontiguousarray(texts.offsets))
    digest.update(np.ascontiguousarray(texts.buffer))
    return digest.hexdigest()[:32]
