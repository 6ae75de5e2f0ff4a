"""Files out of wheels of packages that are not installed, because they need a GPU's libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path


def unpack(package: str, files: Sequence[str], folder: Path) -> bool:
    """Takes files from the wheel that `NAME_WHEEL` names, such as `VERL_WHEEL`, or that pip downloads.

    They run on older versions of Python than their package may require. False if there is no wheel.
    """
    name = package.partition("==")[0]
    wheel = os.environ.get(f"{name.upper()}_WHEEL")
    if wheel is None:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package]
        pip += ["--only-binary=:all:", "--python-version", "3.12", "-d", str(folder)]
        done = subprocess.run(pip, capture_output=True, check=False)
        wheel = str(next(folder.glob(f"{name}-*.whl"), ""))
        if done.returncode or not wheel:
            return False
    with zipfile.ZipFile(wheel) as archive:
        for file in files:
            archive.extract(file, folder)
    return True
