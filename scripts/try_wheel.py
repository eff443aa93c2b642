"""Is everything in the wheel, and does it work where nothing else of the project is? `make wheel` asks.

Run it with the Python of an environment that has the wheel and the extra train:

    build/wheel/bin/python scripts/try_wheel.py dist/errornorm-*.whl
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = Path(__file__).resolve().parents[1] / "src"
RUN = """\
task: translation
output: run
data: {train: {path: pairs.jsonl}, test: {path: pairs.jsonl}, max_length: 32}
tokenizer: {vocab: 300}
training: {steps: 2, tokens_per_step: 64, warmup: 1}
evaluation: {beams: 1, max_new_tokens: 4}
"""


def missing(wheel: Path) -> list[str]:
    """Files of the packages that are not in the wheel: code, types, pages, scripts and styles."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(name for path in files if (name := path.relative_to(SOURCE).as_posix()) not in inside)


def use(folder: Path) -> None:
    """Two lines of training, and what reads the assets, far from the project's own files."""
    pairs = [{"source": "a dog runs", "target": "un chien court"}, {"source": "a cat", "target": "un chat"}]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    (folder / "run.yaml").write_text(RUN, encoding="utf-8")
    for command in (
        ["--help"],
        ["--version"],
        ["methods"],
        ["reproduce"],
        ["train", "run.yaml"],
        ["generate", "run", "pairs.jsonl", "--beams", "1", "--max-new-tokens", "2"],
        ["score", "pairs.jsonl", "--model", "run", "-o", "scores"],
        ["report", "scores", "-o", "report.html"],
    ):
        done = subprocess.run(
            [Path(sys.executable).parent / "errornorm", *command], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"errornorm {' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        print(f"errornorm {' '.join(command)}: done")


def main() -> None:
    (wheel,) = map(Path, sys.argv[1:])
    if names := missing(wheel):
        sys.exit(f"{wheel.name} lacks {', '.join(names)}")
    import errornorm
    import errornorm_reproduce

    for package in (errornorm, errornorm_reproduce):
        if SOURCE in Path(str(package.__file__)).parents:
            sys.exit(f"{package.__name__} is that of the project, not that of the wheel")
    with TemporaryDirectory() as folder:
        use(Path(folder))
    print(f"{wheel.name}: all is there, and it works")


if __name__ == "__main__":
    main()
