//! [`Signature`]: the inputs and outputs of a computation that a model offers.

use graph::{Graph, Output};
use proto::SignatureDef;
use proto::tensor_info::{CooSparse, Encoding};
use std::collections::BTreeMap;
use tensor::{DType, PartialShape, Result, Status, Tensor, tensor_from_proto};

/// Common names of signatures.
///
/// ```
/// assert_eq!(ferroflow::saved_model::signature_names::SERVING_DEFAULT, "serving_default");
/// ```
pub mod signature_names {
    /// The default signature.
    ///
    /// ```
    /// assert_eq!(ferroflow::saved_model::signature_names::SERVING_DEFAULT, "serving_default");
    /// ```
    pub const SERVING_DEFAULT: &str = "serving_default";
}

/// The prefix of signatures that aren't computations, but name operations.
const RESERVED_PREFIX: &str = "__saved_model_";

/// The inputs and outputs of a computation that a model offers, by name.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::saved_model::Signature;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 2));
/// let signature = Signature::predict().input("x", &x).output("sum", &x.sum());
/// assert_eq!(signature.inputs()["x"].shape(), (None, 2).into());
/// assert_eq!(signature.method_name(), "tensorflow/serving/predict");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Signature {
    inputs: BTreeMap<String, TensorInfo>,
    outputs: BTreeMap<String, TensorInfo>,
    method_name: String,
    defaults: BTreeMap<String, Tensor>,
}

/// An input or an output of a signature: a tensor of the graph, or several that make up one.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::saved_model::TensorInfo;
///
/// let g = Graph::new();
/// let info = TensorInfo::of(&g.placeholder::<f32>((None, 2)));
/// assert_eq!((info.dtype(), info.shape()), (Some(DType::Float), (None, 2).into()));
/// assert_eq!(info.tensors(), [("".to_owned(), "Placeholder:0".to_owned())]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo(proto::TensorInfo);

impl Signature {
    /// Returns a signature for any computation.
    ///
    /// ```
    /// use ferroflow::saved_model::Signature;
    ///
    /// assert_eq!(Signature::predict().method_name(), "tensorflow/serving/predict");
    /// ```
    pub fn predict() -> Signature {
        Signature::with_method("tensorflow/serving/predict")
    }

    /// Returns a signature for a classification: from `inputs`, serialized examples, to `classes` and `scores`.
    ///
    /// ```
    /// use ferroflow::saved_model::Signature;
    ///
    /// assert_eq!(Signature::classify().method_name(), "tensorflow/serving/classify");
    /// ```
    pub fn classify() -> Signature {
        Signature::with_method("tensorflow/serving/classify")
    }

    /// Returns a signature for a regression: from `inputs`, serialized examples, to `outputs`.
    ///
    /// ```
    /// use ferroflow::saved_model::Signature;
    ///
    /// assert_eq!(Signature::regress().method_name(), "tensorflow/serving/regress");
    /// ```
    pub fn regress() -> Signature {
        Signature::with_method("tensorflow/serving/regress")
    }

    /// Returns a signature with another method name.
    ///
    /// ```
    /// use ferroflow::saved_model::Signature;
    ///
    /// assert_eq!(Signature::with_method("tensorflow/supervised/eval").method_name(), "tensorflow/supervised/eval");
    /// ```
    pub fn with_method(method_name: &str) -> Signature {
        Signature { method_name: method_name.to_owned(), ..Signature::default() }
    }

    /// Adds an input: the value given under this name is fed to the output.
    ///
    /// ```
    /// use ferroflow::{Graph, saved_model::Signature};
    ///
    /// let signature = Signature::predict().input("x", &Graph::new().placeholder::<f32>(()));
    /// assert!(signature.inputs().contains_key("x"));
    /// ```
    pub fn input(mut self, name: &str, output: &Output) -> Signature {
        self.inputs.insert(name.to_owned(), TensorInfo::of(output));
        self
    }

    /// Adds a sparse input. It is passed as three tensors: `NAME/indices`, `NAME/values` and `NAME/dense_shape`.
    ///
    /// ```
    /// use ferroflow::{Graph, saved_model::Signature};
    ///
    /// let g = Graph::new();
    /// let (indices, shape) = (g.placeholder::<i64>((None, 2)), g.placeholder::<i64>([2]));
    /// let signature = Signature::predict().sparse_input("x", &indices, &g.placeholder::<f32>([-1]), &shape);
    /// assert_eq!(signature.inputs()["x"].tensors()[0].0, "/indices");
    /// ```
    pub fn sparse_input(mut self, name: &str, indices: &Output, values: &Output, dense_shape: &Output) -> Signature {
        self.inputs.insert(name.to_owned(), TensorInfo::sparse(indices, values, dense_shape));
        self
    }

    /// Adds an output.
    ///
    /// ```
    /// use ferroflow::{Graph, saved_model::Signature};
    ///
    /// let signature = Signature::predict().output("y", &Graph::new().constant(1f32));
    /// assert!(signature.outputs().contains_key("y"));
    /// ```
    pub fn output(mut self, name: &str, output: &Output) -> Signature {
        self.outputs.insert(name.to_owned(), TensorInfo::of(output));
        self
    }

    /// Returns the inputs by name.
    ///
    /// ```
    /// assert!(ferroflow::saved_model::Signature::predict().inputs().is_empty());
    /// ```
    pub fn inputs(&self) -> &BTreeMap<String, TensorInfo> {
        &self.inputs
    }

    /// Returns the outputs by name.
    ///
    /// ```
    /// assert!(ferroflow::saved_model::Signature::predict().outputs().is_empty());
    /// ```
    pub fn outputs(&self) -> &BTreeMap<String, TensorInfo> {
        &self.outputs
    }

    /// Returns the method name, from which servers infer the kind of computation.
    ///
    /// ```
    /// assert_eq!(ferroflow::saved_model::Signature::default().method_name(), "");
    /// ```
    pub fn method_name(&self) -> &str {
        &self.method_name
    }

    /// Returns the default value of an input, if the model has one.
    pub(super) fn default_of(&self, input: &str) -> Option<&Tensor> {
        self.defaults.get(input)
    }

    /// Checks that all tensors are in the graph, with the types that the signature declares.
    pub(super) fn check(&self, graph: &Graph, name: &str) -> Result<()> {
        if name.starts_with(RESERVED_PREFIX) {
            return Err(Status::invalid_argument(format!(
                "the name '{name}' is reserved; choose another for the signature"
            )));
        }
        for (key, info) in self.inputs.iter().chain(&self.outputs) {
            for (suffix, tensor) in info.tensors() {
                let found = graph.output(&tensor).map_err(|status| {
                    status.context(format!("'{key}' of the signature '{name}' is not of the graph that is exported"))
                })?;
                let expected = info.dtype().filter(|_| info.is_value(&suffix));
                if expected.is_some_and(|dtype| dtype != found.dtype()) {
                    return Err(Status::invalid_argument(format!(
                        "'{key}' of the signature '{name}' is not of the graph that is exported: '{tensor}' is {} there",
                        found.dtype()
                    )));
                }
            }
        }
        Ok(())
    }

    pub(super) fn to_def(&self) -> SignatureDef {
        let defs = |tensors: &BTreeMap<String, TensorInfo>| {
            tensors.iter().map(|(name, info)| (name.clone(), info.0.clone())).collect()
        };
        SignatureDef {
            inputs: defs(&self.inputs),
            outputs: defs(&self.outputs),
            method_name: self.method_name.clone(),
            defaults: BTreeMap::new(),
        }
    }

    /// Parses the signatures of a graph, except those that name operations.
    pub(super) fn all_from_defs(defs: &BTreeMap<String, SignatureDef>) -> Result<BTreeMap<String, Signature>> {
        let mut signatures = BTreeMap::new();
        for (name, def) in defs.iter().filter(|(name, _)| !name.starts_with(RESERVED_PREFIX)) {
            let infos = |tensors: &BTreeMap<String, proto::TensorInfo>| {
                tensors.iter().map(|(name, info)| (name.clone(), TensorInfo(info.clone()))).collect()
            };
            let mut defaults = BTreeMap::new();
            for (input, value) in &def.defaults {
                let value = tensor_from_proto(value)
                    .map_err(|status| status.context(format!("the default of '{input}' in the signature '{name}'")))?;
                defaults.insert(input.clone(), value);
            }
            let (inputs, outputs) = (infos(&def.inputs), infos(&def.outputs));
            signatures
                .insert(name.clone(), Signature { inputs, outputs, method_name: def.method_name.clone(), defaults });
        }
        Ok(signatures)
    }
}

impl TensorInfo {
    /// Returns the description of an output.
    ///
    /// ```
    /// use ferroflow::{Graph, DType, saved_model::TensorInfo};
    ///
    /// assert_eq!(TensorInfo::of(&Graph::new().constant(1f32)).dtype(), Some(DType::Float));
    /// ```
    pub fn of(output: &Output) -> TensorInfo {
        TensorInfo::with(Encoding::Name(output.name()), output.dtype(), &output.shape())
    }

    /// Returns the description of a sparse tensor's three outputs.
    ///
    /// ```
    /// use ferroflow::{Graph, DType, saved_model::TensorInfo};
    ///
    /// let g = Graph::new();
    /// let shape = g.constant([3i64, 4]);
    /// let info = TensorInfo::sparse(&g.constant([[0i64, 1]]), &g.constant([0.5f32]), &shape);
    /// assert_eq!((info.dtype(), info.shape()), (Some(DType::Float), [3, 4].into()));
    /// ```
    pub fn sparse(indices: &Output, values: &Output, dense_shape: &Output) -> TensorInfo {
        let shape = match dense_shape.constant_value().map(|value| value.to_indices()) {
            Some(Ok(dims)) => PartialShape::from_dims(&dims),
            _ => dense_shape.shape().dim(0).map_or(PartialShape::unknown(), |rank| {
                PartialShape::unknown_of_rank(usize::try_from(rank).unwrap_or(0))
            }),
        };
        let encoding = Encoding::CooSparse(CooSparse {
            values_tensor_name: values.name(),
            indices_tensor_name: indices.name(),
            dense_shape_tensor_name: dense_shape.name(),
        });
        TensorInfo::with(encoding, values.dtype(), &shape)
    }

    fn with(encoding: Encoding, dtype: DType, shape: &PartialShape) -> TensorInfo {
        TensorInfo(proto::TensorInfo {
            encoding: Some(encoding),
            dtype: dtype as i32,
            tensor_shape: Some(shape.to_proto()),
        })
    }

    /// Returns the type; `None` if its tensors have different types.
    ///
    /// ```
    /// use ferroflow::{Graph, DType, saved_model::TensorInfo};
    ///
    /// assert_eq!(TensorInfo::of(&Graph::new().constant(true)).dtype(), Some(DType::Bool));
    /// ```
    pub fn dtype(&self) -> Option<DType> {
        DType::from_i32(self.0.dtype).ok()
    }

    /// Returns the shape.
    ///
    /// ```
    /// use ferroflow::{Graph, saved_model::TensorInfo};
    ///
    /// assert_eq!(TensorInfo::of(&Graph::new().constant([1f32, 2.0])).shape(), [2].into());
    /// ```
    pub fn shape(&self) -> PartialShape {
        let shape = self.0.tensor_shape.as_ref().map(PartialShape::from_proto);
        shape.and_then(Result::ok).unwrap_or_else(PartialShape::unknown)
    }

    /// Returns the names of the graph's tensors, each with the suffix that is appended to the input's or output's name: none for
    /// a dense tensor, `/indices`, `/values` and `/dense_shape` for a sparse one, `/0`, `/1`, … for others.
    ///
    /// ```
    /// use ferroflow::{Graph, saved_model::TensorInfo};
    ///
    /// let info = TensorInfo::of(&Graph::new().constant(1f32));
    /// assert_eq!(info.tensors(), [("".to_owned(), "Const:0".to_owned())]);
    /// ```
    pub fn tensors(&self) -> Vec<(String, String)> {
        match &self.0.encoding {
            Some(Encoding::Name(name)) => vec![(String::new(), name.clone())],
            Some(Encoding::CooSparse(sparse)) => vec![
                (INDICES.to_owned(), sparse.indices_tensor_name.clone()),
                (VALUES.to_owned(), sparse.values_tensor_name.clone()),
                (DENSE_SHAPE.to_owned(), sparse.dense_shape_tensor_name.clone()),
            ],
            Some(Encoding::CompositeTensor(composite)) => {
                let names = composite.components.iter().enumerate().filter_map(|(index, part)| match &part.encoding {
                    Some(Encoding::Name(name)) => Some((format!("/{index}"), name.clone())),
                    _ => None,
                });
                names.collect()
            }
            None => Vec::new(),
        }
    }

    /// Returns whether the tensor with this suffix has the type [`dtype`](Self::dtype).
    fn is_value(&self, suffix: &str) -> bool {
        suffix.is_empty() || suffix == VALUES
    }

    /// Checks a value that is passed for one of the tensors.
    pub(super) fn check_value(&self, key: &str, suffix: &str, value: &Tensor) -> Result<()> {
        let expected = self.dtype().filter(|_| self.is_value(suffix));
        let fits = !suffix.is_empty() || self.shape().is_compatible_with(value.shape());
        if fits && expected.is_none_or(|dtype| dtype == value.dtype()) {
            return Ok(());
        }
        let expected = expected.map_or("?", DType::name);
        Err(Status::invalid_argument(format!(
            "input '{key}{suffix}' is {} {}, but the model takes {expected} {}",
            value.dtype(),
            value.shape(),
            self.shape()
        )))
    }
}

const INDICES: &str = "/indices";
const VALUES: &str = "/values";
const DENSE_SHAPE: &str = "/dense_shape";
