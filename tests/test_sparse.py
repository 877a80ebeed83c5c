"""Longformer, QDS-Transformer, BigBird and long cross-encoders: who sees whom, room for queries, encoders by name."""

import warnings

import numpy as np
import pytest
import torch

import pyterrier_longdoc as longdoc
from tests.conftest import as_frame, shake, words
from tests.test_contract import assert_close


def sparse(name, tiny, **options):
    sizes = {"block_size": 8, "num_random_blocks": 1} if name == "BigBird" else {"attention_window": 16}
    return shake(getattr(longdoc, name)(tiny.encoder, **{**sizes, **options}))


@pytest.fixture
def frame():
    generator = np.random.default_rng(2)
    return as_frame(*(("1", "w1 w2 w3", f"d{n}", words(generator, 3 + 7 * n)) for n in range(14)))


@pytest.mark.parametrize("name", ["Longformer", "QDSTransformer", "BigBird"])
@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_padding_to_windows_and_blocks_changes_nothing(tiny, frame, name, budget):
    """Lengths around every multiple of windows and blocks, full attention next to sparse attention."""
    ranker = sparse(name, tiny, token_budget=budget)
    alone = [ranker(frame.iloc[[row]])["score"].item() for row in range(len(frame))]
    assert_close(ranker(frame)["score"], alone)


def test_a_big_bird_does_not_turn_to_full_attention(tiny, frame):
    """In transformers one short batch switches the model for good."""
    ranker = sparse("BigBird", tiny)
    before = ranker(frame.iloc[-3:])["score"].tolist()
    ranker(frame.iloc[:2])
    assert ranker(frame.iloc[-3:])["score"].tolist() == before
    full = sparse("BigBird", tiny, block_size=64)  # blocks so large that nothing is sparse
    assert np.abs(full(frame.iloc[-3:])["score"] - before).max() > 1e-4
    assert_close(full(frame.iloc[:2])["score"], ranker(frame.iloc[:2])["score"])


def test_random_blocks_have_a_seed(tiny, frame):
    ranker, same, other = (sparse("BigBird", tiny, block_seed=seed) for seed in (0, 0, 1))
    long = frame.iloc[-3:]
    assert ranker(long)["score"].tolist() == same(long)["score"].tolist()
    assert np.abs(ranker(long)["score"] - other(long)["score"]).max() > 1e-5
    ranker.save(tiny.encoder + "-bird")
    assert longdoc.BigBird.from_pretrained(tiny.encoder + "-bird").model.config.block_seed == 0


def seen(ranker, frame, monkeypatch):
    """Token ids, global tokens and mask of each sequence that the encoder was given."""
    given, forward = [], ranker.model.encoder.forward

    def spy(**inputs):
        rows = (inputs[name].tolist() for name in ("input_ids", "global_attention_mask", "attention_mask"))
        given.extend(zip(*rows, strict=True))
        return forward(**inputs)

    monkeypatch.setattr(ranker.model.encoder, "forward", spy)
    ranker(frame)
    return given


@pytest.mark.parametrize(
    ("name", "options", "sentences"),
    [
        ("Longformer", {}, []),
        ("Longformer", {"global_tokens": "first"}, []),
        ("QDSTransformer", {}, ["A", "It", "The"]),
    ],
)
def test_global_tokens(tiny, monkeypatch, name, options, sentences):
    """The query's tokens, and in QDS-Transformer the first one of each sentence."""
    ranker = sparse(name, tiny, **options)
    text = "A w1 w2 w3 w4. It w5 w6. The w7 w8 w9 w10."
    frame = as_frame(("1", "w63", "a", text), ("1", "w63", "b", ""))
    long = max(seen(ranker, frame, monkeypatch), key=lambda row: sum(row[2]))
    chosen = [place for place, is_global in enumerate(long[1]) if is_global]
    first = 1 if options else 4  # [CLS] w6 ##3 [SEP]
    assert chosen[:first] == list(range(first))
    assert len(chosen) == first + len(sentences)
    ids = ranker.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [text.index(word + " ") for word in sentences]
    assert [ids["offset_mapping"][place - 4][0] for place in chosen[first:]] == starts


def test_titles_move_the_sentences_along(tiny, monkeypatch):
    ranker = sparse("QDSTransformer", tiny, title_field="title")
    frame = as_frame(("1", "w1", "a", "A w1 w2. It w5.")).assign(title="w3 w4")
    ((ids, chosen, _),) = seen(ranker, frame, monkeypatch)
    plain = sparse("QDSTransformer", tiny)
    ((_, before, _),) = seen(plain, frame, monkeypatch)
    moved = [place for place, is_global in enumerate(chosen) if is_global]
    kept = [place for place, is_global in enumerate(before) if is_global]
    assert moved == [*kept[:3], *(place + 2 for place in kept[3:])]
    assert ranker.tokenizer.decode(ids).split()[3:5] == ["w3", "w4"]


def test_sentences_need_their_own_ranker(tiny):
    with pytest.raises(ValueError, match="use QDSTransformer"):
        sparse("Longformer", tiny, global_tokens="sentences")
    with pytest.raises(ValueError, match="global_tokens must be one of"):
        sparse("Longformer", tiny, global_tokens="all")


def test_room_for_queries(tiny):
    """Documents are cut, and that is said; queries never are."""
    ranker = sparse("Longformer", tiny, positions=128)
    assert ranker.max_doc_tokens == 128 - 3 - 64
    text = " ".join(["w5"] * 100)
    with pytest.warns(UserWarning, match="max_doc_tokens=61"):
        ranker(as_frame(("1", " ".join(["w1"] * 64), "d", text)))
    with warnings.catch_warnings(), pytest.raises(ValueError, match="never cut.*max_doc_tokens.* 60"):
        warnings.simplefilter("ignore")
        ranker(as_frame(("1", " ".join(["w1"] * 65), "d", text)))
    with pytest.raises(ValueError, match="never cut; use an encoder with more positions"):
        ranker(as_frame(("1", " ".join(["w1"] * 130), "d", text)))
    with pytest.raises(ValueError, match="positions must be a whole number of at least 1"):
        sparse("BigBird", tiny, positions=0)


@pytest.fixture(scope="module")
def modern(tiny, tmp_path_factory):
    """A ModernBERT, and a sequence classifier of two labels, on disk."""
    from transformers import AutoTokenizer, ModernBertConfig, ModernBertForSequenceClassification, ModernBertModel

    tokenizer = AutoTokenizer.from_pretrained(tiny.encoder)
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=len(tokenizer), hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=2048, local_attention=16, pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id, bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id, initializer_range=0.3,
    )
    folder = tmp_path_factory.mktemp("modern")
    ModernBertModel(config).save_pretrained(folder / "encoder")
    config.num_labels = 2
    ModernBertForSequenceClassification(config).save_pretrained(folder / "classifier")
    for name in ("encoder", "classifier"):
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("name", ["encoder", "classifier"])
def test_modern_encoders_by_name(modern, frame, name, tmp_path):
    ranker = longdoc.LongCE(str(modern / name))
    assert ranker.model.config.classifier == (name == "classifier")
    assert ranker.max_doc_tokens == 2048 - 3 - 64
    scores = ranker(frame)["score"]
    assert_close(scores, [ranker(frame.iloc[[row]])["score"].item() for row in range(len(frame))])
    assert scores.nunique() == len(frame)
    ranker.save(tmp_path / "own")
    assert longdoc.LongCE.from_pretrained(tmp_path / "own")(frame)["score"].tolist() == scores.tolist()


def test_a_classifier_scores_by_its_logits(modern, frame):
    from transformers import AutoModelForSequenceClassification

    ranker = longdoc.LongCE(str(modern / "classifier"))
    model = AutoModelForSequenceClassification.from_pretrained(modern / "classifier").eval()
    row = frame.iloc[[5]]
    inputs = ranker.tokenizer(row["query"].item(), row["text"].item(), return_tensors="pt")
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        logits = model(**inputs).logits[0]
    assert ranker(row)["score"].item() == pytest.approx((logits[1] - logits[0]).item(), abs=1e-5)


def test_a_longformer_classifier_scores_as_in_transformers(tiny, frame, tmp_path):
    """Its weights keep their names, windows may differ by layer, and a saved ranker is the same."""
    from transformers import AutoTokenizer, LongformerConfig, LongformerForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(tiny.encoder)
    torch.manual_seed(0)
    model = LongformerForSequenceClassification(LongformerConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20,
        attention_window=[8, 16], max_position_embeddings=300, pad_token_id=tokenizer.pad_token_id, num_labels=1,
        initializer_range=0.3,
    )).eval()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "classifier")
    ranker = longdoc.Longformer(str(tmp_path / "classifier"))
    expected = []
    for query, text in zip(frame["query"], frame["text"], strict=True):
        inputs = tokenizer(query, text, return_tensors="pt", return_token_type_ids=True)
        end = inputs["input_ids"][0].tolist().index(tokenizer.sep_token_id)
        seen = (torch.arange(inputs["input_ids"].shape[1]) <= end).long()[None]
        with torch.inference_mode():
            expected.append(model(**inputs, global_attention_mask=seen).logits.item())
    assert np.ptp(expected) > 1e-2
    assert_close(ranker(frame)["score"], expected)
    ranker.save(tmp_path / "saved")
    assert_close(longdoc.Longformer.from_pretrained(tmp_path / "saved")(frame)["score"], expected)


def test_other_architectures_are_refused(modern, tiny):
    with pytest.raises(ValueError, match="the encoder is a modernbert; a longformer can be made of"):
        longdoc.Longformer(str(modern / "encoder"))
    with pytest.raises(ValueError, match="must be a big_bird, but it is a modernbert"):
        longdoc.BigBird(str(modern / "classifier"))
    with pytest.raises(TypeError, match="passage_tokens"):
        longdoc.Longformer(tiny.encoder, passage_tokens=5)


def test_the_whole_document_is_explained_as_one_window(tiny, frame):
    ranker = sparse("Longformer", tiny)
    windows = ranker.explain(frame).frame
    assert len(windows) == len(frame)
    assert_close(windows["weight"], ranker(frame)["score"])
    assert set(windows["kind"]) == {"document"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Longformer", {"attention_window": 33}, "attention_window must be even"),
        ("QDSTransformer", {"attention_window": 0}, "attention_window must be a whole number of at least 1"),
        ("BigBird", {"block_size": 0}, "block_size must be a whole number of at least 1"),
        ("BigBird", {"num_random_blocks": -1}, "num_random_blocks must be a whole number of at least 0"),
        ("Longformer", {"positions": 10.5}, "positions must be a whole number of at least 1"),
    ],
)
def test_sizes_of_what_is_made_of_a_bert(tiny, name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(longdoc, name)(tiny.encoder, **options)
