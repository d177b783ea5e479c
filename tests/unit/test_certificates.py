"""The certificate store: the system's where the system has one, and certifi's otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COUNT = """
from tidings.adapters.shared.http_client import certificates
print(certificates().cert_store_stats()["x509_ca"])
"""


def believed_at_start(folder: Path) -> int:
    """How many certificates are read when the system's store is this folder; OpenSSL reads a folder's own later."""
    env = {**os.environ, "SSL_CERT_DIR": str(folder), "SSL_CERT_FILE": str(folder / "none")}
    done = subprocess.run([sys.executable, "-c", COUNT], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("names", [(), ("ca-bundle.crt", "README")])
def test_a_folder_in_which_no_certificate_can_be_found_is_no_store(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).touch()

    assert believed_at_start(tmp_path) > 0


def test_a_folder_with_certificates_is_the_only_store(tmp_path: Path) -> None:
    (tmp_path / "002c0b4f.0").touch()

    assert believed_at_start(tmp_path) == 0
