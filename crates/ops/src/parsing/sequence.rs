//! Examples with feature lists: ParseSequenceExample, ParseSequenceExampleV2, ParseSingleSequenceExample.

use super::example::{DenseFeature, ExampleParser, Parsed};
use super::feature_list::{FeatureLists, ListKind, ListWanted};
use bytes::Bytes;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use std::ops::Range;
use tensor::{DType, PartialShape, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ParseSequenceExample",
            inputs: &["serialized: string", "debug_name: string", "context_dense_defaults: Tcontext_dense"],
            outputs: &[
                "context_sparse_indices: Ncontext_sparse * int64",
                "context_sparse_values: context_sparse_types",
                "context_sparse_shapes: Ncontext_sparse * int64",
                "context_dense_values: Tcontext_dense",
                "feature_list_sparse_indices: Nfeature_list_sparse * int64",
                "feature_list_sparse_values: feature_list_sparse_types",
                "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
                "feature_list_dense_values: feature_list_dense_types",
                "feature_list_dense_lengths: Nfeature_list_dense * int64",
            ],
            attrs: &[
                "feature_list_dense_missing_assumed_empty: list(string) >= 0",
                "context_sparse_keys: list(string) >= 0",
                "context_dense_keys: list(string) >= 0",
                "feature_list_sparse_keys: list(string) >= 0",
                "feature_list_dense_keys: list(string) >= 0",
                "Ncontext_sparse: int >= 0 = 0",
                "Ncontext_dense: int >= 0 = 0",
                "Nfeature_list_sparse: int >= 0 = 0",
                "Nfeature_list_dense: int >= 0 = 0",
                "context_sparse_types: list({float, int64, string}) >= 0 = []",
                "Tcontext_dense: list({float, int64, string}) >= 0 = []",
                "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
                "context_dense_shapes: list(shape) >= 0 = []",
                "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
                "feature_list_dense_shapes: list(shape) >= 0 = []",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 1)?;
            parsed_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ParseSequence::create)],
    },
    Op {
        def: OpDef {
            name: "ParseSequenceExampleV2",
            inputs: &[
                "serialized: string",
                "debug_name: string",
                "context_sparse_keys: string",
                "context_dense_keys: string",
                "context_ragged_keys: string",
                "feature_list_sparse_keys: string",
                "feature_list_dense_keys: string",
                "feature_list_ragged_keys: string",
                "feature_list_dense_missing_assumed_empty: bool",
                "context_dense_defaults: Tcontext_dense",
            ],
            outputs: &[
                "context_sparse_indices: Ncontext_sparse * int64",
                "context_sparse_values: context_sparse_types",
                "context_sparse_shapes: Ncontext_sparse * int64",
                "context_dense_values: Tcontext_dense",
                "context_ragged_values: context_ragged_value_types",
                "context_ragged_row_splits: context_ragged_split_types",
                "feature_list_sparse_indices: Nfeature_list_sparse * int64",
                "feature_list_sparse_values: feature_list_sparse_types",
                "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
                "feature_list_dense_values: feature_list_dense_types",
                "feature_list_dense_lengths: Nfeature_list_dense * int64",
                "feature_list_ragged_values: feature_list_ragged_value_types",
                "feature_list_ragged_outer_splits: feature_list_ragged_split_types",
                "feature_list_ragged_inner_splits: feature_list_ragged_split_types",
            ],
            attrs: &[
                "Ncontext_sparse: int >= 0 = 0",
                "Tcontext_dense: list({float, int64, string}) >= 0 = []",
                "context_sparse_types: list({float, int64, string}) >= 0 = []",
                "context_ragged_value_types: list({float, int64, string}) >= 0 = []",
                "context_ragged_split_types: list({int32, int64}) >= 0 = []",
                "context_dense_shapes: list(shape) >= 0 = []",
                "Nfeature_list_sparse: int >= 0 = 0",
                "Nfeature_list_dense: int >= 0 = 0",
                "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
                "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
                "feature_list_ragged_value_types: list({float, int64, string}) >= 0 = []",
                "feature_list_ragged_split_types: list({int32, int64}) >= 0 = []",
                "feature_list_dense_shapes: list(shape) >= 0 = []",
            ],
            flags: OpFlags::NONE,
        },
        shape: parsed_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ParseSequence::create)],
    },
    Op {
        def: OpDef {
            name: "ParseSingleSequenceExample",
            inputs: &[
                "serialized: string",
                "feature_list_dense_missing_assumed_empty: string",
                "context_sparse_keys: Ncontext_sparse * string",
                "context_dense_keys: Ncontext_dense * string",
                "feature_list_sparse_keys: Nfeature_list_sparse * string",
                "feature_list_dense_keys: Nfeature_list_dense * string",
                "context_dense_defaults: Tcontext_dense",
                "debug_name: string",
            ],
            outputs: &[
                "context_sparse_indices: Ncontext_sparse * int64",
                "context_sparse_values: context_sparse_types",
                "context_sparse_shapes: Ncontext_sparse * int64",
                "context_dense_values: Tcontext_dense",
                "feature_list_sparse_indices: Nfeature_list_sparse * int64",
                "feature_list_sparse_values: feature_list_sparse_types",
                "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
                "feature_list_dense_values: feature_list_dense_types",
            ],
            attrs: &[
                "Ncontext_sparse: int >= 0 = 0",
                "Ncontext_dense: int >= 0 = 0",
                "Nfeature_list_sparse: int >= 0 = 0",
                "Nfeature_list_dense: int >= 0 = 0",
                "context_sparse_types: list({float, int64, string}) >= 0 = []",
                "Tcontext_dense: list({float, int64, string}) >= 0 = []",
                "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
                "context_dense_shapes: list(shape) >= 0 = []",
                "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
                "feature_list_dense_shapes: list(shape) >= 0 = []",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 0)?;
            parsed_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ParseSequence::create)],
    },
];

/// The outputs' shapes are those of the batch and the requested features.
fn parsed_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let batch = c.with_rank_at_most(0, 1)?;
    let count = |name: &str| c.attrs.dtypes(name).map_or(0, |types| types.len());
    let (context_sparse, context_ragged) = (count("context_sparse_types"), count("context_ragged_value_types"));
    let (list_sparse, list_ragged) = (count("feature_list_sparse_types"), count("feature_list_ragged_value_types"));
    let context_dense = c.attrs.shapes("context_dense_shapes")?;
    let list_dense = c.attrs.shapes("feature_list_dense_shapes")?;
    let has_lengths = c.schema.outputs.iter().any(|output| output.name == "feature_list_dense_lengths");
    let rank = batch.rank().map(|rank| rank as i64);
    let vector = || PartialShape::unknown_of_rank(1);
    let splits = || PartialShape::new(&[batch.dim(0).filter(|_| rank == Some(1)).and_then(|size| size.checked_add(1))]);
    let mut shapes = Vec::new();
    let sparse = |shapes: &mut Vec<PartialShape>, count: usize, more: i64| {
        let columns = rank.map(|rank| rank + more);
        shapes.extend((0..count).map(|_| PartialShape::new(&[None, columns])));
        shapes.extend((0..count).map(|_| vector()));
        shapes.extend((0..count).map(|_| PartialShape::new(&[columns])));
    };
    sparse(&mut shapes, context_sparse, 1);
    shapes.extend(context_dense.iter().map(|shape| batch.concat(shape)));
    shapes.extend((0..context_ragged).map(|_| vector()));
    shapes.extend((0..context_ragged).map(|_| splits()));
    sparse(&mut shapes, list_sparse, 2);
    shapes.extend(list_dense.iter().map(|shape| batch.concat(&vector()).concat(shape)));
    if has_lengths {
        shapes.extend(list_dense.iter().map(|_| batch.clone()));
    }
    shapes.extend((0..list_ragged).map(|_| vector()));
    shapes.extend((0..list_ragged).map(|_| splits()));
    shapes.extend((0..list_ragged).map(|_| vector()));
    for (output, shape) in shapes.into_iter().enumerate() {
        c.set_output(output, shape);
    }
    Ok(())
}

/// The source of keys.
enum Keys {
    /// In an attribute.
    Fixed(Vec<Bytes>),
    /// In scalar inputs, or all in one vector.
    Inputs(Range<usize>),
    None,
}

impl Keys {
    fn new(builder: &KernelBuilder<'_>, name: &str) -> Keys {
        match (builder.attrs().strings(name), builder.input_range(name)) {
            (Ok(keys), _) => Keys::Fixed(keys.to_vec()),
            (_, Ok(inputs)) => Keys::Inputs(inputs),
            _ => Keys::None,
        }
    }

    fn get(&self, context: &OpContext<'_>, name: &str, count: Option<usize>) -> Result<Vec<Bytes>> {
        let keys = match self {
            Keys::Fixed(keys) => keys.clone(),
            Keys::None => Vec::new(),
            Keys::Inputs(inputs) => {
                let mut keys = Vec::new();
                for input in inputs.clone() {
                    keys.extend_from_slice(context.input(input)?.strings()?);
                }
                keys
            }
        };
        match count {
            Some(count) if count != keys.len() => {
                Err(Status::invalid_argument(format!("Expected len({name}) == {count}, but it is {}", keys.len())))
            }
            _ => Ok(keys),
        }
    }
}

struct ParseSequence {
    context_sparse: (Keys, Vec<DType>),
    context_dense: (Keys, Vec<(DType, PartialShape)>),
    context_ragged: (Keys, Vec<(DType, DType)>),
    list_sparse: (Keys, Vec<DType>),
    list_dense: (Keys, Vec<(DType, PartialShape)>),
    list_ragged: (Keys, Vec<(DType, DType)>),
    defaults: Range<usize>,
    /// Keys that may be missing, or an input with a flag for each key.
    assumed_empty: Keys,
    empty_flags: Option<usize>,
    /// The source of the names for messages.
    names: Option<usize>,
    has_lengths: bool,
}

impl ParseSequence {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let shaped = |types: &str, shapes: &str| -> Result<Vec<(DType, PartialShape)>> {
            let (types, shapes) = (attrs.dtypes(types)?, attrs.shapes(shapes)?);
            if types.len() != shapes.len() {
                return Err(Status::invalid_argument("the number of dense shapes differs from the number of types"));
            }
            Ok(types.into_iter().zip(shapes).collect())
        };
        let ragged = |values: &str, splits: &str| -> Result<Vec<(DType, DType)>> {
            let (values, splits) = (attrs.dtypes(values).unwrap_or_default(), attrs.dtypes(splits).unwrap_or_default());
            if values.len() != splits.len() {
                return Err(Status::invalid_argument("len(ragged_value_types) != len(ragged_split_types)"));
            }
            Ok(values.into_iter().zip(splits).collect())
        };
        let list_dense = shaped("feature_list_dense_types", "feature_list_dense_shapes")?;
        if let Some((_, shape)) = list_dense.iter().find(|(_, shape)| shape.to_shape().is_none()) {
            return Err(Status::invalid_argument(format!(
                "feature_list_dense_shapes must be fully defined, got {shape}"
            )));
        }
        for (number, types) in [
            ("Ncontext_sparse", "context_sparse_types"),
            ("Nfeature_list_sparse", "feature_list_sparse_types"),
            ("Nfeature_list_dense", "feature_list_dense_types"),
        ] {
            let count = attrs.dtypes(types)?.len();
            if attrs.int(number).is_ok_and(|number| number != count as i64) {
                return Err(Status::invalid_argument(format!("{number} is not the length of {types}, {count}")));
            }
        }
        let is_v2 = builder.node.op() == "ParseSequenceExampleV2";
        let assumed_empty = "feature_list_dense_missing_assumed_empty";
        BoxedKernel::new(ParseSequence {
            context_sparse: (Keys::new(builder, "context_sparse_keys"), attrs.dtypes("context_sparse_types")?),
            context_dense: (
                Keys::new(builder, "context_dense_keys"),
                shaped("Tcontext_dense", "context_dense_shapes")?,
            ),
            context_ragged: (
                Keys::new(builder, "context_ragged_keys"),
                ragged("context_ragged_value_types", "context_ragged_split_types")?,
            ),
            list_sparse: (Keys::new(builder, "feature_list_sparse_keys"), attrs.dtypes("feature_list_sparse_types")?),
            list_dense: (Keys::new(builder, "feature_list_dense_keys"), list_dense),
            list_ragged: (
                Keys::new(builder, "feature_list_ragged_keys"),
                ragged("feature_list_ragged_value_types", "feature_list_ragged_split_types")?,
            ),
            defaults: builder.input_range("context_dense_defaults")?,
            assumed_empty: if is_v2 { Keys::None } else { Keys::new(builder, assumed_empty) },
            empty_flags: if is_v2 { Some(builder.input_range(assumed_empty)?.start) } else { None },
            names: builder.input_range("debug_name").ok().map(|inputs| inputs.start),
            has_lengths: builder.output_range("feature_list_dense_lengths").is_ok(),
        })
    }

    /// Returns the dense lists that may be missing.
    fn may_be_missing(&self, context: &OpContext<'_>, keys: &[Bytes]) -> Result<Vec<bool>> {
        if let Some(input) = self.empty_flags {
            let flags = context.slice::<bool>(input)?;
            if flags.len() != keys.len() {
                return Err(Status::invalid_argument(format!(
                    "Expected len(feature_list_dense_missing_assumed_empty) == {}, but it is {}",
                    keys.len(),
                    flags.len()
                )));
            }
            return Ok(flags.to_vec());
        }
        let empty = self.assumed_empty.get(context, "feature_list_dense_missing_assumed_empty", None)?;
        Ok(keys.iter().map(|key| empty.contains(key)).collect())
    }
}

impl Kernel for ParseSequence {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let serialized = context.input(0)?.clone();
        let keys = |keys: &Keys, name: &str, count: usize| keys.get(context, name, Some(count));
        let sparse = keys(&self.context_sparse.0, "context_sparse_keys", self.context_sparse.1.len())?;
        let dense = keys(&self.context_dense.0, "context_dense_keys", self.context_dense.1.len())?;
        let ragged = keys(&self.context_ragged.0, "context_ragged_keys", self.context_ragged.1.len())?;
        let list_sparse = keys(&self.list_sparse.0, "feature_list_sparse_keys", self.list_sparse.1.len())?;
        let list_dense = keys(&self.list_dense.0, "feature_list_dense_keys", self.list_dense.1.len())?;
        let list_ragged = keys(&self.list_ragged.0, "feature_list_ragged_keys", self.list_ragged.1.len())?;
        let may_be_missing = self.may_be_missing(context, &list_dense)?;
        let mut dense_features = Vec::with_capacity(dense.len());
        for ((key, input), (dtype, shape)) in dense.iter().zip(self.defaults.clone()).zip(&self.context_dense.1) {
            let default = context.input(input)?.clone();
            if default.num_elements() > 0 && !shape.is_compatible_with(default.shape()) {
                return Err(Status::invalid_argument(format!(
                    "def_value.shape() == {} is not compatible with context_dense_shapes == {shape}",
                    default.shape()
                )));
            }
            dense_features.push((&key[..], DenseFeature { dtype: *dtype, shape: shape.clone(), default }));
        }
        let parser = ExampleParser {
            sparse: sparse.iter().zip(&self.context_sparse.1).map(|(key, dtype)| (&key[..], *dtype)).collect(),
            dense: dense_features,
            ragged: ragged
                .iter()
                .zip(&self.context_ragged.1)
                .map(|(key, types)| (&key[..], types.0, types.1))
                .collect(),
        };
        let mut wanted = Vec::new();
        for (key, &dtype) in list_sparse.iter().zip(&self.list_sparse.1) {
            wanted.push(ListWanted { key, dtype, kind: ListKind::Sparse });
        }
        for ((key, (dtype, shape)), may_be_missing) in list_dense.iter().zip(&self.list_dense.1).zip(may_be_missing) {
            let step = shape.to_shape().ok_or_else(|| Status::internal("a shape that was checked"))?;
            wanted.push(ListWanted { key, dtype: *dtype, kind: ListKind::Dense { step, may_be_missing } });
        }
        for (key, &(dtype, splits)) in list_ragged.iter().zip(&self.list_ragged.1) {
            wanted.push(ListWanted { key, dtype, kind: ListKind::Ragged { splits } });
        }
        let names = self.names.map_or(Ok(&[][..]), |input| context.input(input)?.strings())?;
        let examples = serialized.strings()?;
        let is_batch = match serialized.shape().rank() {
            0 => false,
            1 => true,
            _ => {
                return Err(Status::invalid_argument(format!(
                    "Expected serialized to be a scalar or vector, got shape: {}",
                    serialized.shape()
                )));
            }
        };
        if is_batch && !names.is_empty() && names.len() != examples.len() {
            return Err(Status::invalid_argument(format!(
                "Expected debug_name to have the same shape as serialized: [{}] and {}",
                names.len(),
                serialized.shape()
            )));
        }
        let features: Parsed = match is_batch {
            true => parser.parse_batch(examples, names)?,
            false => parser.parse_one(&examples[0])?,
        };
        let lists = FeatureLists::parse(&wanted, examples, names)?.into_tensors(&wanted, is_batch)?;
        let Parsed { sparse_indices, sparse_values, sparse_shapes, dense_values, ragged_values, ragged_row_splits } =
            features;
        let lengths = if self.has_lengths { lists.dense_lengths } else { Vec::new() };
        let outputs = [
            sparse_indices,
            sparse_values,
            sparse_shapes,
            dense_values,
            ragged_values,
            ragged_row_splits,
            lists.sparse_indices,
            lists.sparse_values,
            lists.sparse_shapes,
            lists.dense_values,
            lengths,
            lists.ragged_values,
            lists.ragged_outer_splits,
            lists.ragged_inner_splits,
        ];
        for (index, tensor) in outputs.into_iter().flatten().enumerate() {
            context.set_output(index, tensor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};
    use prost::Message;
    use proto::{Example, Feature, Features, Int64List, feature::Kind};
    use tensor::{Shape, Tensor};

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn feature(values: &[i64]) -> Feature {
        Feature { kind: Some(Kind::Int64List(Int64List { value: values.to_vec() })) }
    }

    /// A sequence example with a feature `n` and a list `x` with a feature for each step.
    fn sequence(number: i64, steps: &[&[i64]]) -> Bytes {
        let context = [("n".to_owned(), feature(&[number]))].into_iter().collect();
        let mut bytes = Example { features: Some(Features { feature: context }) }.encode_to_vec();
        let list: Vec<u8> = steps.iter().flat_map(|step| field(1, &feature(step).encode_to_vec())).collect();
        let entry = [field(1, b"x"), field(2, &list)].concat();
        bytes.extend(field(2, &field(1, &entry)));
        bytes.into()
    }

    fn strings(values: Vec<Bytes>) -> Tensor {
        Tensor::from_strings(Shape::vector(values.len()), values).unwrap()
    }

    fn attributes(sparse: bool, key: &str) -> graph::AttrMap {
        let (one, none): (&[DType], &[DType]) = (&[DType::Int64], &[]);
        let shapes: &[PartialShape] = &[PartialShape::scalar()];
        let (keys, no_keys): (&[&str], &[&str]) = (&[key], &[]);
        attrs![
            ("feature_list_dense_missing_assumed_empty", &["y"][..]),
            ("context_sparse_keys", &[][..] as &[&str]),
            ("context_dense_keys", &["n"][..]),
            ("feature_list_sparse_keys", if sparse { keys } else { no_keys }),
            ("feature_list_dense_keys", if sparse { no_keys } else { keys }),
            ("Ncontext_dense", 1i64),
            ("Nfeature_list_sparse", i64::from(sparse)),
            ("Nfeature_list_dense", i64::from(!sparse)),
            ("Tcontext_dense", one),
            ("context_dense_shapes", shapes),
            ("feature_list_sparse_types", if sparse { one } else { none }),
            ("feature_list_dense_types", if sparse { none } else { one }),
            ("feature_list_dense_shapes", if sparse { &shapes[..0] } else { shapes })
        ]
    }

    fn run(attrs: graph::AttrMap, examples: Vec<Bytes>) -> Result<Vec<Tensor>> {
        let none = strings(Vec::new());
        run_op("ParseSequenceExample", attrs, &[strings(examples), none, Tensor::vector::<i64>(&[])])
    }

    #[test]
    fn lists_of_several_lengths() {
        let examples = || vec![sequence(5, &[&[1], &[2]]), sequence(6, &[&[3]])];
        let dense = run(attributes(false, "x"), examples()).unwrap();
        assert_eq!(dense[0].as_slice::<i64>().unwrap(), &[5, 6]);
        assert_eq!(dense[1].as_slice::<i64>().unwrap(), &[1, 2, 3, 0]);
        assert_eq!(dense[2].as_slice::<i64>().unwrap(), &[2, 1]);
        let sparse = run(attributes(true, "x"), vec![sequence(5, &[&[], &[7, 8]])]).unwrap();
        assert_eq!(sparse[1].as_slice::<i64>().unwrap(), &[0, 1, 0, 0, 1, 1]);
        assert_eq!(sparse[3].as_slice::<i64>().unwrap(), &[1, 2, 2]);
        let missing = run(attributes(false, "y"), examples()).unwrap();
        assert_eq!(missing[1].dims(), &[2, 0]);
        assert!(run(attributes(false, "z"), examples()).is_err());
        assert!(run(attributes(false, "x"), vec![sequence(5, &[&[1, 2]])]).is_err());
        assert!(run(attributes(false, "x"), vec![Bytes::from_static(b"garbage!")]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("ParseSequenceExample", attributes(false, "x"), "[4];[0];[0]", "[4];[4,?];[4]");
        check_shape("ParseSequenceExample", attributes(true, "x"), "[4];[0];[0]", "[4];[?,3];[?];[3]");
    }
}
