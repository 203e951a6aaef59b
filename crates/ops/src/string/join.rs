//! Joining strings: StringJoin, ReduceJoin, UnsortedSegmentJoin.

use bytes::{Bytes, BytesMut};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Status, StringElement, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "StringJoin",
            inputs: &["inputs: N * string"],
            outputs: &["output: string"],
            attrs: &["N: int >= 0", "separator: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: string_join_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(StringJoin { separator: separator(builder)? }))],
    },
    Op {
        def: OpDef {
            name: "ReduceJoin",
            inputs: &["inputs: string", "reduction_indices: int32"],
            outputs: &["output: string"],
            attrs: &["keep_dims: bool = false", "separator: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: reduce_join_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            let keep_dims = builder.attrs().bool("keep_dims")?;
            BoxedKernel::new(ReduceJoin { separator: separator(builder)?, keep_dims })
        })],
    },
    Op {
        def: OpDef {
            name: "UnsortedSegmentJoin",
            inputs: &["inputs: string", "segment_ids: Tindices", "num_segments: Tnumsegments"],
            outputs: &["output: string"],
            attrs: &["separator: string = ''", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: segment_join_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(SegmentJoin { separator: separator(builder)? }))],
    },
];

/// Joins the strings of several tensors, element by element; scalars are joined to every element.
#[track_caller]
pub fn string_join(inputs: &[Output], separator: &str) -> Output {
    let Some(first) = inputs.first() else {
        return graph::builder::mistaken_output(
            "StringJoin",
            tensor::Status::invalid_argument("string_join needs at least one tensor"),
        );
    };
    first.graph().op("StringJoin").inputs(inputs).attr("separator", separator).output()
}

fn separator(builder: &KernelBuilder<'_>) -> Result<Bytes> {
    Ok(builder.attrs().bytes("separator")?.clone())
}

fn string_join_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs: Vec<PartialShape> = (0..c.num_inputs()).map(|index| c.input(index)).collect();
    if inputs.iter().all(|shape| shape.rank() == Some(0)) {
        c.set_output(0, PartialShape::scalar());
        return Ok(());
    }
    let mut merged = PartialShape::unknown();
    for shape in &inputs {
        // An unknown rank may be a scalar, which doesn't affect the result's shape.
        if shape.rank().is_some_and(|rank| rank > 0) {
            merged = merged.merge(shape)?;
        }
    }
    c.set_output(0, merged);
    Ok(())
}

fn reduce_join_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, axes) = (c.input(0), c.input(1));
    let keep_dims = c.attrs.bool("keep_dims")?;
    if axes.num_elements() == Some(0) {
        c.set_output(0, input);
        return Ok(());
    }
    let (Some(dims), Some(axes)) = (input.dims(), c.constant(1)) else { return Ok(()) };
    let reduced = reduced_axes(&axes.to_indices()?, dims.len())?;
    let mut kept = Vec::with_capacity(dims.len());
    for (axis, &dim) in dims.iter().enumerate() {
        match (reduced.contains(&axis), keep_dims) {
            (false, _) => kept.push(dim),
            (true, true) => kept.push(Some(1)),
            (true, false) => {}
        }
    }
    c.set_output(0, PartialShape::new(&kept));
    Ok(())
}

fn segment_join_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (data, ids) = (c.input(0), c.input(1));
    c.with_rank(2, 0)?;
    let (Some(rank), Some(ids_rank)) = (data.rank(), ids.rank()) else { return Ok(()) };
    data.slice(0, ids_rank).merge(&ids)?;
    let segments = match c.constant(2) {
        Some(count) => Some(count.to_index()?).filter(|&count| count >= 0),
        None => None,
    };
    c.set_output(0, PartialShape::new(&[segments]).concat(&data.slice(ids_rank, rank)));
    Ok(())
}

fn reduced_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[usize; 8]>> {
    let axis = |&axis: &i64| {
        let wrapped = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        usize::try_from(wrapped).ok().filter(|&axis| axis < rank).ok_or_else(|| {
            Status::out_of_range(format!("Invalid reduction dimension {axis} for input with {rank} dimension(s)"))
        })
    };
    axes.iter().map(axis).collect()
}

/// Joins parts with a separator.
fn joined<'a>(parts: impl Iterator<Item = &'a StringElement> + Clone, separator: &[u8]) -> StringElement {
    let mut count = 0;
    let len: usize = parts.clone().inspect(|_| count += 1).map(|part| part.len()).sum();
    if count == 1 {
        return parts.clone().next().cloned().unwrap_or_default();
    }
    let mut out = BytesMut::with_capacity(len + separator.len() * (count as usize).saturating_sub(1));
    for (index, part) in parts.enumerate() {
        if index > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(part);
    }
    out.freeze()
}

struct StringJoin {
    separator: Bytes,
}

impl Kernel for StringJoin {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let inputs = context.input_list(0..context.num_inputs())?;
        let mut shape: Option<&Shape> = None;
        for input in inputs.iter().filter(|input| !input.shape().is_scalar()) {
            match shape {
                None => shape = Some(input.shape()),
                Some(known) if known == input.shape() => {}
                Some(known) => {
                    return Err(Status::invalid_argument(format!(
                        "Input shapes do not match: {known} vs. {}",
                        input.shape()
                    )));
                }
            }
        }
        let shape = shape.cloned().unwrap_or_default();
        let columns: SmallVec<[&[StringElement]; 8]> =
            inputs.iter().map(|input| input.strings()).collect::<Result<_>>()?;
        let row = |index: usize| {
            let at = move |column: &&'_ [StringElement]| if column.len() == 1 { 0 } else { index };
            joined(columns.iter().map(|column| &column[at(column)]), &self.separator)
        };
        let values = (0..shape.num_elements()).map(row).collect();
        let output = Tensor::from_strings(shape, values)?;
        drop(columns);
        drop(inputs);
        context.set_output(0, output);
        Ok(())
    }
}

struct ReduceJoin {
    separator: Bytes,
    keep_dims: bool,
}

impl Kernel for ReduceJoin {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, axes) = (context.input(0)?, context.input(1)?);
        let rank = input.shape().rank();
        let axes = reduced_axes(&axes.to_indices()?, rank)?;
        if let Some(axis) =
            axes.iter().enumerate().find_map(|(index, axis)| axes[..index].contains(axis).then_some(axis))
        {
            return Err(Status::invalid_argument(format!("Duplicate reduction dimension {axis}")));
        }
        if axes.is_empty() {
            let input = context.take_input(0)?;
            context.set_output(0, input);
            return Ok(());
        }
        let dims = input.shape().to_usize();
        let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(1, rank);
        for axis in (0..rank.saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * dims[axis + 1];
        }
        let kept: SmallVec<[usize; 8]> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
        let out_dims: SmallVec<[i64; 8]> = (0..rank)
            .filter(|axis| self.keep_dims || !axes.contains(axis))
            .map(|axis| if axes.contains(&axis) { 1 } else { dims[axis] as i64 })
            .collect();
        let shape = Shape::new(&out_dims)?;
        let strings = input.strings()?;
        // Among the joined axes the last one named varies slowest, so that names from left to right join from the inside.
        let offsets = positions(axes.iter().copied(), &dims, &strides);
        let starts = positions(kept.iter().rev().copied(), &dims, &strides);
        let join = |start: &usize| joined(offsets.iter().map(|offset| &strings[start + offset]), &self.separator);
        let output = Tensor::from_strings(shape, starts.iter().map(join).collect())?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the positions of all indices along some axes, of which the first varies fastest.
fn positions(axes: impl Iterator<Item = usize>, dims: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut positions = vec![0];
    for axis in axes {
        let inner = std::mem::take(&mut positions);
        positions = (0..dims[axis]).flat_map(|index| inner.iter().map(move |p| p + index * strides[axis])).collect();
    }
    positions
}

struct SegmentJoin {
    separator: Bytes,
}

impl Kernel for SegmentJoin {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (data, ids) = (context.input(0)?, context.input(1)?);
        let count = context.input(2)?;
        if !count.shape().is_scalar() {
            return Err(Status::invalid_argument(format!(
                "Number of segments must be a scalar, got {}",
                count.shape()
            )));
        }
        let count = count.to_index()?;
        let rank = ids.shape().rank();
        if rank == 0 || rank > data.shape().rank() || data.dims()[..rank] != *ids.dims() {
            return Err(Status::invalid_argument(format!(
                "segment_ids must have shape a prefix of the data's: {} vs. {}",
                ids.shape(),
                data.shape()
            )));
        }
        if count < 0 {
            return Err(Status::invalid_argument(format!("Number of segments must be non-negative but got {count}")));
        }
        let row_shape = data.shape().slice(rank, data.shape().rank());
        let shape = Shape::new(&[count])?.concat(&row_shape)?;
        let inner = row_shape.num_elements();
        let strings = data.strings()?;
        let mut members: Vec<Vec<usize>> = Vec::new();
        shape.num_bytes(size_of::<StringElement>())?;
        members.resize_with(count as usize, Vec::new);
        for (row, id) in ids.to_indices()?.into_iter().enumerate() {
            let segment = usize::try_from(id)
                .ok()
                .and_then(|id| members.get_mut(id))
                .ok_or_else(|| Status::invalid_argument(format!(
                        "segment_ids are not allowed to exceed num_segments or to have negative values. Segment id {id} is out \
                         of range [0, {count})"
                    )))?;
            segment.push(row);
        }
        let mut values = Vec::with_capacity(shape.num_elements());
        for rows in &members {
            for column in 0..inner {
                values.push(joined(rows.iter().map(|row| &strings[row * inner + column]), &self.separator));
            }
        }
        let output = Tensor::from_strings(shape, values)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, infer, run_op};
    use tensor::{DType, Result, Shape, Tensor};

    fn texts(dims: &[i64], texts: &[&'static str]) -> Tensor {
        Tensor::from_strings(Shape::new(dims).unwrap(), texts.iter().map(|&text| text.into()).collect()).unwrap()
    }

    fn shown(tensor: &Tensor) -> Vec<String> {
        tensor.strings().unwrap().iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    #[test]
    fn joins() {
        let y = run_op("StringJoin", attrs![("separator", "-")], &[Tensor::string("a"), texts(&[2], &["b", "c"])]);
        assert_eq!(shown(&y.unwrap()[0]), ["a-b", "a-c"]);
        let y = run_op("StringJoin", attrs![], &[texts(&[2], &["a", "b"]), texts(&[2], &["c", ""])]).unwrap();
        assert_eq!(shown(&y[0]), ["ac", "b"]);
        assert!(run_op("StringJoin", attrs![], &[texts(&[1], &["a"]), texts(&[2], &["b", "c"])]).is_err());
        check_shape("StringJoin", attrs![("N", 3i64)], "[];[2,?];[?,3]", "[2,3]");
    }

    /// The answers are TensorFlow's.
    #[test]
    fn reduces() {
        let reduce = |axes: &[i32], keep_dims: bool| -> Result<(Vec<String>, Vec<i64>)> {
            let attrs = attrs![("separator", "."), ("keep_dims", keep_dims)];
            let inputs = [texts(&[2, 2], &["a", "b", "c", "d"]), Tensor::vector(axes)];
            let y = run_op("ReduceJoin", attrs, &inputs)?;
            Ok((shown(&y[0]), y[0].dims().to_vec()))
        };
        let answer = |texts: &[&str], dims: &[i64]| (texts.iter().map(|s| s.to_string()).collect(), dims.to_vec());
        assert_eq!(reduce(&[0], false).unwrap(), answer(&["a.c", "b.d"], &[2]));
        assert_eq!(reduce(&[-1], false).unwrap(), answer(&["a.b", "c.d"], &[2]));
        assert_eq!(reduce(&[0, 1], false).unwrap(), answer(&["a.c.b.d"], &[]));
        assert_eq!(reduce(&[1, 0], true).unwrap(), answer(&["a.b.c.d"], &[1, 1]));
        assert_eq!(reduce(&[0], true).unwrap(), answer(&["a.c", "b.d"], &[1, 2]));
        assert_eq!(reduce(&[], false).unwrap(), answer(&["a", "b", "c", "d"], &[2, 2]));
        assert!(reduce(&[2], false).is_err());
        assert!(reduce(&[0, -2], false).is_err());
        let empty = run_op("ReduceJoin", attrs![], &[texts(&[2, 0], &[]), Tensor::vector(&[1i32])]).unwrap();
        assert_eq!(shown(&empty[0]), ["", ""]);
        let shape = infer("ReduceJoin", attrs![("keep_dims", true)], "[2,?];[1]", &[(1, Tensor::vector(&[1i32]))]);
        assert_eq!(shape.unwrap()[0].to_string(), "[2,1]");
    }

    #[test]
    fn segments() {
        let attrs = || attrs![("separator", ":")];
        let inputs = [texts(&[4], &["a", "b", "c", "d"]), Tensor::vector(&[1i32, 0, 1, 2]), Tensor::scalar(4i32)];
        assert_eq!(shown(&run_op("UnsortedSegmentJoin", attrs(), &inputs).unwrap()[0]), ["b", "a:c", "d", ""]);
        let inputs = [texts(&[2, 2], &["a", "b", "c", "d"]), Tensor::vector(&[1i64, 1]), Tensor::scalar(2i64)];
        assert_eq!(shown(&run_op("UnsortedSegmentJoin", attrs(), &inputs).unwrap()[0]), ["", "", "a:c", "b:d"]);
        for id in [-1i32, 5] {
            let inputs = [texts(&[1], &["a"]), Tensor::vector(&[id]), Tensor::scalar(2i32)];
            assert!(run_op("UnsortedSegmentJoin", attrs(), &inputs).is_err());
        }
        let types = attrs![("Tindices", DType::Int32), ("Tnumsegments", DType::Int32)];
        let shape = infer("UnsortedSegmentJoin", types, "[4,?];[4];[]", &[(2, Tensor::scalar(3i32))]).unwrap();
        assert_eq!(shape[0].to_string(), "[3,?]");
    }
}
