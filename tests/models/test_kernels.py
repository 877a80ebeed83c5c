"""Kernel pooling and KNRM, computed by hand."""

import math

import pytest
import torch

from pyterrier_longdoc.models.kernels import KernelBank, cosine_matrix, log_pool, unit
from pyterrier_longdoc.models.knrm import KNRMConfig, KNRMModel


def test_kernels_are_gaussian():
    bank = KernelBank([1.0, 0.0], [0.5, 0.1])
    first, second = bank(torch.tensor([[1.0, 0.5, 0.0]]))
    assert first.tolist()[0] == pytest.approx([1, math.exp(-0.5), math.exp(-2)])
    assert second.tolist()[0] == pytest.approx([math.exp(-50), math.exp(-12.5), 1])
    sums = bank.sums(torch.tensor([[[1.0, 0.5, 0.0]]]))
    assert sums.shape == (1, 1, 2)
    assert sums[0, 0, 0].item() == pytest.approx(1 + math.exp(-0.5) + math.exp(-2))


@pytest.mark.parametrize("widths", [[0.1], [0.1, 0.0], [0.1, -1.0]])
def test_kernels_need_a_positive_width_each(widths):
    with pytest.raises(ValueError, match="one positive width for each of 2 centres"):
        KernelBank([1.0, 0.0], widths)


def test_kernels_are_saved_with_the_model():
    """A bank that is only an attribute is lost, or garbage, after loading."""
    assert KernelBank([1.0, 0.0], [0.5, 0.1]).state_dict().keys() == {"mu", "sigma"}


def test_unit_vectors():
    assert unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    assert unit(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.float32
    assert unit(torch.ones(2, dtype=torch.float64)).dtype == torch.float64


def test_padding_is_out_of_reach_of_every_kernel():
    query = torch.tensor([[[1.0, 0.0]]])
    document = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    cosine = cosine_matrix(query, document, torch.tensor([[True, True, False]]))
    assert cosine[0, 0, :2].tolist() == [1, 0]
    bank = KernelBank([1.0, -0.9], [1e-4, 0.5])
    assert [activation[0, 0, 2].item() for activation in bank(cosine)] == [0, 0]


def test_logs_are_added_over_real_query_terms():
    sums = torch.tensor([[[1.0, math.e], [0.0, math.e], [5.0, 5.0]]])
    pooled = log_pool(sums, torch.tensor([[True, True, False]]))
    assert pooled[0].tolist() == pytest.approx([math.log(1e-10), 2])


def test_knrm_by_hand():
    """Query (a), document (a b a) with cos(a, b) = .5: two exact matches, one match in the kernel around .5."""
    model = KNRMModel(KNRMConfig(dims=2, vocabulary=2, centres=(1.0, 0.5), scale=0.01))
    with torch.no_grad():
        model.dense.weight.copy_(torch.tensor([[2.0, 3.0]]))
        query = torch.tensor([[[1.0, 0.0]]])
        document = torch.tensor([[[2.0, 0.0], [0.5, 0.75**0.5], [1.0, 0.0]]])
        score = model.score_embeddings(query, torch.ones(1, 1), document, torch.ones(1, 3))
    middle = 1 + 2 * math.exp(-(0.5**2) / (2 * 0.1**2))
    assert score.item() == pytest.approx(0.01 * (2 * math.log(2) + 3 * math.log(middle)), rel=1e-5)
