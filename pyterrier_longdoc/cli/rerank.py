"""Re-ranks a TREC run with a saved ranker.

The run is worked off in batches of queries. Each finished batch is appended to ``OUT.part`` and forced to disk, so that
a process that is killed at any moment goes on where it stopped when the same command is given again; the run itself
appears in one step when it is complete. Shards are consecutive queries: the files of all shards, joined in order, are
the file of the whole run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.cli.runs import positive, read_run, shard_of, with_queries
from pyterrier_longdoc.data.fields import text_loader

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--model", required=True, help="directory or hub name of a saved ranker")
    add("--dataset", required=True, help="topics and texts, such as irds:msmarco-document/trec-dl-2019")
    add("--run", required=True, dest="run_file", metavar="RUN", type=Path, help="TREC run to re-rank, may end in .gz")
    add("--out", required=True, type=Path, help="TREC run to write, may end in .gz")
    add("--topics-variant", help="topics of the data set, where it has several")
    add("--fields", nargs="+", metavar="FIELD", help="fields that make a document's text, in order")
    add("--depth", type=positive, default=100, help="documents per query that are re-ranked and kept (100)")
    add("--shard", default="1/1", metavar="I/N", help="do the I-th of N parts of the queries; one --out for each")
    add("--batch-queries", type=positive, default=16, help="queries whose texts are in memory at once (16)")
    add("--max-doc-tokens", type=positive, help="tokens of a document that are read; by default as saved")
    add("--device", nargs="+", help="such as cpu, cuda:0, or several devices")
    add("--dtype", default="float32", help="float32, bfloat16, float16 or auto: precision of the encoder")
    add("--overwrite", action="store_true", help="replace OUT, and start afresh what was begun")


def run(args: argparse.Namespace) -> None:
    """Re-ranks; see the module."""
    whole = with_queries(read_run(args.run_file, args.depth), args.dataset, args.topics_variant)
    results = shard_of(whole, args.shard)
    ranker = _load(args)
    loader = text_loader(args.dataset, args.fields, to=ranker.text_field)
    job = _job(args, ranker, loader.fields, whole)
    tag = f"{type(ranker).__name__}-{_hash(json.dumps(job))}"  # the same in all shards
    job["shard"] = args.shard
    if _is_done(args, tag, results):
        print(f"{args.out} is complete already", file=sys.stderr)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    part = args.out.with_name(args.out.name + ".part")
    with _locked(part) as file:
        if args.overwrite:
            file.truncate(0)
        done = _resume(file, part, job, results, args.batch_queries)
        for batch in _batches(results, done, args.batch_queries):
            _append(file, _lines(ranker(loader(batch)), tag))
        _publish(file, args.out)
    part.unlink(missing_ok=True)


def _load(args: argparse.Namespace) -> ReRanker:
    from pyterrier_longdoc.reranker import ReRanker

    options = {"device": args.device, "dtype": args.dtype}
    if args.max_doc_tokens is not None:
        options["max_doc_tokens"] = args.max_doc_tokens
    return ReRanker.from_pretrained(args.model, **options)


def _job(args: argparse.Namespace, ranker: ReRanker, fields: tuple[str, ...], whole: pd.DataFrame) -> dict[str, Any]:
    """All that the scores depend on: a part file of another job is not gone on with."""
    return {
        "weights": ranker.weights_id(),
        "max-doc-tokens": ranker.max_doc_tokens,
        "dtype": str(ranker.dtype),
        "dataset": args.dataset,
        "fields": list(fields),
        "depth": args.depth,
        "run": _hash(whole.to_csv(index=False, columns=["qid", "query", "docno"])),
    }


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _is_done(args: argparse.Namespace, tag: str, results: pd.DataFrame) -> bool:
    if args.overwrite or not args.out.exists():
        return False
    with pt.io.autoopen(str(args.out), "rb") as lines:
        found = [line.decode("utf-8", "replace").split() for line in lines if line.strip()]
    if {(line[0], *line[2:3], line[-1]) for line in found} == {(*pair, tag) for pair in _pairs(results)}:
        return True
    raise ValueError(f"{args.out} exists and is not the result of this command; choose another --out or --overwrite it")


def _pairs(results: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(results["qid"], results["docno"], strict=True))


def _locked(part: Path) -> BufferedRandom:
    """Opens the part file for this process alone; the lock ends with the process, however it ends."""
    file = part.open("a+b")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such locks on Windows
        pass
    except OSError as error:
        file.close()
        raise ValueError(f"another process is writing {part}; give each shard its own --out") from error
    return file


def _resume(file: BufferedRandom, part: Path, job: dict[str, Any], results: pd.DataFrame, batch_queries: int) -> int:
    """Cuts a part file down to whole batches of finished queries, and counts these queries."""
    file.seek(0)
    header = file.readline()
    if not header.endswith(b"\n"):  # new, or killed in its first line
        file.truncate(0)
        _append(file, json.dumps(job) + "\n")
        return 0
    _check_job(header, part, job)
    ends = _finished(file, results)
    done = len(ends) if len(ends) == results["qid"].nunique() else len(ends) - len(ends) % batch_queries
    file.truncate(ends[done - 1] if done else len(header))
    if done:
        print(f"{part}: {done} queries are finished already", file=sys.stderr)
    return done


def _check_job(header: bytes, part: Path, job: dict[str, Any]) -> None:
    try:
        begun = json.loads(header)
        differing = [name for name in job if begun.get(name) != job[name]]
    except (ValueError, AttributeError):
        raise ValueError(f"{part} is no part file of this command; remove it or --overwrite") from None
    if differing:
        what = ", ".join(f"{name} (was {begun.get(name)!r}, is {job[name]!r})" for name in differing)
        raise ValueError(f"{part} was begun with another {what}; remove it or --overwrite")


def _finished(file: BufferedRandom, results: pd.DataFrame) -> list[int]:
    """Where each finished query ends in a part file, in bytes. Queries are there in the order of the results."""
    ends: list[int] = []
    for _, rows in results.groupby("qid", sort=False):
        lines = [file.readline() for _ in range(len(rows))]
        fields = [line.decode("utf-8").split() for line in lines if line.endswith(b"\n")]
        if {(line[0], line[2]) for line in fields} != _pairs(rows):
            break
        ends.append(file.tell())
    return ends


def _batches(results: pd.DataFrame, done: int, batch_queries: int) -> Iterator[pd.DataFrame]:
    qids = results["qid"].unique()
    by_qid = dict(tuple(results.groupby("qid", sort=False)))
    with pt.tqdm(total=len(qids), initial=done, desc="rerank", unit="query") as bar:
        for start in range(done, len(qids), batch_queries):
            batch = qids[start : start + batch_queries]
            yield pd.concat([by_qid[qid] for qid in batch], ignore_index=True)
            bar.update(len(batch))


def _lines(scored: pd.DataFrame, tag: str) -> str:
    """The rows of a TREC run: queries in their order, best documents first."""
    order = pd.factorize(scored["qid"])[0]
    scored = scored.assign(_order=order).sort_values(["_order", "rank"])
    rows = zip(scored["qid"], scored["docno"], scored["rank"], scored["score"], strict=True)
    return "".join(f"{qid} Q0 {docno} {rank} {float(score)!r} {tag}\n" for qid, docno, rank, score in rows)


def _append(file: BufferedRandom, text: str) -> None:
    file.seek(0, os.SEEK_END)
    file.write(text.encode("utf-8"))
    file.flush()
    os.fsync(file.fileno())


def _publish(file: BufferedRandom, out: Path) -> None:
    """Moves the finished lines to their place in one step, compressed if the name says so."""
    file.seek(0)
    file.readline()
    handle, fresh = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    try:
        with os.fdopen(handle, "wb") as raw:
            target = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if out.suffix == ".gz" else raw
            while block := file.read(1 << 20):
                target.write(block)
            if target is not raw:
                target.close()
            raw.flush()
            os.fsync(raw.fileno())
        os.chmod(fresh, 0o644)
        os.replace(fresh, out)
    except BaseException:
        os.unlink(fresh)
        raise
