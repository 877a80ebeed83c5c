import math

import pytest
import torch

from pyterrier_longdoc.training.losses import LOSSES, hinge, listwise, margin_mse, ranknet

SCORES = torch.tensor([[2.0, 1.5, 3.0], [0.0, -4.0, 0.0]])
# leads of the positive: .5, -1 and 4, 0


def test_hinge_by_hand():
    assert hinge(SCORES).item() == pytest.approx((0.5 + 2 + 0 + 1) / 4)
    assert hinge(SCORES, margin=5.0).item() == pytest.approx((4.5 + 6 + 1 + 5) / 4)


def test_ranknet_by_hand():
    expected = sum(math.log(1 + math.exp(-lead)) for lead in (0.5, -1, 4, 0)) / 4
    assert ranknet(SCORES).item() == pytest.approx(expected)


def test_listwise_by_hand():
    first = -math.log(math.exp(2) / (math.exp(2) + math.exp(1.5) + math.exp(3)))
    second = -math.log(1 / (1 + math.exp(-4) + 1))
    assert listwise(SCORES).item() == pytest.approx((first + second) / 2)


def test_margin_mse_by_hand():
    teacher = torch.tensor([[1.0, 0.0, 0.0], [10.0, 4.0, 9.0]])  # leads 1, 1 and 6, 1
    assert margin_mse(SCORES, teacher).item() == pytest.approx((0.25 + 4 + 4 + 1) / 4)
    assert margin_mse(teacher, teacher).item() == 0
    with pytest.raises(ValueError, match="teacher"):
        margin_mse(SCORES, None)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_means_over_examples_and_push_the_positive_up(name):
    scores = SCORES.clone().requires_grad_()
    teacher = torch.tensor([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    loss = LOSSES[name](scores, teacher)
    halves = [LOSSES[name](SCORES[[row]], teacher[[row]]) for row in range(2)]
    assert loss.item() == pytest.approx(sum(halves).item() / 2)
    loss.backward()
    assert (scores.grad[:, 0] < 0).all()
    assert torch.allclose(scores.grad.sum(1), torch.zeros(2), atol=1e-6)


def test_losses_stay_finite_for_large_scores():
    far = torch.tensor([[-1e4, 1e4]])
    assert ranknet(far).item() == pytest.approx(2e4)
    assert listwise(far).item() == pytest.approx(2e4)
