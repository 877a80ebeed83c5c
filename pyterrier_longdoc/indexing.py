"""Encoding a whole collection into a FlexIndex, in parts that survive a kill.

``(encoder >> FlexIndex(path)).index(corpus)`` and :func:`build_index` cut the collection into shards of so many
documents. A shard is encoded on its own and written in one step, so its vectors do not depend on how often the work was
cut off, nor by whom the shard was done: processes that are started with ``RANK`` and ``WORLD_SIZE`` in their
environment (``torchrun``, ``accelerate launch``, SLURM scripts) take turns. Whoever finds the last shard done joins
them. The index says whose vectors of what documents it holds, so that another encoder is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt
from pyterrier_dr import FlexIndex

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.frames import strings
from pyterrier_longdoc.index_scorer import provenance

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder

_META, _SETTINGS = "pt_meta.json", "settings.json"
#: Documents of a shard.
_SHARD = 5_000
#: Bytes of a hash of documents.
_DIGEST = 16


class IndexingPipeline(pt.Compose):
    """What ``encoder >> FlexIndex(path)`` is: its ``index`` is :func:`build_index`."""

    def index(self, iter: Iterable[Mapping[str, Any]] | pd.DataFrame, batch_size: int | None = None) -> FlexIndex:  # noqa: A002 (PyTerrier's name)
        """Encodes a collection into the index; called again after a kill, it goes on where it was.

        Args:
            iter: As ``corpus`` of :func:`build_index`.
            batch_size: Documents of a shard, 5,000 if ``None``.

        Returns:
            The index of the pipeline.
        """
        encoder, index = self
        size = _SHARD if batch_size is None else batch_size
        build_index(encoder, iter, index.index_path, shard_size=size, verbose=index.verbose)
        return index


def build_index(
    encoder: DualEncoder,
    corpus: Iterable[Mapping[str, Any]] | pd.DataFrame,
    path: str | Path,
    *,
    shard_size: int = _SHARD,
    rank: int | None = None,
    world_size: int | None = None,
    verbose: bool = True,
) -> FlexIndex:
    """Encodes a collection into a new FlexIndex; called again after a kill, it goes on where it was.

    Shards that are done lie in ``<path>.shards`` until they are joined. The index is the same bit for bit as if
    nothing had happened, and whatever the number of processes.

    Args:
        encoder: The encoder.
        corpus: Documents with ``docno`` and the encoder's text field, the same in the same order in every call and
            process.
        path: Directory of the index; ``<path>.shards`` must be free, or be of an earlier call.
        shard_size: Documents of a shard: what is lost at most by a kill.
        rank: Number of this process; ``RANK`` of the environment, or 0.
        world_size: Number of processes; ``WORLD_SIZE`` of the environment, or 1.
        verbose: Whether to show progress.

    Returns:
        The index. While other processes still work on their shards it is not there yet (``index.built()``); the last
        one to finish joins the shards.

    Raises:
        ValueError: If the collection is empty, holds a docno twice or differs from the one that was begun with; if
            ``path`` or the place of the shards holds an index or shards of another encoder or other documents, or
            anything else; or if an option is out of range.
    """
    path = Path(path)
    rank, world_size = _place(rank, world_size)
    check_whole("shard_size", shard_size)
    shards = path.with_name(path.name + ".shards")
    settings = {**provenance(encoder), "text_field": encoder.text_field, "shard_size": int(shard_size)}
    settings |= {"dtype": str(encoder.dtype)}
    if path.exists():
        index = _finished(encoder, corpus, path)
        if (shards / _SETTINGS).exists():  # of a process that was killed just before it removed them
            shutil.rmtree(shards, ignore_errors=True)
        return index
    try:
        _claim(shards, settings)
        files, content = _encode_shards(encoder, corpus, shards, shard_size, rank, world_size, verbose)
        if all(file.exists() for file in files):
            _join(files, {"encoder": provenance(encoder), "documents": content}, path)
            shutil.rmtree(shards, ignore_errors=True)
    except FileNotFoundError:  # another process was done with everything, and removed the shards
        if not path.exists():
            raise
    return FlexIndex(path, verbose=verbose)


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    world_size = int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size
    rank = int(os.environ.get("RANK", 0)) if rank is None else rank
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1, got rank={rank}, world_size={world_size}")
    return rank, world_size


def _finished(encoder: DualEncoder, corpus: Any, path: Path) -> FlexIndex:  # noqa: ANN401
    """The index at a path, if it was built by this function, of this encoder and these documents."""
    if not (path / _META).exists():
        raise ValueError(f"{path} exists and is no index; choose another path")
    index = FlexIndex(path)
    (meta,) = index.payload(return_dvecs=False, return_docnos=False)
    if meta.get("encoder") != provenance(encoder):
        raise ValueError(
            f"{path} already holds an index, of {meta.get('encoder', 'an unknown encoder')}; this is "
            f"{provenance(encoder)}. Choose another path, or remove it"
        )
    content = blake2b(digest_size=_DIGEST)
    for documents in _parts(corpus, _SHARD):
        _check_columns(encoder, documents)
        content.update(_hashes(encoder, documents))
    if meta["documents"] != content.hexdigest():
        raise ValueError(f"{path} already holds an index of other documents. Choose another path, or remove it")
    return index


def _encode_shards(
    encoder: DualEncoder, corpus: Any, shards: Path, size: int, rank: int, world_size: int, verbose: bool  # noqa: ANN401
) -> tuple[list[Path], str]:
    """Writes the shards of this process that are not there yet; returns the files of all, and a hash of what is in."""
    files: list[Path] = []
    seen: set[str] = set()
    content = blake2b(digest_size=_DIGEST)
    total = len(corpus) if hasattr(corpus, "__len__") else None
    with pt.tqdm(total=total, desc=f"{type(encoder).__name__} indexes", unit="doc", disable=not verbose) as bar:
        for number, documents in enumerate(_parts(corpus, size)):
            file = shards / f"{number:06d}.npz"
            _check_columns(encoder, documents)
            _check_new(documents["docno"], seen)
            hashes = _hashes(encoder, documents)
            content.update(hashes)
            if file.exists():
                _check_shard(file, hashes)
            elif number % world_size == rank:
                _write_shard(file, encoder, documents, hashes)
            files.append(file)
            bar.update(len(documents))
    if not files:
        raise ValueError("the collection holds no documents")
    return files, content.hexdigest()


def _claim(shards: Path, settings: dict[str, Any]) -> None:
    """Makes sure that all shards of a directory are encoded alike."""
    shards.mkdir(parents=True, exist_ok=True)
    file = shards / _SETTINGS
    foreign = [each.name for each in shards.iterdir() if _SETTINGS not in each.name]  # the settings are written first
    if not file.exists():
        if foreign:
            raise ValueError(f"{shards} is where shards would lie, but holds {foreign[0]!r}; choose another path")
        _write(file, lambda path: path.write_text(json.dumps(settings), encoding="utf-8"))
    found = json.loads(file.read_text(encoding="utf-8"))
    if found != settings:
        raise ValueError(
            f"{shards} holds shards of another encoder or other settings: {found}; this is {settings}. Remove it to "
            "begin anew"
        )


def _parts(corpus: Iterable[Mapping[str, Any]] | pd.DataFrame, size: int) -> Iterator[pd.DataFrame]:
    if isinstance(corpus, pd.DataFrame):
        yield from (corpus.iloc[first : first + size] for first in range(0, len(corpus), size))
        return
    documents = iter(corpus)
    while part := list(islice(documents, size)):
        yield pd.DataFrame(part)


def _check_columns(encoder: DualEncoder, documents: pd.DataFrame) -> None:
    pt.validate.columns(documents, includes=["docno", encoder.text_field], context=encoder)
    wrong = ~documents["docno"].map(lambda docno: isinstance(docno, str)).to_numpy(bool)
    if wrong.any():
        raise ValueError(f"a docno must be a string, got {documents['docno'].iloc[int(wrong.argmax())]!r}")


def _check_new(docnos: pd.Series, seen: set[str]) -> None:
    """Refuses a docno that was there before, and remembers all."""
    for docno in docnos:
        if docno in seen:
            raise ValueError(f"the collection holds docno {docno!r} twice")
        seen.add(docno)


def _hashes(encoder: DualEncoder, documents: pd.DataFrame) -> bytes:
    """The hashes of documents, one behind the other."""
    found = []
    for docno, text in zip(documents["docno"], documents[encoder.text_field], strict=True):
        digest = blake2b(digest_size=_DIGEST)
        for part in (docno, "" if pd.isna(text) else str(text)):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        found.append(digest.digest())
    return b"".join(found)


def _write_shard(shard: Path, encoder: DualEncoder, documents: pd.DataFrame, hashes: bytes) -> None:
    vectors = encoder.encode_docs(strings(documents, encoder.text_field, encoder))
    docnos = json.dumps(list(documents["docno"]))

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, vectors=vectors, docnos=docnos, hashes=np.frombuffer(hashes, np.uint8))

    _write(shard, write)


def _check_shard(shard: Path, hashes: bytes) -> None:
    with np.load(shard, allow_pickle=False) as done:
        if done["hashes"].tobytes() != hashes:
            raise ValueError(
                f"{shard} was encoded from other documents than the collection has there now; the order of documents "
                f"must be the same in every call. Remove {shard.parent} to begin anew"
            )


def _write(path: Path, write: Any) -> None:  # noqa: ANN401
    """Writes a file beside its place, then moves it there in one step."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        write(Path(name))
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _join(shards: list[Path], origin: dict[str, Any], path: Path) -> None:
    """Makes the index among the shards, where a kill leaves nothing, and moves it to its place, if that is free.

    Args:
        shards: The files of all shards.
        origin: What the index says of where its vectors come from.
        path: The place.
    """
    fresh = Path(tempfile.mkdtemp(prefix=".index.", dir=shards[0].parent))
    try:
        index = FlexIndex(fresh / "index", verbose=False)
        index.index(_records(shards))
        meta = json.loads((index.index_path / _META).read_text(encoding="utf-8")) | origin
        (index.index_path / _META).write_text(json.dumps(meta), encoding="utf-8")
        try:
            os.rename(index.index_path, path)
        except OSError:
            if not (path / _META).exists():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _records(shards: list[Path]) -> Iterator[dict[str, Any]]:
    for shard in shards:
        with np.load(shard, allow_pickle=False) as done:
            vectors, docnos = done["vectors"], json.loads(str(done["docnos"]))
        for docno, vector in zip(docnos, vectors, strict=True):
            yield {"docno": docno, "doc_vec": vector}
