import pickle
import re
import sys
import types
import warnings

import numpy as np
import pytest
import torch

from pyterrier_longdoc import SMITH, ReRanker
from pyterrier_longdoc.models.smith import SMITHModel
from pyterrier_longdoc.text import fill_blocks
from pyterrier_longdoc.text.tokens import tokenize
from tests.conftest import as_frame, shake
from tests.models.test_smith import HEADS, STATE

TEXT = "w1 w2 w3. w4 w5 w6 w7 w8. w9 w10. " * 4
SMALL = {"layers": 1, "heads": 2, "feedforward": 16, "block_length": 12, "max_blocks": 40}
SIZES = {"width": 16, "sentence_layers": 1, "sentence_heads": 2, "sentence_feedforward": 16}


@pytest.fixture(scope="module")
def make(tiny):
    def make_smith(**options):
        return shake(SMITH(tiny.encoder, **{**SMALL, **options}))

    return make_smith


def on_semicolons(text):
    return text.split(";")


# Ways to begin --------------------------------------------------------------------------------------------------------


def test_the_papers_sizes():
    smith = SMITH()
    config, encoder = smith.model.config, smith.model.encoder.config
    assert (encoder.num_hidden_layers, encoder.hidden_size, encoder.num_attention_heads) == (6, 256, 4)
    assert (encoder.intermediate_size, encoder.hidden_dropout_prob, config.dropout) == (1024, 0.1, 0.1)
    assert (config.layers, config.heads, config.block_length, config.max_blocks) == (3, 4, 32, 48)
    assert smith.model.dims == 256
    assert smith.tokenizer.tokenize("Hello there") == ["hello", "there"]
    assert re.fullmatch(r"SMITH\('smith#[0-9a-f]{8}'\)", repr(smith))


def test_an_encoder_gives_its_weights_and_pooler(tiny):
    from transformers import AutoModel

    smith, bert = SMITH(tiny.encoder, **SMALL), AutoModel.from_pretrained(tiny.encoder)
    theirs = {name: value for name, value in bert.state_dict().items() if not name.startswith("pooler")}
    ours = smith.model.encoder.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(smith.model.sentence_pooler.weight, bert.pooler.dense.weight)
    text = "w1 w2 w3. w4"  # one block: its vector is that of the pooler
    with torch.inference_mode():
        pooled = bert(torch.tensor([smith.tokenizer(text)["input_ids"]])).pooler_output[0]
        windows = smith.model.config.template.windows(tokens := smith.tokenize([text]), smith.model.blocks(tokens))
        vector = smith.model.encode_sentences(windows, smith.budget())
    torch.testing.assert_close(vector[0], torch.nn.functional.normalize(pooled, dim=0), atol=1e-5, rtol=0)


def test_dropout_of_both_levels_without_an_encoder():
    smith = SMITH(**SIZES, **SMALL, dropout=0.3)
    encoder = smith.model.encoder.config
    assert (encoder.hidden_dropout_prob, encoder.attention_probs_dropout_prob) == (0.3, 0.3)
    assert smith.model.document_level.encoder.layers[0].dropout.p == 0.3


def test_no_such_encoder_or_setting(tiny):
    with pytest.raises(ValueError, match="leave out what is for encoder=None"):
        SMITH(tiny.encoder, width=128)
    with pytest.raises(ValueError, match="no-such-encoder"):
        SMITH("no-such-encoder")
    with pytest.raises(TypeError, match="blocklength"):
        SMITH(tiny.encoder, blocklength=3)


# Reading --------------------------------------------------------------------------------------------------------------


def test_blocks_of_a_text_are_whole_sentences(make):
    smith = make()
    tokens = smith.tokenize([TEXT])
    windows = smith.model.blocks(tokens)
    sentences = [tokenize(smith.tokenizer, [part + "."])[0] for part in TEXT.split(".")[:-1]]
    expected = fill_blocks(sentences, 12)
    assert [tokens[0][row[row >= 0]].tolist() for row in windows.positions] == expected
    assert len(expected) > 4


def test_a_query_is_read_as_a_document(make):
    smith = make()
    out = smith(as_frame(("1", TEXT, "same", TEXT), ("1", TEXT, "other", "w9 w8. w7.")))
    assert out["score"].iloc[0] == pytest.approx(1, abs=1e-6)
    assert out["score"].iloc[1] < 1
    np.testing.assert_allclose(smith.encode_queries([TEXT]), smith.encode_docs([TEXT]))


@pytest.mark.parametrize("side", ["query", "text"])
def test_what_is_behind_the_last_block_is_counted(make, side):
    smith = make(max_blocks=3)
    long, short = ("w1 w2 w3 w4 w5 w6 w7. " * 6)[:-1], "w9."
    row = ("1", long, "d", short) if side == "query" else ("1", short, "d", long)
    with pytest.warns(UserWarning, match=r"1 of 1 texts are longer than max_blocks=3 blocks of 12 tokens; \d+\.\d%"):
        score = smith(as_frame(row))["score"].iloc[0]
    head = " ".join(long.split()[:21])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        row = ("1", head, "d", short) if side == "query" else ("1", short, "d", head)
        frame = as_frame(row)
        tokens = smith.tokenize([head])
        assert len(smith.model.blocks(tokens)) <= 3
        assert smith(frame)["score"].iloc[0] == pytest.approx(score, abs=1e-6)


def test_tails_of_sentences_that_are_truncated_are_counted(make):
    smith = make(overlong="truncate")
    with pytest.warns(UserWarning, match="1 of 2 texts .* or have a sentence longer than a block; 50.0% of all tokens"):
        smith.encode_docs(["w1 " * 20, ""])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        smith.encode_docs([TEXT])


def test_sentences_of_the_users_own(make, tmp_path):
    plain, own = make(), make(sentences=on_semicolons)
    text = "w1 w2 w3 w4; w5 w6 w7 w8 w9; w1 w2 w3"
    assert len(own.tokenize([text]).starts()[0]) == 3
    assert not np.allclose(own.encode_docs([text]), plain.encode_docs([text]), atol=1e-4)
    assert own.weights_id() != plain.weights_id()
    own.save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"from_pretrained\(path, sentences=function\)"):
        SMITH.from_pretrained(str(tmp_path / "own"))
    with pytest.raises(ValueError, match="sentences='tests.test_smith.on_semicolons', not 'en'"):
        SMITH.from_pretrained(str(tmp_path / "own"), sentences="en")
    loaded = ReRanker.from_pretrained(str(tmp_path / "own"), sentences=on_semicolons)
    for copied in (loaded, pickle.loads(pickle.dumps(own))):
        assert np.array_equal(copied.encode_docs([text]), own.encode_docs([text]))


def test_splittings(make):
    # Room for 10: greedy 8 + 10 + 4, natural 4 + 4 + 6 + 4 + 4
    smith = make()
    text = "w1 w2 w3. w4 w5 w6. w1 w2 w3 w4 w5. w1 w2 w3. w4 w5 w6."
    table = smith.splittings([text, ""]).set_index("splitting")
    lengths = tokenize(smith.tokenizer, [part + "." for part in text.split(".")[:-1]]).lengths
    assert table.loc["natural", "blocks"] == 6  # the empty text is an empty block
    assert (table["tokens"] == lengths.sum()).all()
    for name, row in table.iterrows():
        blocks = len(fill_blocks([[0] * length for length in lengths], 12, splitting=name)) + 1
        assert row["padding"] == pytest.approx(1 - lengths.sum() / (10 * blocks))
    assert table.loc["greedy", "padding"] < table.loc["natural", "padding"]


# Explaining -----------------------------------------------------------------------------------------------------------


def test_a_block_weighs_what_the_score_loses_without_it(make):
    smith = make()
    text = "w1 w2 w3 w4 w5 w6 w7. w9 w8 w7 w6 w5 w4 w3. w1 w3 w5 w7 w9 w1 w3."
    frame = as_frame(("1", "w1 w2", "d", text))
    explained = smith.explain(frame).frame
    assert explained["kind"].eq("block").all()
    assert "".join(explained["text"]).replace(" ", "") == text.replace(" ", "")
    without_last = text[: explained["spans"].iloc[-1][0][0]]
    expected = smith(frame)["score"].iloc[0] - smith(frame.assign(text=without_last))["score"].iloc[0]
    assert explained["weight"].iloc[-1] == pytest.approx(expected, abs=1e-5)
    assert explained["weight"].nunique() == len(explained) > 1


# Saving, and the published checkpoint ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{"combine": "attention", "pooling": "mean"}, {"splitting": "natural", "overlong": "truncate"}]
)
def test_settings_are_saved(make, tmp_path, settings):
    smith = make(**settings)
    smith.save(tmp_path / "smith")
    loaded = SMITH.from_pretrained(str(tmp_path / "smith"))
    assert loaded.model.config == smith.model.config
    assert np.array_equal(loaded.encode_docs([TEXT]), smith.encode_docs([TEXT]))


@pytest.fixture
def tensorflow(monkeypatch):
    """What is used of TensorFlow, over the golden variables."""

    class Reader:
        def get_variable_to_shape_map(self):
            return {name: value.shape for name, value in STATE.items()} | {"bert/pooler/dense/bias/adam_m": (32,)}

        def get_tensor(self, name):
            return STATE[name]

    def load(prefix):
        if prefix != "folder/model.ckpt":
            raise ValueError("Couldn't find 'checkpoint' file")
        return Reader()

    module = types.ModuleType("tensorflow")
    module.train = types.SimpleNamespace(
        latest_checkpoint=lambda path: "folder/model.ckpt" if path == "folder" else None, load_checkpoint=load
    )
    module.errors = types.SimpleNamespace(OpError=OSError)
    monkeypatch.setitem(sys.modules, "tensorflow", module)


@pytest.fixture
def sixty_pieces(tmp_path):
    from transformers import BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w", ".", *(f"##{digit}" for digit in range(10))]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces + [f"x{number}" for number in range(43)]), encoding="utf-8")
    return BertTokenizerFast.from_pretrained(tmp_path)


@pytest.mark.parametrize("path", ["folder", "folder/model.ckpt"])
def test_a_published_checkpoint(tensorflow, sixty_pieces, path, tmp_path):
    smith = SMITH.from_tf_checkpoint(path, sixty_pieces, heads=HEADS, block_length=16)
    expected = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    state = smith.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.state_dict().items())
    text = "w1 w2. w3 w4."
    ids = [2, *tokenize(sixty_pieces, [text])[0].tolist(), 3, 3]
    with torch.inference_mode():
        vector = expected.encode_blocks(torch.tensor([[ids]]), torch.ones(1, 1, len(ids)), tower=2)
    np.testing.assert_allclose(smith.encode_docs([text]), vector, atol=1e-6)
    assert not np.allclose(smith.encode_queries([text]), vector, atol=1e-3)  # the towers' last denses differ
    smith.save(tmp_path / "saved")
    again = SMITH.from_pretrained(str(tmp_path / "saved"))
    assert np.array_equal(again.encode_queries([text]), smith.encode_queries([text]))


def test_no_published_checkpoint(tensorflow, sixty_pieces):
    with pytest.raises(ValueError, match="elsewhere holds no TensorFlow checkpoint"):
        SMITH.from_tf_checkpoint("elsewhere", sixty_pieces)
    with pytest.raises(ValueError, match="numbers its tokens up to 30521, but there are 60"):
        SMITH.from_tf_checkpoint("folder", heads=HEADS)


def test_no_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="pip install tensorflow"):
        SMITH.from_tf_checkpoint("folder")
