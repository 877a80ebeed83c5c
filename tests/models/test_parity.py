"""The kernel family equals the published implementations, on their own weights (see golden/README.md)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pyterrier_longdoc.models.conv_knrm import ConvKNRMModel
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.kernels import cosine_matrix
from pyterrier_longdoc.models.knrm import KNRMModel
from pyterrier_longdoc.models.tk import TKConfig, TKModel
from pyterrier_longdoc.models.tkl import TKLConfig, TKLModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.windows import Ragged

SATURATIONS = ("embedding", "idf", "log", "linear")
TK_FILES = {"tk_native": {}, "tk_v1": {}, "ecai20_tk_mix": {}, "ecai20_tk_nomix": {"mix": False}}
HEADS = 4


class Golden:
    """One golden file: its state, its inputs as :meth:`KernelModel.score_embeddings` takes them, its outputs."""

    def __init__(self, name: str) -> None:
        with np.load(Path(__file__).parent / "golden" / f"{name}.npz") as arrays:
            self.arrays = dict(arrays)
        self.state = {key.removeprefix("state/"): value for key, value in self.arrays.items() if "state/" in key}
        self.query_mask = torch.from_numpy(self.arrays["query_ids"] > 0)
        self.document_mask = torch.from_numpy(self.arrays["doc_ids"] > 0)

    def __getitem__(self, key: str) -> np.ndarray:
        return self.arrays[key]

    def inputs(self, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
        table = torch.from_numpy(self["emb_table"]).to(dtype)
        query, document = (table[torch.from_numpy(self[ids]).long()] for ids in ("query_ids", "doc_ids"))
        if "idf_table" not in self.arrays:
            return query, self.query_mask, document, self.document_mask
        idf = torch.from_numpy(self["idf_table"][self["query_ids"].astype(int)][..., 0]).to(dtype)
        return query, self.query_mask, document, self.document_mask, idf

    def contextualized(self, model: KernelModel) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Query vectors, and the vectors of each document."""
        query, query_mask, document, mask, *_ = self.inputs(next(model.parameters()).dtype)
        lengths = mask.sum(1).tolist()
        tokens = Ragged.from_lists([np.zeros(length) for length in lengths])
        packed = model.contextualize_documents(tokens, Budget(2_000), document[mask])
        return model.contextualize_query(query, query_mask), list(packed.split(lengths))


@pytest.fixture(scope="module", params=["tkl_perturbed", "tkl_init"])
def tkl(request) -> Golden:
    return Golden(request.param)


@pytest.fixture(scope="module")
def perturbed() -> Golden:
    return Golden("tkl_perturbed")


def assert_scores(scores: torch.Tensor, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    error = np.abs(scores.detach().numpy() - expected) / np.maximum(1, np.abs(expected))
    assert error.max() <= tolerance, f"{error.max():.2e}: {scores.tolist()} against {expected.tolist()}"


# TKL ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saturation", SATURATIONS)
def test_tkl_scores_as_if_padded_far_beyond_the_end(tkl, saturation):
    model = TKLModel.from_matchmaker(tkl.state, heads=HEADS, saturation=saturation)
    with torch.no_grad():
        assert_scores(model.score_embeddings(*tkl.inputs()), tkl[f"{saturation}/pad2000/score"])


@pytest.mark.parametrize("saturation", SATURATIONS)
def test_tkl_in_float64(tkl, saturation):
    """Golden float64 scores exist for the shorter padding, which matters to the longest document only."""
    model = TKLModel.from_matchmaker(tkl.state, heads=HEADS, saturation=saturation).double()
    with torch.no_grad():
        scores = model.score_embeddings(*tkl.inputs(torch.float64))
    assert scores.dtype == torch.float64
    assert_scores(scores[:5], tkl[f"{saturation}/batch/score64"][:5], 1e-9)


@pytest.mark.parametrize("saturation", SATURATIONS)
def test_tkl_picks_the_same_regions(tkl, saturation):
    model = TKLModel.from_matchmaker(tkl.state, heads=HEADS, saturation=saturation)
    query, query_mask, document, mask, idf = tkl.inputs()
    expected = tkl[f"{saturation}/pad2000/top_idx"]
    with torch.no_grad():
        query, documents = tkl.contextualized(model)
        for i, vectors in enumerate(documents):
            queries = model._encode_query_vectors(tkl.inputs()[0][i : i + 1], query_mask[i : i + 1], idf[i : i + 1])
            found = model.evidence(queries, model.unit_vectors(vectors)[None], torch.ones(1, len(vectors)).bool())
            real = expected[i] * 2 < len(vectors)
            assert real.any()
            np.testing.assert_array_equal(found.start[0][real], expected[i][real] * 2)
            np.testing.assert_array_equal(found.end[0][real], np.minimum(expected[i] * 2 + 30, len(vectors))[real])


@pytest.mark.parametrize("saturation", SATURATIONS)
def test_tkl_topography(perturbed, saturation):
    """The score of every region of every document, in float64."""
    model = TKLModel.from_matchmaker(perturbed.state, heads=HEADS, saturation=saturation).double()
    query, query_mask, document, mask, idf = perturbed.inputs(torch.float64)
    expected = perturbed[f"{saturation}/batch/orig_score64"]
    with torch.no_grad():
        queries = model._encode_query_vectors(query, query_mask, idf)
        _, documents = perturbed.contextualized(model)
        padded = torch.nn.utils.rnn.pad_sequence([model.unit_vectors(vectors) for vectors in documents], True)
        topography, counts = model.topography(queries, padded, mask)
    assert topography.shape == counts.shape == (6, 500)
    np.testing.assert_allclose(topography[:, : expected.shape[1]], expected, rtol=1e-9, atol=1e-9)
    assert ((counts > 0).sum(1) == (mask.sum(1) + 1) // 2).all()


def test_tkl_contextualised_vectors_and_cosines(perturbed):
    model = TKLModel.from_matchmaker(perturbed.state, heads=HEADS)
    with torch.no_grad():
        queries, documents = perturbed.contextualized(model)
    chunk = 0
    for i, document in enumerate(documents):
        real = perturbed.query_mask[i]
        for core in document.split(40):
            query = torch.from_numpy(perturbed["embedding/batch/q_ctx_packed"][chunk])[real]
            expected = torch.from_numpy(perturbed["embedding/batch/d_ctx_packed"][chunk])[: len(core)]
            cosine = torch.from_numpy(perturbed["embedding/batch/cosine"][chunk])[real][:, : len(core)]
            torch.testing.assert_close(queries[i][real], query, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(core, expected, rtol=1e-5, atol=1e-5)
            units = model.unit_vectors(queries[i][real])[None], model.unit_vectors(core)[None]
            ours = cosine_matrix(*units, torch.ones(1, len(core)).bool())[0]
            torch.testing.assert_close(ours, cosine, rtol=0, atol=2e-6)
            chunk += 1
    assert chunk == len(perturbed["embedding/batch/cosine"])


@pytest.mark.parametrize("saturation", SATURATIONS)
def test_an_empty_document_scores_zero_and_leaves_the_others_alone(tkl, saturation):
    model = TKLModel.from_matchmaker(tkl.state, heads=HEADS, saturation=saturation)
    query, query_mask, document, mask, idf = tkl.inputs()
    emptied = mask.clone()
    emptied[1] = False
    with torch.no_grad():
        scores = model.score_embeddings(query, query_mask, document, emptied, idf)
    assert scores[1] == tkl[f"{saturation}/emptydoc1/score"][1] == 0
    expected = tkl[f"{saturation}/pad2000/score"].copy()
    expected[1] = 0
    assert_scores(scores, expected)


@pytest.mark.parametrize("saturation", SATURATIONS)
def test_tkl_gradients_of_query_vectors(perturbed, saturation):
    """Of the documents that the reference scores alike under both paddings."""
    model = TKLModel.from_matchmaker(perturbed.state, heads=HEADS, saturation=saturation)
    query, *others = perturbed.inputs()
    query.requires_grad_()
    model.score_embeddings(query, *others).mean().backward()
    expected = perturbed[f"{saturation}/batch/grad/query_embeddings"][:5]
    assert np.abs(query.grad[:5].numpy() - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_fresh_tkl_starts_where_the_reference_starts():
    golden = Golden("tkl_init")
    model = TKLModel(TKLConfig(dims=32, heads=HEADS, feedforward=64, saturation="embedding"))
    expected = TKLModel.from_matchmaker(golden.state, heads=HEADS, saturation="embedding").state_dict()
    found = model.state_dict()
    assert found.keys() == expected.keys()
    for name in ("query_positions.table", "document_positions.table", "contextualizer.alpha", "saturation.curves.bias",
                 "saturation.norm.weight", "kernels.mu", "kernels.sigma"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=2e-5, msg=name)
    for name in ("dense.weight", "saturation.curves.weight"):
        assert 0.005 < found[name].abs().max() <= 0.014
        assert expected[name].abs().max() <= 0.014


def test_a_fresh_tk_starts_where_the_reference_starts():
    golden = Golden("ecai20_tk_mix")
    model = TKModel(TKConfig(dims=32, heads=HEADS, feedforward=64))
    for table, theirs in ((model.query_positions, "q"), (model.document_positions, "d")):
        expected = torch.from_numpy(golden.state[f"positional_features_{theirs}"][0])
        torch.testing.assert_close(table.table.data, expected, rtol=0, atol=2e-5)
        assert not table.table.requires_grad
    assert model.scale.tolist() == [1] * 11
    assert model.contextualizer.alpha.item() == 0.5


# TK, KNRM, Conv-KNRM --------------------------------------------------------------------------------------------------


def _load(name: str) -> tuple[Golden, KernelModel]:
    golden = Golden(name)
    if name == "conv_knrm":
        return golden, ConvKNRMModel.from_matchmaker(golden.state)
    if name == "knrm":
        return golden, KNRMModel.from_matchmaker(golden.state)
    return golden, TKModel.from_matchmaker(golden.state, heads=HEADS, **TK_FILES[name])


@pytest.mark.parametrize("name", [*TK_FILES, "knrm"])
def test_score(name):
    golden, model = _load(name)
    with torch.no_grad():
        scores = model.score_embeddings(*golden.inputs())
        assert_scores(scores, golden["score"], 1e-5)
        assert_scores(scores, golden["single_score"], 1e-5)
        assert_scores(model.double().score_embeddings(*golden.inputs(torch.float64)), golden["score64"], 1e-9)


def test_conv_knrm_scores_every_pair_as_if_alone():
    golden, model = _load("conv_knrm")
    with torch.no_grad():
        assert_scores(model.score_embeddings(*golden.inputs()), golden["single_score"])


@pytest.mark.parametrize("name", [*TK_FILES, "knrm"])
def test_cosines(name):
    golden, model = _load(name)
    key = next(key for key in golden.arrays if key.startswith("secondary/cosine_matrix"))
    with torch.no_grad():
        queries, documents = golden.contextualized(model)
        for i, document in enumerate(documents):
            real = golden.query_mask[i]
            ours = model.unit_vectors(queries[i][real]) @ model.unit_vectors(document).T
            expected = golden[key][i][real.numpy()][:, : len(document)]
            np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", [*TK_FILES, "knrm"])
def test_gradients(name):
    golden, model = _load(name)
    query, *others = golden.inputs()
    query.requires_grad_()
    model.score_embeddings(query, *others).mean().backward()
    found = {"query_embeddings": query.grad}
    for own, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[_reference_name(name, own)] = parameter.grad
    expected = {key.removeprefix("grad/"): value for key, value in golden.arrays.items() if key.startswith("grad/")}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        error = np.abs(found[key].numpy().reshape(value.shape) - value).max()
        assert error <= 1e-5 * np.abs(value).max(), f"{key}: {error:.2e} of {np.abs(value).max():.2e}"


def _reference_name(file: str, own: str) -> str:
    simple = {"contextualizer.alpha": "mixer", "combine.weight": "dense_comb.weight"}
    newest = {"scale": "kernel_alpha_scaler", "dense.weight": "kernel_bin_weights.weight"}
    simple |= newest if file.startswith("ecai20") else {"scale": "nn_scaler", "dense.weight": "dense.weight"}
    if own in simple:
        return simple[own]
    if file != "tk_v1" or not own.startswith("contextualizer.layers."):
        return own
    _, _, number, *rest = own.split(".")
    module = {
        "hidden": f"feedforward_{number}._linear_layers.0",
        "output": f"feedforward_{number}._linear_layers.1",
        "feedforward_norm": f"feedforward_layer_norm_{number}",
        "combined_projection": f"self_attention_{number}._combined_projection",
        "output_projection": f"self_attention_{number}._output_projection",
        "attention_norm": f"layer_norm_{number}",
    }[rest[0]]
    return f"stacked_att.{module}.{rest[1]}"
