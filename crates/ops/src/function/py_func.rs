//! Functions of the client's program: PyFunc, PyFuncStateless. The client's process serves them (`kernel::CallbackHub`).

use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CallbackHub, Gradient, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
    take_args,
};
use tensor::{DType, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[op("PyFunc", OpFlags::STATEFUL), op("PyFuncStateless", OpFlags::NONE)];

const fn op(name: &'static str, flags: OpFlags) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["input: Tin"],
            outputs: &["output: Tout"],
            attrs: &["token: string", "Tin: list(type) >= 0", "Tout: list(type) >= 0"],
            flags,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: KERNELS,
    }
}

const KERNELS: &[KernelDef] = &[KernelDef::any(|builder| {
    BoxedKernel::new_async(PyFunc { token: builder.attrs().string("token")?, dtypes: builder.output_dtypes() })
})];

struct PyFunc {
    token: String,
    dtypes: Vec<DType>,
}

impl AsyncKernel for PyFunc {
    fn compute(&self, mut context: AsyncContext) {
        let args = match take_args(&mut context.op(), 0) {
            Ok(args) => args,
            Err(status) => return context.finish(Err(status)),
        };
        let (step, dtypes) = (context.step().clone(), self.dtypes.clone());
        let name = CallbackHub::name_of(&self.token).to_owned();
        let done = move |results: Result<Vec<Tensor>>| {
            context.finish_with(|context| set_results(context, &name, &dtypes, results?));
        };
        CallbackHub::of_process().call(&self.token, args, &step, Box::new(done));
    }
}

/// Sets the function's results as outputs if they have the node's declared types.
fn set_results(context: &mut OpContext<'_>, name: &str, dtypes: &[DType], results: Vec<Tensor>) -> Result<()> {
    if results.len() != dtypes.len() {
        return Err(Status::invalid_argument(format!(
            "{name} returns {} values, but expects to see {} values.",
            results.len(),
            dtypes.len()
        )));
    }
    for (index, (result, dtype)) in results.into_iter().zip(dtypes).enumerate() {
        if result.dtype() != *dtype {
            return Err(Status::invalid_argument(format!(
                "{index}-th value returned by {name} is {}, but expects {dtype}",
                result.dtype()
            )));
        }
        context.set_output(index, result);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{FrameAndIteration, Outputs, Step, Value};
    use std::sync::Arc;

    #[test]
    fn results_that_were_not_promised_are_refused() {
        let check = |dtypes: &[DType], results: Vec<Tensor>| {
            let mut outputs: Outputs = dtypes.iter().map(|_| Value::None).collect();
            let step = Arc::new(Step::detached());
            let mut context = OpContext::new(&mut [], &mut outputs, &step, "n", FrameAndIteration::default(), false);
            set_results(&mut context, "pyfunc_0", dtypes, results).map_err(|status| status.message().to_owned())
        };
        assert_eq!(check(&[DType::Float], vec![Tensor::scalar(1f32)]), Ok(()));
        let count = "pyfunc_0 returns 1 values, but expects to see 2 values.";
        assert_eq!(check(&[DType::Float, DType::Float], vec![Tensor::scalar(1f32)]), Err(count.to_owned()));
        let kind = "0-th value returned by pyfunc_0 is double, but expects float";
        assert_eq!(check(&[DType::Float], vec![Tensor::scalar(1f64)]), Err(kind.to_owned()));
    }
}
