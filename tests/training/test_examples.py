import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_longdoc.training import Settings
from pyterrier_longdoc.training.examples import collect_examples
from tests.training.toy_task import tiny_ranker

RES = pd.DataFrame(
    [
        ("q1", "w1", "a", "w1 w2"),
        ("q1", "w1", "b", "w3"),
        ("q1", "w1", "c", "w1 w4"),
        ("q1", "w1", "d", "w5"),
        ("q1", "w1", "e", "w3"),
        ("q2", "w2", "a", "w1 w2"),
        ("q2", "w2", "f", "w6"),
        ("q3", "w3", "a", "w1 w2"),
    ],
    columns=["qid", "query", "docno", "text"],
)
QRELS = pd.DataFrame(
    [("q1", "c", 1), ("q1", "b", 2), ("q1", "d", 0), ("q2", "f", 0), ("q2", "z", 3), ("q3", "a", 1)],
    columns=["qid", "docno", "label"],
)


@pytest.fixture(scope="module")
def ranker():
    return tiny_ranker()


def collected(ranker, res=RES, qrels=QRELS, positives="retrieved", **settings):
    return collect_examples(ranker, res, qrels, Settings(**settings), positives)


def words(tokens):
    return [" ".join(f"w{token - 1}" for token in tokens[index]) for index in range(len(tokens))]


def groups(examples, epoch=0):
    """Query and document texts of all groups."""
    queries, documents = words(examples.queries), words(examples.documents)
    found = []
    for example in range(len(examples)):
        pairs = examples.pairs[examples.group(epoch, example)]
        assert len(set(pairs[:, 0])) == 1
        found.append((queries[pairs[0, 0]], [documents[number] for number in pairs[:, 1]]))
    return found


def test_positives_are_retrieved_and_relevant_and_negatives_are_the_others(ranker):
    examples = collected(ranker, negatives=3)
    assert len(examples) == 2  # b and c of q1: q2 has no relevant result, q3 no other one
    for query, (positive, *negatives) in groups(examples):
        assert query == "w1"
        assert positive in ("w3", "w1 w4")
        assert sorted(negatives) == ["w1 w2", "w3", "w5"]  # a and e unjudged, d judged 0; none twice
    assert {positive for _, (positive, *_) in groups(examples)} == {"w3", "w1 w4"}


def test_equal_texts_are_tokenised_once(ranker):
    assert words(collected(ranker).documents) == ["w1 w2", "w5", "w3", "w1 w4"]


def test_few_negatives_are_repeated(ranker):
    (_, first), *_ = groups(collected(ranker, negatives=7))
    assert len(first) == 8
    assert set(first[1:]) <= {"w1 w2", "w3", "w5"}


def test_min_label_and_graded_pairs(ranker):
    assert len(collected(ranker, min_label=2)) == 1
    assert sorted(groups(collected(ranker, min_label=2, negatives=4))[0][1][1:]) == ["w1 w2", "w1 w4", "w3", "w5"]
    examples = collected(ranker, graded=True, negatives=4)
    graded = {positive: negatives for _, (positive, *negatives) in groups(examples)}
    assert sorted(graded["w3"]) == ["w1 w2", "w1 w4", "w3", "w5"]  # label 2 over labels 1 and 0
    assert "w1 w4" not in graded["w1 w4"]


def test_order_and_negatives_follow_from_seed_epoch_and_number(ranker):
    res = pd.concat([RES.assign(qid=f"{number}", docno=RES["docno"] + RES["qid"]) for number in range(9)])
    qrels = pd.concat([QRELS.assign(qid=f"{number}", docno=QRELS["docno"] + QRELS["qid"]) for number in range(9)])
    one, again, other = (collected(ranker, res, qrels, seed=seed) for seed in (1, 1, 2))
    np.random.seed(0)
    first = [one.group(2, number).tolist() for number in range(len(one))]
    np.random.seed(5)
    assert [again.group(2, number).tolist() for number in reversed(range(len(one)))] == first[::-1]
    assert [one.group(3, number).tolist() for number in range(len(one))] != first
    assert [other.group(2, number).tolist() for number in range(len(one))] != first
    assert one.order(0).tolist() == again.order(0).tolist() != one.order(1).tolist()
    assert sorted(one.order(4)) == list(range(len(one)))


def test_all_relevant_documents_with_a_loader(ranker):
    texts = {"z": "w7 w8"}
    asked = []

    def load(frame):
        asked.append(frame)
        return frame.assign(text=frame["docno"].map(texts))

    examples = collected(ranker, positives=pt.apply.generic(load))
    assert asked[0][["qid", "docno", "query"]].values.tolist() == [["q2", "z", "w2"]]
    assert ("w2", "w7 w8") in [(query, documents[0]) for query, documents in groups(examples)]
    with pytest.raises(ValueError, match="positives must be 'retrieved' or a transformer"):
        collected(ranker, positives="all")


def test_a_batch_holds_each_text_once_and_the_teacher_beside(ranker):
    res = RES.assign(teacher_score=np.arange(len(RES)))
    examples = collected(ranker, res, loss="margin_mse", negatives=3)
    batch = examples.batch(0, np.array([0, 1]))
    assert batch.pairs.shape == (8, 2)
    assert len(batch.queries) == 1
    assert len(batch.documents) == 4
    texts = [words(batch.documents)[number] for number in batch.pairs[:, 1]]
    scores = {"w1 w2": {0}, "w3": {1, 4}, "w1 w4": {2}, "w5": {3}}
    assert batch.teacher.shape == (2, 4)
    assert all(score in scores[text] for text, score in zip(texts, batch.teacher.ravel(), strict=True))


def test_a_missing_teacher_column_is_named(ranker):
    with pytest.raises(pt.validate.InputValidationError, match="monot5"):
        collected(ranker, loss="margin_mse", teacher="monot5")


def test_duplicate_rows_and_judgements_count_once(ranker):
    twice = collected(ranker, pd.concat([RES, RES]), pd.concat([QRELS, QRELS.assign(label=0)]))
    assert twice.fingerprint() == collected(ranker).fingerprint()


def test_the_index_does_not_matter(ranker):
    assert collected(ranker, RES.set_axis([7] * len(RES))).fingerprint() == collected(ranker).fingerprint()


def test_documents_are_cut_with_a_message(ranker):
    with pytest.warns(UserWarning, match=r"2 of 4 training documents are longer than train_doc_tokens=1; 33.3%"):
        examples = collected(ranker, train_doc_tokens=1)
    assert examples.documents.lengths.max() == 1


def test_missing_texts_are_empty_documents(ranker):
    res = RES.copy()
    res.loc[3, "text"] = None
    with pytest.warns(UserWarning, match="1 of 5 rows have no 'text'"):
        assert 0 in collected(ranker, res).documents.lengths
    res["query"] = None
    with pytest.raises(ValueError, match="8 of 8 rows have no query"):
        collected(ranker, res)


@pytest.mark.parametrize(
    ("res", "qrels", "message"),
    [
        (RES.head(0), QRELS, "No training results to fit to"),
        (RES, QRELS.assign(qid=1), "column 'qid' of the training qrels holds int"),
        (RES.assign(docno=7), QRELS, "column 'docno' of the training results holds int"),
        (RES, QRELS.assign(label="1"), "'label'"),
        (RES, QRELS.assign(label=np.nan), "'label'"),
        (RES, QRELS.assign(label=0), "of 3 queries, 3 are in the qrels, 0 have a relevant result, 3 another one"),
        (RES, QRELS.assign(qid="x" + QRELS["qid"]), "0 are in the qrels"),
        (RES.drop(columns="text"), QRELS, "text"),
        (RES, QRELS.drop(columns="label"), "label"),
    ],
)
def test_bad_frames_get_a_clear_error(ranker, res, qrels, message):
    with pytest.raises((ValueError, pt.validate.InputValidationError), match=message):
        collected(ranker, res, qrels)
