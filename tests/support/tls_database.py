"""A Postgres that speaks TLS, or refuses to: a proxy before the tests' own server, on loopback."""

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SSL_REQUEST = bytes.fromhex("0000000804d2162f")


def write_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Return a certificate for a host, which is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / f"{host}.crt", folder / f"{host}.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_path, key_path


class TlsProxy:
    """Accepts or refuses requests for TLS, and passes the rest on."""

    def __init__(self, url: str, certificate: tuple[Path, Path] | None) -> None:
        query = parse_qs(urlsplit(url).query)
        self._server = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        self._context = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.encrypted = self.plain = 0
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as opened, suppress(OSError):
            opened.enter_context(client)
            first = client.recv(8, socket.MSG_WAITALL)
            if first == SSL_REQUEST:
                if self._context is None:
                    client.sendall(b"N")
                else:
                    client.sendall(b"S")
                    client = self._context.wrap_socket(client, server_side=True)
                    opened.enter_context(client)
                    self.encrypted += 1
                first = b""
            else:
                self.plain += 1
            server = opened.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(self._server)
            server.sendall(first)
            self._open += [client, server]
            threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
            _pass_on(client, server)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def tls_proxy(url: str, certificate: tuple[Path, Path] | None) -> Iterator[TlsProxy]:
    proxy = TlsProxy(url, certificate)
    try:
        yield proxy
    finally:
        proxy.close()
