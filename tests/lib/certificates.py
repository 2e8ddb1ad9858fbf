"""Certificates for the tests of TLS, made with openssl: authorities, servers and clients, good ones and others."""

import pathlib
import subprocess


class Authority:
    """A certificate authority whose files, and those that it signs, lie in `folder`."""

    def __init__(self, folder, name="ca"):
        self.folder = pathlib.Path(folder)
        self.name = name
        self.cert, self.key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        make_key(self.key)
        openssl("req", "-x509", "-new", "-key", self.key, "-out", self.cert, "-days", "3650", "-subj", f"/CN={name}")

    def issue(self, name, subject=None, uris=(), days=90, usage=None, rsa=False):
        """A certificate and its key, as paths. `subject` is its common name, empty for none."""
        cert, key, request = (self.folder / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
        make_key(key, rsa)
        subject = name if subject is None else subject
        openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/CN={subject}" if subject else "/O=nobody")
        names = ["DNS:localhost", "IP:127.0.0.1", *(f"URI:{uri}" for uri in uris)]
        lines = [f"subjectAltName={','.join(names)}"]
        if usage:
            lines.append(f"extendedKeyUsage={usage}")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("\n".join(lines) + "\n")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
            "-out", cert, "-extfile", extensions, "-days", days,
        )
        return cert, key

    def issue_version_1(self, name, is_late=False):
        """A certificate of X.509 version 1, as `openssl x509 -req` without extensions makes it before OpenSSL 3.2; and its key."""
        cert, key, request = (self.folder / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
        make_key(key)
        openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/CN={name}")
        # `openssl ca` without extensions still makes it.
        config = self.folder / f"{name}.cnf"
        database = self.folder / f"{name}.db"
        database.write_text("")
        config.write_text(
            f"[ca]\ndefault_ca=one\n[one]\ndatabase={database}\nnew_certs_dir={self.folder}\nrand_serial=yes\n"
            "policy=any\n[any]\ncommonName=supplied\n"
        )
        dates = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"] if is_late else ["-days", "90"]
        openssl(
            "ca", "-batch", "-config", config, "-cert", self.cert, "-keyfile", self.key, "-in", request, "-out", cert,
            *dates, "-md", "sha256", "-notext",
        )
        assert "Version: 1 " in openssl("x509", "-in", cert, "-noout", "-text")
        return cert, key


def self_signed(folder, name, *options, days=90):
    """A certificate that is its own authority, as `openssl req -x509` makes it; and its key."""
    cert, key = pathlib.Path(folder) / f"{name}.crt", pathlib.Path(folder) / f"{name}.key"
    make_key(key)
    openssl("req", "-x509", "-new", "-key", key, "-out", cert, "-days", days, "-subj", f"/CN={name}", *options)
    return cert, key


def make_key(path, rsa=False):
    kind = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if rsa else [
        "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"
    ]
    openssl("genpkey", *kind, "-out", path)


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def serial_of(cert):
    return openssl("x509", "-in", cert, "-noout", "-serial").strip().split("=")[1]
