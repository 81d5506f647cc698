"""Signatures of certificates: ed25519, over the very bytes of which a certificate's digest is.

A signature says that whoever holds a key has signed these bytes, and nothing else: not whose key it
is, which must be known from elsewhere, nor that what is certified is true. It travels inside the
certificate's file, beside the digest and outside of what is digested.

Keys are PEM files as other tools write them too (`openssl genpkey -algorithm ed25519`). Needs the
package cryptography: `pip install 'privrl[sign]'`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from privrl.core import files
from privrl.core.errors import CertificateError, InputError, UnsupportedError
from privrl.privacy.certificate import Certificate, Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def make_key(path: str | Path) -> Path:
    """Write a new private key to `path`, for its owner only, and its public key beside it, `.pub`.

    Neither file may be there already. Returns where the public key is.
    """
    with _require_cryptography():
        from cryptography.hazmat.primitives import serialization as forms
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, public = Ed25519PrivateKey.generate(), Path(f"{path}.pub")
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    if files.path_exists(public):
        raise InputError(f"{str(public)!r} is there already.")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{str(path)!r} is there already.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{str(path)!r} cannot be written: {reason}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        text = key.public_key().public_bytes(
            forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
        )
        files.write(public, text, secret=False)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return public


def sign(certificate: Certificate, key: str | Path) -> Certificate:
    """`certificate` with a signature by the private key in the file `key`."""
    private = _private_key(key)
    return replace(
        certificate,
        signature=Signature(
            private.public_key().public_bytes_raw().hex(),
            private.sign(certificate.canonical_bytes()).hex(),
        ),
    )


def public_key(path: str | Path) -> str:
    """The public key in a file, as a `Signature` has it."""
    with _require_cryptography():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _read_bytes(path)
    try:
        found = load_pem_public_key(content)
    except ValueError:
        found = None
    if not isinstance(found, Ed25519PublicKey):
        raise InputError(f"{str(path)!r} is not the public key of an ed25519 pair.")
    return found.public_bytes_raw().hex()


def check(certificate: Certificate) -> None:
    """Raise unless the key in this certificate's signature has signed it."""
    with _require_cryptography():
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = certificate.signature
    assert signature is not None
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key))
        key.verify(bytes.fromhex(signature.value), certificate.canonical_bytes())
    except (InvalidSignature, ValueError):
        raise CertificateError(
            "The signature of this certificate is not by the key that it names, or the certificate "
            "was changed after it was signed."
        ) from None


def is_available() -> bool:
    """Whether signatures can be made and checked here."""
    return find_spec("cryptography") is not None


@contextmanager
def _require_cryptography() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise UnsupportedError(
            "Signatures need the package cryptography: pip install 'privrl[sign]'."
        ) from None


def _read_bytes(path: str | Path) -> bytes:
    try:
        return files.read_bytes(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {files.reason(error)}.") from None


def _private_key(path: str | Path) -> "Ed25519PrivateKey":
    with _require_cryptography():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read_bytes(path)
    if os.stat(path).st_mode & 0o077:
        raise InputError(
            f"{str(path)!r} may be read by others than its owner: take that away (chmod 600), or "
            "make another key if somebody may have."
        )
    try:
        found = load_pem_private_key(content, None)
    except (ValueError, TypeError):
        found = None  # TypeError: it has a password
    if not isinstance(found, Ed25519PrivateKey):
        raise InputError(f"{str(path)!r} is not the private key of an ed25519 pair in PEM.")
    return found
