"""Certificates and keys for a deployment: TLS for the SuperLink, a key pair for every SuperNode."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedrank.errors import ConfigError, RunError

DAYS = 365


@dataclass(frozen=True)
class Credentials:
    """The files in a folder written by `create`.

    ca.crt                  lets clients and users verify the server
    server.key, server.crt  for the SuperLink
    node-0.key, node-0.pub  for the first SuperNode, and so on
    """

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The certificate of the SuperLink."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        """The private key of the SuperLink."""
        return self.folder / "server.key"

    def node_key(self, number: int) -> Path:
        """Return the private key of a SuperNode."""
        return self.folder / f"node-{number}.key"

    def node_public(self, number: int) -> Path:
        """Return the public key of a SuperNode, which the operator registers."""
        return self.folder / f"node-{number}.pub"

    @classmethod
    def create(
        cls, folder: Path, nodes: int, hosts: Sequence[str] = ("localhost", "127.0.0.1")
    ) -> Credentials:
        """Create an authority, a certificate for the SuperLink on these hosts, and keys for the SuperNodes.

        The authority's private key is not kept, so it can sign no further certificates.
        """
        made = cls(folder)
        for host in hosts:
            if not re.fullmatch(r"[\w.-]+|[0-9a-fA-F:]+", host):
                raise ConfigError(f"--host {host}: expected a host name or address without a port")
        if made.authority.exists():
            raise RunError(f"{folder}: already contains certificates; nothing was overwritten")
        folder.mkdir(parents=True, exist_ok=True)
        authority_key, server_key = _new_key(), _new_key()
        authority = _certificate("fedrank authority", authority_key, None, authority_key, ())
        server = _certificate(hosts[0], server_key, authority, authority_key, hosts)
        made.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
        _write_private(made.key, server_key, serialization.PrivateFormat.PKCS8)
        for number in range(nodes):
            node_key = _new_key()
            _write_private(made.node_key(number), node_key, serialization.PrivateFormat.OpenSSH)
            public = node_key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            made.node_public(number).write_bytes(public + b"\n")
        return made


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.touch(mode=0o600)
    path.write_bytes(content)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_usage(issuer is None), critical=True)
        .add_extension(own, critical=False)
        .add_extension(authority, critical=False)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
