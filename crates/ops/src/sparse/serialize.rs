//! Sparse tensors as a single tensor: SerializeSparse and related ops, and the map that stores them by number.

use super::coordinates::{Sparse, indices_tensor, pick};
use crate::sizes::shape_of_sizes;
use foldhash::HashMap;
use graph::ShapeContext;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, Resource, shape};
use parking_lot::Mutex;
use prost::Message;
use proto::TensorProto;
use tensor::{
    DType, PartialShape, Result, Shape, Status, Tensor, Variant, VariantValue, tensor_from_proto, tensor_to_proto,
};

const THREE: &[&str] = &["sparse_indices: int64", "sparse_values: T", "sparse_shape: int64"];
const MADE: &[&str] = &["sparse_indices: int64", "sparse_values: dtype", "sparse_shape: int64"];
const CONTAINER: &str = "container: string = ''";
const SHARED_NAME: &str = "shared_name: string = ''";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SerializeSparse",
            inputs: THREE,
            outputs: &["serialized_sparse: out_type"],
            attrs: &["T: type", "out_type: {string, variant} = DT_STRING"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            check_three(c)?;
            c.set_output(0, PartialShape::from_dims(&[3]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Serialize::create(builder, false))],
    },
    Op {
        def: OpDef {
            name: "SerializeManySparse",
            inputs: THREE,
            outputs: &["serialized_sparse: out_type"],
            attrs: &["T: type", "out_type: {string, variant} = DT_STRING"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            check_three(c)?;
            c.set_output(0, PartialShape::new(&[None, Some(3)]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Serialize::create(builder, true))],
    },
    Op {
        def: OpDef {
            name: "DeserializeSparse",
            inputs: &["serialized_sparse: Tserialized"],
            outputs: MADE,
            attrs: &["dtype: type", "Tserialized: {string, variant} = DT_STRING"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let serialized = c.with_rank_at_least(0, 1)?;
            check_triple(&serialized)?;
            made_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Deserialize::create)],
    },
    Op {
        def: OpDef {
            name: "DeserializeManySparse",
            inputs: &["serialized_sparse: string"],
            outputs: MADE,
            attrs: &["dtype: type"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let serialized = c.with_rank(0, 2)?;
            check_triple(&serialized)?;
            made_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Deserialize::create)],
    },
    Op {
        def: OpDef {
            name: "AddSparseToTensorsMap",
            inputs: THREE,
            outputs: &["sparse_handle: int64"],
            attrs: &["T: type", CONTAINER, SHARED_NAME],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            check_three(c)?;
            shape::scalar(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| AddToMap::create(builder, false))],
    },
    Op {
        def: OpDef {
            name: "AddManySparseToTensorsMap",
            inputs: THREE,
            outputs: &["sparse_handles: int64"],
            attrs: &["T: type", CONTAINER, SHARED_NAME],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            check_three(c)?;
            c.set_output(0, PartialShape::unknown_of_rank(1));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| AddToMap::create(builder, true))],
    },
    Op {
        def: OpDef {
            name: "TakeManySparseFromTensorsMap",
            inputs: &["sparse_handles: int64"],
            outputs: MADE,
            attrs: &["dtype: type", CONTAINER, SHARED_NAME],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            c.with_rank(0, 1)?;
            made_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(TakeFromMap::create)],
    },
];

fn check_three(c: &ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 2)?;
    c.with_rank(1, 1)?;
    c.with_rank(2, 1)?;
    Ok(())
}

fn check_triple(serialized: &PartialShape) -> Result<()> {
    match serialized.rank().and_then(|rank| serialized.dim(rank - 1)) {
        Some(size) if size != 3 => Err(Status::invalid_argument(format!("Dimension must be 3 but is {size}"))),
        _ => Ok(()),
    }
}

fn made_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::unknown_of_rank(2));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    c.set_output(2, PartialShape::unknown_of_rank(1));
    Ok(())
}

/// The three components of a sparse tensor.
#[derive(Clone)]
struct Triple {
    indices: Tensor,
    values: Tensor,
    shape: Tensor,
}

impl Triple {
    /// Takes the inputs of a node.
    fn from_inputs(context: &OpContext<'_>) -> Result<Triple> {
        let (indices, values, shape) = (context.input(0)?, context.input(1)?, context.input(2)?);
        Sparse::new(indices, values, shape)?;
        Ok(Triple { indices: indices.clone(), values: values.clone(), shape: shape.clone() })
    }

    /// Splits a minibatch into its examples, which have one dimension less.
    fn rows(&self) -> Result<Vec<Triple>> {
        let sparse = Sparse::new(&self.indices, &self.values, &self.shape)?;
        let rank = sparse.rank();
        if rank <= 1 {
            return Err(Status::invalid_argument(format!(
                "Rank of input SparseTensor should be > 1, but saw rank: {rank}"
            )));
        }
        sparse.check_size()?;
        sparse.check_bounds()?;
        let count = usize::try_from(sparse.shape[0]).unwrap_or(0);
        Shape::vector(count).num_bytes(size_of::<Triple>())?;
        let mut members: HashMap<usize, Vec<usize>> = HashMap::default();
        for position in 0..sparse.count() {
            let row = sparse.index(position)[0];
            let row = usize::try_from(row).ok().filter(|&row| row < count).ok_or_else(|| {
                Status::invalid_argument(format!(
                    "Received unexpected column 0 value in input SparseTensor: {row} < 0 (or) >= N (= {count})"
                ))
            })?;
            members.entry(row).or_default().push(position);
        }
        let shape = Tensor::vector(&sparse.shape[1..]);
        let mut rows = Vec::new();
        rows.try_reserve_exact(count).map_err(|_| Status::resource_exhausted(format!("OOM for {count} rows")))?;
        for row in 0..count {
            let positions = members.remove(&row).unwrap_or_default();
            let indices: Vec<i64> =
                positions.iter().flat_map(|&position| &sparse.index(position)[1..]).copied().collect();
            rows.push(Triple {
                indices: indices_tensor(positions.len(), rank - 1, &indices)?,
                values: pick(&self.values, &positions)?,
                shape: shape.clone(),
            });
        }
        Ok(rows)
    }

    /// Combines examples into a minibatch.
    fn stacked(parts: &[Triple], dtype: DType) -> Result<Triple> {
        let mut largest: Vec<i64> = Vec::new();
        let mut indices = Vec::new();
        for (position, part) in parts.iter().enumerate() {
            let sparse = Sparse::new(&part.indices, &part.values, &part.shape)
                .map_err(|status| status.context(format!("SparseTensor[{position}]")))?;
            if part.values.dtype() != dtype {
                return Err(Status::invalid_argument(format!(
                    "Requested SparseTensor of type {dtype} but SparseTensor[{position}].values.dtype() == {}",
                    part.values.dtype()
                )));
            }
            if position == 0 {
                largest = sparse.shape.to_vec();
            }
            if sparse.rank() != largest.len() {
                return Err(Status::invalid_argument(format!(
                    "Inconsistent rank across SparseTensors: rank prior to SparseTensor[{position}] was: {} but rank of \
                     SparseTensor[{position}] is: {}",
                    largest.len(),
                    sparse.rank()
                )));
            }
            largest.iter_mut().zip(sparse.shape).for_each(|(largest, &size)| *largest = size.max(*largest));
            for row in 0..sparse.count() {
                indices.push(position as i64);
                indices.extend_from_slice(sparse.index(row));
            }
        }
        let values: Vec<&Tensor> = parts.iter().map(|part| &part.values).collect();
        let count: usize = values.iter().map(|values| values.num_elements()).sum();
        let values = match values.is_empty() {
            true => Tensor::zeros(dtype, Shape::vector(0))?,
            false => crate::array::join(&values, 0, Shape::vector(count))?,
        };
        let indices = indices_tensor(count, largest.len() + 1, &indices)?;
        let shape = [&[parts.len() as i64], &largest[..]].concat();
        Ok(Triple { indices, values, shape: Tensor::vector(&shape) })
    }

    fn tensors(&self) -> [&Tensor; 3] {
        [&self.indices, &self.values, &self.shape]
    }

    fn set_outputs(self, context: &mut OpContext<'_>) {
        context.set_output(0, self.indices);
        context.set_output(1, self.values);
        context.set_output(2, self.shape);
    }
}

/// Returns a tensor as an element of a variant tensor.
pub(crate) fn tensor_variant(tensor: Tensor) -> Variant {
    Variant::new(TensorVariant(tensor))
}

/// Returns a sparse tensor in the form that datasets use: its three components in a vector of variants.
pub(crate) fn sparse_variants(indices: Tensor, values: Tensor, shape: Tensor) -> Result<Tensor> {
    Tensor::from_variants(Shape::vector(3), [indices, values, shape].map(tensor_variant).to_vec())
}

/// A tensor as an element of a variant tensor.
struct TensorVariant(Tensor);

impl VariantValue for TensorVariant {
    fn type_name(&self) -> &str {
        "tensorflow::Tensor"
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        let tensors = vec![tensor_to_proto(&self.0)?];
        Ok(proto::VariantTensorDataProto { type_name: self.type_name().to_owned(), tensors, ..Default::default() })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

struct Serialize {
    many: bool,
    variants: bool,
}

impl Serialize {
    fn create(builder: &KernelBuilder<'_>, many: bool) -> Result<BoxedKernel> {
        BoxedKernel::new(Serialize { many, variants: builder.attrs().dtype("out_type")? == DType::Variant })
    }
}

impl Kernel for Serialize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let whole = Triple::from_inputs(context)?;
        let (rows, shape) = match self.many {
            true => {
                let rows = whole.rows()?;
                let shape = Shape::from_usize(&[rows.len(), 3])?;
                (rows, shape)
            }
            false => (vec![whole], Shape::vector(3)),
        };
        let tensors = rows.iter().flat_map(Triple::tensors);
        let output = match self.variants {
            true => Tensor::from_variants(shape, tensors.map(|part| tensor_variant(part.clone())).collect())?,
            false => {
                let text = |part: &Tensor| Ok(tensor_to_proto(part)?.encode_to_vec().into());
                Tensor::from_strings(shape, tensors.map(text).collect::<Result<_>>()?)?
            }
        };
        context.set_output(0, output);
        Ok(())
    }
}

struct Deserialize {
    dtype: DType,
}

impl Deserialize {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Deserialize { dtype: builder.attrs().dtype("dtype")? })
    }
}

/// Returns the tensors in a tensor of serialized ones.
fn unpacked(serialized: &Tensor) -> Result<Vec<Tensor>> {
    if serialized.dtype() == DType::Variant {
        let tensor = |variant: &Variant| match variant {
            Variant::Encoded(proto) if proto.tensors.len() == 1 => tensor_from_proto(&proto.tensors[0]),
            other => other
                .downcast_ref::<TensorVariant>()
                .map(|value| value.0.clone())
                .ok_or_else(|| Status::invalid_argument(format!("Could not get a tensor from {}", other.type_name()))),
        };
        return serialized.variants()?.iter().map(tensor).collect();
    }
    let tensor = |(position, text): (usize, &bytes::Bytes)| {
        let parsed = TensorProto::decode(text.clone()).ok();
        parsed.ok_or_else(|| {
            Status::invalid_argument(format!("Could not parse serialized proto: serialized_sparse[{position}]"))
        })
    };
    serialized.strings()?.iter().enumerate().map(|part| tensor_from_proto(&tensor(part)?)).collect()
}

impl Kernel for Deserialize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let serialized = context.input(0)?;
        let Some((&3, outer)) = serialized.dims().split_last() else {
            return Err(Status::invalid_argument(format!(
                "Serialized sparse should have 3 as the last dimension {}",
                serialized.shape()
            )));
        };
        let mut parts = Vec::new();
        let mut tensors = unpacked(serialized)?.into_iter();
        while let (Some(indices), Some(values), Some(shape)) = (tensors.next(), tensors.next(), tensors.next()) {
            parts.push(Triple { indices, values, shape });
        }
        // Several batch dimensions are restored.
        let outer = outer.to_vec();
        let made = match (outer.len(), parts.pop()) {
            (0, Some(one)) => {
                Sparse::new(&one.indices, &one.values, &one.shape)?;
                if one.values.dtype() != self.dtype {
                    return Err(Status::invalid_argument(format!(
                        "Requested SparseTensor of type {} but SparseTensor[0].values.dtype() == {}",
                        self.dtype,
                        one.values.dtype()
                    )));
                }
                one
            }
            (_, last) => {
                parts.extend(last);
                with_outer_dims(Triple::stacked(&parts, self.dtype)?, &outer)?
            }
        };
        made.set_outputs(context);
        Ok(())
    }
}

/// Replaces the first dimension by several.
fn with_outer_dims(stacked: Triple, outer: &[i64]) -> Result<Triple> {
    if outer.len() <= 1 {
        return Ok(stacked);
    }
    let sparse = Sparse::new(&stacked.indices, &stacked.values, &stacked.shape)?;
    let mut indices = Vec::with_capacity(sparse.indices.len() + sparse.count() * outer.len());
    for row in 0..sparse.count() {
        let index = sparse.index(row);
        let start = indices.len();
        indices.resize(start + outer.len(), 0);
        let mut flat = index[0];
        for (to, &size) in indices[start..].iter_mut().zip(outer).rev() {
            *to = flat % size.max(1);
            flat /= size.max(1);
        }
        indices.extend_from_slice(&index[1..]);
    }
    let shape = [outer, &sparse.shape[1..]].concat();
    let indices = indices_tensor(sparse.count(), shape.len(), &indices)?;
    Ok(Triple { indices, values: stacked.values.clone(), shape: Tensor::vector(&shape) })
}

/// Sparse tensors by number.
#[derive(Default)]
struct TensorsMap {
    state: Mutex<(HashMap<i64, Triple>, i64)>,
}

impl TensorsMap {
    fn add(&self, triple: Triple) -> i64 {
        let mut state = self.state.lock();
        let handle = state.1;
        state.1 += 1;
        state.0.insert(handle, triple);
        handle
    }

    fn take(&self, handle: i64) -> Result<Triple> {
        let taken = self.state.lock().0.remove(&handle);
        taken.ok_or_else(|| Status::invalid_argument(format!("Unable to find SparseTensor: {handle} in map")))
    }
}

impl Resource for TensorsMap {
    fn type_name(&self) -> &'static str {
        "N10tensorflow16SparseTensorsMapE"
    }

    fn describe(&self) -> String {
        format!("map of {} sparse tensors", self.state.lock().0.len())
    }
}

struct AddToMap {
    many: bool,
    container: String,
    name: String,
}

impl AddToMap {
    fn create(builder: &KernelBuilder<'_>, many: bool) -> Result<BoxedKernel> {
        let (container, name) = builder.resource_name();
        BoxedKernel::new(AddToMap { many, container, name })
    }
}

impl Kernel for AddToMap {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let whole = Triple::from_inputs(context)?;
        shape_of_sizes(whole.shape.as_slice()?)?;
        let map = context.resources().lookup_or_create(&self.container, &self.name, || Ok(TensorsMap::default()))?;
        let handles = match self.many {
            true => Tensor::vector(&whole.rows()?.into_iter().map(|row| map.add(row)).collect::<Vec<i64>>()),
            false => Tensor::scalar(map.add(whole)),
        };
        context.set_output(0, handles);
        Ok(())
    }
}

struct TakeFromMap {
    dtype: DType,
    container: String,
    name: String,
}

impl TakeFromMap {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (container, name) = builder.resource_name();
        BoxedKernel::new(TakeFromMap { dtype: builder.attrs().dtype("dtype")?, container, name })
    }
}

impl Kernel for TakeFromMap {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let map = context.resources().lookup_or_create(&self.container, &self.name, || Ok(TensorsMap::default()))?;
        let handles = context.slice::<i64>(0)?;
        let parts: Vec<Triple> = handles.iter().map(|&handle| map.take(handle)).collect::<Result<_>>()?;
        Triple::stacked(&parts, self.dtype)?.set_outputs(context);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, attrs, check_shape, run_op};

    fn ints(tensor: &Tensor) -> &[i64] {
        tensor.as_slice().unwrap()
    }

    fn batch() -> [Tensor; 3] {
        let indices = Tensor::from_slice(&[2, 2], &[0i64, 1, 2, 0]).unwrap();
        [indices, Tensor::vector(&[3f32, 4.]), Tensor::vector(&[3i64, 3])]
    }

    #[test]
    fn what_is_serialized_comes_back() {
        let one = run_op("SerializeSparse", attrs![], &batch()).unwrap();
        // The bytes are TensorFlow's.
        assert_eq!(one[0].strings().unwrap()[1], b"\x08\x01\x12\x04\x12\x02\x08\x02\"\x08\x00\x00@@\x00\x00\x80@"[..]);
        let dtype = || attrs![("dtype", DType::Float)];
        let back = run_op("DeserializeSparse", dtype(), &one).unwrap();
        assert_eq!(ints(&back[0]), &[0, 1, 2, 0]);
        let many = run_op("SerializeManySparse", attrs![], &batch()).unwrap();
        assert_eq!(many[0].dims(), &[3, 3]);
        for op in ["DeserializeManySparse", "DeserializeSparse"] {
            let back = run_op(op, dtype(), &many).unwrap();
            assert_eq!((ints(&back[0]), ints(&back[2])), (&[0, 1, 2, 0][..], &[3, 3][..]));
            assert_eq!(back[1].as_slice::<f32>().unwrap(), &[3., 4.]);
        }
        let variants = run_op("SerializeManySparse", attrs![("out_type", DType::Variant)], &batch()).unwrap();
        let back = run_op("DeserializeSparse", dtype(), &variants).unwrap();
        assert_eq!(ints(&back[0]), &[0, 1, 2, 0]);
        let status = run_op("DeserializeManySparse", attrs![("dtype", DType::Int32)], &many).unwrap_err();
        assert!(
            status
                .message()
                .starts_with("Requested SparseTensor of type int32 but SparseTensor[0].values.dtype() == float")
        );
        let bad = Tensor::from_strings(Shape::vector(3), vec!["x".into(), "y".into(), "z".into()]).unwrap();
        assert!(run_op("DeserializeSparse", dtype(), &[bad]).is_err());
    }

    #[test]
    fn a_map_keeps_them_by_number() {
        let session = TestSession::new();
        let inputs: Vec<_> = batch().iter().map(|tensor| session.graph.constant_tensor(tensor)).collect();
        let op = session.graph.op("AddManySparseToTensorsMap").inputs(&inputs[..1]).input(&inputs[1]).input(&inputs[2]);
        let handles = session.fetch(&op.attr("shared_name", "m").output(), &[]).unwrap();
        assert_eq!(ints(&handles), &[0, 1, 2]);
        let fed = session.placeholder(DType::Int64);
        let op = session.graph.op("TakeManySparseFromTensorsMap").input(&fed).attr("dtype", DType::Float);
        let take = op.attr("shared_name", "m").build();
        let outputs = session.run(&take, &[(&fed, Tensor::vector(&[2i64, 0]))]).unwrap();
        assert_eq!((ints(&outputs[0]), ints(&outputs[2])), (&[0, 0, 1, 1][..], &[2, 3][..]));
        assert!(session.run(&take, &[(&fed, Tensor::vector(&[2i64]))]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("SerializeManySparse", attrs![("out_type", DType::String)], "[?,2];[?];[2]", "[?,3]");
        check_shape("DeserializeSparse", attrs![("dtype", DType::Float)], "[?,3]", "[?,?];[?];[?]");
    }
}
