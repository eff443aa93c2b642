"""The command line: its options are frozen, its errors are one line, and it does not wait for torch to say --help."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import typer

import errornorm.bench
from errornorm import KERNELS, METHODS, __version__, cli, objective

COMMAND = [sys.executable, "-m", "errornorm.cli"]
OPTIONS = {
    "": ["--version", "--debug", "--help"],
    "methods": ["NAME", "--markdown", "--json", "--help"],
    "kernels": ["--json", "--help"],
    "bench": ["--size", "--repeat", "--threads", "--fraction", "--output", "--json", "--help"],
    "corrupt": [
        "CORPUS",
        "PAIR",
        "--noise",
        "--output",
        "--mode",
        "--seed",
        "--source-field",
        "--target-field",
        "--columns",
        "--foreign",
        "--json",
        "--help",
    ],
    "score": [
        "CORPUS",
        "PAIR",
        "--model",
        "--output",
        "--text-field",
        "--context-field",
        "--prompt",
        "--columns",
        "--cutoff",
        "--alternatives",
        "--max-length",
        "--to",
        "--limit",
        "--device",
        "--dtype",
        "--batch-tokens",
        "--part",
        "--engine",
        "--workers",
        "--advise",
        "--json",
        "--help",
    ],
    "summary": ["SCORES", "--group-by", "--by", "--worst", "--seed", "--json", "--help"],
    "detect": [
        "SCORES",
        "--labels",
        "--positive",
        "--level",
        "--group-by",
        "--resample-by",
        "--bootstrap",
        "--seed",
        "--output",
        "--json",
        "--help",
    ],
    "prune": [
        "SCORES",
        "--by",
        "--fraction",
        "--threshold",
        "--unit",
        "--group-by",
        "--output",
        "--output-pair",
        "--removed",
        "--corpus",
        "--pair",
        "--weights-field",
        "--download",
        "--seed",
        "--json",
        "--help",
    ],
    "report": ["SCORES", "--output", "--group-by", "--title", "--figures", "--json", "--help"],
    "reproduce": [
        "ITEMS",
        "--scale",
        "--data",
        "--seeds",
        "--jobs",
        "--method",
        "--method-file",
        "--results",
        "--work",
        "--slurm",
        "--dry-run",
        "--page",
        "--json",
        "--help",
    ],
    "train": ["CONFIG", "--set", "--resume", "--dry-run", "--schema", "--json", "--help"],
    "evaluate": [
        "MODEL",
        "CORPUS",
        "PAIR",
        "--metric",
        "--beams",
        "--max-new-tokens",
        "--limit",
        "--output",
        "--task",
        "--languages",
        "--source-field",
        "--target-field",
        "--text-field",
        "--columns",
        "--tokenize",
        "--flores-model",
        "--json",
        "--help",
    ],
    "generate": ["MODEL", "TEXT", "--output", "--beams", "--max-new-tokens", "--to", "--task", "--json", "--help"],
    "compare": ["RUNS", "--baseline", "--metric", "--samples", "--output", "--flores-model", "--json", "--help"],
    "demo": ["--source", "--target", "--seed", "--output", "--json", "--help"],
}


def run(capsys, *argv):
    """Exit code, standard output and standard error of a command line."""
    code = cli.main(argv)
    out, err = capsys.readouterr()
    return code, out, err


def options_of(command):
    context = command.make_context("errornorm", [], resilient_parsing=True)
    return [
        max(p.opts, key=len) if p.opts[0].startswith("-") else p.opts[0].upper() for p in command.get_params(context)
    ]


def test_the_options_are_these():
    group = typer.main.get_command(cli.app)
    assert {"": options_of(group)} | {name: options_of(verb) for name, verb in group.commands.items()} == OPTIONS


def test_help_answers_within_half_a_second():
    def seconds():
        start = time.perf_counter()
        subprocess.run([*COMMAND, "--help"], check=True, capture_output=True)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.5


def test_help_does_not_load_torch():
    code = "import sys; from errornorm.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_help_lists_the_exit_codes_and_every_verb_has_an_example(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {number:<4} {about}" in out for number, about in cli.EXITS.items())
    assert run(capsys)[1] == out
    for verb in filter(None, OPTIONS):
        text = run(capsys, verb, "--help")[1]
        assert f"Examples:\n    errornorm {verb}" in text


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"errornorm {__version__}\n", "")
    command = [sys.executable, "-m", "errornorm", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"errornorm {__version__}\n"


def test_methods_are_one_line_each(capsys):
    code, out, _ = run(capsys, "methods")
    lines = out.splitlines()[2:]
    assert code == 0
    assert [line.split()[0] for line in lines] == list(METHODS)
    for line in lines:
        assert line.endswith(".")
        assert objective(line.split()[0])


def test_methods_as_json_and_markdown(capsys):
    every = json.loads(run(capsys, "methods", "--json")[1])
    assert [card["name"] for card in every] == list(METHODS)
    assert json.loads(run(capsys, "methods", "rho1", "--json")[1]) == every[list(METHODS).index("rho1")]
    assert run(capsys, "methods", "--markdown")[1].startswith("# Methods\n")
    assert run(capsys, "methods", "rho1", "--markdown")[1] == run(capsys, "methods", "rho1")[1]


def test_a_card_holds_what_the_docstring_says(capsys):
    out = run(capsys, "methods", "rho1")[1]
    assert out.startswith("# rho1\n")
    for part in (
        "log p_ref(y)",
        "| `keep` | `0.6` | Share of the tokens",
        "`ref_nll`",
        ">>> rho1(0.7)",
        "NeurIPS 2024",
    ):
        assert part in out


def test_kernels(capsys):
    out = run(capsys, "kernels")[1]
    assert [line.split()[0] for line in out.splitlines()[2:]] == list(KERNELS)
    assert [kernel["name"] for kernel in json.loads(run(capsys, "kernels", "--json")[1])] == list(KERNELS)


def test_on_a_terminal_tables_are_drawn(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "─" in run(capsys, "kernels")[1]
    assert "Rho-1" in run(capsys, "methods", "rho1")[1]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nothing"], "No such command 'nothing'; see errornorm --help"),
        (["trian"], "No such command 'trian'. Did you mean 'train'? See errornorm --help"),
        (["demo", "--nothing"], "No such option: --nothing; see errornorm demo --help"),
        (["methods", "tailor"], "unknown method 'tailor' (did you mean tailr?)"),
        (["bench", "--size", "1,2"], "'1,2' is not tokens,hidden size,vocabulary, such as 2048,512,32000"),
        (["bench", "--repeat", "0"], "repeat=0 measures nothing: give 1 or more"),
        (["bench", "--threads", "0"], "threads=0 cannot compute: give 1 or more"),
        (["bench", "--fraction", "2"], "fraction=2.0 is a share to drop"),
        (["demo", "--output", __file__], "is a file; see errornorm demo --help"),
        (["demo", "--source", __file__], "--source and --target belong together: give both"),
        (["demo", "--seed", "-1"], "see errornorm demo --help"),
        (["evaluate", "a", "b", "--languages", "fr"], "--languages 'fr' is not of the form en-fr; see"),
        (["generate", "a", "--beams", "1001"], "Invalid value for '--beams'"),
        (["score", "a", "--model", "b", "--limit", "9999999999"], "Invalid value for '--limit'"),
        (["train"], "give a configuration file, such as run.yaml"),
    ],
)
def test_wrong_usage_is_one_line(capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("errornorm: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("fraction=2 is a share"), 2, "fraction=2 is a share"),
        (ImportError("needs triton: pip install errornorm[gpu]"), 2, "needs triton: pip install errornorm[gpu]"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.json"), 3, "No such file: a.json: check the path"),
        (json.JSONDecodeError("Expecting value", "x", 0), 3, "Expecting value: line 1 column 1"),
        (FloatingPointError("3 of 9 tokens have NaN"), 4, "3 of 9 tokens have NaN"),
        (MemoryError(), 5, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 5, "try a smaller size"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), 5, "try a smaller size"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), 5, "out of memory"),
        (RuntimeError("unable to mmap 9 bytes from file </x>: Cannot allocate memory (12)"), 5, "out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 5, "out of memory"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"), 5, "try a smaller size"),
        (OSError(errno.ENOSPC, "No space left on device", "demo.png"), 5, "No space left on device: demo.png"),
        (RuntimeError("unable to open file </x>: Too many open files (24)"), 5, "raise the limit (ulimit -n)"),
        (KeyError("x"), 1, "KeyError: 'x': this is a bug; run it again as errornorm --debug ..."),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
    ],
)
def test_every_error_has_its_exit_code(capsys, monkeypatch, error, code, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(errornorm.bench, "run", fail)
    got, out, err = run(capsys, "bench")
    assert (got, out) == (code, "")
    assert err.startswith("errornorm: ")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" in run(capsys, "--debug", "bench")[2] or code == 130


def test_bench_passes_its_options_on(capsys, monkeypatch, tmp_path):
    seen = {}

    def measure(sizes, fraction, repeat, threads, output, progress):
        seen.update(sizes=sizes, fraction=fraction, repeat=repeat, threads=threads, output=output)
        progress("silent, as nobody looks")
        return errornorm.bench.Result(())

    monkeypatch.setattr(errornorm.bench, "run", measure)
    argv = ["bench", "--size", "8,4,32", "--size", "16,4,32", "--repeat", "2", "--threads", "2", "--fraction", "0.2"]
    code, out, err = run(capsys, *argv, "--output", str(tmp_path), "--json")
    assert (code, json.loads(out), err) == (0, {"rows": []}, "")
    want = {"sizes": [(8, 4, 32), (16, 4, 32)], "fraction": 0.2, "repeat": 2, "threads": 2, "output": tmp_path}
    assert seen == want
    assert str(tmp_path / "bench.json") in run(capsys, *argv, "--output", str(tmp_path))[1]
    run(capsys, "bench")
    assert seen["sizes"] == [(2048, 512, 32000)]


@pytest.mark.parametrize(("given", "code", "said"), [
    (7, 7, ""), (None, 0, ""), ("no such method", 1, "errornorm: no such method\n"),
])  # fmt: skip
def test_code_of_a_user_that_exits(capsys, monkeypatch, given, code, said):
    monkeypatch.setattr(errornorm.bench, "run", lambda *_, **__: sys.exit(given))
    assert run(capsys, "bench") == (code, "", said)


@pytest.mark.skipif(os.name != "posix", reason="closes streams as a shell does")
def test_closed_streams_are_no_error():
    done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *COMMAND, "kernels"])
    assert done.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
def test_full_streams():
    def run(line, *argv):
        return subprocess.run(["sh", "-c", f'"$@" {line}', "sh", *COMMAND, *argv], capture_output=True, text=True)

    assert run("2>/dev/full", "kernels", "--no-such-option").returncode == 2
    done = run(">/dev/full", "kernels")
    where = f"{os.strerror(errno.ENOSPC)}: standard output"
    assert (done.returncode, done.stderr) == (5, f"errornorm: {where}: make room, or choose another place\n")


def test_nobody_listens_to_what_is_said(tmp_path):
    (tmp_path / "a.en").write_text("a dog\n")
    (tmp_path / "a.fr").write_text("un chien\n" * 9)
    argv = ["corrupt", tmp_path / "a.en", tmp_path / "a.fr", "--noise", "typos=1", "-o", tmp_path / "noisy.jsonl"]
    process = subprocess.Popen([*COMMAND, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.close()
    assert "9 records = 1 used + 8 quarantined" in process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0


def test_ctrl_c_at_the_very_start_is_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(COMMAND, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "errornorm: stopped by Ctrl-C; nothing was done\n")


def test_a_reader_that_leaves_is_no_error():
    process = subprocess.Popen([*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(("name", "code", "by"), [
    ("SIGINT", 130, "Ctrl-C"), ("SIGTERM", 143, "SIGTERM"), ("SIGHUP", 129, "SIGHUP"),
])  # fmt: skip
def test_a_signal_leaves_no_file(tmp_path, name, code, by):
    endless, output = tmp_path / "endless.txt", tmp_path / "out" / "noisy.jsonl"
    os.mkfifo(endless)
    argv = ["corrupt", str(endless), "--target-field", "text", "--noise", "repetition=0.5", "--output", str(output)]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and a process inherits that
    process = subprocess.Popen([*COMMAND, *argv], stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGHUP, before)
    with endless.open("w") as feed:  # the command waits for more as long as this is open
        feed.write("a line of text\n" * 5000)
        feed.flush()
        while not (output.parent.is_dir() and any(output.parent.iterdir())):
            time.sleep(0.05)
        process.send_signal(getattr(signal, name))
        _, err = process.communicate()
    assert process.returncode == code
    assert err == f"errornorm: stopped by {by}; no half-written file is left\n"
    assert list(output.parent.iterdir()) == []
