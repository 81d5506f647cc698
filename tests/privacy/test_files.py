"""Reading what people, or others, put into files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl import cli
from privrl.control.pgc.aggregator import from_line
from privrl.core import files
from privrl.core.text import printable
from privrl.data import Tabular, load_policy
from privrl.privacy import Certificate, CertificateError, InputError, Ledger, PureDP, Unit
from privrl.risk.prospect import Prospect
from privrl.run.parsing import read_config
from privrl.run.study import Study


def twice(text: str, key: str) -> str:
    """`text` with a second value for one of its keys, which `json` alone lets win or lose."""
    marked = f'"{key}":'
    assert marked in text
    return text.replace(marked, f'{marked} 0, "{key}":', 1)


def test_a_key_that_is_there_twice_is_refused() -> None:
    assert files.parse_json('{"a": [{"b": 1}, {"b": 2}]}') == {"a": [{"b": 1}, {"b": 2}]}
    for text in ('{"a": 1, "a": 1}', '{"a": [{"b": 1, "b": 2}]}', '{"a": 1, "\\u0061": 2}'):
        with pytest.raises(files.DuplicateKeyError, match="is there twice"):
            files.parse_json(text)
        with pytest.raises(files.DuplicateKeyError, match="is there twice"):
            files.parse_json(text.encode())


def certificate() -> str:
    return Certificate.issue(PureDP(1.0), 0.0, unit=Unit.USER).to_json()


def read_certificate(path: Path) -> object:
    return Certificate.read(path)


READERS: list[tuple[Callable[[Path], object], str, str]] = [
    (read_certificate, certificate(), "epsilon"),
    (read_certificate, certificate(), "type"),  # inside of an event
    (load_policy, Tabular(np.ones((1, 1))).to_json(), "kind"),
    (read_config, '{"seed": 1}', "seed"),
    (Study.load, '{"kind": "privrl study"}', "kind"),
    (Prospect.load, '{"kind": "privrl prospect"}', "kind"),
    (lambda path: from_line(path.read_text()), '{"issued": [1, 2]}', "issued"),
    (files.load_json, '{"a": {"b": 1}}', "b"),
]


@pytest.mark.parametrize("number", range(len(READERS)))
def test_every_reader_refuses_it(number: int, tmp_path: Path) -> None:
    read, text, key = READERS[number]
    path = tmp_path / "file.json"
    path.write_text(twice(text, key))
    with pytest.raises((InputError, CertificateError)) as caught:
        read(path)
    said = str(caught.value)
    assert f"The key '{key}' is there twice." in said or "not a line of an aggregator" in said


def test_the_command_line_refuses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, ledger = tmp_path / "file.json", tmp_path / "ledger"
    # Whoever reads the first of two values would see another promise than whoever reads the last.
    path.write_text(twice(certificate(), "epsilon"))
    assert cli.run(["verify", str(path)]) == 1
    assert "The key 'epsilon' is there twice." in capsys.readouterr().err
    with Ledger.create(ledger, "clinic", unit=Unit.USER) as made:
        made.spend(PureDP(1.0), run="r")
        exported = json.dumps(made.to_dict())
    path.write_text(twice(exported, "population"))
    assert cli.run(["ledger", "import", str(tmp_path / "copy"), str(path)]) == 2
    assert "The key 'population' is there twice." in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_text_is_made_fit_to_be_printed() -> None:
    for text in ("clinic 2025", "Ärzte", "診療所", "a\\x1b", ""):
        assert printable(text) == text
    tricks: dict[str, Any] = {
        "\x1b[2K": r"\x1b[2K",
        "a\nb\r": r"a\nb\r",
        "\x00\x7f\x9b": r"\x00\x7f\x9b",
        "\u202e\u2028": r"\u202e\u2028",
        "\ud800": r"\ud800",
        "\U000e0001": r"\U000e0001",
    }
    for text, shown in tricks.items():
        assert printable(text) == shown
        assert printable(text).isprintable()


def test_text_in_certificates_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from privrl.privacy import Assumption

    trick = "x\x1b[1A\x1b[2K\rVerified by everybody\u202e"
    found = Certificate.issue(
        PureDP(1.0), 0.0, unit=Unit.USER, assumptions=(Assumption(trick, trick),)
    )
    data = {**found.to_dict(), "accountant": trick, "privrl": trick}
    from privrl.privacy.certificate import _digest

    data["digest"] = _digest({k: v for k, v in data.items() if k != "digest"})
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(data))
    assert cli.run(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count(r"\x1b[1A\x1b[2K\rVerified") == 4
    assert all(line.isprintable() for line in out.split("\n"))
    # And in refusals.
    path.write_text(json.dumps({**data, "events": [{"type": "x\x1b[1A"}]}))
    assert cli.run(["verify", str(path)]) == 1
    assert capsys.readouterr().err.rstrip("\n").isprintable()


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "𝔸" * 63])
def test_the_longest_names_can_be_written(name: str, tmp_path: Path) -> None:
    files.write(tmp_path / name, b"whole", secret=False)
    assert (tmp_path / name).read_bytes() == b"whole"
    with pytest.raises(InputError, match="cannot be written"):
        files.write(tmp_path / f"{name}𝔸", b"whole", secret=False)
    assert [one.name for one in tmp_path.iterdir()] == [name]
