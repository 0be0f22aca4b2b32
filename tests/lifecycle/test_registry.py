"""Subscribers by name."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import lifecycle.subscribers
from lifecycle import registry
from lifecycle.registry import (
    STANDARD,
    OptionError,
    UnknownSubscriberError,
    create,
    entries,
    find,
    parse,
    register,
)
from lifecycle.subscribers import CSVLogger, EarlyStopping, StopOnNaN


class Tracker:
    """A subscriber of somebody's own."""

    def __init__(self, run: str, *tags: str, every: int = 1, **more: object) -> None:
        self.run = run
        self.tags = tags
        self.every = every
        self.more = more

    def on_epoch_end(self, logs: object) -> None: ...


@pytest.fixture
def tracker() -> Iterator[str]:
    """Register a subscriber for the time of a test."""
    register("tracker", Tracker)
    yield "tracker"
    del registry._registered["tracker"]


def test_all_standard_subscribers_have_a_name() -> None:
    """Each class of lifecycle.subscribers can be asked for by a name of the table."""
    targets = {target.partition(":")[2] for target in STANDARD.values()}
    assert targets >= set(lifecycle.subscribers.__all__)


@pytest.mark.parametrize("name", sorted(STANDARD))
def test_standard_names_load(name: str) -> None:
    """Each name of the table leads to the class it stands for."""
    assert find(name).__name__ == STANDARD[name].partition(":")[2]


@pytest.mark.parametrize(
    "name", ["early-stopping", "early_stopping", "EarlyStopping", "earlystopping"]
)
def test_spelling_of_names(name: str) -> None:
    """Case and separators make no difference, and the class's name does as well."""
    assert find(name) is EarlyStopping


def test_class_name_of_a_shorter_name() -> None:
    """A class whose name here is shorter is found by the class's name too."""
    assert find("csv") is find("CSVLogger") is CSVLogger


def test_unknown_name_suggests_the_nearest() -> None:
    """A misspelt name says which was probably meant."""
    with pytest.raises(UnknownSubscriberError) as caught:
        find("progres")
    assert str(caught.value) == ("no subscriber is called 'progres'; did you mean 'progress'?")


def test_unknown_name_lists_what_there_is() -> None:
    """A name that resembles none shows them all."""
    with pytest.raises(UnknownSubscriberError, match="there are checkpoint, csv, early-stopping"):
        find("xyzzy")


def test_parse_reads_types_from_the_signature() -> None:
    """Texts become the types that the constructor declares."""
    request = parse("early-stopping=val_acc,patience=3,restore_best=yes,baseline=0.5")
    assert request.factory is EarlyStopping
    assert request.arguments.arguments == {
        "monitor": "val_acc",
        "patience": 3,
        "baseline": 0.5,
        "restore_best": True,
    }
    made = request.make()
    assert isinstance(made, EarlyStopping)
    assert made.patience == 3


def test_parse_without_argument() -> None:
    """A name alone asks for the defaults; options may follow it without an argument."""
    assert parse("timer").arguments.arguments == {}
    assert parse("early-stopping,min-delta=0.1").arguments.arguments == {"min_delta": 0.1}


def test_piece_without_equals_continues_the_value() -> None:
    """Commas inside of values are kept: a list, or a path that has one."""
    made = parse("stop-on-nan=loss,val_loss,every=3").make()
    assert isinstance(made, StopOnNaN)
    assert made.metrics == ("loss", "val_loss")
    assert made.every == 3
    assert parse("csv=a,b.csv").arguments.arguments == {"path": "a,b.csv"}


def test_argument_may_contain_equals() -> None:
    """Only the first = separates the name from its argument."""
    assert parse("csv=lr=0.1/log.csv").arguments.arguments == {"path": "lr=0.1/log.csv"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "early-stopping,patence=3",
            "early-stopping has no option 'patence'; did you mean 'patience'?",
        ),
        ("csv=x,zzz=3", "csv has no option 'zzz'; it has path, separator, append, by, every"),
        ("early-stopping,patience=soon", "early-stopping: patience is an integer, not 'soon'"),
        ("early-stopping,restore_best=maybe", "restore_best is true or false, not 'maybe'"),
        ("csv=x,by=batch", 'csv: by must be "epoch" or "step", not \'batch\''),
        ("early-stopping,patience=-1", "early-stopping: patience is a"),
        ("early-stopping,patience=1,patience=2", "early-stopping: patience is given twice"),
        ("csv", "csv needs path, as in csv,path=..."),
        ("csv,x", "csv: expected key=value after the comma, not 'x'"),
        ("timer=3", "timer takes no argument"),
        ("schedule=3", "schedule: function cannot be given as text; attach it in the script"),
    ],
)
def test_wrong_options_are_named(text: str, message: str) -> None:
    """What is wrong with an option is said by name, before anything runs."""
    with pytest.raises(OptionError) as caught:
        parse(text).make()
    assert message in str(caught.value)


def test_registered_subscribers(tracker: str) -> None:
    """What code registers is found by its name, and may take any parameters."""
    made = parse(f"{tracker}=first,tags=a,b,every=2,colour=red,size=3").make()
    assert isinstance(made, Tracker)
    assert (made.run, made.tags, made.every) == ("first", ("a", "b"), 2)
    assert made.more == {"colour": "red", "size": 3}
    assert entries()[tracker].source == "registered"


def test_create_from_configuration(tracker: str) -> None:
    """A name with a mapping of options makes a subscriber too, checked the same way."""
    made = create(tracker, run="x", tags=["a"], colour="red")
    assert isinstance(made, Tracker)
    assert (made.run, made.tags, made.more) == ("x", ("a",), {"colour": "red"})
    with pytest.raises(OptionError, match="tracker needs run"):
        create(tracker)
    with pytest.raises(OptionError, match="has no option 'patence'; did you mean 'patience'"):
        create("early-stopping", patence=3)


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a,b"])
def test_names_that_could_not_be_asked_for(name: str) -> None:
    """A name that the command line could not read is refused."""
    with pytest.raises(ValueError, match="no '=', ',' or blanks"):
        register(name, Tracker)


def test_factory_of_options_alone() -> None:
    """A factory that has no parameter of its own takes options, but no argument."""
    register("free", lambda **options: options)
    try:
        assert parse("free,a=1").make() == {"a": 1}
        with pytest.raises(OptionError, match="free takes no argument"):
            parse("free=1")
    finally:
        del registry._registered["free"]


def test_factory_must_be_callable() -> None:
    """Registering an object instead of a class is refused."""
    with pytest.raises(TypeError, match="a factory is a class or a function, not 3"):
        register("three", 3)  # type: ignore[arg-type]


def test_distributions_cannot_take_standard_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution adds names; it does not replace a standard subscriber."""
    points = [
        EntryPoint("progress", "elsewhere:Progress", registry.GROUP),
        EntryPoint("tracker", "elsewhere:Tracker", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert entries()["progress"].source == "epochbus"
    assert entries()["tracker"].source == "?"


DISTRIBUTION = {
    "tiny_tracker.py": """
class TinyTracker:
    def __init__(self, path: str, every: int = 1) -> None:
        self.path, self.every = path, every
    def on_epoch_end(self, epoch: int) -> None:
        with open(self.path, "a") as file:
            file.write(f"{epoch}\\n")
""",
    "tiny_tracker-1.0.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: tiny-tracker\nVersion: 1.0\n"
    ),
    "tiny_tracker-1.0.dist-info/entry_points.txt": (
        "[lifecycle.subscribers]\ntiny = tiny_tracker:TinyTracker\nbroken = tiny_tracker:Nothing\n"
    ),
    "tiny_tracker-1.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
}
SCRIPT = """
from lifecycle import Loop
Loop(lambda batch: {"loss": 1.0}).fit([1, 2], epochs=3)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a tiny distribution with pip, from a wheel made here, and return its folder."""
    folder = tmp_path_factory.mktemp("third-party")
    wheel = folder / "tiny_tracker-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in DISTRIBUTION.items():
            archive.writestr(name, text)
        archive.writestr("tiny_tracker-1.0.dist-info/RECORD", "")
    target = folder / "site"
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"]
    subprocess.run([sys.executable, *install, target, wheel], check=True, capture_output=True)
    return target


def command(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lifecycle", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), *sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_third_party_subscriber_works_by_name(installed: Path, tmp_path: Path) -> None:
    """A subscriber of an installed distribution is taken by --on with its options."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = command(installed, tmp_path, "run", "--on", "tiny=epochs.txt,every=2", "train.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "epochs.txt").read_text() == "0\n1\n2\n"


def test_third_party_subscriber_is_listed(installed: Path, tmp_path: Path) -> None:
    """The list of subscribers shows it with its distribution, and a broken one as broken."""
    done = command(installed, tmp_path, "subscribers")
    assert done.returncode == 0
    assert "tiny-tracker" in done.stdout
    assert "cannot be loaded" in done.stdout
