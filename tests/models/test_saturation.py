"""Saturation functions and regions, computed by hand."""

import math

import pytest
import torch

from pyterrier_longdoc.models.regions import overhang, region_counts, region_sums, top_local_max
from pyterrier_longdoc.models.saturation import Saturation


def _values(kind: str, frequency: float, *, salience: float = 2.0, count: int = 30) -> float:
    torch.manual_seed(0)
    saturation = Saturation(kind, dims=4, kernels=2).double()
    if kind != "log":
        with torch.no_grad():
            saturation.curves.weight.zero_()
            saturation.curves.weight[0, 0] = 3.0  # the height grows with the term's weight
            saturation.curves.bias.copy_(torch.tensor([1.0, 2.0, 0.5])[: len(saturation.curves.bias)])
    weights = torch.tensor([[salience, salience]], dtype=torch.float64)
    query, mask = torch.zeros(1, 2, 4, dtype=torch.float64), torch.tensor([[True, False]])
    curve = saturation.curves_of(query, mask, weights, torch.tensor([[count]]))
    term, padding = saturation(torch.full((1, 2, 1), frequency, dtype=torch.float64), curve, 1)[0, :, 0].tolist()
    assert padding == 0
    return term


@pytest.mark.parametrize("kind", ["salience", "idf"])
def test_a_curve_by_hand(kind):
    assert _values(kind, 9.0) == pytest.approx(7 * math.sqrt(9) - 0.5)
    assert _values(kind, 9.0, salience=-5) == pytest.approx(1 * 3 - 0.5)  # a negative weight counts as none
    assert _values(kind, 0.0) == pytest.approx(7 * 1e-5 - 0.5)  # clamped at 1e-10


def test_linear_and_log_by_hand():
    assert _values("linear", 9.0) == pytest.approx(7 * 9 + 2)
    assert _values("log", 9.0) == pytest.approx(math.log(9))
    assert _values("log", 0.0) == pytest.approx(math.log(1e-10))


@pytest.mark.parametrize("kind", ["salience", "idf", "embedding"])
def test_learned_curves_start_as_a_logarithm(kind):
    torch.manual_seed(0)
    saturation = Saturation(kind, dims=4, kernels=2)
    with torch.no_grad():
        saturation.curves.weight.zero_()
    curve = saturation.curves_of(torch.zeros(1, 1, 4), torch.ones(1, 1).bool(), torch.ones(1, 1), torch.tensor([[30]]))
    for frequency in (0.5, 1.0, 5.0, 30.0):
        value = saturation(torch.full((1, 1, 1), frequency), curve, 0).item()
        assert value == pytest.approx(math.log(frequency), abs=0.07)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="salience.*embedding.*idf.*log.*linear"):
        Saturation("sqrt", 4, 2)


def test_region_sums_by_hand():
    activation = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]])
    for size, stride, sums in ((3, 2, [6.0, 12.0, 5.0]), (2, 3, [3.0, 9.0]), (9, 4, [15.0, 5.0]), (5, 5, [15.0])):
        padded = torch.nn.functional.pad(activation, (0, overhang(5, size, stride)))
        torch.testing.assert_close(region_sums(padded, size, stride), torch.tensor([[sums]]))
    assert region_counts(torch.tensor([5, 1, 0]), 3, 3, 2).tolist() == [[3, 3, 1], [1, 0, 0], [0, 0, 0]]


def test_peaks_do_not_overlap_and_are_read_with_their_neighbours():
    topography = torch.tensor([[1.0, 9.0, 8.0, 0.5, 7.0, 2.0]])
    index, values = top_local_max(topography, torch.ones(1, 6), peaks=2, distance=2)
    assert index.tolist() == [[1, 4]]
    #                           peaks  -1        +1        -2 (clamped)  +2 (behind the end)
    assert values.tolist() == [[9, 7, 1, 0.5, 8, 2, 1, 8, 0.5, 0]]


def test_the_plain_behind_the_document_is_the_last_choice():
    """Real regions are taken first, negative ones too; then the first free places behind the end, which are zero."""
    topography = torch.tensor([[-3.0, -5.0, 0.0, 0.0]])
    index, values = top_local_max(topography, torch.tensor([[2, 1, 0, 0]]), peaks=3, distance=4)
    assert index.tolist() == [[0, 4, 8]]
    assert values[0, :3].tolist() == [-3, 0, 0]


def test_gradients_flow_to_the_regions_that_were_read():
    topography = torch.tensor([[1.0, 9.0, 8.0, 0.5]], requires_grad=True)
    _, values = top_local_max(topography, torch.ones(1, 4), peaks=1, distance=9)
    values.sum().backward()
    assert topography.grad.tolist() == [[2.0, 1.0, 1.0, 1.0]]  # region 0 is neighbour -1 and, clamped, -2
