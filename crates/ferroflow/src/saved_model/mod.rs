//! SavedModels: a graph with its variables, its assets, and signatures that describe how to use it.
//!
//! [`SavedModelBuilder`] writes them as TensorFlow 1 does, so that TensorFlow and TensorFlow Serving load them. [`SavedModel`] reads
//! those of TensorFlow 1 and 2 and ours, and [`LoadedModel`] runs them.
//!
//! ```
//! use ferroflow::prelude::*;
//! use ferroflow::saved_model::{Export, SavedModel, SavedModelBuilder, Signature, tags};
//! use ferroflow::train::global_variables_initializer;
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path().join("model");
//! # let directory = directory.to_str().unwrap();
//!
//! let g = Graph::new();
//! let x = g.placeholder::<f32>((None, 2));
//! let w = Variable::new(&g, "w", &g.constant([[1f32], [10.0]]));
//! let y = x.matmul(&w);
//! let session = Session::new(&g)?;
//! session.run_ops(&[&global_variables_initializer(&g)])?;
//! let signature = Signature::predict().input("x", &x).output("y", &y);
//! let export = Export::new(&[tags::SERVING]).signature("serving_default", signature);
//! SavedModelBuilder::new(directory)?.add_meta_graph_and_variables(&session, export)?.save()?;
//!
//! let model = SavedModel::open(directory)?.load(&[tags::SERVING])?;
//! let outputs = model.run("serving_default", [("x", [[1f32, 2.0]])])?;
//! assert_eq!(outputs["y"].to_vec::<f32>()?, [21.0]);
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod assets;
mod builder;
mod loader;
mod signature;

pub use builder::{Export, SavedModelBuilder, simple_save};
pub use loader::{LoadedModel, SavedModel};
pub use signature::{Signature, TensorInfo, signature_names};

/// Tags that state the purpose of a graph in a SavedModel.
///
/// ```
/// assert_eq!(ferroflow::saved_model::tags::SERVING, "serve");
/// ```
pub mod tags {
    /// A graph for serving.
    ///
    /// ```
    /// assert_eq!(ferroflow::saved_model::tags::SERVING, "serve");
    /// ```
    pub const SERVING: &str = "serve";
    /// A graph for training.
    ///
    /// ```
    /// assert_eq!(ferroflow::saved_model::tags::TRAINING, "train");
    /// ```
    pub const TRAINING: &str = "train";
    /// A graph for evaluation.
    ///
    /// ```
    /// assert_eq!(ferroflow::saved_model::tags::EVAL, "eval");
    /// ```
    pub const EVAL: &str = "eval";
}

/// The version of the format.
const SCHEMA_VERSION: i64 = 1;

/// File names in the directory of a SavedModel.
const FILE: &str = "saved_model.pb";
const TEXT_FILE: &str = "saved_model.pbtxt";
const VARIABLES: &str = "variables";
const ASSETS: &str = "assets";

/// The collections and signatures in which TensorFlow 1 and 2 keep the operation to run after loading.
const MAIN_OP: &str = "saved_model_main_op";
const LEGACY_INIT_OP: &str = "legacy_init_op";
const INIT_OP_SIGNATURE: &str = "__saved_model_init_op";

/// The collection in which TensorFlow 1 keeps assets.
const ASSETS_COLLECTION: &str = "saved_model_assets";
