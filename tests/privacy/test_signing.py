"""Signatures: what they say of a certificate, and that they say no more."""

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privrl import cli
from privrl.privacy import (
    Certificate,
    CertificateError,
    InputError,
    Laplace,
    Unit,
    UnsupportedError,
    signing,
)
from privrl.privacy.certificate import Signature, SignatureStatus

PLAN = Certificate.issue(Laplace(2, 1), 0.0, unit=Unit.USER)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    signing.make_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(PLAN.to_json())
    return path


def test_keys_are_their_owners_and_never_written_over(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        signing.make_key(tmp_path / "key")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(InputError, match="is there already"):
        signing.make_key(tmp_path / "key")
    (tmp_path / "key").unlink()
    with pytest.raises(InputError, match=r"key\.pub' is there already"):
        signing.make_key(tmp_path / "key")
    with pytest.raises(InputError, match="cannot be written"):
        signing.make_key(tmp_path / "no" / "key")
    assert b"PRIVATE" in before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.pub"]


def test_what_is_signed_are_the_bytes_of_the_digest(key: Path) -> None:
    import hashlib

    signed = signing.sign(PLAN, key)
    assert signed.signature is not None
    digest = "sha256:" + hashlib.sha256(signed.canonical_bytes()).hexdigest()
    # A signature leaves the certificate as it was.
    assert digest == signed.to_dict()["digest"] == PLAN.to_dict()["digest"]
    public = serialization.load_pem_public_key(Path(f"{key}.pub").read_bytes())
    assert isinstance(public, Ed25519PublicKey)
    public.verify(bytes.fromhex(signed.signature.value), PLAN.canonical_bytes())
    assert Certificate.from_json(signed.to_json()) == signed
    assert "signature" not in PLAN.to_dict()  # so that earlier versions read what is not signed


def test_verification_says_what_was_checked(key: Path, tmp_path: Path) -> None:
    signed, public = signing.sign(PLAN, key), signing.public_key(f"{key}.pub")
    other = signing.public_key(signing.make_key(tmp_path / "other"))
    assert PLAN.verify().signed is SignatureStatus.NO
    assert signed.verify().signed is SignatureStatus.BY_THE_KEY_IT_NAMES
    assert signed.verify(public_key=public).signed is SignatureStatus.BY_THE_GIVEN_KEY
    with pytest.raises(CertificateError, match="is not signed"):
        PLAN.verify(public_key=public)
    with pytest.raises(CertificateError, match="names another key than the given one"):
        signed.verify(public_key=other)


def test_no_other_certificate_and_no_other_key_fits_a_signature(key: Path, tmp_path: Path) -> None:
    signed = signing.sign(PLAN, key)
    assert signed.signature is not None
    signing.make_key(tmp_path / "other")
    theirs = signing.sign(PLAN, tmp_path / "other").signature
    assert theirs is not None
    value = signed.signature.value
    flipped = f"{int(value[:2], 16) ^ 1:02x}{value[2:]}"
    forged: list[Certificate] = [
        replace(signed, accountant="another"),
        replace(signed, unit=Unit.TRAJECTORY),
        replace(signed, signature=replace(signed.signature, value=flipped)),
        replace(signed, signature=Signature(theirs.public_key, value)),
        replace(signed, signature=Signature("00" * 32, "00" * 64)),
    ]
    for one in forged:
        with pytest.raises(CertificateError, match="changed after it was signed"):
            Certificate.from_json(one.to_json()).verify()


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "rsa"},
        {"value": "00"},
        {"value": "zz" * 64},
        {"value": 3},
        {"public_key": "A" * 64},
        {"extra": 1},
    ],
)
def test_malformed_signatures_are_refused(key: Path, change: dict[str, Any]) -> None:
    data = signing.sign(PLAN, key).to_dict()
    wrongs: tuple[object, ...] = ({**data["signature"], **change}, None, [], {})
    for wrong in wrongs:
        with pytest.raises(CertificateError, match="signature"):
            Certificate.from_dict({**data, "signature": wrong})


def test_keys_that_are_none(key: Path, tmp_path: Path) -> None:
    def pem(private: Any, password: bytes | None = None) -> bytes:
        lock: Any = serialization.NoEncryption()
        if password is not None:
            lock = serialization.BestAvailableEncryption(password)
        forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        text: bytes = private.private_bytes(*forms, lock)
        return text

    contents = [b"", b"\xff", pem(X25519PrivateKey.generate()), Path(f"{key}.pub").read_bytes()]
    contents.append(pem(Ed25519PrivateKey.generate(), b"password"))
    for content in contents:
        wrong = tmp_path / "wrong"
        wrong.write_bytes(content)
        wrong.chmod(0o600)
        with pytest.raises(InputError, match="not the private key"):
            signing.sign(PLAN, wrong)
    for file in (key, wrong):  # a private key is not given away by taking it for a public one
        with pytest.raises(InputError, match="not the public key"):
            signing.public_key(file)
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            signing.sign(PLAN, missing)
    key.chmod(0o640)
    with pytest.raises(InputError, match="may be read by others"):
        signing.sign(PLAN, key)


def test_command_line(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(file.parent)
    file = Path(file.name)

    def privrl(code: int, *arguments: object) -> str:
        assert cli.run([str(one) for one in arguments]) == code
        printed = capsys.readouterr()
        lines = printed.out.splitlines()
        assert code == 0 or printed.err.count("\n") == 1
        assert "--json" in arguments or max(map(len, lines), default=0) <= 80
        return printed.out if code == 0 else printed.err

    key, public = Path("key"), Path("key.pub")
    assert "keep it" in privrl(0, "keygen", key)
    assert "there already" in privrl(2, "keygen", key)
    assert "Not signed." in privrl(0, "verify", file)
    assert "not signed" in privrl(1, "verify", file, "--public-key", public)
    told = signing.public_key(public)
    assert told in privrl(0, "sign", file, "--key", key)
    said = " ".join(privrl(0, "verify", file).split())
    assert f"Signed by the key {told}, which may be anybody's" in said
    said = " ".join(privrl(0, "verify", file, "--public-key", public).split())
    assert "who has that key is for you to know" in said
    found = json.loads(privrl(0, "verify", file, "--json"))
    assert found["signed"] == "by-the-key-it-names"
    other = Path("other")
    assert json.loads(privrl(0, "keygen", other, "--json"))["public_key"] == f"{other}.pub"
    assert "another key" in privrl(1, "verify", file, "--public-key", f"{other}.pub")
    assert json.loads(privrl(0, "sign", file, "--key", other, "--json"))["signed"] is True
    assert json.loads(privrl(0, "verify", file, "--json", "--public-key", f"{other}.pub"))[
        "signed"
    ] == ("by-the-given-key")
    # What cannot be verified is not signed.
    text = file.read_text()
    file.write_text(text.replace('"epsilon": 1.0', '"epsilon": 0.5'))
    before = file.read_text()
    assert "was changed" in privrl(2, "sign", file, "--key", key)
    assert file.read_text() == before


def test_without_the_package_a_signature_is_seen_and_not_checked(
    key: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["sign", str(file), "--key", str(key)]) == 0
    for name in [one for one in sys.modules if one.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("privrl.privacy.signing.find_spec", lambda name: None)
    capsys.readouterr()
    assert Certificate.read(file).verify().signed is SignatureStatus.NOT_CHECKED
    assert cli.run(["verify", str(file)]) == 0
    assert "was not checked" in capsys.readouterr().out
    for arguments in (
        ["verify", str(file), "--public-key", f"{key}.pub"],
        ["sign", str(file), "--key", str(key)],
        ["keygen", f"{key}2"],
    ):
        assert cli.run(arguments) == 2
        assert "pip install 'privrl[sign]'" in capsys.readouterr().err
    with pytest.raises(UnsupportedError):
        signing.check(Certificate.read(file))
