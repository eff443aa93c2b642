import json
import os
import random
import shutil
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from errornorm.cli import main
from errornorm.curation.prune import prune
from errornorm.data.lines import DataError
from errornorm.scoring import run, table
from errornorm.scoring.run import score
from errornorm.scoring.table import Scores, parts_of
from tests import tiny
from tests.scoring.models import save
from tests.scoring.runs import Score


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("score")
    save(place / "marian", "marian")
    save(place / "gpt2", "gpt2")
    rows = [{"source": a, "target": b, "site": i % 3} for i, (a, b) in enumerate(tiny.PAIRS * 3)]
    tiny.write_jsonl(place / "pairs.jsonl", rows)
    (place / "text.txt").write_text("\n".join(a for a, _ in tiny.PAIRS) + "\n")
    return place


def content(scores):
    """Bytes of everything that must be equal."""
    folder = scores.folder if isinstance(scores, Scores) else scores
    meta = json.loads((folder / "meta.json").read_text())
    del meta["command"]
    return meta, {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def test_a_corpus_of_pairs(folder, tmp_path):
    scores = score(folder / "pairs.jsonl", folder / "marian", tmp_path / "s", part=20)
    meta = scores.meta
    assert meta["records"] == meta["used"] == len(scores) == 3 * len(tiny.PAIRS)
    assert meta["parts"] == len(scores.parts) == -(-len(scores) // 20)
    table = scores.table()
    assert table["record"].to_pylist() == list(range(len(scores)))
    assert table["text"].to_pylist() == [b for _, b in tiny.PAIRS] * 3
    assert meta["tokens"] == sum(map(len, table["nll"].to_pylist()))
    assert meta["model"]["kind"] == "seq2seq"
    assert not list(scores.folder.glob(".*.part"))


def test_a_second_time_nothing_is_done_and_other_settings_are_refused(folder, tmp_path):
    first = score(folder / "pairs.jsonl", folder / "marian", tmp_path / "s", limit=10)
    before = content(first), (tmp_path / "s" / "part-00000.parquet").stat().st_mtime_ns
    told = []
    second = score(folder / "pairs.jsonl", folder / "marian", tmp_path / "s", limit=10, tell=told.append)
    assert (content(second), (tmp_path / "s" / "part-00000.parquet").stat().st_mtime_ns) == before
    assert told == []
    changes = ({"cutoff": 0.5}, "cutoff"), ({"part": 7}, "part"), ({"limit": 11}, "corpus")
    for change, name in (*changes, ({"text_field": "source"}, "corpus")):
        with pytest.raises(ValueError, match=f"has scores with another {name}: "):
            score(folder / "pairs.jsonl", folder / "marian", tmp_path / "s", **{"limit": 10} | change)
    with pytest.raises(ValueError, match="another model"):
        score(folder / "text.txt", folder / "gpt2", tmp_path / "s")


def test_rows_in_memory(folder):
    rows = [{"source": a, "target": b} for a, b in tiny.PAIRS[:5]]
    of_list = score(rows, folder / "marian")
    assert isinstance(of_list, pa.Table)
    assert of_list.num_rows == 5
    assert score(pa.Table.from_pylist(rows), folder / "marian").equals(of_list)


def test_a_corpus_that_changed_is_noticed(folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    rows = [{"source": a, "target": b} for a, b in tiny.PAIRS]
    tiny.write_jsonl(corpus, rows)
    score(corpus, folder / "marian", tmp_path / "s", part=10)
    (tmp_path / "s" / "meta.json").rename(tmp_path / "s" / "begun.json")
    tiny.write_jsonl(corpus, [rows[1], *rows[1:]])
    with pytest.raises(DataError, match="records 1 to 10 are not those"):
        score(corpus, folder / "marian", tmp_path / "s", part=10)
    tiny.write_jsonl(corpus, rows[:10])
    with pytest.raises(DataError, match="shorter than"):
        score(corpus, folder / "marian", tmp_path / "s", part=10)


def test_a_finished_table_is_not_taken_for_that_of_another_corpus(folder, tmp_path):
    rows = [{"source": a, "target": b} for a, b in tiny.PAIRS[:6]]
    others = [rows[1], *rows[1:]]
    tiny.write_jsonl(tmp_path / "c.jsonl", rows)
    tiny.write_jsonl(tmp_path / "d.jsonl", others)
    score(tmp_path / "c.jsonl", folder / "marian", tmp_path / "s", part=4)
    (tmp_path / "c.jsonl").rename(tmp_path / "moved.jsonl")
    score(tmp_path / "moved.jsonl", folder / "marian", tmp_path / "s", part=4)
    score(rows, folder / "marian", tmp_path / "t", part=4)
    score(rows, folder / "marian", tmp_path / "t", part=4)
    for corpus, output in ((tmp_path / "d.jsonl", "s"), (others, "t")):
        with pytest.raises(ValueError, match="has scores with another corpus"):
            score(corpus, folder / "marian", tmp_path / output, part=4)


def test_a_command_that_failed_leaves_the_folder_to_a_better_one(folder, tmp_path):
    corpus, place = folder / "pairs.jsonl", tmp_path / "s"
    with pytest.raises(DataError, match="one text file has no targets"):
        score(folder / "text.txt", folder / "marian", place)
    with pytest.raises(DataError, match="no field 'tarqet'"):
        score(corpus, folder / "marian", place, text_field="tarqet")
    assert score(corpus, folder / "marian", place).meta["quarantined"] == 0
    assert sorted(path.name for path in place.glob("[!.]*")) == ["meta.json", "part-00000.parquet"]


def test_a_model_that_gives_no_numbers_is_an_error_of_numerics(folder, tmp_path, capsys):
    model = tiny.model("gpt2")
    with torch.no_grad():
        model.transformer.wte.weight[5:] = 3e38  # finite, but not its squares
    model.save_pretrained(tmp_path / "huge")
    tiny.tokenizer("causal").save_pretrained(tmp_path / "huge")
    argv = ["score", str(folder / "text.txt"), "--model", str(tmp_path / "huge"), "-o", str(tmp_path / "s")]
    capsys.readouterr()
    assert main(argv) == 4
    assert "gives no number" in capsys.readouterr().err


def test_either_side_of_aligned_files_is_scored(folder, tmp_path):
    for side, name in enumerate(("a.en", "a.fr")):
        (tmp_path / name).write_text("\n".join(pair[side] for pair in tiny.PAIRS[:4]) + "\n")
    corpus = {"path": tmp_path / "a.en", "pair": tmp_path / "a.fr"}
    source, target = zip(*tiny.PAIRS[:4], strict=True)
    table = score(corpus, folder / "gpt2")
    assert (*table["context"].to_pylist(), *table["text"].to_pylist()) == (*source, *target)
    table = score(corpus, folder / "gpt2", text_field="source", context_field="target")
    assert (*table["context"].to_pylist(), *table["text"].to_pylist()) == (*target, *source)
    scores = score(corpus, folder / "gpt2", tmp_path / "s", prompt="French: ")
    assert scores.table(["text"])["text"].to_pylist() == list(target)
    assert json.loads(scores.table(["fields"])["fields"][0].as_py()) == {"source": source[0]}
    done = prune(scores, fraction=0.5, output=tmp_path / "b.en", output_pair=tmp_path / "b.fr")
    assert (done.records, done.kept, done.pruned) == (4, 2, 2)
    prune(scores, fraction=0.5, unit="token", output=tmp_path / "w.jsonl")
    first = json.loads((tmp_path / "w.jsonl").read_text().splitlines()[0])
    assert (first["source"], first["target"]) == tiny.PAIRS[0]
    with pytest.raises(DataError, match="no field 'text'"):
        score(corpus, folder / "gpt2", text_field="text")


def test_bad_lines_are_set_aside_and_counted(folder, tmp_path):
    corpus = tmp_path / "bad.jsonl"
    good = json.dumps({"source": "a dog", "target": "un chien"}).encode()
    corpus.write_bytes(b"\n".join([good, b'{"source": "a"', b"\xff\xfe", good, b'{"source": "a", "target": 3}', good]))
    scores = score(corpus, folder / "marian", tmp_path / "s", part=2)
    assert (scores.meta["records"], scores.meta["used"], scores.meta["quarantined"]) == (6, 3, 3)
    assert scores.table(["record"])["record"].to_pylist() == [0, 3, 5]
    aside = [json.loads(line) for line in scores.quarantine.read_text().splitlines()]
    assert [row["record"] for row in aside] == [1, 2, 4]
    assert aside[0]["where"].endswith("bad.jsonl:2:15")


@pytest.mark.parametrize(
    ("corpus", "options", "message"),
    [
        ("none.jsonl", {}, "none.jsonl: No such file"),
        ("text.txt", {}, "one text file has no targets"),
        ("pairs.jsonl", {"text_field": "tarqet"}, "no record can be used .no field 'tarqet'."),
        ("pairs.jsonl", {"engine": "spark"}, "unknown engine 'spark'"),
        ("pairs.jsonl", {"prompt": "{source}", "context_field": "source"}, "not both"),
        ("pairs.jsonl", {"to": "fr"}, "reads no language tags"),
        ("pairs.jsonl", {"dtype": "int8"}, "float32, float64"),
        ("pairs.jsonl", {"dtype": "float8_e5m2"}, "float32, float64"),
        ("pairs.jsonl", {"device": "nowhere"}, "device='nowhere'"),
        ("pairs.jsonl", {"device": "meta"}, "device='meta': it has no numbers; give another one, such as cpu"),
        ("pairs.jsonl", {"max_length": 10**6}, "positions"),
        ("pairs.jsonl", {"max_length": 1}, "at least 2"),
        ("pairs.jsonl", {"limit": 0}, "limit=0: at least 1"),
        ("pairs.jsonl", {"cutoff": float("nan")}, "cutoff=nan: a finite number"),
    ],
)
def test_mistakes_are_one_line(folder, tmp_path, corpus, options, message):
    with pytest.raises((DataError, ValueError), match=message):
        score(folder / corpus, folder / "marian", tmp_path / "s", **options)
    assert not (tmp_path / "s").exists() or (tmp_path / "s" / "quarantine.jsonl").exists()


def test_a_pipe_cannot_be_read_again(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DataError, match=r"pipe\.txt: a pipe can be read only once; save it to a file"):
        score(tmp_path / "pipe.txt", folder / "gpt2", tmp_path / "scores")


def test_the_verb(folder, tmp_path, capsys):
    argv = ["score", str(folder / "text.txt"), "--model", str(folder / "gpt2"), "-o", str(tmp_path / "s")]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert f"{len(tiny.PAIRS)} records = {len(tiny.PAIRS)} used + 0 quarantined" in out
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["used"] == len(tiny.PAIRS)
    assert main([*argv, "--advise"]) == 0
    out = capsys.readouterr().out
    assert main(["summary", str(tmp_path / "s")]) == 0
    said = out.split(f"{tmp_path / 's'}\n\n")[1]
    assert said
    assert capsys.readouterr().out.endswith(said)
    assert main([*argv, "--advise", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"]["objective"] == "mle"
    assert main([*argv, "--columns", "a,b"]) == 2
    assert "for a TSV" in capsys.readouterr().err
    (tmp_path / "s" / "notes.txt").write_text("mine")
    assert main(argv) == 2
    assert "notes.txt" in capsys.readouterr().err


def test_unfinished_and_damaged_tables_say_so(folder, tmp_path):
    scores = score(folder / "text.txt", folder / "gpt2", tmp_path / "s", part=10)
    with pytest.raises(DataError, match="no such folder"):
        Scores.open(tmp_path / "none")
    meta = tmp_path / "s" / "meta.json"
    whole = meta.read_text()
    for damaged in ('{"schema": 1}', json.dumps({**scores.meta, "parts": "4"})):
        meta.write_text(damaged)
        with pytest.raises(DataError, match="damaged"):
            Scores.open(tmp_path / "s")
    meta.write_text(whole)
    pq.write_table(scores.table(["record", "line"]), scores.parts[0])
    with pytest.raises(DataError, match="no column 'text'"):
        next(scores.batches(["line", "text"]))
    scores.parts[1].unlink()
    with pytest.raises(DataError, match=r"part-00001\.parquet is missing"):
        Scores.open(tmp_path / "s")
    scores.parts[0].write_bytes(b"x")
    scores.parts[1].write_bytes(b"x")
    with pytest.raises(DataError, match="not readable"):
        Scores.open(tmp_path / "s").table()
    (tmp_path / "s" / "meta.json").unlink()
    with pytest.raises(DataError, match="not finished"):
        Scores.open(tmp_path / "s")


def goes_on_after(folder, place, moments, whole, draw):
    for moment in moments:
        process = Score(folder, place, pace=0.02)
        assert process.until(lambda m=moment: len(list(place.glob("part-*"))) > m), process.err
        time.sleep(draw.uniform(0, 0.05))
        process.kill()
        assert process.code() == -signal.SIGKILL
    Score(folder, place).done()
    assert content(place) == whole
    assert not list(place.glob(".*.part"))


@pytest.fixture(scope="module")
def whole(folder):
    """By a Python of its own, as users start it."""
    Score(folder, folder / "whole", real=True).done()
    return content(folder / "whole")


def test_killed_and_started_again(folder, tmp_path, whole):
    goes_on_after(folder, tmp_path / "killed", [2, 5], whole, random.Random(0))


def test_killed_at_the_very_end(folder, tmp_path):
    place = tmp_path / "scores"
    score(folder / "pairs.jsonl", folder / "marian", place)
    before = content(place)
    shutil.copy(place / "meta.json", place / "begun.json")  # which goes after the other is there
    score(folder / "pairs.jsonl", folder / "marian", place)
    assert content(place) == before
    assert not (place / "begun.json").exists()


def test_other_threads_go_on_to_the_same_bytes(folder, tmp_path):
    before = torch.get_num_threads()
    made = {}
    try:
        for first, then in ((1, 1), (1, 2), (2, 2)):
            place = tmp_path / f"{first}-{then}"
            torch.set_num_threads(first)
            scores = score(folder / "pairs.jsonl", folder / "marian", place, part=7)
            scores.parts[-1].unlink()
            (place / "meta.json").rename(place / "begun.json")
            torch.set_num_threads(then)
            made[first, then] = content(score(folder / "pairs.jsonl", folder / "marian", place, part=7))
            assert torch.get_num_threads() == then
    finally:
        torch.set_num_threads(before)
    assert made[1, 2] == made[1, 1]
    assert made[1, 2][0]["threads"] == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_100_times(folder, tmp_path, whole, tally):
    draw = random.Random(0)
    with tally("kills-scoring", "training", "`errornorm score`, killed (SIGKILL) and started again; a case fails "
               "unless it writes the same bytes as without") as suite:  # fmt: skip
        for number in range(100):
            with suite.case(str(number)):
                moment = draw.randrange(len(whole[1]) - 1)  # after the last part it is soon over
                goes_on_after(folder, tmp_path / f"killed-{number}", [moment], whole, draw)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_end_it_cleanly(folder, tmp_path, number, code):
    place = tmp_path / "s"
    process = Score(folder, place, pace=0.3)
    assert process.until(lambda: list(place.glob("part-*")))
    process.send(number)
    assert process.code(60) == code, process.err
    assert "stopped by" in process.err
    assert "Traceback" not in process.err
    assert not list(place.glob(".*.part"))


def test_two_processes_do_not_share_a_folder(folder, tmp_path):
    place = tmp_path / "s"
    process = Score(folder, place, pace=0.5)
    assert process.until(lambda: list(place.glob("part-*")))
    other = Score(folder, place)
    assert other.code(60) == 5
    assert time.monotonic() - other.began < 30
    process.kill()
    assert "is in use by process" in other.err


def test_parts_are_in_the_order_of_their_numbers(folder, tmp_path, monkeypatch):
    """As after a hundred thousand of them: the names are no longer of one length."""
    for module in (run, table):
        monkeypatch.setattr(module, "PART", "part-{}.parquet")
    found = score(folder / "pairs.jsonl", folder / "marian", tmp_path / "s", part=2, limit=24)
    assert [part.name for part in parts_of(found.folder)] == [f"part-{number}.parquet" for number in range(12)]
    assert found.table()["record"].to_pylist() == list(range(24))


def test_what_is_no_number_is_null_in_the_fields(folder, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"source": "a b", "target": "c d", "quality": 1e999}\n')
    found = score(tmp_path / "in.jsonl", folder / "marian", tmp_path / "s")
    assert [json.loads(fields, parse_constant=pytest.fail) for fields in found.table()["fields"].to_pylist()] == [
        {"quality": None}
    ]
