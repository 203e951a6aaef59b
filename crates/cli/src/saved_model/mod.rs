//! `ferroflow saved_model ls|run`: lists the signatures of a SavedModel, and runs one of them once.

mod json;
mod npy;

use crate::Failure;
use clap::{Args, Subcommand};
use ferroflow::Session;
use ferroflow::saved_model::{SavedModel, Signature, TensorInfo, signature_names};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensor::{DType, Tensor};

/// A command on a SavedModel.
#[derive(Subcommand)]
pub enum Command {
    /// Lists the graphs of a SavedModel, their signatures with inputs and outputs, and their assets.
    Ls {
        /// The SavedModel's directory.
        directory: String,
        #[command(flatten)]
        which: Which,
    },
    /// Runs a signature of a SavedModel once, and prints its outputs.
    Run {
        /// The SavedModel's directory.
        directory: String,
        /// An input: NAME=JSON, such as x=[[1,2],[3,4]], or NAME=@FILE with a JSON or NumPy (.npy) file. The parts of a sparse
        /// input are NAME/indices, NAME/values and NAME/dense_shape.
        #[arg(value_name = "NAME=VALUE")]
        inputs: Vec<String>,
        #[command(flatten)]
        which: Which,
        /// Prints the outputs as one JSON object.
        #[arg(long)]
        json: bool,
        /// Also writes every output to DIR/NAME.npy.
        #[arg(long, value_name = "DIR")]
        outdir: Option<String>,
        /// Allows --outdir to replace files.
        #[arg(long)]
        overwrite: bool,
        /// Runs the model on this server, which then reads the model's files.
        #[arg(long, value_name = "grpc://HOST:PORT", default_value = "")]
        worker: String,
    },
}

/// The graph and signature of a SavedModel.
#[derive(Args)]
pub struct Which {
    /// The tags of the graph, separated by commas. By default it is the only graph, or all are listed.
    #[arg(long = "tag_set", alias = "tag-set", value_name = "TAGS")]
    tag_set: Option<String>,
    /// The signature. By default it is serving_default, or all are listed.
    #[arg(long = "signature_def", alias = "signature-def", value_name = "NAME")]
    signature_def: Option<String>,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Ls { directory, which } => list(&open(directory)?, which),
        Command::Run { directory, inputs, which, json, outdir, overwrite, worker } => {
            let outputs = run_once(&open(directory)?, inputs, which, worker)?;
            if *json {
                crate::say!("{}", json::object(&outputs));
            } else {
                for (name, value) in &outputs {
                    crate::say!("{name}: {} {}\n{value}", value.dtype(), value.shape());
                }
            }
            outdir.as_ref().map_or(Ok(()), |directory| write_all(Path::new(directory), &outputs, *overwrite))
        }
    }
}

/// Opens a model. If there is none but there are some in directories below, as exporters write them, the error names the newest.
fn open(directory: &str) -> Result<SavedModel, Failure> {
    SavedModel::open(directory).map_err(|status| {
        let below = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let has_model = |path: &PathBuf| path.join("saved_model.pb").is_file();
        let hint = below.filter(has_model).max().map(|model| format!("; there is one in {}", model.display()));
        Failure::new(format!("{status}{}", hint.unwrap_or_default()))
    })
}

fn list(model: &SavedModel, which: &Which) -> Result<(), Failure> {
    let wanted = which.tag_set.as_deref().map(|tags| tags.split(',').collect::<Vec<_>>());
    for tags in wanted.map_or_else(|| model.tag_sets(), |tags| vec![tags]) {
        let signatures = model.signatures(&tags)?;
        crate::say!("tags: {}", tags.join(","));
        let shown: Vec<(&str, &Signature)> = match &which.signature_def {
            Some(name) => vec![(name, find(&signatures, name)?)],
            None => signatures.iter().map(|(name, signature)| (name.as_str(), signature)).collect(),
        };
        for (name, signature) in shown {
            crate::say!("  signature {name}, method {}", signature.method_name());
            signature.inputs().iter().for_each(|(name, info)| describe("input ", name, info));
            signature.outputs().iter().for_each(|(name, info)| describe("output", name, info));
        }
        for (tensor, file) in model.assets(&tags)? {
            let name = Path::new(&file).file_name().unwrap_or_default().to_string_lossy();
            crate::say!("  asset {name} for {tensor}");
        }
    }
    Ok(())
}

fn describe(what: &str, name: &str, info: &TensorInfo) {
    let dtype = info.dtype().map_or("?", DType::name);
    for (suffix, tensor) in info.tensors() {
        match suffix.as_str() {
            "" => crate::say!("    {what} {name}: {dtype} {}, {tensor}", info.shape()),
            _ => crate::say!("    {what} {name}{suffix}: of {dtype} {}, {tensor}", info.shape()),
        }
    }
}

fn find<'a>(signatures: &'a BTreeMap<String, Signature>, name: &str) -> Result<&'a Signature, Failure> {
    signatures.get(name).ok_or_else(|| {
        let there: Vec<&str> = signatures.keys().map(String::as_str).collect();
        Failure::new(format!("there is no signature '{name}'; the signatures are: {}", there.join(", ")))
    })
}

fn run_once(
    model: &SavedModel,
    inputs: &[String],
    which: &Which,
    worker: &str,
) -> Result<BTreeMap<String, Tensor>, Failure> {
    let tag_sets = model.tag_sets();
    let tags = match (&which.tag_set, &tag_sets[..]) {
        (Some(tags), _) => tags.split(',').collect(),
        (None, [only]) => only.clone(),
        (None, several) => {
            let there: Vec<String> = several.iter().map(|tags| tags.join(",")).collect();
            return Err(Failure::new(format!("choose a graph by --tag_set; there are: {}", there.join(" "))));
        }
    };
    let name = which.signature_def.as_deref().unwrap_or(signature_names::SERVING_DEFAULT);
    // Mistakes in the flags are reported before anything is loaded.
    let signatures = model.signatures(&tags)?;
    let signature = find(&signatures, name)?;
    let inputs: Vec<(&str, Tensor)> =
        inputs.iter().map(|input| read_input(signature, input)).collect::<Result<_, Failure>>()?;
    let loaded = model.load_in(&tags, |graph| Session::connect(graph, worker))?;
    Ok(loaded.run(name, inputs)?)
}

/// Parses the flag of an input.
fn read_input<'a>(signature: &Signature, input: &'a str) -> Result<(&'a str, Tensor), Failure> {
    let (name, text) = input.split_once('=').ok_or_else(|| Failure::new(format!("'{input}' is not NAME=VALUE")))?;
    let failed = |why: String| Failure::new(format!("input '{name}': {why}"));
    let content;
    let text = match text.strip_prefix('@') {
        Some(file) => {
            let bytes = std::fs::read(file).map_err(|error| failed(format!("can't read {file}: {error}")))?;
            if npy::is_array(&bytes) {
                return npy::read(&bytes).map(|value| (name, value)).map_err(|why| failed(format!("{file}: {why}")));
            }
            content = String::from_utf8(bytes)
                .map_err(|_| failed(format!("{file} is neither a NumPy array (.npy) nor JSON")))?;
            &content
        }
        None => text,
    };
    json::read(text, dtype_of(signature, name)).map(|value| (name, value)).map_err(failed)
}

/// Returns the type of an input; `None` if the model doesn't say, or has no such input, which is an error when it runs.
fn dtype_of(signature: &Signature, name: &str) -> Option<DType> {
    if let Some(info) = signature.inputs().get(name) {
        return info.dtype();
    }
    let (key, part) = name.rsplit_once('/')?;
    let info = signature.inputs().get(key)?;
    match part {
        "values" => info.dtype(),
        "indices" | "dense_shape" => Some(DType::Int64),
        _ => None,
    }
}

fn write_all(directory: &Path, outputs: &BTreeMap<String, Tensor>, overwrite: bool) -> Result<(), Failure> {
    let failed = |path: &Path, why: String| Failure::new(format!("{}: {why}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error.to_string()))?;
    for (name, value) in outputs {
        let path = directory.join(format!("{}.npy", name.replace('/', "_")));
        if !overwrite && path.exists() {
            return Err(failed(&path, "it exists already; use --overwrite to replace it".to_owned()));
        }
        let content = npy::write(value).map_err(|why| failed(&path, why))?;
        std::fs::write(&path, content).map_err(|error| failed(&path, error.to_string()))?;
    }
    Ok(())
}
