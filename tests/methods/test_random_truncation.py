import torch

from errornorm import RobustLoss, random_truncation


def draws(objective, batches=200, shape=(4, 10)):
    loss = RobustLoss(objective)
    logits = torch.zeros(*shape, 3, requires_grad=True)
    return torch.stack(
        [loss(logits=logits, targets=torch.zeros(shape, dtype=torch.long)).weights for _ in range(batches)]
    )


def test_every_token_is_dropped_equally_often():
    dropped = 1 - draws(random_truncation(0.25))
    assert (dropped.sum((1, 2)) == 10).all()
    assert (dropped.mean(0) - 0.25).abs().max() < 0.12  # four standard deviations


def test_sequences_of_any_length_are_dropped_equally_often():
    loss = RobustLoss(random_truncation(0.25, unit="sequence"))
    targets = torch.zeros(4, 10, dtype=torch.long)
    targets[0, 1:] = -100  # one token; its score is as good as that of a long sequence
    logits = torch.zeros(4, 10, 3, requires_grad=True)
    kept = torch.stack([loss(logits=logits, targets=targets).weights[:, 0] for _ in range(400)])
    assert (kept.sum(1) == 3).all()
    assert ((1 - kept).mean(0) - 0.25).abs().max() < 0.09


def test_the_seed_decides():
    assert torch.equal(draws(random_truncation(seed=1), 3), draws(random_truncation(seed=1), 3))
    assert not torch.equal(draws(random_truncation(seed=1), 3), draws(random_truncation(seed=2), 3))
