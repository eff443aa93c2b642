"""The notebook runs from top to bottom, shows what it says, and is stored with clean outputs."""

import json
import re
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "noisy_instructions.ipynb"
NOTEBOOK = json.loads(PATH.read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
SHORT = {"SEEDS": "(0,)", "PRETRAIN_STEPS": "250", "STEPS": "80", "START": "40"}


def shortened(source):
    for name, value in SHORT.items():
        source = re.sub(rf"^{name} = .*$", f"{name} = {value}", source, flags=re.MULTILINE)
    return source


@pytest.fixture(scope="module")
def ran():
    """The names that the notebook has in the end, and its figures."""
    matplotlib = pytest.importorskip("matplotlib")
    transformers = pytest.importorskip("transformers")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    verbosity = transformers.logging.get_verbosity()
    names, figures = {"__name__": "notebook"}, []
    try:
        with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context():
            patch.setattr(pyplot, "show", lambda: figures.append(pyplot.gcf()))
            for number, cell in enumerate(CODE, 1):
                exec(compile(shortened("".join(cell["source"])), f"code cell {number}", "exec"), names)
    finally:
        pyplot.close("all")
        transformers.logging.set_verbosity(verbosity)
    return names | {"figures": figures}


def test_the_constants_are_there_to_be_lowered():
    first = "".join(CODE[0]["source"])
    assert all(re.search(rf"^{name} = ", first, flags=re.MULTILINE) for name in SHORT)


def test_ent_drops_wrong_answers_and_random_truncation_does_not(ran):
    noise = ran["NOISE"]
    assert ran["seen"]["ent_fraction"][0].precision > 2 * noise
    assert ran["seen"]["ent_threshold"][0].precision > 2 * noise
    assert ran["seen"]["random_truncation"][0].precision == pytest.approx(noise, abs=0.1)
    assert not ran["seen"]["mle"][0].dropped.any()
    for one in ran["seen"]["ent_fraction"]:
        counted = sum(int((row["labels"] >= 0).sum()) for row in ran["data"][0])
        assert int(one.dropped.sum()) == counted // 10


def test_dropped_tokens_are_aligned_with_the_labels(ran):
    for one in ran["seen"]["ent_threshold"]:
        labels = ran["collate"](ran["data"][0])["labels"]
        assert not one.dropped[labels < 0].any()
        assert not one.norms[labels < 0].any()
        assert (one.norms[labels >= 0] > 0).all()


def test_the_story_holds(ran):
    scores = {name: each[0].scores for name, each in ran["runs"].items()}
    perplexity = {name: score["closed", "perplexity"] for name, score in scores.items()}
    assert perplexity["ent_fraction"] < 0.97 * perplexity["mle"]
    assert perplexity["ent_threshold"] < perplexity["random_truncation"]
    assert perplexity["ent_threshold, no start"] > 1.1 * perplexity["ent_threshold"]
    assert scores["ent_fraction"]["closed", "sampled"] > scores["mle"]["closed", "sampled"]
    assert ran["part"].precision < 0.5  # the phrase that is everywhere: right answers are dropped


def test_the_telemetry_and_the_pictures(ran):
    last = ran["runs"]["ent_fraction"][0].history[-1]
    assert last["errornorm/source=wrong/kept"] < last["errornorm/source=right/kept"]
    assert last["errornorm/cutoff"] > 0
    assert [len(figure.axes) for figure in ran["figures"]] == [6, 2]
    assert "<del" in ran["Listing"](ran["groups"])._repr_html_()
    assert "wrong, and dropped" in repr(ran["Listing"](ran["groups"]))


def test_it_is_stored_with_outputs():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data", "execute_result"}
    assert all(output["name"] == "stdout" for output in outputs if output["output_type"] == "stream")
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert all(not cell["metadata"] for cell in NOTEBOOK["cells"])
    assert NOTEBOOK["metadata"].keys() == {"kernelspec", "language_info"}


def test_it_is_small_and_tells_nothing_of_the_machine():
    assert PATH.stat().st_size < 400_000
    texts = ["".join(cell["source"]) for cell in NOTEBOOK["cells"]]
    for cell in CODE:
        for output in cell["outputs"]:
            pieces = [output.get("text", []), *(v for k, v in output.get("data", {}).items() if k != "image/png")]
            texts += ["".join(piece) for piece in pieces]
    for text in texts:
        assert not re.search(r"(?<![\w<.])/\w+/|[A-Z]:\\|Warning|Traceback", text), text
