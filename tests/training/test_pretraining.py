import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_longdoc import SMITH
from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text import tokens
from pyterrier_longdoc.training.pretraining import PRETRAINING, Masks, Pretraining
from pyterrier_longdoc.training.settings import Settings
from tests.training.toy_pretraining import RUN, smith, texts, tokenizer
from tests.training.toy_task import results, weights_equal

SCRIPT = Path(__file__).with_name("toy_pretraining.py")
LOSSES = ["word_loss", "word_accuracy", "block_loss", "block_accuracy"]


@pytest.fixture(scope="module")
def ranker():
    ranker = smith(dropout=0.0)
    ranker.model.add_masked_heads()
    return ranker


def task(ranker, documents=None, words=0.15, blocks=2, **settings):
    documents = ranker.tokenize(texts(12) if documents is None else documents)
    return Pretraining(documents, Masks.of(ranker, words, blocks), Settings.of(**{**PRETRAINING, **settings}))


# What is masked -------------------------------------------------------------------------------------------------------


def test_masks_follow_from_seed_epoch_and_example(ranker):
    masks, examples = task(ranker, seed=3), np.array([4, 7, 1])
    hidden, masked = masks.masked(ranker, 2, examples)
    alone, own = masks.masked(ranker, 2, np.array([7]))
    assert hidden[1].tolist() == alone[0].tolist()
    first = hidden.offsets[1]
    assert own.tokens.tolist() == [place - first for place in masked.tokens if 0 <= place - first < len(alone[0])]
    for other in (masks.masked(ranker, 3, examples), task(ranker, seed=4).masked(ranker, 2, examples)):
        assert other[0].values.tolist() != hidden.values.tolist()
        assert other[1].blocks.tolist() != masked.blocks.tolist() or other[1].tokens.tolist() != masked.tokens.tolist()


def test_masked_words_are_those_of_bert(ranker):
    """15 % of the words; of these 80 % hidden, 10 % another word, 10 % as they were."""
    masks = task(ranker, texts(200))
    hidden, masked = masks.masked(ranker, 0, np.arange(200))
    lengths = masks.documents.lengths
    assert np.array_equal(masked.words, masks.documents.values[masked.tokens])
    document = np.searchsorted(hidden.offsets, masked.tokens, side="right") - 1
    assert np.array_equal(np.bincount(document), np.maximum(1, np.round(0.15 * lengths)))
    untouched = np.setdiff1d(np.arange(len(hidden.values)), masked.tokens)
    assert np.array_equal(hidden.values[untouched], masks.documents.values[untouched])
    now = hidden.values[masked.tokens]
    share = [(now == ranker.tokenizer.mask_token_id).mean(), (now == masked.words).mean()]
    assert share == pytest.approx([0.8, 0.1 + 0.1 / 20], abs=0.05)
    assert not np.isin(now[now != ranker.tokenizer.mask_token_id], ranker.tokenizer.all_special_ids).any()


def test_so_many_blocks_of_each_document_but_never_all(ranker):
    documents = ["river.", "river lake sea boat. fish wine bread cheese. oven salt."] + texts(4)[2:3] * 2
    masks = task(ranker, documents)
    rows = ranker.model.blocks(masks.documents).by_document(4)
    assert rows.lengths.tolist() == [1, 2, 4, 4]
    _, masked = masks.masked(ranker, 0, np.arange(4))
    counts = [np.isin(rows[number], masked.blocks).sum() for number in range(4)]
    assert counts == [0, 1, 2, 2]
    assert len(set(masked.blocks.tolist())) == len(masked.blocks)
    assert len(task(ranker, documents, blocks=0).masked(ranker, 0, np.arange(4))[1].blocks) == 0


def test_words_that_no_block_holds_are_not_masked():
    ranker = smith(overlong="truncate")
    with pytest.warns(UserWarning, match="not read"):
        masks = task(ranker, ["river " * 30], words=0.9)
    _, masked = masks.masked(ranker, 0, np.array([0]))
    assert masked.tokens.max() < 8
    assert len(masked.tokens) == 7  # 90 % of 8


# The losses -----------------------------------------------------------------------------------------------------------


def test_losses_are_means_over_documents_and_blocks(ranker):
    masks, budget = task(ranker), Budget(200)
    module, examples = masks.module(ranker.model), np.arange(6)
    with torch.inference_mode():
        loss, means = masks.loss(ranker, module, 0, examples, budget)
        documents, masked = masks.masked(ranker, 0, examples)
        predicted = module(documents, masked, budget)
    document = np.searchsorted(documents.offsets, masked.tokens, side="right") - 1
    by_document = [predicted.word_losses[document == number].mean() for number in range(6)]
    assert means["word_loss"].item() == pytest.approx(torch.stack(by_document).mean().item(), rel=1e-5)
    assert means["block_loss"].item() == pytest.approx(predicted.block_losses.mean().item(), rel=1e-5)
    assert loss.item() == pytest.approx((means["word_loss"] + means["block_loss"]).item(), rel=1e-6)
    assert list(means) == LOSSES


def test_words_are_predicted_from_their_own_states(ranker):
    """The loss of each word, from its document's blocks one by one."""
    masks = task(ranker, texts(3))
    documents, masked = masks.masked(ranker, 1, np.arange(3))
    model = ranker.model
    with torch.inference_mode():
        losses = masks.module(model)(documents, masked, Budget(30)).word_losses
        windows = model.blocks(documents)
        expected = []
        for place, word in zip(masked.tokens, masked.words, strict=True):
            number = np.searchsorted(documents.offsets, place, side="right") - 1
            row, column = np.argwhere(
                (windows.positions == place - documents.offsets[number]) & (windows.document == number)[:, None]
            )[0]
            positions = windows.positions[row][windows.positions[row] >= 0]
            ids = torch.tensor([[2, *documents[number][positions].tolist(), 3]])
            state = model.encoder(input_ids=ids).last_hidden_state[0, 1 + column]
            logits = model.masked_heads.word_logits(state[None], model.encoder.get_input_embeddings().weight)
            expected.append(-logits.log_softmax(1)[0, int(word)])
    torch.testing.assert_close(losses, torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_gradients_reach_all_that_is_trained(ranker):
    masks = task(ranker)
    heads = ranker.model.masked_heads.requires_grad_(True)
    loss, _ = masks.loss(ranker, masks.module(ranker.model), 0, np.arange(8), Budget(100))
    loss.backward()
    without = {".".join(name.split(".")[:2]) for name, each in ranker.model.named_parameters() if each.grad is None}
    assert without == {"scale", "bias", "document_level.pooler", "document_level.denses"}  # which only matching uses
    heads.requires_grad_(False)
    ranker.model.zero_grad()


# Trainings ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted():
    return smith().pretrain(texts(), texts(4, 1), **{**RUN, "save_every": None})


def test_history_has_both_losses_and_accuracies(uninterrupted):
    history = uninterrupted.history
    assert {*LOSSES, *(f"valid_{name}" for name in LOSSES), "valid_negative_loss", "loss"} <= {*history.columns}
    assert np.allclose(history["loss"], history["word_loss"] + history["block_loss"], rtol=1e-5)
    assert np.allclose(-history["valid_negative_loss"], history["valid_word_loss"] + history["valid_block_loss"])
    accuracies = history[[name for name in history if name.endswith("accuracy")]]
    assert ((accuracies >= 0) & (accuracies <= 1)).all(axis=None)


def test_a_killed_pretraining_goes_on_bit_for_bit(uninterrupted, tmp_path):
    killed = subprocess.run([sys.executable, SCRIPT, "kill", tmp_path], timeout=120, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = smith().pretrain(texts(), texts(4, 1), resume=tmp_path, **RUN)
    assert weights_equal(resumed, uninterrupted)
    assert resumed.model_name == uninterrupted.model_name
    pd.testing.assert_frame_equal(
        resumed.history.drop(columns="seconds"), uninterrupted.history.drop(columns="seconds"), check_exact=True
    )
    loaded = SMITH.from_pretrained(str(tmp_path / "best"), device="cpu")
    assert weights_equal(loaded, uninterrupted)
    with pytest.raises(ValueError, match="not those of then"):
        smith().pretrain(texts(), texts(4, 1), resume=tmp_path, masked_blocks=1, **RUN)


def test_two_processes_pretrain_what_one_does(tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, SCRIPT, "share", tmp_path], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    alone = smith(dropout=0.0).pretrain(texts(), texts(4, 1), masked_blocks=0, **{**RUN, "save_every": None})
    shared = SMITH.from_pretrained(str(tmp_path / "last"), device="cpu")
    for name, tensor in alone.model.state_dict().items():
        assert torch.allclose(shared.model.state_dict()[name], tensor, atol=5e-4), name


def test_it_learns_both_tasks():
    documents = texts(32)
    run = {"epochs": 60, "batch_size": 16, "lr": 1e-2, "representation_lr": 1e-2, "validate_every": 40}
    history = smith(dropout=0.0, width=32).pretrain(documents, verbose=False, **run).history
    assert history["word_loss"].iloc[-1] < np.log(6)  # it knows the matter, of 4, and so 5 words of 20
    assert history["block_accuracy"].iloc[-1] > 0.12  # of some 28 masked blocks, a quarter about the same matter


@pytest.mark.parametrize(("off", "left"), [("masked_blocks", "word"), ("masked_words", "block")])
def test_one_task_alone(off, left):
    ranker = smith().pretrain(texts(), **{off: 0}, **{**RUN, "epochs": 1, "save_every": None})
    found = [name for name in LOSSES if name in ranker.history]
    assert found == [f"{left}_loss", f"{left}_accuracy"]
    assert ranker.history["loss"].iloc[0] == pytest.approx(ranker.history[f"{left}_loss"].iloc[0])


def test_fine_tuning_goes_on_from_pretraining(tmp_path):
    ranker = smith().pretrain(texts(), **{**RUN, "epochs": 1, "save_every": None})
    heads = {name: value.clone() for name, value in ranker.model.masked_heads.state_dict().items()}
    name = ranker.model_name
    ranker.fit(*results("t", 0, length=10), epochs=1, verbose=False)
    assert ranker.model_name != name
    assert all(torch.equal(value, heads[key]) for key, value in ranker.model.masked_heads.state_dict().items())
    ranker.save(tmp_path / "smith")
    loaded = SMITH.from_pretrained(str(tmp_path / "smith"))
    assert weights_equal(loaded, ranker)
    again = loaded.pretrain(texts(), **{**RUN, "epochs": 1, "save_every": None})
    assert not weights_equal(again, ranker)


@pytest.mark.parametrize("kind", ["electra", "modernbert", "roberta"])
def test_any_encoder(kind, tmp_path):
    """Token vectors narrower than states, no position table, positions that start at 2."""
    from transformers import AutoConfig, AutoModel

    own = {"electra": {"embedding_size": 8}, "roberta": {"pad_token_id": 1}, "modernbert": {"pad_token_id": 0}}[kind]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(kind, vocab_size=30, **sizes, **own)).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    levels = {"layers": 1, "heads": 2, "feedforward": 16, "block_length": 10}
    ranker = SMITH(str(tmp_path), **levels).pretrain(texts(), **{**RUN, "epochs": 1, "save_every": None})
    vectors = ranker.encode_docs(texts(3))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-4)


def test_any_kind_of_corpus():
    kinds = [
        texts(),
        [{"docno": str(number), "text": text} for number, text in enumerate(texts())],
        ({"text": text} for text in texts()),
        pd.DataFrame({"docno": "d", "text": [*texts(), None, ""]}),
    ]
    run = {**RUN, "epochs": 1, "save_every": None}
    first, *others = (smith().pretrain(corpus, **run) for corpus in kinds)
    assert all(weights_equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masked_words": 1.0}, "masked_words must be a share from 0 to under 1, got 1.0"),
        ({"masked_blocks": -1}, "masked_blocks must be a whole number of at least 0, got -1"),
        ({"masked_blocks": 1.5}, "masked_blocks must be a whole number"),
        ({"masked_words": 0, "masked_blocks": 0}, "nothing to learn from"),
        ({"corpus": ["", " "]}, "the corpus holds no document with any text"),
        ({"validation": []}, "the validation holds no document with any text"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        smith().pretrain(**{"corpus": texts(), "verbose": False, **options})


def test_an_unknown_setting():
    with pytest.raises(TypeError, match="no setting 'learning_rate'"):
        smith().pretrain(texts(), learning_rate=1)
    with pytest.raises(TypeError, match="pretrain has no setting 'loss', 'negatives'"):
        smith().pretrain(texts(), negatives=3, loss="hinge")


@pytest.mark.parametrize(
    ("corpus", "error", "message"),
    [
        ("one text", TypeError, "the corpus must be a frame or an iterable of texts or rows, got str"),
        (5, TypeError, "the corpus must be .*, got int"),
        (["w1", 5], TypeError, "the corpus holds int 5, not text"),
        ([["w1"]], TypeError, "the corpus holds list"),
        ([{"docno": "1"}], ValueError, r"a row of the corpus has no 'text'; it has \['docno'\]"),
        (pd.DataFrame({"body": ["w1"]}), ValueError, "a row of the corpus has no 'text'"),
        ([], ValueError, "no document with any text"),
    ],
)
def test_an_unfit_corpus_leaves_the_model_as_it_was(corpus, error, message):
    ranker = smith()
    with pytest.raises(error, match=message):
        ranker.pretrain(corpus, verbose=False)
    assert ranker.model.masked_heads is None
    assert fingerprint(ranker.model) == ranker.weights_id()


@pytest.mark.parametrize("unfit", [{"save_every": 0}, {"resume": "a", "output_dir": "b"}, {"resume": "nowhere"}])
def test_a_pretraining_that_cannot_begin(unfit):
    ranker = smith()
    name = ranker.model_name
    ranker.weights_id()
    with pytest.raises(ValueError, match=next(iter(unfit))):
        ranker.pretrain(texts(), **{**RUN, **unfit})
    assert ranker.weights_id() == fingerprint(ranker.model)
    assert (ranker.model_name == name) == (ranker.model.masked_heads is None)


def test_texts_are_read_one_by_one_and_not_kept(capsys, monkeypatch):
    class Text(str):
        __slots__ = ("__weakref__",)

    alive, counts = weakref.WeakSet(), []

    def corpus():
        for text in map(Text, texts(60)):
            alive.add(text)
            counts.append(len(alive))
            yield {"text": text}

    monkeypatch.setattr(tokens, "_CHARACTERS_AT_ONCE", 200)  # a few texts
    smith().pretrain(corpus(), **{**RUN, "max_steps": 1, "save_every": None, "verbose": True})
    assert len(counts) == 60 and max(counts) < 15
    assert "SMITH reads the corpus: 60doc" in capsys.readouterr().err


def test_a_tokenizer_without_a_mask():
    without = tokenizer()
    without.mask_token = None
    ranker = smith()
    ranker.tokenizer = without
    with pytest.raises(ValueError, match="the tokenizer has no mask_token"):
        ranker.pretrain(texts())
