"""Hashes of what tasks draw examples from."""

import numpy as np

from pyterrier_longdoc.training.task import hash_of


def test_hash_of_arrays_sees_borders_types_shapes_and_what_is_missing():
    different = [
        (np.array([1, 2, 3]),), (np.array([1, 2]), np.array([3])), (np.array([1]), np.array([2, 3])),
        (np.array([1, 2, 3], np.int32),), (np.array([[1, 2, 3]]),), (None, np.array([1, 2, 3])), (None,), (),
        (np.array([]),), (np.array([3, 2, 1]),),
    ]
    assert len({hash_of(*arrays) for arrays in different}) == len(different)
    turned = np.array([[1, 4], [2, 5], [3, 6]]).T
    assert hash_of(turned) == hash_of(turned.copy(order="C"))
