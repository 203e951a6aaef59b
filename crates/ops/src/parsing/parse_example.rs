//! Examples: ParseExample, ParseExampleV2, ParseSingleExample.

use super::example::{DenseFeature, ExampleParser, Parsed, stride};
use bytes::Bytes;
use graph::{Graph, Output, ShapeContext};
use kernel::{AttrMap, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use std::ops::Range;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ParseExample",
            inputs: &[
                "serialized: string",
                "names: string",
                "sparse_keys: Nsparse * string",
                "dense_keys: Ndense * string",
                "dense_defaults: Tdense",
            ],
            outputs: &[
                "sparse_indices: Nsparse * int64",
                "sparse_values: sparse_types",
                "sparse_shapes: Nsparse * int64",
                "dense_values: Tdense",
            ],
            attrs: &[
                "Nsparse: int >= 0",
                "Ndense: int >= 0",
                "sparse_types: list({float, int64, string}) >= 0",
                "Tdense: list({float, int64, string}) >= 0",
                "dense_shapes: list(shape) >= 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 1)?;
            c.with_rank(1, 1)?;
            parsed_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ParseExample::create)],
    },
    Op {
        def: OpDef {
            name: "ParseExampleV2",
            inputs: &[
                "serialized: string",
                "names: string",
                "sparse_keys: string",
                "dense_keys: string",
                "ragged_keys: string",
                "dense_defaults: Tdense",
            ],
            outputs: &[
                "sparse_indices: num_sparse * int64",
                "sparse_values: sparse_types",
                "sparse_shapes: num_sparse * int64",
                "dense_values: Tdense",
                "ragged_values: ragged_value_types",
                "ragged_row_splits: ragged_split_types",
            ],
            attrs: &[
                "Tdense: list({float, int64, string}) >= 0",
                "num_sparse: int >= 0",
                "sparse_types: list({float, int64, string}) >= 0",
                "ragged_value_types: list({float, int64, string}) >= 0",
                "ragged_split_types: list({int32, int64}) >= 0",
                "dense_shapes: list(shape) >= 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank_at_most(0, 1)?;
            c.with_rank_at_most(1, 1)?;
            for keys in 2..5 {
                c.with_rank(keys, 1)?;
            }
            parsed_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ParseExample::create)],
    },
    Op {
        def: OpDef {
            name: "ParseSingleExample",
            inputs: &["serialized: string", "dense_defaults: Tdense"],
            outputs: &[
                "sparse_indices: num_sparse * int64",
                "sparse_values: sparse_types",
                "sparse_shapes: num_sparse * int64",
                "dense_values: Tdense",
            ],
            attrs: &[
                "num_sparse: int >= 0",
                "sparse_keys: list(string) >= 0",
                "dense_keys: list(string) >= 0",
                "sparse_types: list({float, int64, string}) >= 0",
                "Tdense: list({float, int64, string}) >= 0",
                "dense_shapes: list(shape) >= 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 0)?;
            parsed_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ParseExample::create)],
    },
];

/// A feature that every example has, with as many values as fill `shape`.
#[derive(Clone, Debug)]
pub struct FixedLenFeature {
    /// The feature's name in the example.
    pub key: String,
    /// Its type: `float`, `int64` or `string`.
    pub dtype: DType,
    /// The shape of its value.
    pub shape: Shape,
    /// The default for examples that lack the feature; without one it is required.
    pub default: Option<Tensor>,
}

/// Parses serialized examples, a single one or a vector of them, into the tensors of some features.
#[track_caller]
pub fn parse_example(serialized: &Output, features: &[FixedLenFeature]) -> Vec<Output> {
    let graph: &Graph = serialized.graph();
    let keys = |keys: &[String]| {
        let texts = keys.iter().map(|key| Bytes::from(key.clone())).collect();
        // The shape has the number of strings.
        graph.constant_tensor(
            &Tensor::from_strings(Shape::vector(keys.len()), texts).unwrap_or_else(|_| Tensor::string("")),
        )
    };
    let dense_keys: Vec<String> = features.iter().map(|feature| feature.key.clone()).collect();
    let types: Vec<DType> = features.iter().map(|feature| feature.dtype).collect();
    let shapes: Vec<PartialShape> = features.iter().map(|feature| PartialShape::from(&feature.shape)).collect();
    let defaults: Vec<Output> = features
        .iter()
        .map(|feature| {
            let none = || Tensor::zeros(feature.dtype, Shape::vector(0)).unwrap_or_else(|_| Tensor::string(""));
            graph.constant_tensor(&feature.default.clone().unwrap_or_else(none))
        })
        .collect();
    let none: &[DType] = &[];
    graph
        .op("ParseExampleV2")
        .input(serialized)
        .input(&keys(&[]))
        .input(&keys(&[]))
        .input(&keys(&dense_keys))
        .input(&keys(&[]))
        .inputs(&defaults)
        .attr("Tdense", &types[..])
        .attr("num_sparse", 0i64)
        .attr("sparse_types", none)
        .attr("ragged_value_types", none)
        .attr("ragged_split_types", none)
        .attr("dense_shapes", &shapes[..])
        .outputs()
}

/// The outputs' shapes are those of the batch and the requested features.
fn parsed_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let batch = c.input(0);
    let num_sparse = c.attrs.dtypes("sparse_types")?.len();
    let dense = c.attrs.shapes("dense_shapes")?;
    let ragged = c.attrs.dtypes("ragged_value_types").map_or(0, |types| types.len());
    for shape in &dense {
        if shape.to_shape().is_none() {
            stride(shape)?;
        }
    }
    let columns = batch.rank().map(|rank| rank as i64 + 1);
    for index in 0..num_sparse {
        c.set_output(index, PartialShape::new(&[None, columns]));
        c.set_output(num_sparse + index, PartialShape::unknown_of_rank(1));
        c.set_output(2 * num_sparse + index, PartialShape::new(&[columns]));
    }
    for (index, shape) in dense.iter().enumerate() {
        c.set_output(3 * num_sparse + index, batch.concat(shape));
    }
    let first = 3 * num_sparse + dense.len();
    for index in 0..ragged {
        c.set_output(first + index, PartialShape::unknown_of_rank(1));
        let splits =
            batch.rank().filter(|&rank| rank == 1).and_then(|_| batch.dim(0)).and_then(|count| count.checked_add(1));
        c.set_output(first + ragged + index, PartialShape::new(&[splits]));
    }
    Ok(())
}

/// The source of a node's keys.
enum Keys {
    /// In attributes.
    Fixed { sparse: Vec<Bytes>, dense: Vec<Bytes> },
    /// In a scalar input each.
    Scalars { sparse: Range<usize>, dense: Range<usize> },
    /// Vector inputs 2, 3 and 4.
    Vectors,
}

struct ParseExample {
    keys: Keys,
    /// The inputs with the defaults.
    defaults: Range<usize>,
    sparse_types: Vec<DType>,
    dense_types: Vec<DType>,
    dense_shapes: Vec<PartialShape>,
    ragged_types: Vec<(DType, DType)>,
}

impl ParseExample {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let keys = match builder.node.op() {
            "ParseSingleExample" => Keys::Fixed {
                sparse: attrs.strings("sparse_keys")?.to_vec(),
                dense: attrs.strings("dense_keys")?.to_vec(),
            },
            "ParseExample" => {
                Keys::Scalars { sparse: builder.input_range("sparse_keys")?, dense: builder.input_range("dense_keys")? }
            }
            _ => Keys::Vectors,
        };
        let ragged_values = attrs.dtypes("ragged_value_types").unwrap_or_default();
        let ragged_splits = attrs.dtypes("ragged_split_types").unwrap_or_default();
        if ragged_values.len() != ragged_splits.len() {
            return Err(Status::invalid_argument("len(ragged_value_types) != len(ragged_split_types)"));
        }
        let kernel = ParseExample {
            keys,
            defaults: builder.input_range("dense_defaults")?,
            sparse_types: attrs.dtypes("sparse_types")?,
            dense_types: attrs.dtypes("Tdense")?,
            dense_shapes: attrs.shapes("dense_shapes")?,
            ragged_types: ragged_values.into_iter().zip(ragged_splits).collect(),
        };
        let num_sparse = attrs.int("num_sparse").or_else(|_| attrs.int("Nsparse"))?;
        if usize::try_from(num_sparse) != Ok(kernel.sparse_types.len()) {
            return Err(Status::invalid_argument("len(sparse_keys) != len(sparse_types)"));
        }
        if kernel.dense_types.len() != kernel.dense_shapes.len() {
            return Err(Status::invalid_argument("len(dense_keys) != len(dense_shapes)"));
        }
        for shape in &kernel.dense_shapes {
            if shape.to_shape().is_none() {
                stride(shape)?;
            }
        }
        BoxedKernel::new(kernel)
    }

    fn dense(&self, context: &OpContext<'_>) -> Result<Vec<DenseFeature>> {
        dense_features(context, &self.defaults, &self.dense_types, &self.dense_shapes)
    }
}

/// Returns the dense features of a node, whose defaults are inputs.
fn dense_features(
    context: &OpContext<'_>,
    defaults: &Range<usize>,
    types: &[DType],
    shapes: &[PartialShape],
) -> Result<Vec<DenseFeature>> {
    let mut features = Vec::with_capacity(types.len());
    let given = defaults.clone().zip(types.iter().zip(shapes));
    for (index, (input, (&dtype, shape))) in given.enumerate() {
        let default = context.input(input)?.clone();
        if shape.to_shape().is_none() && default.num_elements() != 1 {
            return Err(Status::invalid_argument(format!(
                "dense_shape[{index}] is a variable length shape: {shape}, therefore def_value[{index}] must contain a \
                 single element (the padding element).  But its shape is: {}",
                default.shape()
            )));
        }
        if default.num_elements() > 0 && shape.to_shape().is_some() && !shape.is_compatible_with(default.shape()) {
            return Err(Status::invalid_argument(format!(
                "def_value[{index}].shape() == {} is not compatible with dense_shapes_[{index}] == {shape}",
                default.shape()
            )));
        }
        features.push(DenseFeature { dtype, shape: shape.clone(), default });
    }
    Ok(features)
}

/// The features requested of a dataset's examples.
pub(crate) struct ExampleFeatures {
    pub(crate) sparse: Vec<(Bytes, DType)>,
    pub(crate) dense: Vec<(Bytes, DenseFeature)>,
    /// Name, type of the values, type of the row splits.
    pub(crate) ragged: Vec<(Bytes, DType, DType)>,
}

impl ExampleFeatures {
    /// Reads the request of a node that names its features in attributes and has the defaults as inputs.
    pub(crate) fn new(context: &OpContext<'_>, attrs: &AttrMap, defaults: &Range<usize>) -> Result<ExampleFeatures> {
        let keys = |name: &str| attrs.strings(name).map(<[Bytes]>::to_vec);
        let (sparse, sparse_types) = (keys("sparse_keys")?, attrs.dtypes("sparse_types")?);
        let (dense, shapes) = (keys("dense_keys")?, attrs.shapes("dense_shapes")?);
        let ragged = keys("ragged_keys").unwrap_or_default();
        let ragged_values = attrs.dtypes("ragged_value_types").unwrap_or_default();
        let ragged_splits = attrs.dtypes("ragged_split_types").unwrap_or_default();
        for (keys, types, message) in [
            (sparse.len(), sparse_types.len(), "len(sparse_keys) != len(sparse_types)"),
            (dense.len(), shapes.len(), "len(dense_keys) != len(dense_shapes)"),
            (ragged.len(), ragged_values.len(), "len(ragged_keys) != len(ragged_value_types)"),
            (ragged.len(), ragged_splits.len(), "len(ragged_keys) != len(ragged_split_types)"),
        ] {
            if keys != types {
                return Err(Status::invalid_argument(message));
            }
        }
        for shape in &shapes {
            if shape.to_shape().is_none() {
                stride(shape)?;
            }
        }
        let features = dense_features(context, defaults, &attrs.dtypes("Tdense")?, &shapes)?;
        let splits = ragged_values.into_iter().zip(ragged_splits);
        Ok(ExampleFeatures {
            sparse: sparse.into_iter().zip(sparse_types).collect(),
            dense: dense.into_iter().zip(features).collect(),
            ragged: ragged.into_iter().zip(splits).map(|(key, (values, splits))| (key, values, splits)).collect(),
        })
    }

    /// Parses a batch of examples.
    pub(crate) fn parse(&self, serialized: &[Bytes]) -> Result<Parsed> {
        let parser = ExampleParser {
            sparse: self.sparse.iter().map(|(key, dtype)| (&key[..], *dtype)).collect(),
            dense: self.dense.iter().map(|(key, feature)| (&key[..], feature.clone())).collect(),
            ragged: self.ragged.iter().map(|(key, values, splits)| (&key[..], *values, *splits)).collect(),
        };
        parser.parse_batch(serialized, &[])
    }
}

/// Returns the strings of a vector with this many keys.
fn key_vector<'a>(keys: &'a Tensor, count: usize, name: &str) -> Result<Vec<&'a [u8]>> {
    let found = keys.strings()?;
    if found.len() != count {
        return Err(Status::invalid_argument(format!("Expected len({name}) == {count}, but it is {}", found.len())));
    }
    Ok(found.iter().map(|key| &key[..]).collect())
}

impl Kernel for ParseExample {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let serialized = context.input(0)?.clone();
        let features = self.dense(context)?;
        let scalar_keys = |range: &Range<usize>| -> Result<Vec<&[u8]>> {
            range.clone().map(|index| Ok(key_vector(context.input(index)?, 1, "keys")?[0])).collect()
        };
        let (sparse, dense, ragged) = match &self.keys {
            Keys::Fixed { sparse, dense } => {
                (sparse.iter().map(|key| &key[..]).collect(), dense.iter().map(|key| &key[..]).collect(), Vec::new())
            }
            Keys::Scalars { sparse, dense } => (scalar_keys(sparse)?, scalar_keys(dense)?, Vec::new()),
            Keys::Vectors => (
                key_vector(context.input(2)?, self.sparse_types.len(), "sparse_keys")?,
                key_vector(context.input(3)?, self.dense_types.len(), "dense_keys")?,
                key_vector(context.input(4)?, self.ragged_types.len(), "ragged_keys")?,
            ),
        };
        if sparse.len() != self.sparse_types.len() || dense.len() != features.len() {
            return Err(Status::invalid_argument("the number of keys differs from the number of types"));
        }
        let ragged_keys = ragged.into_iter().zip(&self.ragged_types);
        let parser = ExampleParser {
            sparse: sparse.into_iter().zip(self.sparse_types.iter().copied()).collect(),
            dense: dense.into_iter().zip(features).collect(),
            ragged: ragged_keys.map(|(key, &(values, splits))| (key, values, splits)).collect(),
        };
        let parsed = match (serialized.strings()?, serialized.shape().rank()) {
            ([one], 0) if !matches!(self.keys, Keys::Scalars { .. }) => parser.parse_one(one)?,
            (batch, 1) => {
                let names = match &self.keys {
                    Keys::Fixed { .. } => &[],
                    _ => context.input(1)?.strings()?,
                };
                if !names.is_empty() && names.len() != batch.len() {
                    return Err(Status::invalid_argument(format!(
                        "Expected names have the same shape as serialized: name.shape=[{}], serialized.shape={}",
                        names.len(),
                        serialized.shape()
                    )));
                }
                parser.parse_batch(batch, names)?
            }
            _ => {
                let shapes = if matches!(self.keys, Keys::Scalars { .. }) { "vector" } else { "scalar or vector" };
                return Err(Status::invalid_argument(format!(
                    "Expected serialized to be a {shapes}, got shape: {}",
                    serialized.shape()
                )));
            }
        };
        let Parsed { sparse_indices, sparse_values, sparse_shapes, dense_values, ragged_values, ragged_row_splits } =
            parsed;
        let lists = [sparse_indices, sparse_values, sparse_shapes, dense_values, ragged_values, ragged_row_splits];
        for (index, tensor) in lists.into_iter().flatten().enumerate() {
            context.set_output(index, tensor);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};
    use graph::AttrMap;
    use prost::Message;
    use proto::{BytesList, Example, Feature, Features, FloatList, Int64List, feature::Kind};

    fn ints(values: &[i64]) -> Option<Kind> {
        Some(Kind::Int64List(Int64List { value: values.to_vec() }))
    }

    fn floats(values: &[f32]) -> Option<Kind> {
        Some(Kind::FloatList(FloatList { value: values.to_vec() }))
    }

    fn texts(values: &[&'static str]) -> Option<Kind> {
        let value = values.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
        Some(Kind::BytesList(BytesList { value }))
    }

    fn example(features: &[(&str, Option<Kind>)]) -> Bytes {
        let feature = features.iter().map(|(name, kind)| (name.to_string(), Feature { kind: kind.clone() })).collect();
        Example { features: Some(Features { feature }) }.encode_to_vec().into()
    }

    fn strings(values: &[&str]) -> Tensor {
        let texts = values.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
        Tensor::from_strings(Shape::vector(values.len()), texts).unwrap()
    }

    fn batch(examples: &[Bytes]) -> Tensor {
        Tensor::from_strings(Shape::vector(examples.len()), examples.to_vec()).unwrap()
    }

    type Dense<'a> = (&'a str, DType, PartialShape, Tensor);

    fn v2(
        serialized: Tensor,
        sparse: &[(&str, DType)],
        dense: &[Dense<'_>],
        ragged: &[(&str, DType, DType)],
    ) -> Result<Vec<Tensor>> {
        let keys = |keys: Vec<&str>| strings(&keys);
        let mut inputs = vec![
            serialized,
            strings(&[]),
            keys(sparse.iter().map(|feature| feature.0).collect()),
            keys(dense.iter().map(|feature| feature.0).collect()),
            keys(ragged.iter().map(|feature| feature.0).collect()),
        ];
        inputs.extend(dense.iter().map(|feature| feature.3.clone()));
        run_op("ParseExampleV2", v2_attrs(sparse, dense, ragged), &inputs)
    }

    fn v2_attrs(sparse: &[(&str, DType)], dense: &[Dense<'_>], ragged: &[(&str, DType, DType)]) -> AttrMap {
        let sparse: Vec<DType> = sparse.iter().map(|feature| feature.1).collect();
        let types: Vec<DType> = dense.iter().map(|feature| feature.1).collect();
        let shapes: Vec<PartialShape> = dense.iter().map(|feature| feature.2.clone()).collect();
        let values: Vec<DType> = ragged.iter().map(|feature| feature.1).collect();
        let splits: Vec<DType> = ragged.iter().map(|feature| feature.2).collect();
        attrs![
            ("Tdense", &types[..]),
            ("num_sparse", sparse.len() as i64),
            ("sparse_types", &sparse[..]),
            ("ragged_value_types", &values[..]),
            ("ragged_split_types", &splits[..]),
            ("dense_shapes", &shapes[..])
        ]
    }

    fn pair() -> [Bytes; 2] {
        [
            example(&[("x", ints(&[1, 2])), ("y", floats(&[1.5])), ("z", texts(&["q", "r"]))]),
            example(&[("x", ints(&[3, 4]))]),
        ]
    }

    #[test]
    fn batches() {
        let default = Tensor::scalar(3f32);
        let dense: Dense<'_> = ("y", DType::Float, PartialShape::scalar(), default);
        let ragged = [("x", DType::Int64, DType::Int32)];
        let outputs = v2(batch(&pair()), &[("z", DType::String)], &[dense], &ragged).unwrap();
        assert_eq!(outputs[0].dims(), &[2, 2]);
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 0, 0, 1]);
        assert_eq!(outputs[1].strings().unwrap(), &["q", "r"]);
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), &[2, 2]);
        assert_eq!(outputs[3].as_slice::<f32>().unwrap(), &[1.5, 3.0]);
        assert_eq!(outputs[4].as_slice::<i64>().unwrap(), &[1, 2, 3, 4]);
        assert_eq!(outputs[5].as_slice::<i32>().unwrap(), &[0, 2, 4]);
    }

    #[test]
    fn single_examples() {
        let none = Tensor::vector::<i64>(&[]);
        let dense = ("x", DType::Int64, PartialShape::from_dims(&[2]), none.clone());
        let one = Tensor::string(pair()[0].clone());
        let outputs = v2(one.clone(), &[("z", DType::String)], std::slice::from_ref(&dense), &[]).unwrap();
        assert_eq!(outputs[0].dims(), &[2, 1]);
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), &[2]);
        assert_eq!(outputs[3].as_slice::<i64>().unwrap(), &[1, 2]);
        let attrs = |num_sparse: i64| {
            attrs![
                ("num_sparse", num_sparse),
                ("sparse_keys", &[][..] as &[&str]),
                ("dense_keys", &["x"][..]),
                ("sparse_types", &[][..] as &[DType]),
                ("Tdense", &[DType::Int64][..]),
                ("dense_shapes", &[PartialShape::from_dims(&[2])][..])
            ]
        };
        let inputs = [one, none];
        let outputs = run_op("ParseSingleExample", attrs(0), &inputs).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[1, 2]);
        let status = run_op("ParseSingleExample", attrs(1), &inputs).unwrap_err();
        assert_eq!(status.code(), tensor::Code::InvalidArgument, "{status}");
    }

    #[test]
    fn the_older_op_takes_scalar_keys() {
        let attrs = attrs![
            ("Nsparse", 1i64),
            ("Ndense", 1i64),
            ("sparse_types", &[DType::String][..]),
            ("Tdense", &[DType::Int64][..]),
            ("dense_shapes", &[PartialShape::from_dims(&[2])][..])
        ];
        let inputs =
            [batch(&pair()), strings(&[]), Tensor::string("z"), Tensor::string("x"), Tensor::vector::<i64>(&[])];
        let outputs = run_op("ParseExample", attrs, &inputs).unwrap();
        assert_eq!(outputs[1].strings().unwrap().len(), 2);
        assert_eq!(outputs[3].dims(), &[2, 2]);
    }

    #[test]
    fn features_of_any_length_are_padded() {
        let examples = [example(&[("x", ints(&[1, 2, 3, 4]))]), example(&[("x", ints(&[9, 8]))]), example(&[])];
        let dense = ("x", DType::Int64, PartialShape::from_dims(&[-1, 2]), Tensor::scalar(-1i64));
        let outputs = v2(batch(&examples), &[], std::slice::from_ref(&dense), &[]).unwrap();
        assert_eq!(outputs[0].dims(), &[3, 2, 2]);
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[1, 2, 3, 4, 9, 8, -1, -1, -1, -1, -1, -1]);
        let status = v2(batch(&[example(&[("x", ints(&[1, 2, 3]))])]), &[], &[dense], &[]).unwrap_err();
        assert_eq!(
            status.message().lines().next().unwrap(),
            "Name: <unknown>, Key: x, Index: 0.  Number of int64 values is not a multiple of stride length. Saw 3 \
             values but output shape is: [?,2]"
        );
    }

    #[test]
    fn of_two_features_of_one_name_the_last_counts() {
        let twice: Bytes = [&pair()[0][..], &example(&[("x", ints(&[7, 8]))])[..]].concat().into();
        let dense = ("x", DType::Int64, PartialShape::from_dims(&[2]), Tensor::vector::<i64>(&[]));
        let outputs = v2(batch(&[twice]), &[], &[dense], &[]).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[7, 8]);
    }

    #[test]
    fn mistakes_read_as_tensorflow_writes_them() {
        let message = |serialized: Tensor, sparse: &[(&str, DType)], dense: &[Dense<'_>]| {
            let status = v2(serialized, sparse, dense, &[]).unwrap_err();
            assert_eq!(status.code(), tensor::Code::InvalidArgument);
            status.message().lines().next().unwrap().to_owned()
        };
        let y = ("y", DType::Float, PartialShape::scalar(), Tensor::vector::<f32>(&[]));
        let required = "Feature: y (data type: float) is required but could not be found.";
        assert_eq!(message(batch(&pair()), &[], std::slice::from_ref(&y)), format!("Name: <unknown>, {required}"));
        assert_eq!(message(Tensor::string(pair()[1].clone()), &[], &[y]), required);
        let x = |dtype, none: Tensor| ("x", dtype, PartialShape::from_dims(&[3]), none);
        let count = x(DType::Int64, Tensor::vector::<i64>(&[]));
        assert_eq!(
            message(batch(&pair()), &[], std::slice::from_ref(&count)),
            "Name: <unknown>, Key: x, Index: 0.  Number of int64 values != expected.  Values size: 2 but output shape: [3]"
        );
        assert_eq!(
            message(Tensor::string(pair()[0].clone()), &[], &[count]),
            "Key: x.  Can't parse serialized Example."
        );
        assert_eq!(
            message(batch(&pair()), &[], &[x(DType::Float, Tensor::vector::<f32>(&[]))]),
            "Name: <unknown>, Key: x, Index: 0.  Data types don't match. Data type: int64 but expected type: float"
        );
        assert_eq!(
            message(batch(&pair()), &[("x", DType::Float)], &[]),
            "Name: <unknown>, Key: x, Index: 0.  Data types don't match. Expected type: float, Actual type: int64"
        );
        assert_eq!(
            message(Tensor::string("garbage!"), &[("x", DType::Float)], &[]),
            "Could not parse example input, value: 'garbage!'"
        );
    }

    #[test]
    fn shapes() {
        let dense = ("y", DType::Float, PartialShape::from_dims(&[-1, 3]), Tensor::scalar(0f32));
        let ragged = [("r", DType::Int64, DType::Int64)];
        let attrs = || v2_attrs(&[("s", DType::Float)], std::slice::from_ref(&dense), &ragged);
        let inputs = "[0];[1];[1];[1];[]";
        check_shape("ParseExampleV2", attrs(), &format!("[4];{inputs}"), "[?,2];[?];[2];[4,?,3];[?];[5]");
        check_shape("ParseExampleV2", attrs(), &format!("[];{inputs}"), "[?,1];[?];[1];[?,3];[?];[?]");
    }
}
