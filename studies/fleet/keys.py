"""Keys of a fleet: a certificate authority, the server's certificate, and a key pair for each device.

| file | who needs it |
|---|---|
| `ca.crt` | everyone: by it devices know the server |
| `ca.key` | whoever makes the server's certificate anew; keep it offline |
| `server.crt`, `server.key` | the server |
| `device-N.pub` | the server: by it it knows device N |
| `device-N` | device N alone |
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

from flipbit.runtime.errors import InputError
from flipbit.runtime.files import replacing

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.crt", "server.key"
VALID = 825  # days


def private_name(number: int) -> str:
    return f"device-{number}"


def public_name(number: int) -> str:
    return f"device-{number}.pub"


def make_keys(folder: Path, host: str, devices: int) -> None:
    """Write what is missing: a fleet that grows keeps the keys that it has."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / name).exists() for name in (CA, SERVER, SERVER_KEY)):
        _certificates(folder, host)
    elif not _names(folder / SERVER, host):
        raise InputError(
            f"{folder / SERVER} is not for {host}: remove it, and this command makes one that is; "
            f"devices keep their keys and {CA}"
        )
    for number in range(devices):
        if (folder / public_name(number)).exists():
            continue
        key = ec.generate_private_key(ec.SECP384R1())
        _secret(folder / private_name(number), _pem(key, serialization.PrivateFormat.OpenSSH))
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        _public(folder / public_name(number), public + b"\n")


def _names(path: Path, host: str) -> bool:
    """Whether a certificate is for this host."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise InputError(f"{path}: no certificate of a fleet; remove it, and this command makes another") from None
    return _general_name(host) in alternatives


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificates(folder: Path, host: str) -> None:
    """The server's certificate; the authority that signs it stays the one that devices know."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.timezone.utc)

    def certificate(name: str, issuer: str, key: Any, signer: Any, extensions: list[tuple[Any, bool]]) -> Any:
        made = x509.CertificateBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(),
            x509.random_serial_number(),
            now - datetime.timedelta(minutes=5),
            now + datetime.timedelta(days=VALID),
        )
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        return made.sign(signer, hashes.SHA256())

    ca = _authority(folder)
    known = ca is not None
    if ca is None:
        ca = ec.generate_private_key(ec.SECP256R1())
    server = ec.generate_private_key(ec.SECP256R1())
    own = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    where = [_general_name(host), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key())
    purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    leaf = certificate(
        host[:64], "flipbit fleet", server, ca,
        [
            (x509.BasicConstraints(False, None), True), (x509.SubjectAlternativeName(where), False),
            (purpose, False), (signed_by, False),
        ],
    )  # fmt: skip
    if not known:
        root = certificate(
            "flipbit fleet", "flipbit fleet", ca, ca,
            [(x509.BasicConstraints(True, 0), True), (usage, True), (own, False)],
        )  # fmt: skip
        _secret(folder / CA_KEY, _pem(ca, serialization.PrivateFormat.PKCS8))
        _public(folder / CA, root.public_bytes(serialization.Encoding.PEM))
    _secret(folder / SERVER_KEY, _pem(server, serialization.PrivateFormat.PKCS8))
    _public(folder / SERVER, leaf.public_bytes(serialization.Encoding.PEM))


def _authority(folder: Path) -> Any:
    """The key that signs certificates of this fleet; None where there is no fleet yet."""
    from cryptography.hazmat.primitives import serialization

    if not (folder / CA).exists():
        return None
    there_too = folder / CA_KEY
    if not there_too.exists():
        raise InputError(
            f"{there_too}: is needed to sign a certificate that devices with this {CA} trust; bring it here"
        )
    try:
        return serialization.load_pem_private_key(there_too.read_bytes(), None)
    except (ValueError, TypeError):
        raise InputError(f"{there_too}: not the key of an authority that this command made") from None


def _pem(key: Any, form: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    pem: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem


def _secret(path: Path, content: bytes) -> None:
    """Nobody else may read it, from its first byte on."""
    with replacing(path) as temporary:
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(content)


def _public(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def there(folder: Path, *names: str) -> None:
    """Raise if a key is missing."""
    for name in names:
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: no such key: flipbit fleet keys -o {folder} makes it")
