//! Python environments, created below `target/` from pinned requirements.

use crate::process;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The minor versions of Python 3 for which TensorFlow 2.15 has wheels, newest first.
const MINORS: [&str; 3] = ["11", "10", "9"];

/// Why there is no environment.
pub enum Missing {
    /// This machine has no Python that can run TensorFlow; the text says what to install.
    NoPython(String),
    /// Creating the environment failed.
    Failed(String),
}

impl Missing {
    /// Returns the message for the user.
    pub fn into_message(self) -> String {
        match self {
            Missing::NoPython(message) | Missing::Failed(message) => message,
        }
    }
}

/// Returns the Python of the interop tests. Creates its environment if missing, and again if the requirements have changed.
pub fn python() -> Result<PathBuf, Missing> {
    made("interop-venv", "tests/interop/requirements.txt")
}

/// Returns the Python of the tools that build wheels and check manifests.
pub fn tools() -> Result<PathBuf, Missing> {
    made("tools-venv", "xtask/requirements.txt")
}

/// Returns the Python that has an S3 server.
pub fn s3() -> Result<PathBuf, Missing> {
    made("s3-venv", "tests/s3/requirements.txt")
}

/// Returns the Python that has PyTorch, for the benchmark of other libraries.
pub fn torch() -> Result<PathBuf, Missing> {
    made("torch-venv", "bench/peers/requirements.txt")
}

/// Returns the Python of an environment below `target/`.
fn made(name: &str, requirements: &str) -> Result<PathBuf, Missing> {
    let directory = process::target().join(name);
    let python = directory.join("bin").join("python");
    let stamp = directory.join("requirements.stamp");
    let requirements_path = process::root().join(requirements);
    let requirements = std::fs::read_to_string(&requirements_path)
        .map_err(|error| Missing::Failed(format!("cannot read {}: {error}", requirements_path.display())))?;
    // The stamp is written last, so that an interrupted installation never counts as complete.
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|text| text == requirements) {
        return Ok(python);
    }
    let maker = find_maker().ok_or_else(|| Missing::NoPython(what_to_install()))?;
    println!("   venv: making {} with {}", directory.display(), maker.describe());
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .map_err(|error| Missing::Failed(format!("cannot remove {}: {error}", directory.display())))?;
    }
    maker.make(&directory, &python, &requirements_path).map_err(Missing::Failed)?;
    std::fs::write(&stamp, &requirements)
        .map_err(|error| Missing::Failed(format!("cannot write {}: {error}", stamp.display())))?;
    Ok(python)
}

/// A program that can create an environment.
enum Maker {
    Python { program: String, version: String },
    Uv,
}

impl Maker {
    fn describe(&self) -> String {
        match self {
            Maker::Python { program, version } => format!("{program} (CPython {version})"),
            Maker::Uv => "uv (CPython 3.11)".to_string(),
        }
    }

    fn make(&self, directory: &Path, python: &Path, requirements: &Path) -> Result<(), String> {
        match self {
            Maker::Python { program, .. } => {
                process::run(Command::new(program).args(["-m", "venv"]).arg(directory))?;
                process::run(
                    Command::new(python)
                        .args(["-m", "pip", "install", "--disable-pip-version-check"])
                        .args(["--quiet", "--progress-bar", "off", "--requirement"])
                        .arg(requirements),
                )
            }
            Maker::Uv => {
                process::run(Command::new("uv").args(["venv", "--quiet", "--python", "3.11"]).arg(directory))?;
                process::run(
                    Command::new("uv")
                        .args(["pip", "install", "--quiet", "--python"])
                        .arg(python)
                        .arg("--requirement")
                        .arg(requirements),
                )
            }
        }
    }
}

fn find_maker() -> Option<Maker> {
    let named = MINORS.iter().map(|minor| format!("python3.{minor}"));
    for program in named.chain(["python3".to_string(), "python".to_string()]) {
        if let Some(version) = usable_version(&program) {
            return Some(Maker::Python { program, version });
        }
    }
    let uv = Command::new("uv").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    uv.is_ok_and(|status| status.success()).then_some(Maker::Uv)
}

/// Returns the version of a Python if it can create a venv for TensorFlow.
///
/// Runs it rather than trusting its name: version managers have shims for versions that are disabled, and distributions ship
/// Pythons that cannot create a venv.
fn usable_version(program: &str) -> Option<String> {
    let question = "import sys, venv, ensurepip; \
        print('%d.%d.%d' % sys.version_info[:3] if sys.implementation.name == 'cpython' else '')";
    let output = Command::new(program).args(["-c", question]).stderr(Stdio::null()).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_string();
    let minor = version.strip_prefix("3.")?.split('.').next()?;
    (output.status.success() && MINORS.contains(&minor)).then_some(version)
}

fn what_to_install() -> String {
    "the interop tests and the checks of manifests need CPython 3.9, 3.10 or 3.11 with its venv module, or uv.\n\
     Install one of these and run the command again:\n\
     \x20 uv                     pip install uv     (it fetches a Python 3.11 by itself)\n\
     \x20 Debian, Ubuntu         apt install python3.11 python3.11-venv\n\
     \x20 Fedora                 dnf install python3.11\n\
     \x20 pyenv                  pyenv install 3.11 && pyenv shell 3.11"
        .to_string()
}
