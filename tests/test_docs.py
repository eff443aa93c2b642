"""Generated pages are current, code blocks run, links lead somewhere, quoted messages exist."""

import ast
import itertools
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from errornorm import KERNELS, METHODS, RobustLoss, __version__, bench, cards, cli, tables
from errornorm.data.noise import NOISES
from errornorm.training import configfile
from tests import test_matrix

ROOT = Path(__file__).parents[1]
TOP = ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")
PAGES = [
    *(ROOT / f"{page}.md" for page in TOP),
    *(p for folder in ("docs", "docs/research") for p in sorted((ROOT / folder).glob("*.md"))),
]
RUN = "run .venv/bin/python -m errornorm.cards"


def name(path):
    return str(path.relative_to(ROOT))


def blocks(path, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


WITH_SECTIONS = ("methods", "config", "trainers", "distributed", "score", "detect", "reliability", "scale")
GENERATED = [ROOT / name for name in ("README.md", *(f"docs/{page}.md" for page in WITH_SECTIONS))]


@pytest.fixture(scope="module")
def refreshed():
    return cards.refresh(ROOT)


@pytest.mark.parametrize("path", GENERATED, ids=name)
def test_generated_parts_are_current(refreshed, path):
    assert refreshed[path] == path.read_text(encoding="utf-8"), RUN


# The blocks of trainers.md are the files in examples/, which have a test of their own.
ELSEWHERE = ("CONTRIBUTING.md", "trainers.md")


@pytest.mark.parametrize("path", [page for page in PAGES if page.name not in ELSEWHERE and blocks(page)], ids=name)
def test_code_blocks_run(path, capsys):
    namespace = {"__name__": "__main__"}
    for block in blocks(path):
        exec(compile(block, name(path), "exec"), namespace)


CONFIGS = [(page, i, text) for page in PAGES for i, text in enumerate(blocks(page, "yaml")) if "task:" in text]


@pytest.mark.parametrize(
    ("page", "text"), [(p, t) for p, _, t in CONFIGS], ids=[f"{name(p)}-{i}" for p, i, _ in CONFIGS]
)
def test_configurations_are_valid(page, text, tmp_path):
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    assert configfile.load(tmp_path / "run.yaml").method


def test_the_configuration_of_the_example_is_valid():
    assert configfile.load(ROOT / "examples" / "multi30k.yaml").method == "ent_fraction(0.1, start=400)"


def test_the_example_of_contributing_works(monkeypatch, small_chunks):
    method, test = blocks(ROOT / "CONTRIBUTING.md")
    namespace = {"__package__": "errornorm.methods", "__name__": "errornorm.methods.soft_ent"}
    exec(compile(method, "soft_ent.py", "exec", dont_inherit=True), namespace)
    monkeypatch.setitem(METHODS, "soft_ent", namespace["soft_ent"])
    assert cards.card("soft_ent").summary.startswith("Soft Error Norm Truncation")
    assert RobustLoss(namespace["soft_ent"](start=3)).objective.spec == "soft_ent(power=4.0, start=3)"
    tests = {}
    exec(compile(test, "test_soft_ent.py", "exec", dont_inherit=True), tests)
    tests["test_the_weight_falls_from_one"]()
    for (source, kernel), dtype in itertools.product(test_matrix.KERNELS, (torch.float32, torch.bfloat16)):
        test_matrix.test_agrees_with_float64("soft_ent", source, kernel, dtype, 0.1)


def anchors(path):
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_relative_links_exist(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def messages():
    """All texts of the package, with … for what varies."""
    for source in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_documented_messages_exist():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^|]+)` \|", page, re.MULTILINE)
    assert len(quoted) > 20
    assert set(quoted) <= set(messages())


def test_the_version_is_told_with_its_date():
    newest = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert newest[1] == __version__
    assert f"\nversion: {newest[1]}\ndate-released: {newest[2]}\n" in citation


def test_exit_codes_are_documented():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    for code, about in cli.EXITS.items():
        assert f"| {code} | {about} |" in page


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "docs" / "kernels.md"], ids=name)
def test_every_kernel_is_described(path):
    rows = re.findall(r"^\| `(\w+)` \|", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(KERNELS) <= set(rows)


@pytest.mark.parametrize("method", METHODS)
def test_a_card_has_every_part(method):
    card = cards.card(method)
    assert all((card.summary, card.equation, card.example, card.reference))
    assert all(parameter.about.endswith(".") for parameter in card.parameters)


def test_a_section_without_markers_is_refused():
    assert cards.fill("a\n<!-- x -->\nold\n<!-- /x -->\nb", "x", "new\n") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    with pytest.raises(ValueError, match="add the two lines"):
        cards.fill("nothing", "x", "new")


def bench_row(**changes):
    known = {
        "tokens": 8, "hidden": 4, "vocab": 32, "fraction": 0.1, "repeat": 3, "threads": 1, "clock": "cpu",
        "torch": "2.13.0", "cpu": "some CPU", "label": "errornorm ent_fraction", "kind": "ours", "note": "drops 10%",
        "ran": True, "best_ms": 2.0, "to_plain": 0.76, "to_floor": 1.1, "peak_mb": 12.0, "gradient_error": 3e-7,
    }  # fmt: skip
    known["settings"] = bench.Settings(**{field.name: known.get(field.name) for field in fields(bench.Settings)})
    return bench.Row(**{field.name: (known | changes).get(field.name) for field in fields(bench.Row)})


def test_the_bench_section(tmp_path):
    gone = bench_row(label="TRL fused head", kind="peer", note="not installed", ran=False)
    result = bench.Result((bench_row(), gone))
    text = tables.bench_section(json.loads(result.to_json()))
    assert "8 tokens, hidden size 4, vocabulary 32, fraction 0.1; 1 thread of some CPU, cpu time" in text
    assert "| **errornorm ent_fraction** (drops 10%) | 2 | 0.76 | 1.10 | 12 |  | 3e-07 |" in text
    assert "Did not run: TRL fused head (not installed)." in text
    (tmp_path / "docs" / "bench").mkdir(parents=True)
    (tmp_path / "docs" / "bench" / "bench.json").write_text(result.to_json())
    readme = "<!-- methods -->\n<!-- /methods -->\n<!-- bench -->\nnothing\n<!-- /bench -->\n"
    (tmp_path / "README.md").write_text(readme)
    assert "**errornorm ent_fraction**" in cards.refresh(tmp_path)[tmp_path / "README.md"]


def test_every_noise_is_described(capsys):
    rows = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "data.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(NOISES) <= set(rows)
    cli.main(["corrupt", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(noise in shown for noise in NOISES)
