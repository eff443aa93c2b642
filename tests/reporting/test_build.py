import base64
import hashlib
import json
import os
import re
from dataclasses import asdict, replace
from itertools import pairwise

import numpy
import pyarrow as pa
import pytest

from errornorm.curation.summary import summarize
from errornorm.data.lines import DataError
from errornorm.reporting.build import LIMIT, report
from errornorm.reporting.grid import LOSS, NORM, above
from errornorm.scoring.rank import of_tokens
from errornorm.scoring.table import Scores
from tests.demo.html_tree import tree
from tests.score_tables import bad_line, random_rows, write


def build(tmp_path, rows, name="report.html", **options):
    meta = {key: options.pop(key) for key in ("quarantine", "corpus", "cutoff", "part_rows") if key in options}
    scores = write(tmp_path / "scores", rows, **meta)
    done = report(scores, tmp_path / name, **options)
    text = (tmp_path / name).read_text(encoding="utf-8")
    return done, text, data_of(text)


def data_of(text):
    return json.loads(tree(text).one("script", id="data").text)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    lines = [bad_line(7), bad_line(9, "not UTF-8 (byte 0xff)"), bad_line(30, "not UTF-8 (byte 0xfe)")]
    done, text, data = build(folder, random_rows(2000, 1), quarantine=lines, group_by="source_name")
    return folder, done, text, data


def test_records_are_used_or_quarantined(example):
    _, done, _, data = example
    assert (done.records, done.used, done.quarantined) == (2003, 2000, 3)
    assert data["counts"] == {"records": 2003, "used": 2000, "quarantined": 3, "tokens": done.tokens, "undefined": 0}
    assert data["quarantine"]["reasons"] == [["not UTF-8", 2], ["not JSON", 1]]
    assert [line[0] for line in data["quarantine"]["lines"]] == ["corpus.jsonl:7", "corpus.jsonl:9", "corpus.jsonl:30"]
    assert done.sentences == len(data["sentences"]) == 1500


def test_counts_are_of_all_tokens_and_not_of_the_sample(example):
    folder, _, _, data = example
    table = Scores.open(folder / "scores").table()
    norms, _ = of_tokens(table, "error_norm")
    losses, _ = of_tokens(table, "nll")
    assert above(numpy.array(data["norm"])).tolist() == [int((norms > edge).sum()) for edge in NORM]
    by_class = [losses[norms <= 1.0], losses[(norms > 1.0) & (norms <= 1.3)], losses[norms > 1.3]]
    for counts, values in zip(data["loss"], by_class, strict=True):
        assert above(numpy.array(counts)).tolist() == [int((values > edge).sum()) for edge in LOSS]
    highest = table["error_norm_max"].to_numpy().astype(numpy.float64)
    assert above(numpy.array(data["rows_by_norm"])).tolist() == [int((highest > edge).sum()) for edge in NORM]
    assert data["means"] == [round(float(norms.mean()), 4), round(float(losses.mean()), 4)]


def test_groups_add_up_to_the_corpus(example):
    _, _, _, data = example
    named, noise, lengths = data["groupings"]
    assert (named["name"], noise["name"], lengths["name"]) == ("source_name", "noise", "length in tokens")
    for grouping in data["groupings"]:
        groups = [*grouping["groups"], *([grouping["rest"]] if grouping["rest"] else [])]
        assert sum(group[1] for group in groups) == 2000
        assert sum(group[2] for group in groups) == data["counts"]["tokens"]
        norm, loss = numpy.zeros(len(data["norm"]), int), numpy.zeros(len(data["loss"][0]), int)
        for group in groups:
            norm[: len(group[5])] += group[5]
            loss[: len(group[6])] += group[6]
        assert norm.tolist() == data["norm"]
        assert loss.tolist() == numpy.array(data["loss"]).sum(axis=0).tolist()
    assert {group[0] for group in named["groups"]} == {"web", "books", "talks"}
    mean = {group[0]: group[3] for group in noise["groups"]}
    assert mean["untranslated"] > mean["none"]


def test_the_sample_has_some_of_everything(example):
    folder, _, _, data = example
    table = (
        Scores.open(folder / "scores").table(["record", "error_norm_max", "error_norm_mean", "nll_mean"]).to_pandas()
    )
    there = {sentence[0] for sentence in data["sentences"]}
    for column in ("error_norm_max", "error_norm_mean", "nll_mean"):
        assert set(table.nlargest(80, column)["record"]) <= there
    assert set(table.nsmallest(40, "error_norm_mean")["record"]) <= there
    for bit, name in enumerate(data["reasons"]):
        assert sum(bool(sentence[8] & 1 << bit) for sentence in data["sentences"]) >= 40, name
    assert [sentence[0] for sentence in data["sentences"]] == sorted(there)


def test_equal_scores_give_equal_bytes(tmp_path, example):
    rows = list(random_rows(300, 2))
    first = build(tmp_path / "a", rows, group_by="source_name")[1]
    second = build(tmp_path / "b", rows, group_by="source_name", part_rows=70)[1]
    shared = [re.sub(r'"parts":\d+', "", text) for text in (first, second)]
    assert shared[0] == shared[1]
    assert not re.search(r"20\d\d-\d\d-\d\d", example[2])


def test_a_table_in_memory_gives_a_page_too(tmp_path):
    scores = write(tmp_path / "scores", random_rows(50, 3))
    done = report(scores.table(), tmp_path / "report.html", title="Mine")
    assert (done.records, done.used, done.sentences) == (50, 50, 50)
    data = data_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert (data["title"], data["facts"], data["command"]) == ("Mine", [["Format", "table"]], "")
    report(scores.table().to_pandas(), tmp_path / "pandas.html", title="Mine")
    assert (tmp_path / "pandas.html").read_bytes() == (tmp_path / "report.html").read_bytes()
    assert report(tmp_path / "scores", tmp_path / "other.html").tokens == done.tokens
    assert report(str(tmp_path / "scores"), str(tmp_path / "other.html")).tokens == done.tokens


def test_an_empty_table_and_empty_texts_have_a_page(tmp_path):
    done, _, data = build(tmp_path / "none", [])
    assert (done.used, done.tokens, data["sentences"]) == (0, 0, [])
    done, _, data = build(tmp_path / "blank", [{"text": ""}, {"text": "  "}, {"text": "un", "error_norm": [1.2]}])
    assert (done.used, done.tokens, done.sentences) == (3, 1, 3)
    assert sum(data["rows_by_norm"]) == 3


def test_numbers_that_are_none_are_told_and_not_dropped(tmp_path):
    nan, inf = float("nan"), float("inf")
    rows = [{"text": "un chien", "error_norm": [nan, 1.2], "nll": [nan, inf], "p_target": [0.1, 0.1]}]
    _, text, data = build(tmp_path, rows)
    assert data["counts"]["undefined"] == 2
    assert above(numpy.array(data["norm"]))[0] == 1
    assert "NaN" not in text.partition('id="data"')[2].partition("</script>")[0]


@pytest.mark.parametrize("odd", [float("inf"), float("-inf")])
def test_infinite_numbers_take_no_part_in_means(tmp_path, odd):
    rows = [{"text": "un chien", "error_norm": [odd, 0.5], "nll": [odd, 1.5], "entropy": [odd, 1.0],
             "p_target": [0.1, 0.1]}] * 3  # fmt: skip
    _, _, data = build(tmp_path, rows)
    assert data["means"] == [0.5, 1.5]
    assert [group[3:5] for group in data["groupings"][-1]["groups"] if group[1]] == [[0.25, 0.75]]


def hostile(num, size):
    for k in range(num):
        word = '</script><img/src=x/onerror="x()">' * size
        yield {"text": f"{word} {k} \u202e", "context": word * 3, "fields": {"source_name": f"{word}{k}"},
               "error_norm": [1.2, 0.5, 1.35]}  # fmt: skip


@pytest.mark.parametrize(("num", "size", "lines"), [(6000, 1, 10_000), (400, 300, 10)])
def test_a_page_is_never_larger_than_two_megabytes(tmp_path, num, size, lines):
    bad = [bad_line(k + 1, f"reason {k} (<b>)", "\u202e" * 200, record=10**6 + k) for k in range(lines)]
    done, text, data = build(
        tmp_path, hostile(num, size), quarantine=bad, group_by="source_name", corpus={"path": "<" * 5000}
    )
    assert done.bytes == len(text.encode()) <= LIMIT == 2_000_000
    assert done.sentences == len(data["sentences"]) > 200
    assert done.quarantined == data["counts"]["quarantined"] == lines
    assert len(data["quarantine"]["lines"]) <= 200
    (named, *_) = data["groupings"]
    assert len(named["groups"]) == 80
    assert sum(group[1] for group in named["groups"]) + named["rest"][1] == num
    assert named["more"] == (num > 5000)


@pytest.mark.slow
def test_a_megabyte_in_one_token_leaves_room_for_others(tmp_path):
    rows = [{"text": "x" * 2**20, "context": "y" * 2**20, "error_norm": [1.4]}] * 60 + list(random_rows(20_000, 5))
    done, _, data = build(tmp_path, rows, part_rows=2000)
    assert done.bytes <= LIMIT
    assert done.sentences == 1500
    assert any("1,048,576 characters" in sentence[3][0] for sentence in data["sentences"] if sentence[3])


def test_the_policy_admits_the_one_script_and_the_one_style(example):
    root = tree(example[2])
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    data, script = root.all("script")
    assert data.attributes["type"] == "application/json"
    for name, node in (("script-src", script), ("style-src", root.one("style"))):
        digest = base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", script.text)


def test_nothing_comes_from_elsewhere_and_no_markup_has_handlers(example):
    text = example[2]
    root = tree(text)
    code = root.one("style").text + root.all("script")[1].text
    assert not re.search(
        r"(?<!www\.w3\.org)https?://(?!www\.w3\.org/2000/svg)|url\((?!#)|@import|@font-face|fetch\(|XMLHttp", code
    )
    for node in root.all():
        assert not {"src", "srcset", "action", "style"} & node.attributes.keys()
        assert not [name for name in node.attributes if name.startswith("on")]
    assert [link.attributes["href"][:19] for link in root.all("link")] == ["data:image/svg+xml,"]


def test_one_h1_headings_in_order_and_names_for_controls(example):
    root = tree(example[2])
    levels = [int(node.tag[1]) for node in root.all() if re.fullmatch(r"h\d", node.tag)]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = [node.attributes["id"] for node in root.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    labels = {label.attributes.get("for") for label in root.all("label")}
    for control in [*root.all("select"), *root.all("input")]:
        assert control.attributes.get("id") in labels or control.attributes.get("type") == "radio"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"group_by": "nothing"},
            ValueError,
            "no record has a field 'nothing'; there are: labels, noise, number, source_name",
        ),
        ({"output": "."}, ValueError, "is a folder: give the name of a file"),
        ({"output": "pipe"}, ValueError, "is a device or a pipe"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, options, error, message):
    scores = write(tmp_path / "scores", random_rows(5))
    os.mkfifo(tmp_path / "pipe")
    output = tmp_path / options.pop("output", "report.html")
    with pytest.raises(error, match=re.escape(message)):
        report(scores, output, **options)
    assert not (tmp_path / "report.html").exists()


def test_scores_that_do_not_add_up_are_refused(tmp_path):
    scores = write(tmp_path / "scores", random_rows(5))
    scores = replace(scores, meta={**scores.meta, "used": 6, "records": 6})  # as if a part changed after it was opened
    with pytest.raises(DataError, match=r"5 rows and its meta\.json says 6"):
        report(scores, tmp_path / "report.html")
    scores = write(tmp_path / "more", random_rows(5), records=6, quarantined=1)
    with pytest.raises(DataError, match="0 quarantined lines"):
        report(scores, tmp_path / "report.html")
    with pytest.raises(DataError, match="no such folder"):
        report(tmp_path / "none", tmp_path / "report.html")
    with pytest.raises(ValueError, match="the table has no column 'fields'"):
        report(pa.table({"record": [1]}), tmp_path / "report.html")
    with pytest.raises(ValueError, match="a pandas data frame, not list"):
        report([1], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_output_is_not_one_of_the_inputs(tmp_path):
    scores = write(tmp_path / "scores", random_rows(5))
    before = sorted(scores.folder.iterdir())
    beside = re.escape(f"choose a place beside it, such as {tmp_path / 'report.html'}")
    for name in ("meta.json", "part-00000.parquet", "quarantine.jsonl", "report.html", "."):
        with pytest.raises(ValueError, match=beside):
            report(scores, scores.folder / name)
    for name in (".", "figures"):
        with pytest.raises(ValueError, match=re.escape(f"such as {tmp_path / 'figures'}")):
            report(scores, tmp_path / "report.html", figures=scores.folder / name)
    assert sorted(scores.folder.iterdir()) == before
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("{}")
    scores = write(tmp_path / "others", random_rows(5), corpus={"path": str(corpus)})
    with pytest.raises(ValueError, match="is the corpus: choose another name"):
        report(scores, corpus)
    assert corpus.read_text() == "{}"


def test_a_data_set_is_called_by_its_name(tmp_path):
    corpus = {"format": "dataset", "path": None, "dataset": ["org/opus", "en-fr", None]}
    _, _, data = build(tmp_path, random_rows(3), corpus=corpus)
    assert data["title"] == "opus en-fr"
    assert ["Corpus", "org/opus en-fr"] in data["facts"]


def test_the_page_names_outputs_that_fit_the_corpus(tmp_path):
    for number, (corpus, expected) in enumerate(
        [
            ({"format": "jsonl", "path": "a.jsonl"}, "-o clean.jsonl"),
            ({"format": "text", "path": "news.txt.gz"}, "-o clean.txt"),
            ({"format": "pairs", "path": "a/train.en", "pair": "a/train.fr"}, "-o clean.en --output-pair clean.fr"),
            (
                {"format": "pairs", "path": "a.txt", "pair": "b.txt"},
                "-o clean.source.txt --output-pair clean.target.txt",
            ),
        ]
    ):
        _, _, data = build(tmp_path / str(number), random_rows(3), corpus=corpus)
        assert data["kept"] == expected


def test_groups_may_lie_inside_objects_or_be_lengths(tmp_path):
    rows = [{"text": "a b", "fields": {"meta": {"site": f"site {i % 2}"}}} for i in range(10)]
    _, _, data = build(tmp_path, rows, group_by="meta.site")
    named = data["groupings"][0]
    assert named["name"] == "meta.site"
    assert [group[:2] for group in named["groups"]] == [["site 0", 5], ["site 1", 5]]
    _, _, data = build(tmp_path / "again", rows, group_by="length")
    assert [grouping["name"] for grouping in data["groupings"]] == ["length in tokens"]


def test_groups_are_those_of_the_summary(tmp_path):
    values = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, True, 1, "1", 1.0, "", None, ["x"]]
    scores = write(tmp_path / "scores", [{"text": "a b", "fields": {"site": value}} for value in values])
    report(scores, tmp_path / "report.html", group_by="site")
    named = data_of((tmp_path / "report.html").read_text(encoding="utf-8"))["groupings"][0]
    found = summarize(scores, group_by="site").groups
    assert {group[0]: group[1] for group in named["groups"]} == {row["group"]: row["texts"] for row in found}


def test_figures_are_drawn_beside(tmp_path):
    scores = write(tmp_path / "scores", random_rows(40))
    done = report(scores, tmp_path / "report.html", figures=tmp_path / "figures")
    assert asdict(done)["figures"] == [str(tmp_path / "figures" / name) for name in ("error_norm.png", "loss.png")]
    first = [(tmp_path / "figures" / name).read_bytes() for name in ("error_norm.png", "loss.png")]
    assert all(image.startswith(b"\x89PNG") for image in first)
    report(scores, tmp_path / "report.html", figures=tmp_path / "figures")
    assert [(tmp_path / "figures" / name).read_bytes() for name in ("error_norm.png", "loss.png")] == first
