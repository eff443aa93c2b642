import numpy

from errornorm.reporting.sample import Best, in_turn, lots


def batches(*columns, size=7):
    for start in range(0, len(columns[0]), size):
        yield tuple(column[start : start + size] for column in columns)


def test_the_best_of_many_batches_are_the_best_of_all():
    rng = numpy.random.default_rng(0)
    rows, keys, buckets = numpy.arange(500), rng.permutation(500) / 7, rng.integers(0, 4, 500)
    best, by_bucket = Best(9), Best(3)
    for row, key, bucket in batches(rows, keys, buckets):
        best.offer(row, key)
        by_bucket.offer(row, key, bucket)
    assert best.rows() == numpy.argsort(keys)[:9].tolist()
    expected = [[k for k in numpy.argsort(keys) if buckets[k] == b][:3] for b in range(4)]
    assert by_bucket.rows() == [expected[b][place] for place in range(3) for b in range(4)]
    assert by_bucket.rows([2]) == expected[2]


def test_keys_that_are_no_numbers_are_not_taken():
    best = Best(5)
    best.offer(numpy.arange(3), numpy.array([1.0, numpy.nan, numpy.inf]))
    assert best.rows() == [0]


def test_equal_keys_go_by_the_order_of_the_rows():
    best = Best(2)
    for row, key in batches(numpy.arange(20), numpy.zeros(20)):
        best.offer(row, key)
    assert best.rows() == [0, 1]


def test_lots_are_spread_evenly_and_always_the_same():
    drawn = lots(numpy.arange(100_000))
    counts = numpy.histogram(drawn / 2**64, 10, (0, 1))[0]
    assert counts.min() > 9_700
    assert counts.max() < 10_300
    assert lots(numpy.array([5]))[0] == drawn[5]


def test_queues_take_turns():
    assert list(in_turn([[1, 2, 3], [], [3, 4]])) == [1, 3, 2, 4]
