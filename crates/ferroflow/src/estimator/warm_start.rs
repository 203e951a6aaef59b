//! [`WarmStartSettings`]: initializes a model from another one's checkpoint.

use crate::train::{InitFn, Saver, SaverOptions, Scaffold, latest_checkpoint};
use crate::variable::trainable_variables;
use graph::Graph;
use regex::Regex;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::file_system::{FileSystem, FileSystems};
use tensor::{Result, Status};

/// The source of the initial values of a model that has no checkpoint yet.
///
/// ```
/// use ferroflow::estimator::WarmStartSettings;
///
/// let hidden_layers = WarmStartSettings {
///     vars_to_warm_start: "dnn/hiddenlayer_.*".to_owned(),
///     var_name_to_prev_var_name: [("dnn/hiddenlayer_0/kernel".to_owned(), "old/kernel".to_owned())].into(),
///     ..WarmStartSettings::new("/tmp/old")
/// };
/// ```
#[derive(Clone, Debug)]
pub struct WarmStartSettings {
    /// The checkpoint, or a directory with checkpoints.
    pub ckpt_to_initialize_from: String,
    /// A regular expression that selects trained variables by name.
    pub vars_to_warm_start: String,
    /// The names of variables in the checkpoint, if they differ.
    pub var_name_to_prev_var_name: BTreeMap<String, String>,
}

impl WarmStartSettings {
    /// Initializes all trained variables from a checkpoint, or from the newest one of a directory.
    ///
    /// ```
    /// use ferroflow::estimator::WarmStartSettings;
    ///
    /// assert_eq!(WarmStartSettings::new("/tmp/old").vars_to_warm_start, ".*");
    /// ```
    pub fn new(ckpt_to_initialize_from: &str) -> WarmStartSettings {
        WarmStartSettings {
            ckpt_to_initialize_from: ckpt_to_initialize_from.to_owned(),
            vars_to_warm_start: ".*".to_owned(),
            var_name_to_prev_var_name: BTreeMap::new(),
        }
    }

    /// Makes the initialization of the graph end with the checkpoint's values.
    pub(super) fn add_to(&self, graph: &Graph, scaffold: &mut Scaffold) -> Result<()> {
        let checkpoint = self.checkpoint()?;
        let pattern = Regex::new(&self.vars_to_warm_start).map_err(|error| {
            Status::invalid_argument(format!("vars_to_warm_start '{}': {error}", self.vars_to_warm_start))
        })?;
        let mut variables = Vec::new();
        for variable in trainable_variables(graph)? {
            let name = variable.save_slice().map_or_else(|| variable.name(), |slice| slice.full_name.clone());
            if pattern.is_match(&name) {
                let previous = self.var_name_to_prev_var_name.get(&name).unwrap_or(&name);
                tracing::info!("Warm-starting variable {name} from {previous} of {checkpoint}");
                variables.push((previous.clone(), variable));
            }
        }
        if variables.is_empty() {
            return Err(Status::invalid_argument(format!(
                "no trained variable matches vars_to_warm_start '{}'",
                self.vars_to_warm_start
            )));
        }
        let options =
            SaverOptions { variables: Some(variables), name: "warm_start".to_owned(), ..SaverOptions::default() };
        let saver = Saver::with_options(graph, options)?;
        let before = scaffold.init.function.take();
        let function: InitFn = Arc::new(move |session| {
            before.iter().try_for_each(|before| before(session))?;
            saver.restore(session, &checkpoint).map_err(|status| status.context("warm start"))
        });
        scaffold.init.function = Some(function);
        Ok(())
    }

    fn checkpoint(&self) -> Result<String> {
        let given = self.ckpt_to_initialize_from.trim_end_matches('/');
        let files = FileSystems::all();
        if !files.stat(given).is_ok_and(|stat| stat.is_directory) {
            return Ok(given.to_owned());
        }
        latest_checkpoint(given)?
            .ok_or_else(|| Status::not_found(format!("warm start: there is no checkpoint in the directory {given}")))
    }
}
