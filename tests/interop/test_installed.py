"""The module as a wheel installs it: it runs the binary in the wheel, and no other. `cargo xtask wheel` tests a real wheel."""

import os
import shutil
import subprocess
import sys

import harness


def install(site):
    """Installs the module and a stand-in for the binary as pip does."""
    shutil.copytree(harness.ROOT / "python/ferroflow", site / "ferroflow", ignore=shutil.ignore_patterns("__pycache__"))
    binary = site.parent / "bin" / "ferroflow"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\nexit 0\n")
    binary.chmod(0o755)
    info = site / "ferroflow-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ferroflow\nVersion: 0.1.0\n")
    (info / "RECORD").write_text("ferroflow/__init__.py,,\nferroflow/server.py,,\n../bin/ferroflow,,\n")
    return binary


def found(site, **environment):
    """Returns the path of the binary that a module in `site` runs."""
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", "import ferroflow; print(ferroflow.binary_path())"]
    process = subprocess.run(command, env=environment, cwd=site.parent, capture_output=True, text=True, check=True)
    return process.stdout.strip()


def test_an_installed_module_runs_the_binary_of_its_wheel(tmp_path):
    site = tmp_path / "site"
    binary = install(site)
    other = tmp_path / "other" / "ferroflow"
    other.parent.mkdir()
    shutil.copy(binary, other)
    assert found(site) == str(binary)
    assert found(site, PATH=f"{other.parent}:/usr/bin:/bin") == str(binary)
    assert found(site, FERROFLOW_BIN=str(other)) == str(other)


def test_a_module_of_a_checkout_leaves_an_installed_binary_alone(tmp_path):
    site = tmp_path / "site"
    binary = install(site)
    checkout = tmp_path / "checkout"
    shutil.copytree(site / "ferroflow", checkout / "ferroflow")
    other = tmp_path / "other" / "ferroflow"
    other.parent.mkdir()
    shutil.copy(binary, other)
    both = os.pathsep.join([str(checkout), str(site)])
    assert found(checkout, PYTHONPATH=both, PATH=f"{other.parent}:/usr/bin:/bin") == str(other)
