"""Social weights: the formulas by hand, and every kind of odd vector."""

import numpy as np
import pytest

from pyterrier_longdoc.graph import SocialWeights, query_distance, tf_idf
from pyterrier_longdoc.graph.weights import scaled


def test_static_distance_is_the_inverse_square_law():
    matrix = SocialWeights(151).probabilities()
    assert matrix[0, 50] == matrix[150, 100] == 0.25  # 1 / (1 + 50/50)²
    assert matrix[3, 28] == pytest.approx(1 / 1.5**2)  # real division: the published code gives 1
    assert matrix[0, 150] == 0.0625
    assert (matrix.diagonal() == 0).all()


def test_the_mixture_by_hand():
    static, near, central = [0.0, 2.0, 4.0], [5.0, 5.0, 5.0], [-1.0, 1.0, 0.0]
    weights = SocialWeights(3, True, np.array(static), np.array(near), np.array(central))
    t, d, c = [0, 0.5, 1], [1, 1, 1], [0, 1, 0.5]  # scaled to [0, 1]; a constant vector becomes ones
    expected = [
        [0.2 * t[i] * t[j] + 0.3 * d[i] * d[j] + 0.2 * c[i] * c[j] + 0.3 / (1 + abs(i - j) / 50) ** 2 for j in range(3)]
        for i in range(3)
    ]
    np.testing.assert_allclose(weights.probabilities(), np.array(expected) * (1 - np.eye(3)), rtol=1e-14)


def test_patterns_that_are_off_drop_out_and_the_rest_is_scaled_up():
    weights = SocialWeights(2, False, dynamic_distance=np.array([1.0, 1.0]), dynamic_centrality=np.array([0.0, 3.0]))
    assert weights.patterns == ("dynamic_distance", "dynamic_centrality")
    assert weights.probabilities()[0, 1] == pytest.approx(0.6)  # .3 / (.3 + .2) * 1 * 1 + .2 / (.3 + .2) * 0 * 1


def test_without_patterns_all_pairs_are_alike():
    matrix = SocialWeights(40, static_distance=False).probabilities()
    assert set(matrix[~np.eye(40, dtype=bool)]) == {1.0}


def test_smoothing_by_the_square_root():
    plain, smooth = (
        SocialWeights(3, False, np.array([0.0, 1.0, 4.0]), smoothing=name).probabilities()[1, 2]
        for name in ("identity", "sqrt")
    )
    assert plain == pytest.approx(0.25)
    assert smooth == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], []), ([0.0], [0]), ([7.0], [1]), ([0, 0, 0], [0, 0, 0]), ([-2, -2], [1, 1]), ([1, 3, 2], [0, 1, 0.5]),
     ([-1e308, 0, 1e308], [0, 0.5, 1])],
)
def test_scaling(values, expected):
    assert scaled(np.array(values, float)).tolist() == expected


def test_tf_idf_counts_in_the_document():
    idf = np.array([0.0, 2.0, 0.5, 9.0])
    assert tf_idf(np.array([1, 2, 1, 0]), idf).tolist() == [4, 0.5, 4, 0]
    assert tf_idf(np.array([1, 2, 1, 0])).tolist() == [2, 1, 2, 1]
    assert tf_idf(np.array([], np.int32), idf).shape == (0,)


def test_query_distance_against_a_naive_loop():
    random = np.random.default_rng(0)
    tokens, query = random.integers(0, 30, 170), np.array([3, 7, 7, 99])
    expected = [sum(1 / (1 + abs(i - h) / 50) ** 2 for h in range(170) if tokens[h] in (3, 7)) for i in range(170)]
    np.testing.assert_allclose(query_distance(tokens, query), expected, rtol=1e-13)


@pytest.mark.parametrize(("tokens", "query"), [([], [1]), ([5, 6], [1]), ([5, 6], []), ([5], [6])])
def test_no_match_is_zero(tokens, query):
    assert query_distance(np.array(tokens, int), np.array(query, int)).tolist() == [0.0] * len(tokens)


@pytest.mark.parametrize("name", ["static_centrality", "dynamic_distance", "dynamic_centrality"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_broken_vectors_are_named(name, broken):
    with pytest.raises(ValueError, match=rf"{name} holds {broken} for token 1"):
        SocialWeights(3, **{name: np.array([0.0, broken, 1.0])})
    with pytest.raises(ValueError, match=rf"{name} needs one weight for each of 3 tokens, got the shape \(2,\)"):
        SocialWeights(3, **{name: np.zeros(2)})


def test_other_bad_input():
    with pytest.raises(ValueError, match="n must be a whole number of at least 0, got -1"):
        SocialWeights(-1)
    with pytest.raises(ValueError, match="n must be a whole number of at least 0, got 2.5"):
        SocialWeights(2.5)
    with pytest.raises(ValueError, match="smoothing must be one of 'identity', 'sqrt'"):
        SocialWeights(3, smoothing="log")
