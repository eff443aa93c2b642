"""The scale paper from folders in the layout of the Hub: the same names, subsets, columns and code, small sizes."""

import gzip
import hashlib
import json
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest
import transformers

from errornorm.data import grammar
from errornorm.evaluation import flores
from errornorm.training.tokenizing import train_bpe
from errornorm_reproduce import corpora, dry, grid, hub, work
from errornorm_reproduce.items import ITEMS
from errornorm_reproduce.plan import Plan
from errornorm_reproduce.scales import SCALES
from errornorm_reproduce.store import Store

PAPER = SCALES["paper"]
PAIRS = [(caption.english, french) for caption, french in grammar.corpus(140, 0)]
SIZES = {"train": 100, "validation": 20, "test": 20}
MODEL = b"not really the model of flores200"


def split(rows):
    """Rows by split, as the Hub calls them."""
    rows, out = iter(rows), {}
    for name, size in SIZES.items():
        out[name] = list(islice(rows, size))
    return out


def dataset(folder, subset, splits):
    """As `push_to_hub` lays it out: Parquet files, and a card that says which are of which subset."""
    card = folder / "README.md"
    entries = card.read_text() if card.is_file() else "---\nconfigs:\n"
    entries = entries.removesuffix("---\n") + f'- config_name: "{subset}"\n  data_files:\n'
    for name, rows in splits.items():
        path = folder / subset / f"{name}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
        entries += f"  - split: {name}\n    path: {subset}/{name}-*\n"
    card.write_text(entries + "---\n")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the command runs: a folder that has what the Hub would have."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.DOWNLOADED_DATASETS_PATH", tmp_path / "cache" / "downloads")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return work.Place(tmp_path / "work", tmp_path / "data")


@pytest.fixture
def pieces(place, monkeypatch):
    """The flores200 of a test: its file in the folder of --data, and something that reads it."""
    processor = SimpleNamespace(Load=lambda path: None, EncodeAsPieces=lambda text: list(text.replace(" ", "_")))
    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=lambda: processor))
    monkeypatch.setitem(flores.KNOWN, hashlib.sha256(MODEL).hexdigest(), "flores200")
    flores.loaded.cache_clear()
    place.data.mkdir()
    (place.data / hub.FLORES_PLACES[0]).write_bytes(MODEL)
    yield
    flores.loaded.cache_clear()


def opus(here, languages):
    for language in languages:
        pair = "-".join(sorted(("en", language)))
        rows = ({"translation": {"en": english, language: f"{language} {other}"}} for english, other in PAIRS)
        dataset(here / "Helsinki-NLP" / "opus-100", pair, split(rows))


def files(cell, place):
    found = corpora.sources(cell, place.work, place.data)
    return found, {
        (name, part.get("languages")): list(map(json.loads, Path(part["path"]).read_text("utf-8").split("\n")[:-1]))
        for name, parts in found.items() for part in parts
    }  # fmt: skip


def test_opus_has_subsets_in_alphabetical_order_and_so_many_pairs_as_asked(place, tmp_path):
    opus(tmp_path / "here", ["de", "gl"])
    cell = PAPER.cell("t", "MLE", "", "mismatched", changes={"recipe": {"of": "opus-100", "languages": ["gl", "de"],
                                                                        "sizes": [40, 100]}})  # fmt: skip
    found, rows = files(cell, place)
    assert [part["languages"] for part in found["train"]] == ["en-gl", "en-de"]
    assert {key: len(part) for key, part in rows.items()} == {
        ("train", "en-gl"): 40, ("train", "en-de"): 100, ("valid", "en-gl"): 20, ("valid", "en-de"): 20,
        ("test", "en-gl"): 20, ("test", "en-de"): 20,
    }  # fmt: skip
    assert rows["train", "en-de"][0] == {"source": PAIRS[0][0], "target": f"de {PAIRS[0][1]}"}


def test_wikitext_and_the_news_have_their_columns(place, tmp_path):
    texts = ("", " = Title = \n", " Some text . \n", *(f" {other} \n" for _, other in PAIRS))
    dataset(tmp_path / "here/Salesforce/wikitext", "wikitext-103-raw-v1", split({"text": text} for text in texts))
    news = ({"article": a, "highlights": b, "id": str(i)} for i, (a, b) in enumerate(PAIRS))
    dataset(tmp_path / "here/abisee/cnn_dailymail", "3.0.0", split(news))
    _, rows = files(PAPER.cell("t", "MLE", "", "lm"), place)
    assert rows["train", None][:2] == [{"target": "= Title ="}, {"target": "Some text ."}]
    _, rows = files(PAPER.cell("t", "MLE", "", "summarization"), place)
    assert rows["valid", None][0] == {"source": PAIRS[100][0], "target": PAIRS[100][1]}


def test_paracrawl_is_a_file_with_tabs_and_its_test_set_has_a_column_named_as_the_pair(place, tmp_path, monkeypatch):
    lines = [f"{a}\t{b}" for a, b in PAIRS[:30]] + ["no other side", f"{PAIRS[30][0]}\tcs\x85 line\t0.9"]
    with gzip.open(tmp_path / "en-cs.txt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    monkeypatch.setitem(hub.PARACRAWL, "cs", str(tmp_path / "en-cs.txt.gz"))
    monkeypatch.setattr(hub, "HELD", 5)
    rows = [{"en-cs": {"cs": "ahoj", "en": "hello"}}] * 3
    dataset(tmp_path / "here/haoranxu/WMT22-Test", "en-cs", {"test": rows})
    _, rows = files(PAPER.cell("t", "MLE", "", "bilingual"), place)
    assert {name: len(part) for (name, _), part in rows.items()} == {"valid": 5, "train": 26, "test": 3}
    assert rows["train", None][-1] == {"source": PAIRS[30][0], "target": "cs\x85 line"}
    assert rows["test", None][0] == {"source": "hello", "target": "ahoj"}


def test_every_direction_of_the_paper_has_a_place():
    languages = {cell.told["recipe"]["languages"][0] for cell in ITEMS["table-bilingual"].cells(Plan(PAPER, (0,)))}
    assert languages == set(hub.PARACRAWL)
    kinds = {task["recipe"]["of"] for task in PAPER.tasks.values()}
    assert kinds <= set(corpora.RECIPES)
    assert kinds <= set(dry.DATA)


def test_models_and_tokenizers_of_the_hub_are_fetched():
    names = set()
    for item in ITEMS.values():
        for told in (cell.told for cell in item.cells(Plan(PAPER, (0,))) if cell.corpus):
            for part in (told["model"], told["tokenizer"]):
                assert part.get("download", False) == ("pretrained" in part), (item.name, part)
                names.add(part.get("pretrained"))
    assert names == {None, "openai-community/gpt2-large", "google-t5/t5-small", "facebook/bart-base"}


def test_the_papers_words_are_about_settings_that_there_are():
    for name in PAPER.words:
        if name == "seeds" or hasattr(PAPER, name):
            continue
        found = PAPER.tasks
        for key in name.split("."):
            assert key in found, name
            found = found[key]


SMALL = {
    "training.steps": 3,
    "training.tokens_per_step": 200,
    "training.warmup": 1,
    "training.precision": "float32",
    "logging.every": 1,
    "evaluation.max_new_tokens": 8,
    "evaluation.limit": 4,
    "evaluation.beams": 2,
}
TINY_MARIAN = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
               "encoder_attention_heads": 2, "decoder_attention_heads": 2}  # fmt: skip


def done(cell, place, tmp_path):
    store = Store(tmp_path / "results")
    outcome = grid.run([cell], grid.Grid(store, place))
    assert outcome.failed == []
    return store.find(cell)


def cells_of(name):
    return ITEMS[name].cells(Plan(PAPER, (0,), ("MLE", "ENT-Fraction")))


def test_a_cell_of_translation(place, pieces, tmp_path):
    opus(tmp_path / "here", ["fr"])
    cell = cells_of("table-untranslated")[-1]
    assert cell.noise == (("untranslated", 0.5),)
    smaller = cell.but(settings=SMALL | {"model.overrides": TINY_MARIAN, "tokenizer.vocab": 400})
    row = done(smaller.but(objective="ent_fraction(0.1, start=1)"), place, tmp_path)
    assert row["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:flores200|smooth:exp")
    assert row["sentences"].keys() == {"bleu", "bleu_greedy"}
    assert row["measures"]["num"] == 4


def test_a_cell_of_pruning_has_four_directions_in_one_model(place, pieces, tmp_path):
    opus(tmp_path / "here", ["de", "fr", "it", "es"])
    cell = next(cell for cell in ITEMS["figure-pruning"].cells(Plan(PAPER, (0,))) if cell.do == "prune")
    small = SMALL | {"model.overrides": TINY_MARIAN, "tokenizer.vocab": 400, "recipe.sizes": [30] * 4}
    row = done(cell.but(settings=small), place, tmp_path)
    assert row["sets"].keys() == {"en-de", "en-fr", "en-it", "en-es"}
    assert row["pruned"] == {"records": 120, "kept": 108}
    (example,) = ITEMS["examples"].cells(Plan(PAPER, (0,)))
    shown = done(example.but(settings=small), place, tmp_path)["sentences_shown"]
    assert {sentence["source"].split()[0] for sentence in shown} <= {"<2de>", "<2fr>", "<2it>", "<2es>"}


def pretrained(folder, config, build, kind):
    """A model and its tokenizer, in a folder that is named as on the Hub."""
    tokenizer = train_bpe([text for pair in PAIRS for text in pair], 400, kind)
    tokenizer.save_pretrained(folder)
    config.vocab_size = len(tokenizer)
    config.pad_token_id = config.decoder_start_token_id = tokenizer.pad_token_id
    config.eos_token_id = config.bos_token_id = tokenizer.eos_token_id
    if build is not None:
        build(config).save_pretrained(folder)


def test_a_cell_of_language_modelling(place, tmp_path):
    dataset(tmp_path / "here/Salesforce/wikitext", "wikitext-103-raw-v1",
            split({"text": f" {other} \n"} for _, other in PAIRS))  # fmt: skip
    name = PAPER.tasks["lm"]["tokenizer"]["pretrained"]
    pretrained(tmp_path / "here" / name, transformers.GPT2Config(), None, "causal")
    few = {key: value for key, value in SMALL.items() if key in ("training.steps", "training.warmup", "logging.every",
                                                                 "training.precision")}  # fmt: skip
    cell = cells_of("table-lm")[0].but(
        settings=few | {"training.tokens_per_step": 128, "max_length": 64,
                        "model.overrides": {"n_layer": 1, "n_embd": 32, "n_head": 2}}
    )  # fmt: skip
    assert cell.told["training"]["gradient_checkpointing"]
    row = done(cell, place, tmp_path)
    assert row["measures"]["perplexity"] > 1
    assert len(row["curve"]) == 3


@pytest.mark.parametrize("column", ["T5-small", "BART-base"])
def test_a_cell_of_summarization(place, tmp_path, column):
    news = ({"article": f"{a} . {a}", "highlights": b, "id": str(i)} for i, (a, b) in enumerate(PAIRS))
    dataset(tmp_path / "here/abisee/cnn_dailymail", "3.0.0", split(news))
    cell = next(cell for cell in cells_of("table-summarization") if cell.column == column)
    t5 = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    bart = transformers.BartConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2,
    )  # fmt: skip
    config, build = {
        "T5-small": (t5, transformers.T5ForConditionalGeneration),
        "BART-base": (bart, transformers.BartForConditionalGeneration),
    }[column]
    pretrained(tmp_path / "here" / cell.told["model"]["pretrained"], config, build, "seq2seq")
    row = done(cell.but(settings=SMALL), place, tmp_path)
    assert {"rouge1", "rouge2", "rougeLsum", "rougeLsum_greedy"} <= row["measures"].keys()
    assert row["signatures"].keys() >= {"rougeLsum"}


def test_settings_of_summarization_are_chosen_with_the_prompt_that_the_table_uses():
    from errornorm_reproduce import choose

    item = ITEMS["table-summarization"]
    plan = Plan(PAPER, (0,), ("ENT-Threshold",))
    (first, *_) = choose.cells(plan, item.condition, item.families)
    (same,) = {cell.hash for cell in item.cells(plan) if cell.column == "T5-small"}
    assert first.but(split="test").hash == same


def test_without_the_file_of_flores200_a_cell_says_so_before_it_learns(place, tmp_path, monkeypatch):
    from huggingface_hub.errors import LocalEntryNotFoundError

    def away(*args):
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", away)
    with pytest.raises(ValueError, match=r"sentencepiece\.bpe\.model of facebook/nllb.*give that with --data"):
        hub.evaluation({"tokenize": "flores200"}, place.work, None)
