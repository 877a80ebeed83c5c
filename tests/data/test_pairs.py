"""Files and collections of document pairs are read as they are, and what is broken in them is named."""

import gzip
import json
import struct

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_longdoc.data.pairs import judged_pairs, read_gwikimatch, read_id_pairs, read_json_pairs

COLUMNS = ["id_a", "text_a", "id_b", "text_b", "label"]


# JSON lines and tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz"])
def test_json_lines(tmp_path, name):
    rows = [{"doc1": "Ein Text\n\nmit Umlaut: ü", "doc2": "b", "match": 1, "from": "x"}]
    rows += [{"doc1": "c", "doc2": "d", "match": 0}]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    out = read_json_pairs(tmp_path / name, {"doc1": "text_a", "doc2": "text_b", "match": "label"})
    assert list(out.columns) == [*COLUMNS, "from"]
    assert out["text_a"].tolist() == ["Ein Text\n\nmit Umlaut: ü", "c"]
    assert out["label"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "message"), [("{", "line 2: not JSON"), ("[1]", "line 2: a JSON object is needed, found list")]
)
def test_broken_json_lines(tmp_path, line, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"text_a": "a", "text_b": "b", "label": 1}) + f"\n{line}\n")
    with pytest.raises(ValueError, match=message):
        read_json_pairs(path)


def test_tables_of_ids(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("1\t2\t1\n2\t3\t0\n\n")
    out = read_id_pairs(path, {"1": "one", "2": "two", "3": "three"})
    assert out[COLUMNS].to_numpy().tolist() == [["1", "one", "2", "two", 1.0], ["2", "two", "3", "three", 0.0]]
    path.write_text("1\t2\t1\n2 3 0\n")
    with pytest.raises(ValueError, match="line 2: not 'id_a TAB id_b TAB label': '2 3 0'"):
        read_id_pairs(path, {})
    path.write_text("1\t9\t1\n")
    with pytest.raises(ValueError, match=r"1 of 'id_b' have no text in documents \(first '9'\)"):
        read_id_pairs(path, {"1": "one"})


# gwikimatch -----------------------------------------------------------------------------------------------------------


def varint(value):
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(number, value):
    """One field in the protocol buffers' wire format."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def document(name, sections):
    parts = [field(5, field(1, title) + field(2, text)) for title, text in sections]
    return b"".join([field(1, name), field(2, f"https://{name}"), field(3, name.title()), *parts, field(6, "image")])


def pair(label, number="p1"):
    one = document("one", [("Head", "First section, with ü."), ("", "x" * 300)])
    two = document("two", [])
    human = [] if label is None else [field(3, label)]
    documents = [field(6, one), field(7, two)]
    return b"".join([field(1, number), field(2, 1), *human, field(4, 0.5), *documents, field(8, 0.25)])


def records(*messages):
    return b"".join(struct.pack("<Q", len(each)) + b"cccc" + each + b"cccc" for each in messages)


def test_gwikimatch(tmp_path):
    path = tmp_path / "wiki.tfrecord"
    path.write_bytes(records(pair(1), pair(None, "p2"), pair(2, "p3")))
    out = read_gwikimatch(path)
    assert list(out.columns) == [*COLUMNS, "title_a", "title_b", "pair"]
    assert out["text_a"].iloc[0] == "First section, with ü.\n\n" + "x" * 300
    assert out["text_b"].tolist() == [""] * 3
    assert out[["id_a", "title_a", "id_b", "title_b"]].iloc[0].tolist() == ["one", "One", "two", "Two"]
    assert out["label"].tolist() == [1, 0, 2]
    assert out["pair"].tolist() == ["p1", "p2", "p3"]


def test_gwikimatch_as_googles_library_writes_it(tmp_path):
    """A message serialised by protobuf 6, every field of the authors' declaration set, one of them negative."""
    head = b"\n\x01p\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x01%\x00\x00\x00?-\x00\x00@?"
    one = b"2\xc8\x01\n\x01a\x12\x01u\x1a\x01A*\x0e\n\x01T\x12\tText of a*\xa6\x01\n\x01U\x12\xa0\x01"
    one += b"and " * 40 + b"2\x01i2\x01j"
    two = b":\x10\n\x01b*\x0b\x12\tText of bE\x00\x00\x80>H\x01H\x02H\xac\x02"
    path = tmp_path / "wiki.tfrecord"
    path.write_bytes(records(head + one + two))
    text = "Text of a\n\n" + ("and " * 40).strip()
    assert read_gwikimatch(path)[COLUMNS].to_numpy().tolist() == [["a", text, "b", "Text of b", 1]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (records(pair(1))[:-9], "cut off"),
        (records(pair(1)) + b"abc", "cut off"),
        (b"id_a\tid_b\tlabel of a text file", "no TFRecord file, or it is cut off"),
        (records(pair(1), b"\xff\xff\xff"), "record 2: not a WikiDocPair"),
        (records(field(1, "only an id")), "record 1: not a WikiDocPair"),
    ],
)
def test_what_is_no_gwikimatch(tmp_path, data, message):
    path = tmp_path / "wiki.tfrecord"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_gwikimatch(path)


# Judged collections ---------------------------------------------------------------------------------------------------


class Collection(pt.datasets.Dataset):
    """Three documents, of which one is the source of a topic, as in TREC News."""

    texts = {"d1": "one", "d2": "two", "d3": "three"}

    def get_topics(self, variant=None):
        return pd.DataFrame({"qid": ["1", "2"], "query": ["about one", "about two"], "doc_id": ["d1", "d2"]})

    def get_qrels(self, variant=None):
        return pd.DataFrame({"qid": ["1", "1", "2", "9"], "docno": ["d2", "d3", "d3", "d1"], "label": [2, 0, 1, 1]})


def loader():
    return pt.apply.text(lambda row: Collection.texts[row["docno"]])


def test_judged_documents_with_their_topics():
    out = judged_pairs(Collection(), loader=loader())
    assert out[COLUMNS].to_numpy().tolist() == [
        ["1", "about one", "d2", "two", 2], ["1", "about one", "d3", "three", 0], ["2", "about two", "d3", "three", 1]
    ]


def test_judged_documents_with_the_documents_of_their_topics():
    out = judged_pairs(Collection(), loader=loader(), source="doc_id")
    assert out[["id_a", "text_a", "text_b", "label"]].to_numpy().tolist() == [
        ["d1", "one", "two", 2], ["d1", "one", "three", 0], ["d2", "two", "three", 1]
    ]


def test_unfit_collections(monkeypatch):
    with pytest.raises(ValueError, match="topics have no column 'url'; they have"):
        judged_pairs(Collection(), loader=loader(), source="url")
    monkeypatch.setattr(Collection, "get_qrels", lambda self, variant=None: pd.DataFrame(
        {"qid": ["7"], "docno": ["d1"], "label": [1]}
    ))
    with pytest.raises(ValueError, match="no judgement belongs to a topic"):
        judged_pairs(Collection(), loader=loader())


def test_the_demo_collection():
    pairs = judged_pairs("longdoc:python-docs")
    assert list(pairs.columns) == COLUMNS
    assert len(pairs) == len(pt.get_dataset("longdoc:python-docs").get_qrels())
    assert pairs["text_b"].str.len().median() > 1_000
