"""Loaders of document pairs: JSON lines, tables of ids, the files of gwikimatch, and judged collections.

All give the frame that :mod:`pyterrier_longdoc.pairs` works with: ``id_a, text_a, id_b, text_b, label``.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.data.fields import Dataset, text_loader
from pyterrier_longdoc.pairs import as_pairs

#: What the sections of a document of gwikimatch are joined by: paragraphs stay paragraphs.
_SECTIONS = "\n\n"


def read_json_pairs(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    documents: pd.DataFrame | Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Reads pairs from JSON lines, one object a pair; ``.gz`` files too.

    Args:
        path: The file.
        columns: Name in the file -> name here (``text_a``, ``text_b``, ``label``, ``id_a``, ``id_b``) if other.
        documents: Texts of the ids, if the pairs hold ids only; see :func:`pyterrier_longdoc.pairs.as_pairs`.

    Raises:
        ValueError: If a line is no JSON object, or lacks something.
    """
    rows = []
    with _open(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: a JSON object is needed, found {type(row).__name__}")
            rows.append(row)
    return as_pairs(pd.DataFrame(rows).rename(columns=dict(columns or {})), documents)


def read_id_pairs(path: str | Path, documents: pd.DataFrame | Mapping[str, str]) -> pd.DataFrame:
    """Reads pairs of ids from a file with three columns, ``id_a TAB id_b TAB label``; ``.gz`` files too.

    Args:
        path: The file.
        documents: Texts of the ids; see :func:`pyterrier_longdoc.pairs.as_pairs`.

    Raises:
        ValueError: If a line has another form, or an id no text.
    """
    rows = []
    with _open(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            parts = line.rstrip("\r\n").split("\t")
            try:
                source, candidate, label = parts
                rows.append((source, candidate, float(label)))
            except ValueError:
                found = repr(line.rstrip()[:60])
                raise ValueError(f"{path}, line {number}: not 'id_a TAB id_b TAB label': {found}") from None
    return as_pairs(pd.DataFrame(rows, columns=["id_a", "id_b", "label"]), documents)


def read_gwikimatch(path: str | Path) -> pd.DataFrame:
    """Reads a file of gwikimatch, the data that was released with SMITH, without TensorFlow.

    The files are TFRecords of the protocol buffer ``WikiDocPair``; checksums are not checked. A document is the texts
    of its sections, as the authors read it; the label is the human one, 0 where there is none. Further columns:
    ``title_a``, ``title_b`` and ``pair``, the id of the pair.

    Args:
        path: The ``.tfrecord`` file.

    Raises:
        ValueError: If the file is cut off, or holds something else.
    """
    rows = []
    for number, record in enumerate(_tfrecords(Path(path)), 1):
        try:
            rows.append(_wiki_pair(record))
        except (IndexError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}, record {number}: not a WikiDocPair of gwikimatch ({error})") from error
    columns = ["id_a", "text_a", "title_a", "id_b", "text_b", "title_b", "label", "pair"]
    return as_pairs(pd.DataFrame(rows, columns=columns))


def judged_pairs(
    dataset: Dataset,
    variant: str | None = None,
    *,
    source: str | None = None,
    fields: Sequence[str] | str | None = None,
    loader: pt.Transformer | None = None,
) -> pd.DataFrame:
    """Pairs from a judged collection, such as those of ir_datasets: each judged document with its topic.

    Args:
        dataset: A data set or its name, such as ``"irds:wapo/v2/trec-news-2019"``.
        variant: Of its topics and judgements.
        source: Column of the topics with the docno of a document that is the source (``"doc_id"`` in TREC News); by
            default the source is the text of the topic.
        fields: Fields that make the text of a document; see :func:`pyterrier_longdoc.data.fields.text_loader`.
        loader: Adds the column ``text`` by ``docno``, in place of ``fields``.

    Returns:
        The pairs; the label is the judgement.

    Raises:
        ValueError: If the topics have no such column, or no judgement belongs to a topic.
    """
    data = pt.get_dataset(dataset) if isinstance(dataset, str) else dataset
    loader = loader or text_loader(data, fields)
    topics, qrels = data.get_topics(variant), data.get_qrels(variant)
    if (source or "query") not in topics:
        raise ValueError(f"the topics have no column {source or 'query'!r}; they have {list(topics.columns)}")
    judged = qrels[["qid", "docno", "label"]].merge(topics, on="qid")
    if not len(judged):
        raise ValueError("no judgement belongs to a topic")
    pairs = loader(judged[["docno"]].drop_duplicates()).set_index("docno")["text"]
    if source is None:
        named = judged.rename(columns={"qid": "id_a", "query": "text_a"})
    else:
        sources = loader(judged[[source]].drop_duplicates().rename(columns={source: "docno"}))
        named = judged.rename(columns={source: "id_a"})
        named = named.assign(text_a=sources.set_index("docno")["text"].reindex(named["id_a"]).to_numpy())
    named = named.assign(text_b=pairs.reindex(named["docno"]).to_numpy()).rename(columns={"docno": "id_b"})
    return as_pairs(named[["id_a", "text_a", "id_b", "text_b", "label"]])


def _open(path: str | Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if str(path).endswith(".gz") else open(path, encoding="utf-8")


def _tfrecords(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file: length, its checksum, data, its checksum."""
    with path.open("rb") as file:
        while head := file.read(12):
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else -1
            data = file.read(length) if 0 <= length < 2**31 else b""
            if len(data) != length or len(file.read(4)) != 4:
                raise ValueError(f"{path} is no TFRecord file, or it is cut off")
            yield data


def _wiki_pair(record: bytes) -> tuple[Any, ...]:
    """Of a WikiDocPair: both documents (fields 6 and 7), the human label (3) and the id (1)."""
    values = _fields(record)
    documents = (_wiki_document(_fields(values[number][-1])) for number in (6, 7))
    return (*(part for document in documents for part in document), values.get(3, [0])[-1], _string(values, 1))


def _wiki_document(values: Mapping[int, list[Any]]) -> tuple[str, str, str]:
    """Of a WikiDoc: id (1), the texts (2) of its sections (5), and title (3)."""
    sections = [_string(_fields(section), 2) for section in values.get(5, [])]
    return _string(values, 1), _SECTIONS.join(sections).strip(), _string(values, 3)


def _string(values: Mapping[int, list[Any]], number: int) -> str:
    return values.get(number, [b""])[-1].decode("utf-8")


def _fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protocol buffer message by number: whole numbers and bytes; others as raw bytes."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(message, place)
        elif kind in (1, 2, 5):
            length, place = _varint(message, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
            value = message[place : place + length]
            place += length
            if len(value) != length:
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"unknown wire type {kind}")
        found.setdefault(number, []).append(value)
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
