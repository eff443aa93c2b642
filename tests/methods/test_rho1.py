from tests.problems import weigh


def test_keeps_the_largest_excess_over_the_reference():
    rows = [[0.1, 0.9], [0.1, 0.9], [0.5, 0.5], [0.9, 0.1], [0.9, 0.1]]
    reference = [2.3, 0.1, 0.1, 0.1, 2.0]  # excess 0.0, 2.2, 0.59, 0.005, -1.9
    assert weigh("rho1(0.6)", *rows, ref_nll=reference).weights.tolist() == [0, 1, 1, 1, 0]
    assert weigh("rho1(0.2)", *rows, ref_nll=reference).weights.tolist() == [0, 1, 0, 0, 0]
