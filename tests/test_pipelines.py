"""Every ranker inside PyTerrier's pipelines: operators, experiments, caches, processes, run files."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from tests.test_contract import assert_close

MEASURES = ["ndcg_cut_10", "map", "recip_rank"]


@pytest.fixture(scope="module")
def ranker(make_ranker):
    return make_ranker()


@pytest.fixture
def first_stage(small) -> pt.Transformer:
    """Ranks the rows of ``small`` by their length."""
    scores = -small["text"].str.len().astype(float)
    return pt.Transformer.from_df(pt.model.add_ranks(small.assign(score=scores)))


@pytest.fixture
def topics(small) -> pd.DataFrame:
    return small[["qid", "query"]].drop_duplicates().reset_index(drop=True)


@pytest.fixture
def qrels(small) -> pd.DataFrame:
    return small[["qid", "docno"]].assign(label=np.arange(len(small)) % 3)


def test_cutoffs_before_and_after(ranker, first_stage, topics):
    out = (first_stage % 5 >> ranker % 2)(topics)
    assert len(out) == 4
    before = ranker((first_stage % 5)(topics))
    assert set(zip(out["qid"], out["docno"], strict=True)) == {
        (row.qid, row.docno) for row in before.itertuples() if row.rank < 2
    }


def test_sums_and_features(ranker, first_stage, topics):
    base = first_stage(topics)
    scores = ranker(base).set_index(["qid", "docno"])["score"]
    summed = (first_stage >> (ranker + 2 * ranker))(topics).set_index(["qid", "docno"])["score"]
    assert_close(summed, 3 * scores[summed.index])
    union = (first_stage >> (pt.apply.doc_score(lambda row: len(row["text"])) ** ranker))(topics)
    features = np.stack(union["features"])
    assert features.shape == (len(base), 2)
    assert_close(features[:, 1], scores[list(zip(union["qid"], union["docno"], strict=True))])


def test_rankers_in_a_row(ranker, first_stage, topics):
    once, twice = (first_stage >> ranker)(topics), (first_stage >> ranker >> ranker)(topics)
    pd.testing.assert_frame_equal(once, twice)


@pytest.mark.parametrize("options", [{}, {"batch_size": 1}, {"plan": "tree"}, {"batch_size": 1, "plan": "tree"}])
def test_experiments(ranker, first_stage, topics, qrels, options):
    systems = {"first": first_stage, "ranker": first_stage >> ranker, "cut": first_stage % 5 >> ranker}
    table = pt.Experiment(systems, topics, qrels, MEASURES, validate="error", perquery=True, **options)
    direct = pt.Evaluate((first_stage >> ranker)(topics), qrels, MEASURES, perquery=True)
    for row in table[table["name"] == "ranker"].itertuples():
        assert row.value == pytest.approx(direct[row.qid][row.measure])
    assert set(table["name"]) == set(systems)


def test_experiments_that_save_their_runs(ranker, first_stage, topics, qrels, tmp_path):
    systems = {"ranker": first_stage >> ranker}
    fresh = pt.Experiment(systems, topics, qrels, MEASURES, save_dir=str(tmp_path))
    run = pt.io.read_results(str(tmp_path / "ranker.res.gz"))
    expected = (first_stage >> ranker)(topics)
    assert_close(run.set_index(["qid", "docno"])["score"][list(zip(expected.qid, expected.docno, strict=True))],
                 expected["score"])
    broken = {"ranker": pt.Transformer.from_df(expected.iloc[:1])}
    again = pt.Experiment(broken, topics, qrels, MEASURES, save_dir=str(tmp_path), save_mode="reuse")
    pd.testing.assert_frame_equal(again[fresh.columns], fresh)  # the saved run was used


def test_grid_search_finds_the_option_and_sets_it(make_ranker, first_stage, topics, qrels):
    ranker = make_ranker()
    pipeline, values = first_stage >> ranker, [1, 30, None]
    with pytest.warns(UserWarning, match="max_doc_tokens"):
        found = {}
        for value in values:
            ranker.max_doc_tokens = value
            found[value] = pt.Evaluate(pipeline(topics), qrels, ["map"])["map"]
        ranker.max_doc_tokens = None
        best = pt.GridSearch(
            pipeline, {ranker: {"max_doc_tokens": values}}, topics, qrels, "map", verbose=False, return_type="both"
        )
    assert best[0] is not None
    assert found[ranker.max_doc_tokens] == max(found.values())
    assert len(set(found.values())) > 1


def test_cached_scores_are_fresh_scores(make_ranker, first_stage, topics, tmp_path, monkeypatch):
    caching = pytest.importorskip("pyterrier_caching")
    ranker = make_ranker()
    pipeline = first_stage >> caching.ScorerCache(tmp_path / "cache", ranker)
    fresh, missed = (first_stage >> ranker)(topics), pipeline(topics)
    monkeypatch.setattr(type(ranker), "score_pairs", None)  # a hit asks for no score
    for out in (missed, pipeline(topics)):
        assert_close(out["score"], fresh["score"])  # the cache asks for them in another order, so in other batches
        assert list(out["rank"]) == list(fresh["rank"])
        assert list(out["score"]) == list(missed["score"])


@pytest.mark.filterwarnings("ignore:.parallel")
def test_two_processes(ranker, first_stage, topics):
    pytest.importorskip("joblib")
    out = (first_stage >> ranker.parallel(2))(topics)
    expected = (first_stage >> ranker)(topics)
    pd.testing.assert_frame_equal(out[expected.columns], expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.parallel")
def test_two_ray_workers(ranker, first_stage, topics):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2)
    try:
        out = (first_stage >> ranker.parallel(2, backend="ray"))(topics)
    finally:
        ray.shutdown()
    pd.testing.assert_frame_equal(out, (first_stage >> ranker)(topics))


@pytest.mark.parametrize("name", ["run.res", "run.res.gz"])
def test_run_files_are_read_back_equal(ranker, first_stage, topics, tmp_path, name):
    out = (first_stage >> ranker)(topics).sort_values(["qid", "rank"])
    pt.io.write_results(out, str(tmp_path / name), run_name="ours")
    back = pt.io.read_results(str(tmp_path / name), topics=topics).sort_values(["qid", "rank"])
    columns = ["qid", "query", "docno", "score", "rank"]
    expected = out[columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(back[columns].reset_index(drop=True), expected, check_dtype=False)


def test_a_pipeline_compiles_to_the_same_ranking(ranker, first_stage, topics):
    pipeline = first_stage % 7 >> ranker % 3
    pd.testing.assert_frame_equal(pipeline.compile()(topics), pipeline(topics))
