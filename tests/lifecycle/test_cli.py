"""The command line, as a shell sees it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lifecycle.points import POINTS
from lifecycle.registry import STANDARD

Done = subprocess.CompletedProcess[str]

TRAIN = """
from lifecycle import Loop

def train(epochs=2):
    loop = Loop(lambda batch: {"loss": 1.0 / batch}, objects={})
    loop.fit([1, 2], epochs=epochs)

if __name__ == "__main__":
    train()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a training script in it."""
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(textwrap.dedent(text))


def python(folder: Path, *arguments: str) -> Done:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def lifecycle(folder: Path, *arguments: str) -> Done:
    return python(folder, "-m", "lifecycle", *arguments)


# -- run: the script


ECHO = """
import sys
print(__name__, sys.argv, sys.path[0], __file__)
from neighbour import value
print(value, sys.modules["__main__"].value)
"""


def test_script_finds_the_world_as_under_python(tmp_path: Path) -> None:
    """Name, arguments, first place on the path, neighbours: all as `python SCRIPT` has them."""
    write(tmp_path / "echo.py", ECHO)
    write(tmp_path / "neighbour.py", "value = 3")
    arguments = ("echo.py", "-x", "--on", "progress", "--help", "3")
    plain, ours = python(tmp_path, *arguments), lifecycle(tmp_path, "run", *arguments)
    assert plain.returncode == 0
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, "", 0)


@pytest.mark.parametrize(
    "body",
    [
        "import sys; sys.exit(7)",
        "import sys; sys.exit('a message')",
        "raise SystemExit",
        "def inner(): return 1 / 0\ninner()",
        "raise KeyboardInterrupt",
        "try:\n    {}[1]\nexcept KeyError as error:\n    raise ValueError('v') from error",
        "def broken(:",
        "import sys\nsys.excepthook = lambda *_: print('own hook')\nraise ValueError",
        "import atexit\natexit.register(print, 'bye')\nraise ValueError",
    ],
)
def test_script_ends_as_under_python(tmp_path: Path, body: str) -> None:
    """Exit status and what is printed of an error are Python's own, without frames of ours."""
    script = str(tmp_path / "script.py")
    write(tmp_path / "script.py", body)
    plain, ours = python(tmp_path, script), lifecycle(tmp_path, "run", script)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


def test_interrupt_kills_by_signal(tmp_path: Path) -> None:
    """A KeyboardInterrupt ends the process as the shell expects of an interrupted one."""
    write(tmp_path / "script.py", "raise KeyboardInterrupt")
    assert lifecycle(tmp_path, "run", "script.py").returncode == -signal.SIGINT


# -- run: subscribers


def test_subscribers_hear_every_loop(folder: Path) -> None:
    """--on attaches to all loops of the script, with its options, several at once."""
    write(
        folder / "two.py",
        """
        from train import train
        train(2)
        train(3)
        """,
    )
    done = lifecycle(
        folder, "run", "--on", "csv=log.csv,append=yes", "--on", "progress=lines", "two.py"
    )
    assert done.returncode == 0
    assert (folder / "log.csv").read_text().splitlines() == [
        "epoch,loss",
        *(f"{epoch},0.75" for epoch in (0, 1, 0, 1, 2)),
    ]
    assert "epoch 1/2" in done.stderr
    assert "epoch 3/3" in done.stderr


def test_several_of_one_kind(folder: Path) -> None:
    """One subscriber may be asked for several times; each has a name of its own."""
    done = lifecycle(folder, "run", "--on", "csv=a.csv", "--on", "csv=b.csv", "train.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "a.csv").read_text() == (folder / "b.csv").read_text() != ""


def test_hook_files_are_connected(folder: Path) -> None:
    """The @on functions of a hook file hear the script's loops, and may subscribe objects."""
    write(
        folder / "my_hooks.py",
        """
        import sys
        from lifecycle import on

        @on("epoch_end")
        def report(epoch, logs):
            print("epoch", epoch, logs["loss"], sys.argv)
        """,
    )
    write(folder / "more.py", "from lifecycle import on\non('train_end')(lambda: print('end'))")
    done = lifecycle(folder, "run", "--hooks", "my_hooks.py", "--hooks", "more.py", "train.py", "x")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "epoch 0 0.75 ['train.py', 'x']",
        "epoch 1 0.75 ['train.py', 'x']",
        "end",
    ]


def test_script_may_import_its_hook_file(folder: Path) -> None:
    """A hook file that the script imports too is the same module, connected once."""
    write(folder / "h.py", "from lifecycle import on\non('train_end')(lambda: print('end'))")
    write(folder / "script.py", "import h\nfrom train import train\ntrain()")
    done = lifecycle(folder, "run", "--hooks", "h.py", "script.py")
    assert (done.returncode, done.stdout) == (0, "end\n")


def test_hook_file_hides_no_module(folder: Path) -> None:
    """A hook file named like a module of the standard library does not take its place."""
    write(folder / "csv.py", "from lifecycle import on\non('train_end')(lambda: print('end'))")
    (folder / "hooks").mkdir()
    (folder / "csv.py").rename(folder / "hooks" / "csv.py")
    done = lifecycle(folder, "run", "--hooks", "hooks/csv.py", "--on", "csv=log.csv", "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_hook_file_may_register_names(folder: Path) -> None:
    """What a hook file registers can be asked for by --on, whichever comes first."""
    write(
        folder / "h.py",
        """
        from lifecycle.registry import register

        class Mine:
            def __init__(self, word: str = "?"):
                self.word = word
            def on_train_end(self):
                print(self.word)

        register("mine", Mine)
        """,
    )
    done = lifecycle(folder, "run", "--on", "mine=hello", "--hooks", "h.py", "train.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")


# -- run: what is wrong is said before the script starts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on", "progres"], "no subscriber is called 'progres'; did you mean 'progress'?"),
        (["--on", "early-stopping,patence=1"], "has no option 'patence'; did you mean 'patience'?"),
        (["--on", "early-stopping,patience=x"], "patience is an integer, not 'x'"),
        (["--on", "early-stopping,patience=-1"], "early-stopping: patience is a"),
        (["--on", "csv"], "csv needs path"),
        (["--hooks", "nowhere.py"], "there is no Python file nowhere.py"),
        (["--no"], "No such option: --no"),
    ],
)
def test_wrong_options_end_before_the_script(
    folder: Path, arguments: list[str], message: str
) -> None:
    """A wrong name or option says what is wrong and what is near; nothing was started."""
    write(folder / "train.py", "print('started')")
    done = lifecycle(folder, "run", *arguments, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_script_that_is_not_there(tmp_path: Path) -> None:
    """A missing script is named."""
    done = lifecycle(tmp_path, "run", "nowhere.py")
    assert done.returncode == 2
    assert "there is no file nowhere.py" in done.stderr


def test_nothing_to_attach(folder: Path) -> None:
    """A registered object that subscribes to nothing is refused by name."""
    write(folder / "h.py", "from lifecycle.registry import register\nregister('nothing', object)")
    done = lifecycle(folder, "run", "--hooks", "h.py", "--on", "nothing", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "object" in done.stderr


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ("import nonsense", "ModuleNotFoundError: No module named 'nonsense'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("open('nowhere')", "FileNotFoundError: [Errno 2] No such file or directory: 'nowhere'"),
        (
            "from lifecycle import on\n@on('epoch_edn')\ndef f(): ...",
            "UnknownPointError: there is no point 'epoch_edn'; did you mean 'epoch_end'?",
        ),
        (
            "from lifecycle import on\n@on('epoch_end')\ndef f(epoch, log): ...",
            "BindingError: ",
        ),
    ],
)
def test_hook_file_that_fails(folder: Path, body: str, last: str) -> None:
    """A hook file's error comes with its own traceback, and the script is not started."""
    write(folder / "train.py", "print('started')")
    write(folder / "h.py", body)
    done = lifecycle(folder, "run", "--hooks", "h.py", "train.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert last in done.stderr
    assert 'h.py", line ' in done.stderr
    assert "runpy" not in done.stderr
    assert "script.py" not in done.stderr
    assert done.stderr.endswith("the hook file h.py failed; the script was not started\n")


# -- checkpoints


@pytest.fixture
def saved(folder: Path) -> Path:
    """Give a folder in which run/ holds the checkpoints of five epochs."""
    write(folder / "five.py", "from train import train\ntrain(5)")
    options = "checkpoint=run/,keep=5,save_best=loss"
    done = lifecycle(folder, "run", "--on", options, "five.py")
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_checkpoints_are_listed(saved: Path) -> None:
    """The list has each checkpoint with its epoch, its step and its metric."""
    done = lifecycle(saved, "checkpoints", "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "latest" in done.stdout
    assert "best" in done.stdout
    assert "loss 0.75" in done.stdout
    assert len(re.findall("epoch|yes", done.stdout)) >= 5


def test_checkpoints_verify(saved: Path) -> None:
    """Verifying ends with 0 where all are intact, and with 1 where a byte of one is wrong."""
    done = lifecycle(saved, "checkpoints", "verify", "run")
    assert (done.returncode, done.stderr) == (0, "")
    file = max(saved.glob("run/*/*"), key=lambda file: file.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = lifecycle(saved, "checkpoints", "verify", "run")
    assert done.returncode == 1
    assert "no:" in done.stdout


def test_checkpoints_prune(saved: Path) -> None:
    """Pruning keeps the newest ones and the best; a dry run only says what it would do."""
    dry = lifecycle(saved, "checkpoints", "prune", "run", "--keep", "1", "--dry-run")
    assert dry.returncode == 0
    before = sorted(saved.glob("run/*"))
    done = lifecycle(saved, "checkpoints", "prune", "run", "--keep", "1")
    assert done.stdout == dry.stdout.replace("would remove", "removed")
    gone = {saved / line.removeprefix("removed ") for line in done.stdout.splitlines()}
    assert gone
    assert sorted(saved.glob("run/*")) == [path for path in before if path not in gone]
    again = lifecycle(saved, "checkpoints", "prune", "run", "--keep", "1")
    assert again.stdout == "there is nothing to remove\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere"),
        (["remove", "run"], "expected DIR, verify DIR or prune DIR, not 'remove run'"),
        (["a", "b", "c"], "expected DIR, verify DIR or prune DIR, not 'a b c'"),
        (["prune", "run", "--keep", "0"], "--keep"),
    ],
)
def test_checkpoints_asked_wrongly(tmp_path: Path, words: list[str], message: str) -> None:
    """A folder or a word that is not there is named."""
    done = lifecycle(tmp_path, "checkpoints", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_folder_without_checkpoints(tmp_path: Path) -> None:
    """An empty folder is said to be empty."""
    (tmp_path / "run").mkdir()
    done = lifecycle(tmp_path, "checkpoints", "run")
    assert (done.returncode, done.stdout) == (0, "there are no checkpoints in run\n")


# -- the tables


def test_points(tmp_path: Path) -> None:
    """The table of points has every point with its payload and its aliases."""
    done = lifecycle(tmp_path, "points")
    assert (done.returncode, done.stderr) == (0, "")
    for point in POINTS:
        assert point.name in done.stdout
        assert all(word in done.stdout for word in (*point.payload, *point.aliases))


def test_subscribers(tmp_path: Path) -> None:
    """The table of subscribers has every standard one with its options, and all of them load."""
    done = lifecycle(tmp_path, "subscribers")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in STANDARD)
    assert "patience=0" in done.stdout
    assert "cannot be loaded" not in done.stdout


def test_help_names_the_commands(tmp_path: Path) -> None:
    """Without a command there is help, and a wrong one is told what is near."""
    done = lifecycle(tmp_path, "--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("run", "points", "subscribers", "checkpoints"))
    assert "Did you mean 'points'" in lifecycle(tmp_path, "point").stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra(tmp_path: Path, missing: str) -> None:
    """Where typer or rich is missing, the command says what to install."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from lifecycle.__main__ import main; main()"
    )
    done = python(tmp_path, "-c", code)
    assert done.returncode == 1
    assert done.stderr == (f'the command line needs {missing}: pip install "epochbus[cli]"\n')
