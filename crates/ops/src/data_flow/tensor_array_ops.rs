//! Ops on tensor arrays, in three versions, which take the array as a ref to two strings, as strings, or as a resource.

use super::tensor_array_grad::{concat_gradient, gather_gradient, read_gradient, split_gradient, write_gradient};
use super::tensor_array_kernels::{CLOSE, CONCAT, GATHER, MAKE, MAKE_GRADIENT, READ, SCATTER, SIZE, SPLIT, WRITE};
use graph::{Graph, Operation, Output};
use kernel::{Gradient, KernelDef, Op, OpDef, OpFlags, ShapeContext, ShapeFn, shape};
use tensor::{DType, DTypeAndShape, PartialShape, Result};

const REF: &str = "handle: Ref(string)";
const STRING: &str = "handle: string";
const RESOURCE: &str = "handle: resource";
const FLOW_IN: &str = "flow_in: float";
const FLOW_OUT: &[&str] = &["flow_out: float"];
const VALUE: &[&str] = &["value: dtype"];
const VALUE_AND_LENGTHS: &[&str] = &["value: dtype", "lengths: int64"];
const SIZE_OUT: &[&str] = &["size: int32"];
const T: &[&str] = &["T: type"];
const DTYPE: &[&str] = &["dtype: type"];
const WITH_SHAPE: &[&str] = &["dtype: type", "element_shape: shape = { unknown_rank: true }"];
const WITH_SHAPE_EXCEPT0: &[&str] = &["dtype: type", "element_shape_except0: shape = { unknown_rank: true }"];
const SOURCE: &[&str] = &["source: string"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    maker(
        "TensorArray",
        &["size: int32"],
        &[REF],
        &[
            "dtype: type",
            "dynamic_size: bool = false",
            "clear_after_read: bool = true",
            "tensor_array_name: string = ''",
            "element_shape: shape = { unknown_rank: true }",
        ],
        MAKE,
    ),
    maker(
        "TensorArrayV2",
        &["size: int32"],
        &[STRING],
        &[
            "dtype: type",
            "element_shape: shape = { unknown_rank: true }",
            "dynamic_size: bool = false",
            "clear_after_read: bool = true",
            "tensor_array_name: string = ''",
        ],
        MAKE,
    ),
    maker(
        "TensorArrayV3",
        &["size: int32"],
        &[RESOURCE, "flow: float"],
        &[
            "dtype: type",
            "element_shape: shape = { unknown_rank: true }",
            "dynamic_size: bool = false",
            "clear_after_read: bool = true",
            "identical_element_shapes: bool = false",
            "tensor_array_name: string = ''",
        ],
        MAKE,
    ),
    maker("TensorArrayGrad", &[STRING, FLOW_IN], &["grad_handle: Ref(string)"], SOURCE, MAKE_GRADIENT),
    maker("TensorArrayGradV2", &[STRING, FLOW_IN], &["grad_handle: string"], SOURCE, MAKE_GRADIENT),
    maker(
        "TensorArrayGradV3",
        &[RESOURCE, FLOW_IN],
        &["grad_handle: resource", "flow_out: float"],
        SOURCE,
        MAKE_GRADIENT,
    ),
    maker(
        "TensorArrayGradWithShape",
        &[RESOURCE, FLOW_IN, "shape_to_prepend: int32"],
        &["grad_handle: resource", "flow_out: float"],
        SOURCE,
        MAKE_GRADIENT,
    ),
    user(
        "TensorArrayWrite",
        &[REF, "index: int32", "value: T", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        WRITE_GRAD,
        WRITE,
    ),
    user(
        "TensorArrayWriteV2",
        &[STRING, "index: int32", "value: T", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        WRITE_GRAD,
        WRITE,
    ),
    user(
        "TensorArrayWriteV3",
        &[RESOURCE, "index: int32", "value: T", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        WRITE_GRAD,
        WRITE,
    ),
    user("TensorArrayRead", &[REF, "index: int32", FLOW_IN], VALUE, DTYPE, read_shape, READ_GRAD, READ),
    user("TensorArrayReadV2", &[STRING, "index: int32", FLOW_IN], VALUE, DTYPE, read_shape, READ_GRAD, READ),
    user("TensorArrayReadV3", &[RESOURCE, "index: int32", FLOW_IN], VALUE, DTYPE, read_shape, READ_GRAD, READ),
    user("TensorArrayGather", &[REF, "indices: int32", FLOW_IN], VALUE, WITH_SHAPE, gather_shape, GATHER_GRAD, GATHER),
    user(
        "TensorArrayGatherV2",
        &[STRING, "indices: int32", FLOW_IN],
        VALUE,
        WITH_SHAPE,
        gather_shape,
        GATHER_GRAD,
        GATHER,
    ),
    user(
        "TensorArrayGatherV3",
        &[RESOURCE, "indices: int32", FLOW_IN],
        VALUE,
        WITH_SHAPE,
        gather_shape,
        GATHER_GRAD,
        GATHER,
    ),
    user("TensorArrayPack", &[REF, FLOW_IN], VALUE, WITH_SHAPE, shape::unknown, Gradient::Unsupported, GATHER),
    user(
        "TensorArrayScatter",
        &[REF, "indices: int32", "value: T", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        WRITE_GRAD,
        SCATTER,
    ),
    user(
        "TensorArrayScatterV2",
        &[STRING, "indices: int32", "value: T", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        WRITE_GRAD,
        SCATTER,
    ),
    user(
        "TensorArrayScatterV3",
        &[RESOURCE, "indices: int32", "value: T", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        WRITE_GRAD,
        SCATTER,
    ),
    user("TensorArrayUnpack", &[REF, "value: T", FLOW_IN], FLOW_OUT, T, shape::scalar, Gradient::Unsupported, SCATTER),
    user(
        "TensorArrayConcat",
        &[REF, FLOW_IN],
        VALUE_AND_LENGTHS,
        WITH_SHAPE_EXCEPT0,
        concat_shape,
        CONCAT_GRAD,
        CONCAT,
    ),
    user(
        "TensorArrayConcatV2",
        &[STRING, FLOW_IN],
        VALUE_AND_LENGTHS,
        WITH_SHAPE_EXCEPT0,
        concat_shape,
        CONCAT_GRAD,
        CONCAT,
    ),
    user(
        "TensorArrayConcatV3",
        &[RESOURCE, FLOW_IN],
        VALUE_AND_LENGTHS,
        WITH_SHAPE_EXCEPT0,
        concat_shape,
        CONCAT_GRAD,
        CONCAT,
    ),
    user(
        "TensorArraySplit",
        &[REF, "value: T", "lengths: int64", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        SPLIT_GRAD,
        SPLIT,
    ),
    user(
        "TensorArraySplitV2",
        &[STRING, "value: T", "lengths: int64", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        SPLIT_GRAD,
        SPLIT,
    ),
    user(
        "TensorArraySplitV3",
        &[RESOURCE, "value: T", "lengths: int64", FLOW_IN],
        FLOW_OUT,
        T,
        shape::scalar,
        SPLIT_GRAD,
        SPLIT,
    ),
    user("TensorArraySize", &[REF, FLOW_IN], SIZE_OUT, &[], shape::scalar, Gradient::NotDifferentiable, SIZE),
    user("TensorArraySizeV2", &[STRING, FLOW_IN], SIZE_OUT, &[], shape::scalar, Gradient::NotDifferentiable, SIZE),
    user("TensorArraySizeV3", &[RESOURCE, FLOW_IN], SIZE_OUT, &[], shape::scalar, Gradient::NotDifferentiable, SIZE),
    user("TensorArrayClose", &[REF], &[], &[], shape::unknown, Gradient::NotDifferentiable, CLOSE),
    user("TensorArrayCloseV2", &[STRING], &[], &[], shape::unknown, Gradient::NotDifferentiable, CLOSE),
    user("TensorArrayCloseV3", &[RESOURCE], &[], &[], shape::unknown, Gradient::NotDifferentiable, CLOSE),
];

const WRITE_GRAD: Gradient = Gradient::Fn(write_gradient);
const READ_GRAD: Gradient = Gradient::Fn(read_gradient);
const GATHER_GRAD: Gradient = Gradient::Fn(gather_gradient);
const CONCAT_GRAD: Gradient = Gradient::Fn(concat_gradient);
const SPLIT_GRAD: Gradient = Gradient::Fn(split_gradient);

const fn maker(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    kernels: &'static [KernelDef],
) -> Op {
    Op {
        def: OpDef { name, inputs, outputs, attrs, flags: OpFlags::STATEFUL },
        shape: maker_shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

/// An op on a tensor array; only those by resource are stateful.
const fn user(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    gradient: Gradient,
    kernels: &'static [KernelDef],
) -> Op {
    let flags = if name.as_bytes()[name.len() - 1] == b'3' { OpFlags::STATEFUL } else { OpFlags::NONE };
    Op { def: OpDef { name, inputs, outputs, attrs, flags }, shape, gradient, kernels }
}

/// Returns a tensor array and its flow, which orders the operations on it.
#[track_caller]
pub fn tensor_array_v3(
    graph: &Graph,
    size: &Output,
    dtype: DType,
    element_shape: &PartialShape,
    dynamic_size: bool,
) -> (Output, Output) {
    let op = graph.op("TensorArrayV3").input(size).attr("dtype", dtype).attr("element_shape", element_shape.clone());
    let op = op.attr("dynamic_size", dynamic_size).build();
    (op.output(0), op.output(1))
}

/// Writes an element, and returns the flow after that.
#[track_caller]
pub fn tensor_array_write(handle: &Output, index: &Output, value: &Output, flow: &Output) -> Output {
    handle.graph().op("TensorArrayWriteV3").input(handle).input(index).input(value).input(flow).output()
}

/// Reads an element.
#[track_caller]
pub fn tensor_array_read(handle: &Output, index: &Output, flow: &Output, dtype: DType) -> Output {
    handle.graph().op("TensorArrayReadV3").input(handle).input(index).input(flow).attr("dtype", dtype).output()
}

/// Reads elements, which must have the same shape, and stacks them along a new first axis.
#[track_caller]
pub fn tensor_array_gather(
    handle: &Output,
    indices: &Output,
    flow: &Output,
    dtype: DType,
    element_shape: &PartialShape,
) -> Output {
    let op = handle.graph().op("TensorArrayGatherV3").input(handle).input(indices).input(flow);
    op.attr("dtype", dtype).attr("element_shape", element_shape.clone()).output()
}

/// Writes the rows of a tensor as elements, and returns the flow after that.
#[track_caller]
pub fn tensor_array_scatter(handle: &Output, indices: &Output, value: &Output, flow: &Output) -> Output {
    handle.graph().op("TensorArrayScatterV3").input(handle).input(indices).input(value).input(flow).output()
}

/// Returns all elements concatenated along their first axis, and the number of rows of each.
#[track_caller]
pub fn tensor_array_concat(handle: &Output, flow: &Output, dtype: DType) -> (Output, Output) {
    let op = handle.graph().op("TensorArrayConcatV3").input(handle).input(flow).attr("dtype", dtype).build();
    (op.output(0), op.output(1))
}

/// Splits a tensor into elements with these numbers of rows, and returns the flow after that.
#[track_caller]
pub fn tensor_array_split(handle: &Output, value: &Output, lengths: &Output, flow: &Output) -> Output {
    handle.graph().op("TensorArraySplitV3").input(handle).input(value).input(lengths).input(flow).output()
}

/// Returns the number of elements of a tensor array.
#[track_caller]
pub fn tensor_array_size(handle: &Output, flow: &Output) -> Output {
    handle.graph().op("TensorArraySizeV3").input(handle).input(flow).output()
}

/// Drops the elements of a tensor array.
#[track_caller]
pub fn tensor_array_close(handle: &Output) -> Operation {
    handle.graph().op("TensorArrayCloseV3").input(handle).build()
}

fn maker_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::from_dims(&[2]));
    c.set_output(1, PartialShape::scalar());
    if c.schema.name == "TensorArrayV3" {
        let (dtype, shape) = (c.attrs.dtype("dtype")?, c.attrs.shape("element_shape")?);
        if shape.is_fully_defined() || c.attrs.bool("identical_element_shapes")? {
            c.output_handles[0] = vec![DTypeAndShape { dtype, shape }];
        }
    } else if c.schema.name == "TensorArrayGradV3" && !c.output_handles.is_empty() {
        c.output_handles[0] = c.input_handles.first().cloned().unwrap_or_default();
    }
    Ok(())
}

fn element_shape(c: &ShapeContext<'_>) -> PartialShape {
    let data = c.input_handles.first().and_then(|data| data.first());
    data.map_or_else(PartialShape::unknown, |data| data.shape.clone())
}

fn read_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = element_shape(c);
    c.set_output(0, shape);
    Ok(())
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let indices = c.with_rank(1, 1)?;
    let element = element_shape(c).merge(&c.attrs.shape("element_shape")?)?;
    c.set_output(0, indices.concat(&element));
    Ok(())
}

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(1, PartialShape::new(&[None]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestSession;
    use tensor::{Result, Tensor};

    struct Array {
        session: TestSession,
        handle: Output,
        value: Tensor,
        flow: Output,
        index: Output,
        element: Output,
    }

    impl Array {
        fn new(size: i32, dynamic_size: bool, clear_after_read: bool) -> Array {
            let session = TestSession::new();
            let size_input = session.placeholder(DType::Int32);
            let op = session.graph.op("TensorArrayV3").input(&size_input).attr("dtype", DType::Float);
            let op = op.attr("dynamic_size", dynamic_size).attr("clear_after_read", clear_after_read).build();
            let value = session.run(&op, &[(&size_input, Tensor::scalar(size))]).unwrap().remove(0);
            let (index, element) = (session.placeholder(DType::Int32), session.placeholder(DType::Float));
            let flow = session.placeholder(DType::Float);
            Array { handle: op.output(0), value, flow, index, element, session }
        }

        fn run(&self, output: &Output, index: Tensor, element: Tensor) -> Result<Tensor> {
            let feeds = [
                (&self.handle, self.value.clone()),
                (&self.flow, Tensor::scalar(0f32)),
                (&self.index, index),
                (&self.element, element),
            ];
            self.session.fetch(output, &feeds)
        }

        fn write(&self, index: i32, element: Tensor) -> Result<Tensor> {
            let write = tensor_array_write(&self.handle, &self.index, &self.element, &self.flow);
            self.run(&write, Tensor::scalar(index), element)
        }

        fn read(&self, index: i32) -> Result<Tensor> {
            let read = tensor_array_read(&self.handle, &self.index, &self.flow, DType::Float);
            self.run(&read, Tensor::scalar(index), Tensor::scalar(0f32))
        }
    }

    fn ends(result: Result<Tensor>, text: &str) {
        let status = result.unwrap_err();
        assert!(status.message().ends_with(text), "{status}");
    }

    #[test]
    fn elements_are_written_once_and_read_once() {
        let array = Array::new(2, false, true);
        array.write(1, Tensor::vector(&[1f32, 2.0])).unwrap();
        ends(array.write(1, Tensor::vector(&[1f32, 2.0])), "because it has already been written to.");
        ends(array.write(2, Tensor::scalar(1f32)), "but array is not resizeable and size is: 2");
        ends(array.write(-1, Tensor::scalar(1f32)), "but array is not resizeable and size is: 2");
        assert_eq!(array.read(1).unwrap().as_slice::<f32>().unwrap(), &[1.0, 2.0]);
        ends(array.read(1), "(perhaps try setting clear_after_read = false?).");
        ends(array.read(5), "Tried to read from index 5 but array size is: 2");
        ends(array.read(0), "will be returned instead of incurring this error.");
        let close = tensor_array_close(&array.handle);
        array.session.run(&close, &[(&array.handle, array.value.clone())]).unwrap();
        ends(array.read(0), "has already been closed.");
    }

    #[test]
    fn a_dynamic_array_grows() {
        let array = Array::new(0, true, false);
        array.write(2, Tensor::scalar(5f32)).unwrap();
        let size = tensor_array_size(&array.handle, &array.flow);
        let size = array.run(&size, Tensor::scalar(0i32), Tensor::scalar(0f32)).unwrap();
        assert_eq!(size.to_scalar::<i32>().unwrap(), 3);
        assert_eq!(array.read(2).unwrap().to_scalar::<f32>().unwrap(), 5.0);
        assert_eq!(array.read(2).unwrap().to_scalar::<f32>().unwrap(), 5.0);
        ends(array.write(2, Tensor::scalar(5f32)), "because it has already been read.");
    }

    #[test]
    fn rows_go_in_and_out() {
        let array = Array::new(3, false, false);
        let scatter = tensor_array_scatter(&array.handle, &array.index, &array.element, &array.flow);
        let rows = Tensor::from_slice(&[3, 1], &[1f32, 2.0, 3.0]).unwrap();
        array.run(&scatter, Tensor::vector(&[2i32, 0, 1]), rows.clone()).unwrap();
        let unknown = PartialShape::unknown();
        let gather = tensor_array_gather(&array.handle, &array.index, &array.flow, DType::Float, &unknown);
        let gathered = array.run(&gather, Tensor::vector(&[0i32, 1, 2]), rows.clone()).unwrap();
        assert_eq!((gathered.dims(), gathered.as_slice::<f32>().unwrap()), (&[3i64, 1][..], &[2f32, 3.0, 1.0][..]));
        let (concat, _) = tensor_array_concat(&array.handle, &array.flow, DType::Float);
        let all = array.run(&concat, Tensor::scalar(0i32), rows.clone()).unwrap();
        assert_eq!((all.dims(), all.as_slice::<f32>().unwrap()), (&[3i64][..], &[2f32, 3.0, 1.0][..]));
        ends(
            array.run(&scatter, Tensor::vector(&[0i32, 1, 7]), rows),
            "Max scatter index must be < array size (7 vs. 3)",
        );
        let none = array.run(&gather, Tensor::vector::<i32>(&[]), Tensor::scalar(0f32));
        assert_eq!(none.unwrap_err().code(), tensor::Code::Unimplemented);
    }

    #[test]
    fn older_versions_take_strings() {
        for version in ["", "V2"] {
            let session = TestSession::new();
            let size = session.placeholder(DType::Int32);
            let flow = session.placeholder(DType::Float);
            let op = |name: &str| session.graph.op(&format!("{name}{version}"));
            let handle = op("TensorArray").input(&size).attr("dtype", DType::Int32).output();
            let write = op("TensorArrayWrite").input(&handle).input(&size).input(&size).input(&flow);
            let written = write.attr("T", DType::Int32);
            let index = session.placeholder(DType::Int32);
            let written = match version {
                "" => written.output(),
                _ => op("TensorArrayWrite").input(&handle).input(&index).input(&size).input(&flow).output(),
            };
            let read = op("TensorArrayRead").input(&handle).input(&index).input(&written).attr("dtype", DType::Int32);
            let feeds = [(&size, Tensor::scalar(3i32)), (&flow, Tensor::scalar(0f32)), (&index, Tensor::scalar(1i32))];
            let result = session.fetch(&read.output(), &feeds);
            match version {
                "" => assert!(result.is_err(), "index 3 of 3 can't be written"),
                _ => assert_eq!(result.unwrap().to_scalar::<i32>().unwrap(), 3),
            }
        }
    }

    #[test]
    fn shapes() {
        let session = TestSession::new();
        let size = session.placeholder(DType::Int32);
        let shape = PartialShape::from_dims(&[2]);
        let (handle, flow) = tensor_array_v3(&session.graph, &size, DType::Float, &shape, false);
        assert_eq!((handle.shape().to_string(), flow.shape().to_string()), ("[2]".to_owned(), "[]".to_owned()));
        assert_eq!(tensor_array_read(&handle, &size, &flow, DType::Float).shape().to_string(), "[2]");
    }
}
