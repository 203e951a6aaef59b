//! Arguments and results of functions: _Arg, _Retval, and conversions between lists and arrays.

use crate::elementwise::PassThrough;
use graph::ShapeContext;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, Value, shape,
};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "_Arg",
            inputs: &[],
            outputs: &["output: T"],
            attrs: &["T: type", "index: int >= 0"],
            flags: OpFlags::STATEFUL,
        },
        shape: arg_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Arg::create)],
    },
    Op {
        def: OpDef {
            name: "_DeviceArg",
            inputs: &[],
            outputs: &["output: T"],
            attrs: &["T: type", "index: int >= 0"],
            flags: OpFlags::STATEFUL,
        },
        shape: arg_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Arg::create)],
    },
    Op {
        def: OpDef {
            name: "_Retval",
            inputs: &["input: T"],
            outputs: &[],
            attrs: &["T: type", "index: int >= 0"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Retval::create)],
    },
    Op {
        def: OpDef {
            name: "_DeviceRetval",
            inputs: &["input: T"],
            outputs: &[],
            attrs: &["T: type", "index: int >= 0"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Retval::create)],
    },
    Op {
        def: OpDef {
            name: "_ArrayToList",
            inputs: &["input: N * T"],
            outputs: &["output: out_types"],
            attrs: &["T: type", "N: int >= 1", "out_types: list(type) >= 1"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(PassEach))],
    },
    Op {
        def: OpDef {
            name: "_ListToArray",
            inputs: &["input: Tin"],
            outputs: &["output: N * T"],
            attrs: &["Tin: list(type) >= 1", "T: type", "N: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(PassEach))],
    },
    Op {
        def: OpDef {
            name: "FakeParam",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "shape: shape"],
            flags: OpFlags::NONE,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(FakeParam::create)],
    },
    Op {
        def: OpDef {
            name: "DeviceIndex",
            inputs: &[],
            outputs: &["index: int32"],
            attrs: &["device_names: list(string)"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(DeviceIndex::create)],
    },
];

/// The caller's information about the argument is in attributes of the node.
fn arg_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shapes = c.attrs.shapes("_output_shapes").unwrap_or_default();
    if let Some(shape) = shapes.into_iter().next() {
        c.set_output(0, shape);
    } else if c.output_types.first().is_some_and(|slot| slot.dtype == DType::Resource) {
        c.set_output(0, PartialShape::scalar());
    }
    Ok(())
}

struct Arg {
    index: usize,
    dtype: DType,
}

impl Arg {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Arg { index: index(builder)?, dtype: builder.output_dtype(0) })
    }
}

fn index(builder: &KernelBuilder<'_>) -> Result<usize> {
    let index = builder.attrs().int("index")?;
    usize::try_from(index).map_err(|_| Status::invalid_argument(format!("attr 'index' must be >= 0, got {index}")))
}

impl Kernel for Arg {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.step().frame.take_arg(self.index)?;
        if value.dtype() != self.dtype {
            return Err(Status::invalid_argument(format!(
                "Type mismatch: actual {} vs. expect {}",
                value.dtype(),
                self.dtype
            )));
        }
        context.set_output(0, value);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Retval {
    index: usize,
    dtype: DType,
}

impl Retval {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Retval { index: index(builder)?, dtype: builder.input_dtype(0) })
    }
}

impl Kernel for Retval {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_input(0)?;
        if value.dtype() != self.dtype {
            return Err(Status::invalid_argument(format!(
                "Type mismatch: actual {} vs. expect {}",
                value.dtype(),
                self.dtype
            )));
        }
        context.step().frame.set_result(self.index, value)
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct PassEach;

impl Kernel for PassEach {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        if context.num_inputs() != context.num_outputs() {
            return Err(Status::invalid_argument(format!(
                "{} inputs can't become {} outputs",
                context.num_inputs(),
                context.num_outputs()
            )));
        }
        if context.num_inputs() == 1 {
            return PassThrough.compute(context);
        }
        for index in 0..context.num_inputs() {
            let value: Value = context.take_value(index);
            context.set_output_value(index, value);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct FakeParam {
    value: Tensor,
}

impl FakeParam {
    /// The value is never read; unknown sizes are zero, so that it takes no memory.
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let dtype = builder.output_dtype(0);
        let shape = match builder.attrs().shape("shape")?.dims() {
            Some(dims) => Shape::new(&dims.iter().map(|dim| dim.unwrap_or(0)).collect::<Vec<_>>())?,
            None => Shape::vector(0),
        };
        let shape = if dtype == DType::Resource { Shape::vector(0) } else { shape };
        BoxedKernel::new(FakeParam { value: Tensor::zeros(dtype, shape)? })
    }
}

impl Kernel for FakeParam {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.set_output(0, self.value.clone());
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct DeviceIndex {
    index: i32,
}

impl DeviceIndex {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let names = builder.attrs().strings("device_names")?;
        // All devices here are CPUs; a list without it selects the index after its end.
        let index = names.iter().position(|name| name.as_ref() == b"CPU").unwrap_or(names.len());
        BoxedKernel::new(DeviceIndex { index: index as i32 })
    }
}

impl Kernel for DeviceIndex {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.set_output(0, Tensor::scalar(self.index));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::super::runner::tests::run_with_frame;
    use crate::testing::{attrs, run_op};
    use tensor::{DType, PartialShape, Tensor};

    #[test]
    fn arguments_and_results_use_the_frame() {
        let (outputs, _) =
            run_with_frame("_Arg", attrs![("T", DType::Int32), ("index", 1i64)], &[], &[1, 7], 0).unwrap();
        assert_eq!(outputs[0].to_scalar::<i32>().unwrap(), 7);
        assert!(run_with_frame("_Arg", attrs![("T", DType::Int32), ("index", 2i64)], &[], &[1, 7], 0).is_err());
        assert!(run_with_frame("_Arg", attrs![("T", DType::Float), ("index", 0i64)], &[], &[1, 7], 0).is_err());
        let (_, results) = run_with_frame("_Retval", attrs![("index", 1i64)], &[Tensor::scalar(9i32)], &[], 2).unwrap();
        assert!(results[0].is_none());
        assert_eq!(results[1].as_ref().unwrap().to_scalar::<i32>().unwrap(), 9);
        assert!(run_with_frame("_Retval", attrs![("index", 2i64)], &[Tensor::scalar(9i32)], &[], 2).is_err());
    }

    #[test]
    fn lists_and_parameters() {
        let types = [DType::Float, DType::Float];
        let inputs = [Tensor::scalar(1f32), Tensor::scalar(2f32)];
        let outputs = run_op("_ArrayToList", attrs![("out_types", &types[..])], &inputs).unwrap();
        assert_eq!(outputs[1].to_scalar::<f32>().unwrap(), 2.0);
        let shape = PartialShape::from_dims(&[2, -1]);
        let fake = run_op("FakeParam", attrs![("dtype", DType::Float), ("shape", shape)], &[]).unwrap();
        assert_eq!(fake[0].dims(), [2, 0]);
        let names = attrs![("device_names", &["GPU", "CPU"][..])];
        assert_eq!(run_op("DeviceIndex", names, &[]).unwrap()[0].to_scalar::<i32>().unwrap(), 1);
    }
}
