//! Ragged tensors as elements of variant tensors, for datasets, lists and functions: RaggedTensorToVariant,
//! RaggedTensorFromVariant.

use super::splits::{nested_splits, splits_tensor};
use crate::compose::constant;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use std::any::Any;
use tensor::{
    DType, PartialShape, Result, Shape, Status, Tensor, Variant, VariantValue, tensor_from_proto, tensor_to_proto,
};

const TYPE_NAME: &str = "RaggedTensorVariant";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RaggedTensorToVariant",
            inputs: &["rt_nested_splits: RAGGED_RANK * Tsplits", "rt_dense_values: Tvalues"],
            outputs: &["encoded_ragged: variant"],
            attrs: &[
                "RAGGED_RANK: int >= 0",
                "Tvalues: type",
                "Tsplits: {int32, int64} = DT_INT64",
                "batched_input: bool",
            ],
            flags: OpFlags::NONE,
        },
        shape: to_variant_shape,
        gradient: Gradient::Fn(to_variant_gradient),
        kernels: &[KernelDef::any(ToVariant::create)],
    },
    Op {
        def: OpDef {
            name: "RaggedTensorFromVariant",
            inputs: &["encoded_ragged: variant"],
            outputs: &["output_nested_splits: output_ragged_rank * Tsplits", "output_dense_values: Tvalues"],
            attrs: &[
                "input_ragged_rank: int >= -1",
                "output_ragged_rank: int >= 0",
                "Tvalues: type",
                "Tsplits: {int32, int64} = DT_INT64",
            ],
            flags: OpFlags::NONE,
        },
        shape: from_variant_shape,
        gradient: Gradient::Fn(from_variant_gradient),
        kernels: &[KernelDef::any(FromVariant::create)],
    },
    Op {
        def: OpDef {
            name: "RaggedTensorToVariantGradient",
            inputs: &["encoded_ragged_grad: variant", "row_splits: Tsplits", "dense_values_shape: int32"],
            outputs: &["dense_values_grad: Tvalues"],
            attrs: &["Tvalues: type", "Tsplits: {int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.constant_as_shape(2)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(ToVariantGradient::create)],
    },
];

fn to_variant_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let count = c.num_inputs() - 1;
    for index in 0..count {
        c.with_rank(index, 1)?;
    }
    if count > 0 {
        let values = c.input(count);
        if values.rank() == Some(0) {
            return Err(Status::invalid_argument("Shape must be at least rank 1 but is rank 0"));
        }
    }
    let rows = match (c.attrs.bool("batched_input")?, count) {
        (false, _) => PartialShape::scalar(),
        (true, 0) => PartialShape::new(&[c.input(0).dim(0)]),
        (true, _) => PartialShape::new(&[c.input(0).dim(0).map(|splits| splits - 1)]),
    };
    c.set_output(0, rows);
    Ok(())
}

fn from_variant_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input_rank, output_rank) = (c.attrs.int("input_ragged_rank")?, c.attrs.int("output_ragged_rank")?);
    let encoded = c.input(0);
    if input_rank >= 0
        && let Some(rank) = encoded.rank()
        && rank as i64 + input_rank != output_rank
    {
        return Err(Status::invalid_argument(format!(
            "encoded_ragged must have rank {}, got {rank}",
            output_rank - input_rank
        )));
    }
    let last = c.num_outputs() - 1;
    for index in 0..last {
        c.set_output(index, PartialShape::unknown_of_rank(1));
    }
    c.set_output(last, PartialShape::unknown());
    Ok(())
}

/// The gradient of the flat values consists of the gradients of the rows.
fn to_variant_gradient(args: &kernel::GradientArgs<'_>) -> crate::compose::Gradients {
    let count = args.op.num_inputs() - 1;
    let mut gradients = vec![None; count];
    let Some(grad) = args.grad(0) else {
        gradients.push(None);
        return Ok(gradients);
    };
    let (values, graph) = (args.input(count), grad.graph());
    let shape = crate::compose::shape_of(&values)?;
    let splits = match count {
        0 => constant(graph, &Tensor::vector::<i64>(&[]))?,
        _ => args.input(0),
    };
    let made =
        graph.op("RaggedTensorToVariantGradient").inputs([&grad, &splits, &shape]).attr("Tvalues", values.dtype());
    gradients.push(Some(made.try_build()?.output(0).into()));
    Ok(gradients)
}

/// The gradient of the variant is the gradient of the flat values, with the op's output splits.
fn from_variant_gradient(args: &kernel::GradientArgs<'_>) -> crate::compose::Gradients {
    let splits = args.op.attrs().int("output_ragged_rank")? as u32;
    let Some(grad) = args.grad(splits as usize) else { return Ok(vec![None]) };
    let batched = match args.input(0).shape().rank() {
        Some(0) => false,
        Some(1) => true,
        None => splits > 0,
        Some(rank) => {
            return Err(Status::unimplemented(format!(
                "RaggedTensorFromVariant has a gradient for variants of rank 0 and 1 only, got rank {rank}"
            )));
        }
    };
    let outputs: Vec<_> = (0..splits).map(|index| args.output(index)).collect();
    let made = grad.graph().op("RaggedTensorToVariant").inputs(&outputs).input(&grad);
    let made = made.attr("RAGGED_RANK", i64::from(splits)).attr("batched_input", batched);
    let made = made.attr("Tsplits", args.op.attrs().dtype("Tsplits")?);
    Ok(vec![Some(made.try_build()?.output(0).into())])
}

/// A ragged tensor, or a plain one if there are no splits.
#[derive(Clone)]
struct Ragged {
    /// Each rises from zero to the number of rows of the next, and the last to the number of values.
    splits: Vec<Vec<i64>>,
    split_dtype: DType,
    values: Tensor,
}

impl VariantValue for Ragged {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        let splits = self.splits.iter().map(|splits| tensor_to_proto(&splits_tensor(self.split_dtype, splits)?));
        let tensors = splits.chain([tensor_to_proto(&self.values)]).collect::<Result<_>>()?;
        Ok(proto::VariantTensorDataProto { type_name: TYPE_NAME.to_owned(), tensors, ..Default::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Ragged {
    fn of(variant: &Variant, index: usize) -> Result<Ragged> {
        if let Some(ragged) = variant.downcast_ref::<Ragged>() {
            return Ok(ragged.clone());
        }
        let foreign = || {
            Status::invalid_argument(format!(
                "Input Variant element at index {index} doesn't hold a RaggedTensorVariant: {}",
                variant.type_name()
            ))
        };
        let Variant::Encoded(encoded) = variant else { return Err(foreign()) };
        let tensors = encoded.tensors.iter().map(tensor_from_proto).collect::<Result<Vec<_>>>()?;
        let Some((values, splits)) = tensors.split_last().filter(|_| encoded.type_name == TYPE_NAME) else {
            return Err(foreign());
        };
        let split_dtype = splits.first().map_or(DType::Int64, Tensor::dtype);
        let splits: Vec<Vec<i64>> = splits.iter().map(Tensor::to_indices).collect::<Result<_>>()?;
        let ragged = Ragged { splits, split_dtype, values: values.clone() };
        ragged.check()?;
        Ok(ragged)
    }

    /// Checks a ragged tensor of unknown origin.
    fn check(&self) -> Result<()> {
        let malformed = || Status::invalid_argument("a malformed RaggedTensorVariant");
        for (level, splits) in self.splits.iter().enumerate() {
            let rows = match self.splits.get(level + 1) {
                Some(next) => next.len() as i64 - 1,
                None => *self.values.dims().first().ok_or_else(malformed)?,
            };
            if splits.first() != Some(&0) || !splits.is_sorted() || splits.last() != Some(&rows) {
                return Err(malformed());
            }
        }
        Ok(())
    }

    /// Returns how many rows there are.
    fn rows(&self) -> Result<i64> {
        match self.splits.first() {
            Some(splits) => Ok(splits.len() as i64 - 1),
            None => self.values.dims().first().copied().ok_or_else(|| {
                Status::invalid_argument("Ragged values must have rank >= 1; encoded_ragged_element_value is a scalar")
            }),
        }
    }

    /// Returns one of the rows, which has one ragged dimension less.
    fn row(&self, row: usize) -> Result<Ragged> {
        let (mut from, mut to) = (row, row + 1);
        let mut splits = Vec::with_capacity(self.splits.len().saturating_sub(1));
        for (level, all) in self.splits.iter().enumerate() {
            if level > 0 {
                let start = all[from];
                splits.push(all[from..=to].iter().map(|split| split - start).collect());
            }
            (from, to) = (all[from] as usize, all[to] as usize);
        }
        let values = self.values.slice_rows(from, to)?;
        let values = match self.splits.is_empty() {
            true => {
                let shape: Shape = values.shape().slice(1, values.shape().rank());
                values.into_shape(shape)?
            }
            false => values,
        };
        Ok(Ragged { splits, split_dtype: self.split_dtype, values })
    }
}

/// Returns a ragged tensor of one ragged dimension in the form that datasets use.
pub(crate) fn ragged_variant(splits: &Tensor, values: Tensor) -> Result<Tensor> {
    let ragged = Ragged { splits: vec![splits.to_indices()?], split_dtype: splits.dtype(), values };
    Ok(Tensor::variant(Variant::new(ragged)))
}

struct ToVariant {
    count: usize,
    is_batched: bool,
    split_dtype: DType,
}

impl ToVariant {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let count = builder.input_range("rt_nested_splits")?.len();
        let attrs = builder.attrs();
        let kernel =
            ToVariant { count, is_batched: attrs.bool("batched_input")?, split_dtype: attrs.dtype("Tsplits")? };
        BoxedKernel::new(kernel)
    }
}

impl Kernel for ToVariant {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let values = context.input(self.count)?.clone();
        let splits = match self.count {
            0 => Vec::new(),
            count => nested_splits(context, 0..count, &values)?,
        };
        let ragged = Ragged { splits, split_dtype: self.split_dtype, values };
        let output = match self.is_batched {
            false => Tensor::variant(Variant::new(ragged)),
            true => {
                let rows = ragged.rows()?;
                let parts = (0..rows as usize).map(|row| Ok(Variant::new(ragged.row(row)?)));
                Tensor::from_variants(Shape::vector(rows as usize), parts.collect::<Result<_>>()?)?
            }
        };
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

struct FromVariant {
    input_rank: i64,
    output_rank: usize,
    values_dtype: DType,
    split_dtype: DType,
}

impl FromVariant {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(FromVariant {
            input_rank: attrs.int("input_ragged_rank")?,
            output_rank: attrs.int("output_ragged_rank")?.max(0) as usize,
            values_dtype: attrs.dtype("Tvalues")?,
            split_dtype: attrs.dtype("Tsplits")?,
        })
    }

    /// Concatenates the parts of a tensor of ragged tensors.
    fn stacked(&self, encoded: &Tensor, parts: &[Ragged], inner: usize) -> Result<(Vec<Vec<i64>>, Tensor)> {
        let mut splits: Vec<Vec<i64>> = Vec::with_capacity(self.output_rank);
        let dims = encoded.dims();
        let mut rows = 1usize;
        for pair in dims.windows(2) {
            // Sizes of an existing tensor can't overflow.
            rows *= pair[0] as usize;
            splits.push((0..=rows as i64).map(|row| row * pair[1]).collect());
        }
        let mut outer = vec![0];
        for part in parts {
            outer.push(outer[outer.len() - 1] + part.rows()?);
        }
        splits.push(outer);
        for level in 0..inner {
            let mut all = vec![0];
            for part in parts {
                let start = all[all.len() - 1];
                all.extend(part.splits[level][1..].iter().map(|split| split + start));
            }
            splits.push(all);
        }
        let values: Vec<&Tensor> = parts.iter().map(|part| &part.values).collect();
        let Some(first) = values.first() else {
            return Ok((splits, Tensor::zeros(self.values_dtype, Shape::vector(0))?));
        };
        let inner_shape: Shape = first.shape().slice(1, first.shape().rank());
        let count = values.iter().map(|value| value.dims().first().copied().unwrap_or(0)).sum();
        for (index, value) in values.iter().enumerate() {
            if value.shape().rank() != first.shape().rank() {
                return Err(Status::invalid_argument(format!(
                    "Rank of values must match for all components; values shape at index 0: {}, values shape at index \
                     {index}: {}",
                    first.shape(),
                    value.shape()
                )));
            }
            if value.shape().slice(1, value.shape().rank()) != inner_shape {
                return Err(Status::invalid_argument(format!(
                    "Shape of values must match for all components except in the first dimension; values shape at index 0: \
                     {}, values shape at index {index}: {}",
                    first.shape(),
                    value.shape()
                )));
            }
        }
        Ok((splits, crate::array::join(&values, 0, first.shape().with_dim(0, count)?)?))
    }
}

impl Kernel for FromVariant {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let encoded = context.input(0)?.clone();
        let rank = encoded.shape().rank();
        let inner = match self.input_rank {
            -1 => self.output_rank.checked_sub(rank).ok_or_else(|| {
                Status::invalid_argument(format!(
                    "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, found \
                     output_ragged_rank: {}, encoded_variant.dims(): {rank}, inferred input_ragged_rank: {}",
                    self.output_rank,
                    self.output_rank as i64 - rank as i64
                ))
            })?,
            inner => inner.max(0) as usize,
        };
        if rank + inner != self.output_rank {
            return Err(Status::invalid_argument(format!(
                "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(): output_ragged_rank: {}, \
                 input_ragged_rank: {inner}, encoded_variant.dims(): {rank}",
                self.output_rank
            )));
        }
        let parts = encoded.variants()?.iter().enumerate();
        let parts = parts.map(|(index, variant)| Ragged::of(variant, index)).collect::<Result<Vec<_>>>()?;
        for (index, part) in parts.iter().enumerate() {
            if part.splits.len() != inner {
                return Err(Status::invalid_argument(format!(
                    "Encoded input RaggedTensorVariant has ragged_rank={}.  Expected ragged_rank={inner}.",
                    part.splits.len()
                )));
            }
            if part.values.dtype() != self.values_dtype {
                return Err(Status::invalid_argument(format!(
                    "Expected values Tensor dtype: {}, found: {}",
                    self.values_dtype,
                    part.values.dtype()
                )));
            }
            if inner > 0 && part.split_dtype != self.split_dtype {
                return Err(Status::invalid_argument(format!(
                    "Expected row_splits Tensor dtype: {}, found: {} at index {index}",
                    self.split_dtype, part.split_dtype
                )));
            }
        }
        let (splits, values) = match (rank, &parts[..]) {
            (0, [only]) => (only.splits.clone(), only.values.clone()),
            _ => self.stacked(&encoded, &parts, inner)?,
        };
        for (index, splits) in splits.iter().enumerate() {
            let splits = splits_tensor(self.split_dtype, splits)?;
            context.set_output(index, splits);
        }
        context.set_output(self.output_rank, values);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

struct ToVariantGradient {
    dtype: DType,
}

impl ToVariantGradient {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ToVariantGradient { dtype: builder.attrs().dtype("Tvalues")? })
    }
}

impl Kernel for ToVariantGradient {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let encoded = context.input(0)?.clone();
        let shape = Shape::new(&context.input(2)?.to_indices()?)?;
        let row_splits = context.input(1)?.to_indices()?;
        let parts = encoded.variants()?.iter().enumerate();
        // A row that nothing depends on has no gradient.
        let parts = parts.map(|(index, variant)| match variant {
            Variant::Empty => Ok(None),
            other => Ragged::of(other, index).map(Some),
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let row_shape: Shape = match shape.rank() {
            0 => Shape::scalar(),
            rank => shape.slice(1, rank),
        };
        let lengths: Vec<i64> = match row_splits.len() {
            0 => vec![1; parts.len()],
            _ => row_splits.windows(2).map(|pair| pair[1] - pair[0]).collect(),
        };
        if encoded.shape().is_scalar() {
            let Some(Some(part)) = parts.into_iter().next() else {
                context.set_output(0, Tensor::zeros(self.dtype, shape)?);
                return Ok(());
            };
            let values = part.values.into_shape(shape)?;
            context.set_output(0, values);
            return Ok(());
        }
        if lengths.len() != parts.len() || lengths.iter().any(|&length| length < 0) {
            return Err(Status::invalid_argument("row_splits don't fit the number of encoded gradients"));
        }
        let mut rows = Vec::with_capacity(parts.len());
        let row_elements = row_shape.num_elements() as i64;
        for (part, &length) in parts.into_iter().zip(&lengths) {
            // A gradient with splits of its own has as many rows as its innermost splits say, and the row splits are the outermost.
            let count = part.as_ref().map_or(0, |part| part.values.shape().num_elements() as i64);
            let count = if part.is_none() || row_elements == 0 { length } else { count / row_elements };
            let wanted = Shape::vector(1).with_dim(0, count)?.concat(&row_shape)?;
            rows.push(match part {
                Some(part) => part.values.into_shape(wanted)?,
                None => Tensor::zeros(self.dtype, wanted)?,
            });
        }
        let count: usize = rows.iter().map(|row| row.shape().size(0)).sum();
        if shape.rank() == 0 || count != shape.size(0) {
            return Err(Status::invalid_argument(format!(
                "the encoded gradients have {count} rows, and the values the shape {shape}"
            )));
        }
        if rows.iter().any(|row| row.dtype() != self.dtype) {
            return Err(Status::invalid_argument(format!("Expected values Tensor dtype: {}", self.dtype)));
        }
        let rows: Vec<&Tensor> = rows.iter().collect();
        let output = match rows.is_empty() {
            true => Tensor::zeros(self.dtype, shape)?,
            false => crate::array::join(&rows, 0, shape)?,
        };
        context.set_output(0, output);
        Ok(())
    }
}
