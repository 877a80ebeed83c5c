"""The command line: what it writes, how it goes on after a kill, and what it says about bad input."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.cli import main
from pyterrier_longdoc.cli.runs import read_run, shard_of
from pyterrier_longdoc.data.fields import corpus_texts, text_loader
from tests.article_collection import registered
from tests.conftest import shake, words

#: Starts the command line over the collection of these tests, in a process of its own. ``SLOW`` waits in each batch.
LAUNCHER = """
import os, sys, time
from tests.test_cli import collection
from pyterrier_longdoc import cli
from pyterrier_longdoc.reranker import ReRanker

transform = ReRanker.transform
def slow(self, frame):
    print("\\nscoring", *frame.qid.unique(), file=sys.stderr, flush=True)
    time.sleep(float(os.environ.get("SLOW", 0)))
    return transform(self, frame)
ReRanker.transform = slow

with collection():
    sys.exit(cli.main(sys.argv[1:]))
"""
QUERIES = {f"q{number}": f"w{number} w{number + 1} w2" for number in range(9)}
DOCNOS = ["NA", "null", "nan", 'd"4', "d'5", *(f"d{number}" for number in range(6, 20))]


def collection():
    generator = np.random.default_rng(5)
    articles = [
        {"docno": docno, "url": f"u{number}", "title": words(generator, 3), "body": words(generator, 20 + 5 * number)}
        for number, docno in enumerate(DOCNOS)
    ]
    judged = [(qid, DOCNOS[(3 * number + 2) % len(DOCNOS)], 1) for number, qid in enumerate(QUERIES)]
    return registered("test-cli", articles, QUERIES, judged)


@pytest.fixture(scope="module")
def dataset():
    with collection() as name:
        yield name


@pytest.fixture(scope="module")
def model(tiny, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("model") / "tkl"
    shake(longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus)).save(path)
    return str(path)


@pytest.fixture
def bm25_run(tmp_path: Path) -> Path:
    """A run in no good order: queries mixed, seven documents each."""
    rows = []
    for number, qid in enumerate(QUERIES):
        for rank in range(7):
            docno = DOCNOS[(3 * number + 2 * rank) % len(DOCNOS)]
            rows.append({"qid": qid, "docno": docno, "rank": rank, "score": 20.0 - rank})
    frame = pd.DataFrame(rows).sample(frac=1, random_state=1)
    path = tmp_path / "bm25.res.gz"
    with gzip.open(path, "wt") as file:  # pt.io.write_results doubles quotation marks
        file.writelines(f"{row.qid} Q0 {row.docno} {row.rank} {row.score} bm25\n" for row in frame.itertuples())
    return path


@pytest.fixture
def rerank(dataset: str, model: str, bm25_run: Path):
    """Runs the command in this process and gives its exit status; options take the place of the usual ones."""

    def run(*more: str, **options: object) -> int:
        return main(["rerank", *arguments({"dataset": dataset, "model": model, "run": bm25_run, **options}), *more])

    return run


def arguments(options: dict[str, object]) -> list[str]:
    given = {name: value for name, value in options.items() if value is not None}
    return [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def start(*command: object, **environment: str) -> subprocess.Popen:
    """The command in a process of its own; lines of standard error follow what it does."""
    path = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *map(str, command)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


# What it writes ------------------------------------------------------------------------------------------------------


def test_the_run_is_what_the_pipeline_gives(rerank, dataset, model, bm25_run, tmp_path):
    assert rerank(out=tmp_path / "tkl.res.gz", depth=5) == 0
    ranker = longdoc.TKL.from_pretrained(model)
    first = read_run(bm25_run, 5)
    first["query"] = first["qid"].map(QUERIES)
    expected = (text_loader(dataset) >> ranker)(first).sort_values(["qid", "rank"])
    written = read_run(tmp_path / "tkl.res.gz", 1000)
    assert written[["qid", "docno"]].values.tolist() == expected[["qid", "docno"]].values.tolist()
    assert written["rank"].tolist() == expected["rank"].tolist()
    np.testing.assert_allclose(written["score"], expected["score"], atol=1e-5)
    assert written.groupby("qid").size().eq(5).all()
    assert {"NA", "null", "nan", 'd"4'} < set(written["docno"])
    lines = gzip.decompress((tmp_path / "tkl.res.gz").read_bytes()).decode().splitlines()
    assert all(re.fullmatch(r"\S+ Q0 \S+ \d+ -?\d+\.\d+(e-\d+)? TKL-[0-9a-f]{8}", line) for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bm25.res.gz", "tkl.res.gz"]


def test_a_first_stage_file_keeps_its_best_documents(tmp_path):
    """The best are those of the highest score, whatever the order of lines and ranks."""
    path = tmp_path / "run.res"
    path.write_text("  b Q0 x 3 1.5 t\n\na Q0 y 9 2 t\na Q0 z 1 2 t\nb Q0 NA 4 7e1 t\na\tQ0\tw\t0\t-3\tt\n")
    assert read_run(path, 2)[["qid", "docno"]].values.tolist() == [["a", "z"], ["a", "y"], ["b", "NA"], ["b", "x"]]
    assert read_run(path, 1)["score"].tolist() == [2.0, 70.0]


def test_options_reach_the_ranker(rerank, tmp_path, capsys):
    assert rerank(out=tmp_path / "whole.res") == 0
    assert rerank(out=tmp_path / "head.res", max_doc_tokens=5, batch_queries=2) == 0
    assert rerank(out=tmp_path / "title.res", fields="title", device="cpu", dtype="bfloat16") == 0
    scores = [read_run(tmp_path / name, 1000)["score"] for name in ("whole.res", "head.res", "title.res")]
    assert not np.allclose(scores[0], scores[1], atol=1e-4)
    assert not np.allclose(scores[0], scores[2], atol=1e-4)
    shown = capsys.readouterr().err
    assert len(re.findall(r"warning: TKL.*documents are longer than", shown)) == 1  # said once, not for every batch
    assert re.search(r"warning: \d+ more like the one above, with other numbers: .*documents are longer", shown)


@pytest.mark.parametrize("count", [1, 2, 3, 9, 12])
def test_shards_joined_are_the_whole(rerank, tmp_path, count):
    outs = [tmp_path / f"{number}.res" for number in range(1, count + 1)]
    assert rerank(out=tmp_path / "whole.res", batch_queries=3) == 0
    for number, out in enumerate(outs, 1):
        assert rerank(out=out, shard=f"{number}/{count}", batch_queries=3) == 0
        assert rerank(out=out, shard=f"{number}/{count}") == 0  # complete already, also where it is empty
    joined, whole = b"".join(out.read_bytes() for out in outs), (tmp_path / "whole.res").read_bytes()
    columns = [np.array([line.split() for line in content.decode().splitlines()]).T for content in (joined, whole)]
    for number in (0, 1, 2, 3, 5):
        assert columns[0][number].tolist() == columns[1][number].tolist()
    np.testing.assert_allclose(columns[0][4].astype(float), columns[1][4].astype(float), atol=1e-5)
    assert count not in (1, 3) or joined == whole  # the batches are the same
    assert count == 1 or rerank(out=outs[0], shard=f"2/{count}") == 2  # another shard's result is not replaced


def test_shards_are_even():
    run = pd.DataFrame({"qid": [f"q{n:02}" for n in range(10) for _ in range(3)]})
    sizes = [shard_of(run, f"{number}/4")["qid"].nunique() for number in range(1, 5)]
    assert sizes == [3, 3, 2, 2]


# Kills ---------------------------------------------------------------------------------------------------------------


def scored(lines: str) -> list[str]:
    return re.findall(r"^scoring (.*)$", lines, re.MULTILINE)


def test_a_killed_process_goes_on(dataset, model, bm25_run, tmp_path):
    def command(out):
        options = {"dataset": dataset, "model": model, "run": bm25_run, "out": out, "batch_queries": 2}
        return ["rerank", *arguments(options)]

    whole, out, part = (tmp_path / name for name in ("whole.res.gz", "killed.res.gz", "killed.res.gz.part"))
    _, uninterrupted = start(*command(whole)).communicate()
    batches = ["q0 q1", "q2 q3", "q4 q5", "q6 q7", "q8"]
    assert scored(uninterrupted) == batches

    process = start(*command(out), SLOW="60")
    kill_in_batch(process, 1)
    assert not out.exists()
    process = start(*command(out), SLOW="0.3")
    kill_in_batch(process, 3)
    assert not out.exists()
    finished = part.read_bytes()
    with part.open("ab") as file:  # killed while it wrote a batch: one query is complete, the next one is torn
        lines = gzip.decompress(whole.read_bytes()).splitlines(keepends=True)
        file.write(b"".join(lines[28:37]) + b"q5 Q0 d1")

    process = start(*command(out))
    _, again = process.communicate()
    assert process.returncode == 0
    assert finished.startswith(b"{")
    assert scored(again) == batches[2:]
    assert "4 queries are finished already" in again
    assert out.read_bytes() == whole.read_bytes()
    assert not part.exists()

    _, last = start(*command(out)).communicate()
    assert scored(last) == []
    assert "complete already" in last


def kill_in_batch(process: subprocess.Popen, number: int) -> None:
    """SIGKILL as soon as the process has begun to score its ``number``-th batch."""
    seen = 0
    for line in process.stderr:
        seen += line.count("scoring ")
        if seen == number:
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()


def test_an_interrupted_process_says_so(dataset, model, bm25_run, tmp_path):
    options = {"dataset": dataset, "model": model, "run": bm25_run, "out": tmp_path / "out.res"}
    process = start("rerank", *arguments(options), SLOW="60")
    assert any("scoring" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.stderr.read()
    assert process.wait() == 130


def failing(monkeypatch, batches: int) -> None:
    """Lets the machine die after some batches, as far as the part file can tell."""
    transform, done = longdoc.ReRanker.transform, []

    def transform_or_die(self, frame):
        if len(done) == batches:
            raise SystemExit("died")
        done.append(frame)
        return transform(self, frame)

    monkeypatch.setattr(longdoc.ReRanker, "transform", transform_or_die)


def begun(rerank, monkeypatch, out: Path, batches: int = 2, **options: object) -> Path:
    with monkeypatch.context() as patch:
        failing(patch, batches)
        with pytest.raises(SystemExit, match="died"):
            rerank(out=out, batch_queries=2, **options)
    return out.with_name(out.name + ".part")


@pytest.mark.parametrize("cut", [1, 30, 10**9])
def test_a_part_file_cut_anywhere_gives_the_same(rerank, tmp_path, monkeypatch, cut):
    assert rerank(out=tmp_path / "whole.res", batch_queries=2) == 0
    part = begun(rerank, monkeypatch, tmp_path / "out.res")
    content = part.read_bytes()
    part.write_bytes(content[: max(0, len(content) - cut)])
    assert rerank(out=tmp_path / "out.res", batch_queries=2) == 0
    assert (tmp_path / "out.res").read_bytes() == (tmp_path / "whole.res").read_bytes()


def test_a_part_file_of_another_job_is_not_gone_on_with(rerank, tmp_path, monkeypatch, capsys, tiny):
    out = tmp_path / "out.res"
    part = begun(rerank, monkeypatch, out)
    content = part.read_bytes()
    assert rerank(out=out, depth=3) == 2
    assert "begun with another depth (was 100, is 3)" in capsys.readouterr().err
    assert rerank(out=out, shard="1/2") == 2
    assert "shard (was '1/1', is '1/2')" in capsys.readouterr().err
    shake(longdoc.TKL(tiny.words, heads=4), seed=9).save(tmp_path / "other")
    assert rerank(out=out, model=tmp_path / "other") == 2
    assert "another weights" in capsys.readouterr().err
    assert part.read_bytes() == content
    part.write_text("q1 Q0 d1 0 3.0 mine\n")
    assert rerank(out=out) == 2
    assert "is no part file of this command" in capsys.readouterr().err
    assert rerank("--overwrite", out=out) == 0
    assert len(read_run(out, 1000)) == 63


def test_a_result_of_another_job_is_not_replaced(rerank, tmp_path, capsys):
    out = tmp_path / "out.res"
    out.write_text("q1 Q0 d1 0 3.0 mine\n\n")
    assert rerank(out=out) == 2
    assert "choose another --out or --overwrite it" in capsys.readouterr().err
    assert out.read_text() == "q1 Q0 d1 0 3.0 mine\n\n"
    assert rerank("--overwrite", out=out) == 0
    before = out.read_bytes()
    assert rerank(out=out) == 0
    assert "complete already" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert rerank(out=out, depth=3) == 2


def test_two_processes_do_not_write_one_file(rerank, tmp_path, capsys):
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "out.res.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert rerank(out=tmp_path / "out.res") == 2
    assert "another process is writing" in capsys.readouterr().err


# Training ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def train(dataset: str, bm25_run: Path, tiny):
    """Runs the command in this process and gives its exit status."""

    def run(*more: str, **options: object) -> int:
        usual = {"dataset": dataset, "run": bm25_run, "vectors": tiny.encoder, "epochs": 1, "batch_size": 4}
        return main(["train", *arguments({**usual, **options}), *more])

    return run


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["TKL", "TK", "KNRM", "ConvKNRM"])
def test_a_trained_ranker_reranks(train, rerank, tmp_path, name, capsys):
    out = tmp_path / "ranker"
    assert train(out=out, model_class=name, max_doc_tokens=30) == 0
    ranker = longdoc.ReRanker.from_pretrained(str(out))
    assert (type(ranker).__name__, ranker.max_doc_tokens) == (name, 30)
    assert "loss" in capsys.readouterr().out  # the history
    assert rerank(model=out, out=tmp_path / "out.res") == 0
    assert read_run(tmp_path / "out.res", 9)["score"].nunique() > 1


def test_a_ranker_built_on_an_encoder(train, tiny, tmp_path, capsys):
    out = tmp_path / "ranker"
    options = {"vectors": None, "encoder": tiny.encoder, "model_class": "MaxP"}
    assert train("--option", "passage_tokens=40", "--option", "unit=sentence", out=out, **options) == 0
    config = longdoc.ReRanker.from_pretrained(str(out)).model.config
    assert (type(config).__name__, config.passage_tokens, config.unit) == ("CrossEncoderConfig", 40, "sentence")
    assert train(out=tmp_path / "other", model_class="MaxP") == 2
    assert "MaxP is not built on vectors" in capsys.readouterr().err
    assert train(out=tmp_path / "other", model_class="Artifact") == 2
    assert "there is no ranker 'Artifact'; there are TKL, TK," in capsys.readouterr().err
    with pytest.raises(SystemExit):
        train("--option", "passage_tokens", out=tmp_path / "other")
    assert "must have the form NAME=VALUE" in capsys.readouterr().err


def test_training_is_what_fit_does(train, dataset, bm25_run, tmp_path, tiny):
    out = tmp_path / "ranker"
    options = {"lr": 0.01, "seed": 3, "loss": "ranknet"}
    assert train("--whole-collection", out=out, depth=6, fields="body", **options) == 0
    results = read_run(bm25_run, 6)
    results = text_loader(dataset, "body")(results.assign(query=results["qid"].map(QUERIES)))
    ranker = longdoc.TKL(tiny.encoder, corpus=corpus_texts(dataset, "body"), seed=3)
    ranker.fit(results, pt.get_dataset(dataset).get_qrels(), epochs=1, batch_size=4, verbose=False, **options)
    ranker.save(str(tmp_path / "expected"))
    assert weights(out) == weights(tmp_path / "expected")


def test_training_with_validation_and_fewer_queries(train, tmp_path, bm25_run, capsys):
    out = tmp_path / "ranker"
    assert train(out=out, valid_run=bm25_run, queries=4, measure="RR@10", seed=1) == 0
    assert "RR@10" in capsys.readouterr().out
    assert train(out=tmp_path / "other", queries=4, seed=1) == 0
    assert train(out=tmp_path / "another", queries=4, seed=2) == 0
    assert weights(tmp_path / "other") != weights(tmp_path / "another")


def test_word_vectors_from_a_file(train, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"w{number} {number / 50} 1 0 -1 0.5 0 1 2 3 -1 0 {-number}\n" for number in range(50)))
    assert train(out=tmp_path / "ranker", vectors=file, model_class="KNRM") == 0
    ranker = longdoc.KNRM.from_pretrained(str(tmp_path / "ranker"))
    vocabulary = set(ranker.tokenizer.get_vocab())
    assert {"w3", "w150"} < vocabulary  # one with a vector in the file, one from the texts alone


def test_training_goes_on(train, tmp_path, capsys):
    assert train(out=tmp_path / "whole", epochs=2) == 0
    out = tmp_path / "ranker"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longdoc.ReRanker, "save", lambda *_: (_ for _ in ()).throw(SystemExit("died")))
        with pytest.raises(SystemExit, match="died"):
            train(out=out, epochs=2)
    assert not out.exists()
    assert train(out=out, epochs=2) == 2
    assert "ranker.training exists: give --resume" in capsys.readouterr().err
    assert train("--resume", out=out, epochs=3) == 2
    assert "epochs=2 then, 3 now" in capsys.readouterr().err
    assert train("--resume", out=out, epochs=2) == 0
    assert weights(out) == weights(tmp_path / "whole")
    assert train("--resume", out=tmp_path / "new", epochs=2) == 0  # nothing was begun yet
    assert weights(tmp_path / "new") == weights(out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "no-such.res"}, "no-such.res"),
        ({"valid_run": "no-such.res"}, "no-such.res"),
        ({"dataset": "irds:nothing"}, "not found"),
        ({"loss": "nothing"}, "loss must be one of"),
        ({"measure": "nothing"}, "none of ir_measures"),
        ({"fields": "nothing"}, "has no field 'nothing'"),
    ],
)
def test_bad_training_options(train, tmp_path, capsys, options, message):
    assert train(**{"out": tmp_path / "ranker", **options}) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("error: ")
    assert message in error
    assert not (tmp_path / "ranker").exists()


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "no-such.res"}, "No such file or directory: 'no-such.res'"),
        ({"model": "no-such-model"}, "'no-such-model' is neither a directory nor a hub name"),
        ({"dataset": "irds:no-such-collection"}, "'irds:no-such-collection' not found"),
        ({"dataset": "nothing:here"}, "missing provider 'nothing'"),
        ({"fields": "body2"}, "has no field 'body2'; it has url, title, body"),
        ({"topics_variant": "narrative"}, "only supports the following topic variants"),
        ({"shard": "3/2"}, "--shard must be I/N with 1 <= I <= N"),
        ({"shard": "0/2"}, "--shard must be"),
        ({"shard": "half"}, "such as 2/8, got 'half'"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
        ({"dtype": "float8"}, "dtype must be"),
    ],
)
def test_bad_options(rerank, tmp_path, capsys, options, message):
    assert rerank(**{"out": tmp_path / "out" / "out.res", **options}) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("error: ")
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no results"),
        (b"q1 Q0 d1 0 3.0 t\nq1 Q0 d2 1 2.0\n", "line 2: not 'qid Q0 docno rank score tag': 'q1 Q0 d2 1 2.0'"),
        (b"q1 Q0 d1 0 3.0 my tag\n", "line 1: not 'qid Q0"),
        (b"q1 Q0 d1 0 high t\n", "line 1: not 'qid Q0"),
        (b"q1 Q0 d1 0 nan t\n", "line 1: not 'qid Q0"),
        (b"q1 Q0 d6 0 3 t\nq2 Q0 d6 1 3 t\nq1 Q0 d6 1 2 t\n", "document 'd6' occurs twice for query 'q1'"),
        (b"q1 Q0 d6 0 3 t\nq77 Q0 d6 1 3 t\nq78 Q0 d6 1 3 t\n", "lack 2 queries of the run: q77, q78"),
        (b"q1 Q0 nothing 0 3 t\n", "lacks documents of these results"),
        (b"q1 Q0 d1 0 3.0 t\n\nq1 Q0 d2 1 2.0 a tag of many words\n", "is no TREC run, or damaged"),
        (b"q1 Q0 \xff\xfe 0 3 t\n", "is no TREC run, or damaged"),
    ],
)
def test_bad_runs(rerank, tmp_path, capsys, content, message):
    path = tmp_path / "bad.res"
    path.write_bytes(content)
    assert rerank(run=path, out=tmp_path / "out.res") == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("error: ")
    assert message in error
    assert not (tmp_path / "out.res").exists()


def test_a_truncated_archive(rerank, tmp_path, capsys, bm25_run):
    (tmp_path / "cut.res.gz").write_bytes(bm25_run.read_bytes()[:-20])
    assert rerank(run=tmp_path / "cut.res.gz", out=tmp_path / "out.res") == 2
    assert "is no TREC run, or damaged" in capsys.readouterr().err


def test_an_unfit_model_directory(rerank, tmp_path, capsys):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert rerank(model=tmp_path / "foreign", out=tmp_path / "out.res") == 2
    assert "not a checkpoint of pyterrier_longdoc" in capsys.readouterr().err


def test_usage_errors(capsys):
    for command in ([], ["rerank"], ["no-such-command"], ["rerank", "--depth", "0"], ["train", "--epochs", "-1"]):
        with pytest.raises(SystemExit) as exit_:
            main(command)
        assert exit_.value.code == 2
    assert "at least 1, got '0'" in capsys.readouterr().err


def test_the_traceback_is_there_on_request(rerank, tmp_path):
    with pytest.raises(FileNotFoundError):
        rerank("--traceback", run="no-such.res", out=tmp_path / "out.res")


def test_errors_of_the_package_are_not_hidden(rerank, tmp_path, monkeypatch):
    def broken(self, frame):
        raise TypeError("a bug")

    monkeypatch.setattr(longdoc.ReRanker, "transform", broken)
    with pytest.raises(TypeError, match="a bug"):
        rerank(out=tmp_path / "out.res")


def test_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "pyterrier_longdoc", "rerank", "--help"], capture_output=True, text=True, check=True
    )
    assert "--batch-queries" in result.stdout
