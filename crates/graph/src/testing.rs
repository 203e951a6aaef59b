//! The ops that the tests of this crate know: a handful of real definitions, with shape functions where a test needs one.

use crate::op_def::{OpDef, OpFlags, OpSchema};
use crate::shape::{self, ShapeContext, ShapeFn};
use crate::{Gradient, OpInfo, OpLookup};
use foldhash::HashMap;
use std::sync::{Arc, LazyLock};
use tensor::{PartialShape, Result};

struct TestOps(HashMap<&'static str, OpInfo>);

impl OpLookup for TestOps {
    fn op(&self, name: &str) -> Option<&OpInfo> {
        self.0.get(name)
    }
}

/// Returns the ops that tests know.
pub(crate) fn ops() -> &'static dyn OpLookup {
    static OPS: LazyLock<TestOps> = LazyLock::new(|| {
        let info = |(def, shape): &(OpDef, ShapeFn)| {
            let schema = Arc::new(OpSchema::parse(def).unwrap_or_else(|status| panic!("{status}")));
            (def.name, OpInfo { schema, shape: *shape, gradient: Gradient::Unsupported })
        };
        TestOps(DEFS.iter().map(info).collect())
    });
    &*OPS
}

fn constant(c: &mut ShapeContext<'_>) -> Result<()> {
    let value = c.attrs.tensor("value")?;
    c.set_output(0, value.shape());
    Ok(())
}

fn matmul(c: &mut ShapeContext<'_>) -> Result<()> {
    let (a, b) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?);
    let rows = a.dim(usize::from(c.attrs.bool("transpose_a")?));
    let columns = b.dim(usize::from(!c.attrs.bool("transpose_b")?));
    c.set_output(0, PartialShape::new(&[rows, columns]));
    Ok(())
}

fn switch(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.input(0);
    c.set_output(0, shape.clone());
    c.set_output(1, shape);
    Ok(())
}

/// As in TensorFlow: the output has the sizes that all inputs agree on.
fn merge(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = c.input(0);
    for index in 1..c.num_inputs() {
        let other = c.input(index);
        shape = match (shape.dims(), other.dims()) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                PartialShape::new(&a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect::<Vec<_>>())
            }
            _ => PartialShape::unknown(),
        };
    }
    c.set_output(0, shape);
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

fn shape_of(c: &mut ShapeContext<'_>) -> Result<()> {
    let rank = c.input(0).rank().map(|rank| rank as i64);
    c.set_output(0, PartialShape::new(&[rank]));
    Ok(())
}

fn pack(c: &mut ShapeContext<'_>) -> Result<()> {
    let count = Some(c.num_inputs() as i64);
    let shape = if c.input(0).rank() == Some(0) { PartialShape::new(&[count]) } else { PartialShape::unknown() };
    c.set_output(0, shape);
    Ok(())
}

fn reshape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(1)?;
    c.set_output(0, shape);
    Ok(())
}

const DEFS: &[(OpDef, ShapeFn)] = &[
    (
        OpDef {
            name: "Const",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["value: tensor", "dtype: type"],
            flags: OpFlags::NONE,
        },
        constant,
    ),
    (
        OpDef {
            name: "Placeholder",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "shape: shape = { unknown_rank: true }"],
            flags: OpFlags::NONE,
        },
        shape::from_shape_attr,
    ),
    (
        OpDef {
            name: "Identity",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "CheckNumerics",
            inputs: &["tensor: T"],
            outputs: &["output: T"],
            attrs: &["T: {bfloat16, half, float, double}", "message: string"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "HashTableV2",
            inputs: &[],
            outputs: &["table_handle: resource"],
            attrs: &["key_dtype: type", "value_dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape::scalar,
    ),
    (
        OpDef {
            name: "LookupTableSizeV2",
            inputs: &["table_handle: resource"],
            outputs: &["size: int64"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape::scalar,
    ),
    (
        OpDef {
            name: "AddV2",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, complex64, complex128}",
            ],
            flags: OpFlags::COMMUTATIVE.union(OpFlags::AGGREGATE),
        },
        shape::broadcast_binary,
    ),
    (
        OpDef {
            name: "AddN",
            inputs: &["inputs: N * T"],
            outputs: &["sum: T"],
            attrs: &[
                "N: int >= 1",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
            ],
            flags: OpFlags::COMMUTATIVE.union(OpFlags::AGGREGATE),
        },
        shape::merged,
    ),
    (
        OpDef {
            name: "Mul",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}",
            ],
            flags: OpFlags::COMMUTATIVE,
        },
        shape::broadcast_binary,
    ),
    (
        OpDef {
            name: "Sub",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, complex128, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape::broadcast_binary,
    ),
    (
        OpDef {
            name: "Neg",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "Tanh",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "Relu",
            inputs: &["features: T"],
            outputs: &["activations: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}",
            ],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "MatMul",
            inputs: &["a: T", "b: T"],
            outputs: &["product: T"],
            attrs: &[
                "transpose_a: bool = false",
                "transpose_b: bool = false",
                "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        matmul,
    ),
    (
        OpDef {
            name: "BiasAdd",
            inputs: &["value: T", "bias: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
            ],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "Conv2D",
            inputs: &["input: T", "filter: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, bfloat16, float, double, int32}",
                "strides: list(int)",
                "use_cudnn_on_gpu: bool = true",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "VariableV2",
            inputs: &[],
            outputs: &["ref: Ref(dtype)"],
            attrs: &["shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape::from_shape_attr,
    ),
    (
        OpDef {
            name: "Assign",
            inputs: &["ref: Ref(T)", "value: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs: &["T: type", "validate_shape: bool = true", "use_locking: bool = true"],
            flags: OpFlags::ALLOWS_UNINITIALIZED_INPUT,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "AssignAdd",
            inputs: &["ref: Ref(T)", "value: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "use_locking: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "VarHandleOp",
            inputs: &[],
            outputs: &["resource: resource"],
            attrs: &[
                "container: string = ''",
                "shared_name: string = ''",
                "debug_name: string = ''",
                "dtype: type",
                "shape: shape",
                "allowed_devices: list(string) = []",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "ReadVariableOp",
            inputs: &["resource: resource"],
            outputs: &["value: dtype"],
            attrs: &["dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "AssignVariableOp",
            inputs: &["resource: resource", "value: dtype"],
            outputs: &[],
            attrs: &["dtype: type", "validate_shape: bool = false"],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "Switch",
            inputs: &["data: T", "pred: bool"],
            outputs: &["output_false: T", "output_true: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        switch,
    ),
    (
        OpDef {
            name: "Merge",
            inputs: &["inputs: N * T"],
            outputs: &["output: T", "value_index: int32"],
            attrs: &["T: type", "N: int >= 1"],
            flags: OpFlags::NONE,
        },
        merge,
    ),
    (
        OpDef {
            name: "Enter",
            inputs: &["data: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "Exit",
            inputs: &["data: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "NextIteration",
            inputs: &["data: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape::unchanged,
    ),
    (
        OpDef {
            name: "LoopCond",
            inputs: &["input: bool"],
            outputs: &["output: bool"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape::scalar,
    ),
    (
        OpDef {
            name: "Less",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape::broadcast_binary,
    ),
    (OpDef { name: "NoOp", inputs: &[], outputs: &[], attrs: &[], flags: OpFlags::NONE }, shape::unknown),
    (
        OpDef {
            name: "Shape",
            inputs: &["input: T"],
            outputs: &["output: out_type"],
            attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape_of,
    ),
    (
        OpDef {
            name: "Reshape",
            inputs: &["tensor: T", "shape: Tshape"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tshape: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        reshape,
    ),
    (
        OpDef {
            name: "Cast",
            inputs: &["x: SrcT"],
            outputs: &["y: DstT"],
            attrs: &["SrcT: type", "DstT: type", "Truncate: bool = false"],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_Arg",
            inputs: &[],
            outputs: &["output: T"],
            attrs: &["T: type", "index: int >= 0"],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_Retval",
            inputs: &["input: T"],
            outputs: &[],
            attrs: &["T: type", "index: int >= 0"],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_Send",
            inputs: &["tensor: T"],
            outputs: &[],
            attrs: &[
                "T: type",
                "tensor_name: string",
                "send_device: string",
                "send_device_incarnation: int",
                "recv_device: string",
                "client_terminated: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_Recv",
            inputs: &[],
            outputs: &["tensor: tensor_type"],
            attrs: &[
                "tensor_type: type",
                "tensor_name: string",
                "send_device: string",
                "send_device_incarnation: int",
                "recv_device: string",
                "client_terminated: bool = false",
            ],
            flags: OpFlags::STATEFUL.union(OpFlags::DISTRIBUTED_COMMUNICATION),
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "RandomUniform",
            inputs: &["shape: T"],
            outputs: &["output: dtype"],
            attrs: &["seed: int = 0", "seed2: int = 0", "dtype: {half, bfloat16, float, double}", "T: {int32, int64}"],
            flags: OpFlags::STATEFUL,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "Split",
            inputs: &["split_dim: int32", "value: T"],
            outputs: &["output: num_split * T"],
            attrs: &["num_split: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "Pack",
            inputs: &["values: N * T"],
            outputs: &["output: T"],
            attrs: &["N: int >= 1", "T: type", "axis: int = 0"],
            flags: OpFlags::NONE,
        },
        pack,
    ),
    (
        OpDef {
            name: "StridedSlice",
            inputs: &["input: T", "begin: Index", "end: Index", "strides: Index"],
            outputs: &["output: T"],
            attrs: &[
                "T: type",
                "Index: {int16, int32, int64}",
                "begin_mask: int = 0",
                "end_mask: int = 0",
                "ellipsis_mask: int = 0",
                "new_axis_mask: int = 0",
                "shrink_axis_mask: int = 0",
            ],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "PartitionedCall",
            inputs: &["args: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "f: func",
                "config: string = ''",
                "config_proto: string = ''",
                "executor_type: string = ''",
            ],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_FusedMatMul",
            inputs: &["a: T", "b: T", "args: num_args * T"],
            outputs: &["product: T"],
            attrs: &[
                "transpose_a: bool = false",
                "transpose_b: bool = false",
                "T: {bfloat16, half, float}",
                "num_args: int >= 0",
                "fused_ops: list(string) = []",
                "epsilon: float = 1e-04",
                "leakyrelu_alpha: float = 0.2",
            ],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_FusedConv2D",
            inputs: &["input: T", "filter: T", "args: TArgs", "host_args: num_host_args * float"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, float, double, int8, qint8}",
                "TArgs: list(type) >= 1",
                "num_args: int >= 0",
                "num_host_args: int >= 0 = 0",
                "strides: list(int)",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
                "filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'",
                "dilations: list(int) = [1, 1, 1, 1]",
                "use_cudnn_on_gpu: bool = true",
                "fused_ops: list(string) = []",
                "epsilon: float = 1e-04",
                "leakyrelu_alpha: float = 0.2",
            ],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
    (
        OpDef {
            name: "_FusedElementwise",
            inputs: &["args: N * T"],
            outputs: &["output: T"],
            attrs: &["T: {float, double}", "N: int >= 1", "program: list(string) >= 1"],
            flags: OpFlags::NONE,
        },
        shape::unknown,
    ),
];
