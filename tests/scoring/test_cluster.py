import shutil

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errornorm.scoring.run import score
from errornorm.scoring.table import SCHEMA, STATISTICS
from tests import tiny
from tests.scoring.models import save

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # about itself
pytest.importorskip("ray", reason="Ray is an extra: pip install errornorm[ray]")


@pytest.fixture(scope="module", autouse=True)
def _ends():
    yield
    import ray

    ray.shutdown()


def test_a_local_ray_makes_the_parts_that_are_missing(tmp_path):
    model = save(tmp_path / "marian", "marian")
    rows = [{"source": a, "target": b, "site": i % 3} for i, (a, b) in enumerate(tiny.PAIRS)]
    corpus = tiny.write_jsonl(tmp_path / "c.jsonl", rows)
    corpus.write_text(corpus.read_text() + "not JSON\n")
    here = score(corpus, model, tmp_path / "here", part=10)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = tmp_path / "there"
    (there / "meta.json").rename(there / "begun.json")
    kept = there / "part-00001.parquet"
    before = kept.stat().st_mtime_ns
    for part in there.glob("part-*.parquet"):
        if part != kept:
            part.unlink()
    told = []
    made = score(corpus, model, there, part=10, engine="ray", workers=1, tell=told.append)
    assert kept.stat().st_mtime_ns == before
    lists = pa.list_(pa.float32())
    exact = [field.name for field in SCHEMA if field.type not in (pa.float32(), lists) and field.name != "alternatives"]
    assert {"record", "text", "token", "start", "word_end", "fields"} <= set(exact)
    assert here.table(exact).equals(made.table(exact))
    for name in STATISTICS:
        ours, theirs = (s.table([name])[name].combine_chunks().values.to_numpy() for s in (here, made))
        numpy.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
    same = ("records", "used", "quarantined", "reasons", "tokens", "words", "parts", "settings", "corpus", "model")
    assert {key: here.meta[key] for key in same} == {key: made.meta[key] for key in same}
    assert told[-1].tokens == made.meta["tokens"] - sum(map(len, pq.read_table(kept)["token"].to_pylist()))
    assert not (there / ".waiting").exists()
