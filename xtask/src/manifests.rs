//! Checks the manifests of `deploy/` against the schemas of Kubernetes.

use crate::process;
use std::path::Path;
use std::process::Command;

/// Checks all of them with a Python that has the schemas, and renders kustomizations if kubectl is installed.
pub fn check(python: &Path) -> Result<(), String> {
    let script = process::root().join("tests/deploy/check_manifests.py");
    process::run(Command::new(python).arg(script).env("PYTHONDONTWRITEBYTECODE", "1"))
}
