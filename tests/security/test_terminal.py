"""Hostile text in corpora, file names, settings and results, on a real (pseudo) terminal: none of it steers it."""

import ast
import json
import logging
import os
import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from unicodedata import category

import pytest

from errornorm import cli
from errornorm.cli import printing
from errornorm.data.visible import HARMLESS, json_text, plain, visible
from errornorm.training.progress import Live, Progress
from tests.run_directories import write as write_run
from tests.score_tables import write as write_scores

PAYLOADS = [
    "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]8;;http://x.test\x1b\\link\x1b]8;;\x1b\\", "\x1b[31;5m", "\x1b[6n",
    "\x1b]52;c;ZWNobyBvd25lZA==\x07", "\x1bP+q544e\x1b\\", "\x1b[?1049h", "\x1b[8;1;1t", "\x1bc", "\x9b2J",
    "\x9d0;x\x9c", "\x90x\x9c", "\x07", "\x08\x08\x08", "a\rb", "\x0b\x0c", "\x7f", "\x00", "\x0e\x0f",
    "\u202eevil\u202c", "\u2066x\u2069", "\u2028\u2029", "\x85", "\ufeff", "\U000e0041", "\u061c\u200f",
    "\x1b[38;2;1;2;3m", "\x1b_x\x1b\\", "\x1b^x\x1b\\", "[bold red]x[/]", "[link=http://x.test]x[/link]",
    "{0.__class__}", "%s%n", "\x1b[1;31mERROR", "\x1b[10A\x1b[2K", "\x1b[200~rm -rf\x1b[201~",
    "\x1b]1337;File=x\x07", "\x1b#8", "\x1b[!p",
]  # fmt: skip
RICH = re.compile(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K")  # what it writes itself


def clean_name(payload):
    """What a file system takes as a name."""
    return payload.replace("/", "").replace("\0", "") or "x"


@contextmanager
def terminal(monkeypatch):
    """Standard output and error are a terminal; a list gets what arrives there."""
    master, slave = os.openpty()
    seen = bytearray()

    def read():
        while True:
            try:
                piece = os.read(master, 2**16)
            except OSError:
                return
            if not piece:
                return
            seen.extend(piece)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    stream = open(slave, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    told = []
    with monkeypatch.context() as patched:
        patched.setenv("TERM", "xterm-256color")
        patched.setenv("COLUMNS", "200")
        patched.setattr(sys, "stdout", stream)
        patched.setattr(sys, "stderr", stream)
        try:
            yield told
        finally:
            stream.flush()
            stream.close()
            os.close(slave)
            reader.join(5)
            os.close(master)
    told.append(seen.decode("utf-8", "replace"))


def steers(text):
    """Everything in a text that is no character to look at; but for what rich writes, and the ends of lines."""
    rest = RICH.sub("", text).replace("\r\n", "\n").replace("\r", "")
    return sorted({c for c in rest if category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t" + HARMLESS})


# Each spot shows one or more payloads in one way; it returns what a terminal should get.
def errors(folder, payload):
    """Names that are wrong, in every place where a name is asked for."""
    corpus = folder / "c.jsonl"
    corpus.write_text('{"source": "a", "target": "b"}\n', encoding="utf-8")
    out = str(folder / "o.jsonl")
    yield ["methods", payload]
    yield [payload]
    yield ["corrupt", str(corpus), "--noise", f"{payload}=0.5", "-o", out]
    yield ["corrupt", str(corpus), "--noise", "untranslated=0.5", "--target-field", payload, "-o", out]
    yield ["corrupt", str(folder / clean_name(payload)), "--noise", "untranslated=0.5", "-o", out]
    yield ["corrupt", str(corpus), f"--{payload}", "x"]
    yield ["--debug", "corrupt", str(folder / clean_name(payload)), "--noise", "typos=1", "-o", out]
    yield ["summary", str(folder / clean_name(payload))]
    yield ["report", str(folder / clean_name(payload)), "-o", str(folder / "r.html")]
    yield ["prune", str(folder / clean_name(payload)), "--fraction", "0.1"]
    yield ["detect", str(folder / clean_name(payload)), "--labels", payload]
    yield ["compare", str(folder / clean_name(payload)), "-o", str(folder / "c.png")]


def settings(folder, payload):
    """A configuration with the payload as a key, a value, an objective and a file's name."""
    text = json.dumps(payload)
    base = f"task: translation\noutput: {json.dumps(str(folder / 'run'))}\ndata:\n  train: {{path: gone.jsonl}}\n"
    for number, more in enumerate((f"{text}: 1\n", f"objective: {text}\n", f"model: {{preset: {text}}}\n",
                                   f"seeds: {text}\n")):  # fmt: skip
        path = folder / f"{number}.yaml"
        path.write_text(base + more, encoding="utf-8", errors="surrogatepass")
        yield ["train", str(path)]
    yield ["train", str(folder / "0.yaml"), "--set", f"{payload}=1"]
    yield ["train", str(folder / clean_name(payload))]


def printed(payload):
    """All ways of printing, without a verb."""
    printing.print_table(("a", payload), [("b", payload), (payload, "1")])
    printing.print_json({"text": payload, payload: [payload]})
    printing.print_markdown(f"# {payload}\n\n`{payload}`\n", raw=False)
    printing.print_markdown(payload, raw=True)
    printing.out(payload)
    printing.say(payload)
    logger = logging.getLogger("errornorm.tests")
    logger.propagate = False
    logger.addHandler(handler := printing.Said())
    logger.warning("checkpoint %s", payload)
    logger.removeHandler(handler)
    with printing.progress() as tell:
        tell(payload)
    for teller in (Progress(), Live()):
        with teller.over("seed 0"), teller.doing(payload) as part:
            part(payload)
            teller.say(payload)
    return 12


def run_spots(monkeypatch, tmp_path, payloads, suite):
    for number, payload in enumerate(payloads):
        folder = tmp_path / str(number)
        folder.mkdir()
        with suite.case(f"printing {payload!r}"):
            with terminal(monkeypatch) as told:
                count = printed(payload)
            suite.add(count - 1)
            assert (payload in told[0]) == payload.isprintable()  # markup is shown, not followed
            assert not steers(told[0]), (steers(told[0]), told[0])
        for argv in (*errors(folder, payload), *settings(folder, payload)):
            with suite.case(f"{argv} with {payload!r}"):
                with terminal(monkeypatch) as told:
                    code = cli.main(argv)
                assert code not in (0, 1), (code, told[0])
                assert told[0]
                assert payload.isprintable() or payload not in told[0]
                assert not steers(told[0]), (steers(told[0]), told[0])


def scored(folder, payloads):
    """A table of scores, with the payloads wherever a corpus can have them."""
    rows = [
        {"text": f"un {payload}chien court", "context": payload, "error_norm": [0.1 * (i % 13), 0.5, 1.2],
         "start": [0, 3, 4], "end": [2, 4, 5], "fields": {"site": payload, "labels": [i % 2, 1, 0], payload: 1}}
        for i, payload in enumerate(payloads * 3)
    ]  # fmt: skip
    bad = [{"where": payload, "reason": f"{payload} (x)", "text": payload} for payload in payloads]
    name = clean_name(payloads[0])
    return write_scores(folder / f"scores{name}", rows, quarantine=bad, corpus={"path": name, "text_field": name})


def run_tables(monkeypatch, tmp_path, payloads, suite):
    """All groups are shown at once: each payload counts in each verb."""
    scores = str(scored(tmp_path, payloads).folder)
    for argv in (
        ["summary", scores, "--group-by", "site", "--worst", "100"],
        ["summary", scores, "--group-by", "site", "--json"],
        ["detect", scores, "--labels", "labels", "--level", "sentence", "--positive", "1", "--group-by", "site",
         "--bootstrap", "0"],
        ["prune", scores, "--fraction", "0.5", "--unit", "source", "--group-by", "site"],
        ["prune", scores, "--fraction", "0.5", "--unit", "source", "--group-by", "site", "--json"],
        ["report", scores, "-o", str(tmp_path / f"{clean_name(payloads[1])}.html"), "--group-by", "site"],
        ["report", scores, "-o", str(tmp_path / f"{clean_name(payloads[1])}.html"), "--title", payloads[2], "--json"],
    ):  # fmt: skip
        with suite.case(argv[0]):
            suite.add(len(payloads) - 1)
            with terminal(monkeypatch) as told:
                code = cli.main(argv)
            assert code in (0, 2, 3), told[0]
            assert told[0]
            assert not steers(told[0]), (argv, steers(told[0]))


def run_comparisons(monkeypatch, tmp_path, payloads, suite):
    folders = [write_run(tmp_path / f"{i}{clean_name(payload)}", method=payload, task=payload, data_hash=payload,
                         signatures={"bleu": payload}) for i, payload in enumerate(payloads[:6])]  # fmt: skip
    command = ["compare", *map(str, folders), "-o", str(tmp_path / "c.png"), "--samples", "10"]
    for more in ([], ["--json"], ["--baseline", payloads[0]]):
        with suite.case(f"compare {more}"):
            suite.add(5)
            with terminal(monkeypatch) as told:
                code = cli.main([*command, *more])
            assert code != 1, told[0]
            assert not steers(told[0]), (more, steers(told[0]))


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_few(monkeypatch, tmp_path, tally):
    with tally("terminal", "security", "hostile text") as suite:
        for name in "abc":
            (tmp_path / name).mkdir()
        run_spots(monkeypatch, tmp_path / "a", ["\x1b]0;owned\x07", "\x9b2J\u202e\ud800"[:4]], suite)
        run_tables(monkeypatch, tmp_path / "b", PAYLOADS, suite)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_thousand(monkeypatch, tmp_path, tally):
    with tally("terminal", "security", "texts that would steer a terminal, in corpora, file names, "
               "settings and results, over the verbs that print such; none may arrive") as suite:  # fmt: skip
        for name in "abc":
            (tmp_path / name).mkdir()
        run_spots(monkeypatch, tmp_path / "a", PAYLOADS, suite)
        run_tables(monkeypatch, tmp_path / "b", PAYLOADS, suite)
        run_comparisons(monkeypatch, tmp_path / "c", PAYLOADS, suite)
        assert suite.tried >= 1000


def test_what_stays_as_it_is():
    text = "été, naïve, 日本語, שלום, कि, 👩\u200d🚀, 10\u00a0€, می\u200cخواهم"
    assert plain(text) == text
    assert plain("a\nb\tc") == "a\nb\tc"
    assert plain("a\nb\tc", keep="") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert visible("x" * 100, 10) == "x" * 9 + "…"
    value = {"a": ["\x1b[2J", "\x9b", "\u202e", "\U000e0041", "\ud800", "\n", text]}
    assert json.loads(json_text(value, indent=2)) == value
    assert not steers(json_text(value, indent=2))


def test_verbs_print_by_one_way_only():
    """`print` itself is for those two files that know how; elsewhere it is `out`, `say`, `print_table` and the like."""
    for path in (Path(cli.__file__).parent).glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"]  # fmt: skip
        for call in calls:
            assert path.name == "printing.py" or "plain" in ast.unparse(call), f"{path.name}:{call.lineno}"
