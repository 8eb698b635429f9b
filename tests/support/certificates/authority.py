"""Certificates as a cluster has them, made by the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tfhybrid.settings import TlsFiles

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def variables_of(files: TlsFiles) -> dict[str, str]:
    """Returns the environment of a process that is to speak TLS with these files."""
    names = ("TFHYBRID_TLS_CERT", "TFHYBRID_TLS_KEY", "TFHYBRID_TLS_CA")
    return dict(zip(names, (files.cert, files.key, files.ca), strict=True))


class Authority:
    """A CA of its own.

    Args:
        folder: An empty folder for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._openssl(
            *("req", "-x509", *_KEY, "-days", "2", "-subj", "/CN=CA of the cluster"),
            *("-keyout", "ca.key", "-out", "ca.pem"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),  # Python 3.13 wants it
        )
        (folder / "serial").write_text("01")
        (folder / "index").touch()
        (folder / "ca.conf").write_text(
            "[ca]\ndefault_ca=it\n[it]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n"
            "default_md=sha256\npolicy=any\nunique_subject=no\nx509_extensions=of_hosts\n"
            "[any]\ncommonName=supplied\n[of_hosts]\nauthorityKeyIdentifier=keyid\n"
        )

    def files(self, name: str, start: str = "", end: str = "") -> TlsFiles:
        """Makes a certificate for a host, from `start` to `end` (`YYYYMMDDHHMMSSZ`) if given."""
        self._openssl(
            *("req", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key"),
            *("-out", f"{name}.csr"),
        )
        dates = ["-startdate", start, "-enddate", end] if end else ["-days", "2"]
        self._openssl(
            *("ca", "-batch", "-config", "ca.conf", "-cert", "ca.pem", "-keyfile", "ca.key"),
            *("-in", f"{name}.csr", "-out", f"{name}.pem", "-notext", *dates),
        )
        return TlsFiles(
            *(str(self._folder / each) for each in (f"{name}.pem", f"{name}.key")), self.ca
        )

    @property
    def ca(self) -> str:
        """The file that the others know it by."""
        return str(self._folder / "ca.pem")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=self._folder, check=True, capture_output=True, text=True
        )
