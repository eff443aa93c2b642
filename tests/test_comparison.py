"""Comparison of runs that are written here, so that the truth is known."""

import json
import sys

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from errornorm.comparison import compare
from errornorm.data.lines import DataError
from errornorm.evaluation import metrics
from tests.run_directories import sentences, translated, write


def group(comparison, method):
    return next(group for group in comparison.groups if group.method == method)


def test_mean_and_sample_standard_deviation(tmp_path):
    for seed, bleu in enumerate((20.0, 22.0, 27.0)):
        write(tmp_path / "mle" / f"seed-{seed}", seed=seed, bleu=bleu)
    one = write(tmp_path / "one", "dft", bleu=21.5)
    found = compare([tmp_path / "mle", one])
    # (9 + 1 + 16) / 2 = 13
    measured = group(found, "mle").measured["bleu"]
    assert measured.mean == pytest.approx(23)
    assert measured.sd == pytest.approx(13**0.5)
    assert measured.values == {0: 20, 1: 22, 2: 27}
    assert group(found, "dft").measured["bleu"].sd is None
    header, rows = found.rows()
    assert header == ("method", "seeds", "bleu", "difference", "p", "copies", "nll", "data", "version")
    assert rows[0][:4] == ("mle", "3", "23.00 ± 3.61", "baseline")
    assert rows[1][:4] == ("dft", "1", "21.50 ± -", "+1.50")  # to seed 0 alone
    assert {row[-2:] for row in rows} == {("d" * 8, "0.1.0")}


def test_identical_systems_do_not_differ(tmp_path):
    for method in ("mle", "dft"):
        write(tmp_path / method, method, names=("bleu", "chrf", "rouge", "copies"))
    found = group(compare([tmp_path / "mle", tmp_path / "dft"]), "dft").differences
    assert set(found) == {"bleu", "chrf", "rouge1", "rouge2", "rougeLsum", "copies", "nll"}
    assert {d.value for d in found.values()} == {0}
    assert {name: d.p for name, d in found.items()} == {name: 1 if name != "nll" else None for name in found}


def test_a_clearly_better_system_has_a_small_p(tmp_path):
    mle = write(tmp_path / "mle", "mle", outputs=translated(0.5), names=("bleu", "chrf", "rouge"))
    dft = write(tmp_path / "dft", "dft", outputs=translated(0.1), names=("bleu", "chrf", "rouge"))
    found = group(compare([mle, dft], samples=200), "dft").differences
    assert found["bleu"].value > 20
    assert {found[name].p for name in ("bleu", "chrf", "rouge1", "rouge2", "rougeLsum")} == {1 / 201}


def test_equally_good_systems_have_a_large_p(tmp_path):
    runs = [write(tmp_path / str(i), "mle" if i == 0 else f"tailr({i})", outputs=translated(0.3, seed=i), seed=0)
            for i in range(6)]  # fmt: skip
    ps = [group.differences["bleu"].p for group in compare(runs, samples=200).groups[1:]]
    assert sum(p > 0.1 for p in ps) >= 4
    assert len(set(ps)) > 2


def test_equal_seeds_give_equal_p_values(tmp_path):
    mle, dft = write(tmp_path / "mle"), write(tmp_path / "dft", "dft", outputs=translated(0.25))
    first, second, third = (group(compare([mle, dft], seed=seed), "dft").differences["bleu"].p for seed in (1, 1, 2))
    assert first == second != third
    assert first == pytest.approx(third, abs=0.1)


def test_by_the_side_of_sacrebleu(tmp_path):
    """Scores are equal; sacrebleu's p-value is about that of one side."""
    a, b = translated(0.3), translated(0.25)
    mle, dft = write(tmp_path / "mle", outputs=a), write(tmp_path / "dft", "dft", outputs=b)
    found = compare([mle, dft])
    scorers = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, theirs = PairedTest([("a", a), ("b", b)], scorers, [sentences()[1]], test_type="bs", n_samples=1000)()
    assert group(found, "mle").measured["bleu"].mean == pytest.approx(theirs["BLEU"][0].score)
    assert group(found, "dft").measured["bleu"].mean == pytest.approx(theirs["BLEU"][1].score)
    p = group(found, "dft").differences["bleu"].p
    assert 0.01 < theirs["BLEU"][1].p_value < p < 0.5


def test_the_bootstrap_of_a_share_is_binomial(tmp_path):
    """40 of 100 copied, 50 of 100 copied: the difference scatters by sqrt(0.1 * 0.9 / 100) = 0.03, so z = 3.33."""
    sources = sentences(100)[0]
    outputs = [source if i < 40 else "no" for i, source in enumerate(sources)]
    more = [source if i < 50 else "no" for i, source in enumerate(sources)]
    mle = write(tmp_path / "mle", outputs=outputs, names=["copies"])
    dft = write(tmp_path / "dft", "dft", outputs=more, names=["copies"])
    found = group(compare([mle, dft], metric="copies", samples=4000), "dft").differences["copies"]
    assert found.value == pytest.approx(0.1)
    # 10 drawn of 100 x 0.1: 0 or at least 20 has probability 0.00003 + 0.002
    assert found.p == pytest.approx(0.002, abs=0.0015)


def test_runs_are_paired_by_seed(tmp_path):
    """Differences of +1 and +3 in seeds 0 and 2; seeds 1 and 5 have no partner."""
    for seed, bleu in ((0, 20.0), (1, 90.0), (2, 30.0)):
        write(tmp_path / "mle" / f"seed-{seed}", seed=seed, bleu=bleu, texts=False)
    for seed, bleu in ((0, 21.0), (2, 33.0), (5, 0.0)):
        write(tmp_path / "dft" / f"seed-{seed}", "dft", seed=seed, bleu=bleu, texts=False)
    found = compare([tmp_path / "mle", tmp_path / "dft"])
    difference = group(found, "dft").differences["bleu"]
    assert difference.value == pytest.approx(2)
    assert difference.seeds == [0, 2]
    assert difference.p is None
    assert "dft and mle: no partner of equal seed for 1, 5" in found.notes
    assert any("no outputs, so no p-value for bleu, copies" in note for note in found.notes)


def test_seeds_are_averaged_before_the_test(tmp_path):
    """A gain in one seed and the same loss in the other: no difference, and no small p."""
    bad, good = translated(0.5), translated(0.1)
    for method, outputs in (("mle", (bad, good)), ("dft", (good, bad))):
        for seed in (0, 1):
            write(tmp_path / method / f"seed-{seed}", method, seed, outputs[seed])
    found = group(compare([tmp_path / "mle", tmp_path / "dft"]), "dft").differences["bleu"]
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.p == 1


def test_no_seed_in_common(tmp_path):
    found = compare([write(tmp_path / "a", seed=0), write(tmp_path / "b", "dft", seed=1)])
    assert group(found, "dft").differences == {}
    assert found.notes == ["dft and mle are not compared: they have no seed in common"]
    assert found.rows()[1][1][3:5] == ("-", "-")


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"beams": 1}, "beams: 5 (mle); 1 (dft)"), ({"data_hash": "e" * 64}, f"data: {'d' * 12} (mle); {'e' * 12} (dft)")],
)
def test_a_star_where_more_than_the_method_differs(tmp_path, changes, what):
    found = compare([write(tmp_path / "a"), write(tmp_path / "b", "dft", outputs=translated(0.2), **changes)])
    difference = group(found, "dft").differences["bleu"]
    assert not difference.alike
    assert difference.p is not None
    assert f"translation: the runs differ in {what}" in found.notes
    assert found.rows()[1][1][3].endswith(" *")


def test_settings_of_the_training_are_compared_where_both_say_them(tmp_path):
    mle = write(tmp_path / "a", manifest={"training": {"steps": 400, "clip": 1.0, "freeze": []}})
    dft = write(tmp_path / "b", "dft", manifest={"training": {"steps": 800, "clip": 1.0, "warmup": 5, "freeze": []}})
    old = write(tmp_path / "c", "tailr")
    found = compare([mle, dft])
    assert found.notes == ["translation: the runs differ in steps: 400 (mle); 800 (dft)"]
    assert not group(found, "dft").differences["bleu"].alike
    assert group(compare([mle, old]), "tailr").differences["bleu"].alike


def test_scores_of_other_tests_are_not_compared(tmp_path):
    short = write(tmp_path / "b", "dft", outputs=translated(0.2, num=50))
    found = compare([write(tmp_path / "a"), short])
    assert group(found, "dft").differences == {}
    assert "translation: the runs differ in number of test sentences: 60 (mle); 50 (dft)" in found.notes
    assert "dft and mle are not compared by bleu: another number of test sentences" in found.notes


def test_scores_on_other_texts_are_not_compared(tmp_path):
    mle, dft = write(tmp_path / "a"), write(tmp_path / "b", "dft")
    path = dft / "outputs-test.jsonl"
    path.write_text(path.read_text().replace('"source": "', '"source": "x ', 1))
    found = compare([mle, dft])
    assert group(found, "dft").differences == {}
    assert "dft and mle are not compared by bleu: another text in the test" in found.notes


def test_scores_of_another_signature_are_not_compared(tmp_path):
    dft = write(tmp_path / "b", "dft", signatures={"bleu": "nrefs:1|tok:intl", "copies": metrics.COPIES})
    found = compare([write(tmp_path / "a"), dft])
    assert set(group(found, "dft").differences) == {"copies", "nll"}
    assert any(note.startswith("translation: the runs differ in signature of bleu: ") for note in found.notes)
    assert "dft and mle are not compared by bleu: another signature" in found.notes


def test_each_data_has_its_baseline(tmp_path):
    runs = [
        write(tmp_path / f"{method} {data}", method, data_hash=data * 64, bleu=bleu)
        for method, data, bleu in (("dft", "a", 11.0), ("mle", "a", 10.0), ("mle", "b", 20.0), ("dft", "b", 22.0))
    ]
    found = compare(runs)
    assert [(g.method, g.data_hash[0]) for g in found.groups] == [
        ("mle", "a"),
        ("dft", "a"),
        ("mle", "b"),
        ("dft", "b"),
    ]
    assert [g.differences["bleu"].value for g in found.groups if g.method == "dft"] == [1, 2]
    assert [g.label for g in found.groups][:2] == ["mle [aaaaaaaa]", "dft [aaaaaaaa]"]
    assert all(g.differences["bleu"].alike for g in found.groups if g.method == "dft")


def test_a_score_that_the_outputs_do_not_give_has_no_p_value(tmp_path):
    found = compare([write(tmp_path / "a", bleu=12.5), write(tmp_path / "b", "dft")])
    differences = group(found, "dft").differences
    assert differences["bleu"].p is None
    assert differences["copies"].p == 1
    assert sum("the evaluation states 12.5; evaluate again" in note for note in found.notes) == 1


def test_flores_needs_its_file(tmp_path):
    signatures = {"bleu": "nrefs:1|case:mixed|eff:no|tok:flores200|smooth:exp|version:2.6.0", "copies": metrics.COPIES}
    found = compare([write(tmp_path / m, m, signatures=signatures) for m in ("mle", "dft")])
    assert group(found, "dft").differences["bleu"].p is None
    assert any("no p-value for bleu: it needs the model of its tokenizer flores200" in note for note in found.notes)


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    mle, again = write(tmp_path / "a", bleu=10.0), write(tmp_path / "b", bleu=30.0)
    found = compare([mle, mle, again])
    assert found.groups[0].measured["bleu"].mean == 10
    assert found.notes == [f"{again} is left out: it has the method, data and seed of {mle}"]
    long, short = (write(tmp_path / str(n), manifest={"training": {"steps": n, "clip": 1.0}}) for n in (800, 400))
    (note,) = compare([long, short]).notes
    assert note.startswith(f"{short} is left out: ")
    assert note.endswith("the two differ in steps: compare one of them")


def test_unfinished_runs_are_listed(tmp_path):
    write(tmp_path / "mle" / "seed-0")
    (tmp_path / "mle" / "seed-1").mkdir()
    (tmp_path / "dft").mkdir()
    found = compare([tmp_path / "mle", tmp_path / "dft"])
    assert found.unfinished == [tmp_path / "mle" / "seed-1", tmp_path / "dft"]
    assert found.groups[0].seeds == [0]


def test_files_beside_the_runs_do_not_count(tmp_path):
    run = write(tmp_path / "mle")
    (tmp_path / "table.csv").write_text("mine")
    assert len(compare([tmp_path / "table.csv", run]).groups) == 1


def test_nothing_to_compare(tmp_path):
    with pytest.raises(DataError, match=r"no finished evaluation in .*; let `errornorm train` come to its end"):
        compare([tmp_path])
    with pytest.raises(DataError, match="absent: no such folder"):
        compare([tmp_path / "absent"])
    with pytest.raises(DataError, match="no finished evaluation in no folder"):
        compare([])


def test_wrong_wishes(tmp_path):
    run = write(tmp_path / "a", "ent_fraction(0.1)")
    with pytest.raises(
        ValueError, match=r"no run has the metric 'blue' \(did you mean bleu\?\); there are bleu, copies"
    ):
        compare([run], metric="blue")
    with pytest.raises(
        ValueError, match=r"no run of the baseline 'ent_fraction' \(did you mean ent_fraction\(0.1\)\?\)"
    ):
        compare([run], baseline="ent_fraction")
    with pytest.raises(ValueError, match="samples is 0"):
        compare([run], samples=0)
    found = compare([run])
    assert found.notes == ["no run of the baseline 'mle'; there are ent_fraction(0.1): no differences"]


def test_language_models_have_differences_without_p(tmp_path):
    runs = [
        write(tmp_path / m, m, names=[], texts=False, task="language-modeling", perplexity=p, beams=None)
        for m, p in (("mle", 20.0), ("dft", 18.5))
    ]
    found = compare(runs)
    assert found.metric == "perplexity"
    assert group(found, "dft").differences["perplexity"].value == -1.5
    assert found.rows()[1][1][2:5] == ("18.50 ± -", "-1.50", "-")
    assert found.notes == []


def test_tasks_are_told_apart(tmp_path):
    found = compare([write(tmp_path / "a"), write(tmp_path / "b", task="summarization", names=["rouge"])])
    header, rows = found.rows()
    assert header[:2] == ("task", "method")
    assert [row[0] for row in rows] == ["summarization", "translation"]
    assert rows[0][3] == "-"
    assert found.notes == []


def test_as_json(tmp_path):
    runs = [write(tmp_path / m, m, nll=nll) for m, nll in (("mle", 2.0), ("dft", float("nan")))]
    (tmp_path / "new").mkdir()
    facts = json.loads(json.dumps(compare([*runs, tmp_path / "new"]).as_dict(), allow_nan=False))
    assert facts["metric"] == "bleu"
    assert facts["unfinished"] == [str(tmp_path / "new")]
    row = facts["rows"][1]
    assert (row["method"], row["seeds"], row["data_hash"], row["version"]) == ("dft", [0], "d" * 64, "0.1.0")
    assert (row["num"], row["beams"], row["task"], row["folders"]) == (60, 5, "translation", [str(runs[1])])
    assert row["metrics"]["nll"]["mean"] is None
    assert row["differences"]["bleu"] == {"value": 0, "p": 1, "seeds": [0], "alike": True}
    assert "tok:13a" in row["signatures"]["bleu"]


def test_the_picture(tmp_path):
    from matplotlib.image import imread

    for method in ("mle", "token_loss_truncation(0.1, start=600)"):
        for seed in range(2):
            curve = {step: 9 / step + seed for step in range(1, 6)}
            write(tmp_path / method / f"seed-{seed}", method, seed, curve=curve)
    found = compare(sorted(path for path in tmp_path.iterdir() if path.is_dir()))
    path = tmp_path / "new" / "comparison.png"
    found.draw(path)
    pixels = imread(path)
    assert pixels.shape[1] > 1.5 * pixels.shape[0]
    assert pixels[..., :3].std() > 0.05
    assert [file.name for file in path.parent.iterdir()] == ["comparison.png"]


def test_the_picture_without_curves(tmp_path):
    from matplotlib.image import imread

    run = write(tmp_path / "a", bleu=float("nan"))
    (run / "metrics.jsonl").unlink()
    compare([run]).draw(tmp_path / "a.png")
    assert imread(tmp_path / "a.png").std() > 0.01


def test_the_picture_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install errornorm\[plot\]"):
        compare([write(tmp_path / "a")]).draw(tmp_path / "a.png")


def test_several_test_sets_are_compared_by_their_mean(tmp_path):
    """As the evaluation states it; one score of all their sentences would be another number."""
    for method, errors in (("mle", 0.6), ("dft", 0.1)):
        outputs, (sources, references) = translated(errors), sentences()
        halves = [(outputs[part], references[part], sources[part]) for part in (slice(0, 20), slice(20, 60))]
        bleu = sum(metrics.bleu(out, refs).value for out, refs, _ in halves) / 2
        folder = write(tmp_path / method, method, outputs=outputs, names=("bleu",), bleu=bleu)
        rows = [json.loads(line) | {"set": "a" if i < 20 else "b"}
                for i, line in enumerate((folder / "outputs-test.jsonl").read_text().splitlines())]  # fmt: skip
        (folder / "outputs-test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compare([tmp_path / "mle", tmp_path / "dft"], samples=100)
    assert found.notes == []
    assert group(found, "dft").differences["bleu"].p == 1 / 101


def test_one_sentence_proves_nothing(tmp_path):
    for method, errors in (("mle", 0.6), ("dft", 0.1)):
        write(tmp_path / method, method, outputs=translated(errors)[:1], names=("bleu",))
    found = compare([tmp_path / "mle", tmp_path / "dft"], samples=100)
    assert group(found, "dft").differences["bleu"].p is None
    assert any("a single sentence" in note for note in found.notes)
