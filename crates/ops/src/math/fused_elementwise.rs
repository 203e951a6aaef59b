//! _FusedElementwise: a chain of element-wise ops in one. The optimizer creates it; programs don't, and TensorFlow's tasks don't
//! know it.

use crate::elementwise::broadcast_plan;
use graph::passes::ElementwiseStep;
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, ShapeContext, kernels, shape,
};
use numeric::elementwise;
use numeric::fused::{self, Function, FusedElement, Input, Instruction};
use smallvec::SmallVec;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "_FusedElementwise",
        inputs: &["args: N * T"],
        outputs: &["output: T"],
        attrs: &["T: {float, double}", "N: int >= 1", "program: list(string) >= 1"],
        flags: OpFlags::NONE,
    },
    shape: fused_shape,
    gradient: Gradient::Unsupported,
    kernels: kernels!("T": [f32, f64] => FusedElementwise),
}];

fn fused_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let program = read_program(c.attrs.strings("program")?, c.num_inputs())?;
    let mut registers: Vec<PartialShape> = (0..c.num_inputs()).map(|index| c.input(index)).collect();
    for instruction in &program {
        let x = registers[usize::from(instruction.x)].clone();
        let result = match instruction.function {
            function if function.is_unary() => x,
            Function::TanhGrad | Function::SigmoidGrad | Function::ReluGrad => {
                x.merge(&registers[usize::from(instruction.y)])?
            }
            _ => shape::broadcast(&x, &registers[usize::from(instruction.y)])?,
        };
        registers.push(result);
    }
    if let Some(output) = registers.pop() {
        c.set_output(0, output);
    }
    Ok(())
}

/// Parses and checks a program as the optimizer writes it.
fn read_program(steps: &[bytes::Bytes], num_inputs: usize) -> Result<Vec<Instruction>> {
    let invalid = |what: &str| Status::invalid_argument(format!("an element-wise program {what}"));
    let mut program = Vec::with_capacity(steps.len());
    for ElementwiseStep { op, x, y } in ElementwiseStep::read_all(steps)? {
        let function = function_of(&op).ok_or_else(|| invalid(&format!("has the unknown step '{op}'")))?;
        program.push(Instruction::new(function, x, y));
    }
    if !fused::is_valid(&program, num_inputs) {
        return Err(invalid("is not valid"));
    }
    Ok(program)
}

/// Returns the function that an op computes.
fn function_of(op: &str) -> Option<Function> {
    match op {
        "AddV2" => Some(Function::Add),
        "RealDiv" => Some(Function::Div),
        "Inv" => Some(Function::Reciprocal),
        name => Function::ALL.iter().copied().find(|function| function.name() == name),
    }
}

struct FusedElementwise<T> {
    program: Vec<Instruction>,
    element: PhantomData<fn(T)>,
}

impl<T: Element + FusedElement> FusedElementwise<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let program = read_program(builder.attrs().strings("program")?, builder.node.input_types.len())?;
        BoxedKernel::new(FusedElementwise { program, element: PhantomData::<fn(T)> })
    }

    /// Runs one step after the other, for inputs whose broadcasting doesn't allow a single pass.
    fn run_stepwise(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let mut results: Vec<Tensor> = Vec::with_capacity(self.program.len());
        for &Instruction { function, x, y } in &self.program {
            let register = |index: u8| {
                let index = usize::from(index);
                inputs.get(index).copied().unwrap_or_else(|| &results[index - inputs.len()])
            };
            let x = register(x);
            let result = if function.is_unary() {
                let elements = x.as_slice::<T>()?;
                Tensor::build(x.shape().clone(), |out: &mut [T]| {
                    elementwise::unary(elements, out, |x| T::compute(function, x, x));
                })?
            } else {
                let y = register(y);
                let (plan, shape) = broadcast_plan(x, y)?;
                let (x, y) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
                Tensor::build(shape, |out: &mut [T]| {
                    elementwise::binary(x, y, out, &plan, |x, y| T::compute(function, x, y));
                })?
            };
            results.push(result);
        }
        results.pop().ok_or_else(|| Status::internal("an element-wise program without steps"))
    }
}

impl<T: Element + FusedElement> Kernel for FusedElementwise<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let inputs = context.input_list(0..context.num_inputs())?;
        let output = match common_shape(&inputs) {
            Some(shape) => {
                let mut operands: SmallVec<[Input<'_, T>; 8]> = SmallVec::new();
                for input in &inputs {
                    let elements = input.as_slice::<T>()?;
                    let is_scalar = input.shape() != &shape;
                    operands.push(if is_scalar { Input::Scalar(elements[0]) } else { Input::Elements(elements) });
                }
                Tensor::build(shape, |out: &mut [T]| fused::run(&self.program, &operands, out))?
            }
            None => self.run_stepwise(&inputs)?,
        };
        drop(inputs);
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the common shape of all inputs, apart from those of a single element, which must not widen it.
fn common_shape(inputs: &[&Tensor]) -> Option<Shape> {
    let widest = inputs.iter().max_by_key(|input| (input.num_elements() != 1, input.shape().rank()))?;
    let fits = |input: &&Tensor| {
        input.shape() == widest.shape() || (input.num_elements() == 1 && input.shape().rank() <= widest.shape().rank())
    };
    inputs.iter().all(fits).then(|| widest.shape().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Code;

    const PROGRAM: &[&str] = &["Mul 0 1", "Tanh 3 3", "Sub 4 2", "SquaredDifference 5 3"];

    fn floats(dims: &[i64], start: f32) -> Tensor {
        let count = dims.iter().product::<i64>() as usize;
        let values: Vec<f32> = (0..count).map(|index| start + (index as f32 * 0.37) % 1.9 - 0.6).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    /// Runs the ops of [`PROGRAM`] one by one.
    fn separately(inputs: &[Tensor]) -> Tensor {
        let run = |op: &str, inputs: &[&Tensor]| {
            let inputs: Vec<Tensor> = inputs.iter().copied().cloned().collect();
            run_op(op, attrs![], &inputs).unwrap_or_else(|status| panic!("{status}")).remove(0)
        };
        let product = run("Mul", &[&inputs[0], &inputs[1]]);
        let tanh = run("Tanh", &[&product]);
        let difference = run("Sub", &[&tanh, &inputs[2]]);
        run("SquaredDifference", &[&difference, &product])
    }

    #[test]
    fn a_program_computes_what_its_ops_compute() {
        let cases: &[[&[i64]; 3]] = &[
            [&[4, 3], &[4, 3], &[4, 3]],
            [&[700, 3], &[], &[700, 3]],
            [&[], &[], &[]],
            [&[1], &[], &[1, 1]],
            [&[4, 3], &[3], &[4, 1]],
            [&[2, 1, 3], &[5, 1], &[]],
            [&[0, 3], &[], &[1]],
        ];
        for dims in cases {
            let inputs = [floats(dims[0], 0.1), floats(dims[1], 0.9), floats(dims[2], -0.4)];
            let expected = separately(&inputs);
            let actual = run_op("_FusedElementwise", attrs![("program", PROGRAM)], &inputs).unwrap().remove(0);
            assert_eq!(actual.dims(), expected.dims(), "{dims:?}");
            let bits = |tensor: &Tensor| -> Vec<u32> {
                tensor.as_slice::<f32>().unwrap().iter().map(|value| value.to_bits()).collect()
            };
            assert_eq!(bits(&actual), bits(&expected), "{dims:?}");
        }
    }

    #[test]
    fn every_op_that_the_optimizer_fuses_is_known() {
        assert_eq!(fused::INSTRUCTIONS_MAX, graph::passes::optimize::ELEMENTWISE_STEPS_MAX);
        assert_eq!(fused::INPUTS_MAX, graph::passes::optimize::ELEMENTWISE_INPUTS_MAX);
        for function in Function::ALL {
            assert_eq!(function_of(function.name()), Some(*function));
        }
        for (op, function) in [("AddV2", Function::Add), ("RealDiv", Function::Div), ("Inv", Function::Reciprocal)] {
            assert_eq!(function_of(op), Some(function));
        }
    }

    #[test]
    fn shapes() {
        let program = || attrs![("program", PROGRAM), ("N", 3i64)];
        check_shape("_FusedElementwise", program(), "[?,3];[];[4,1]", "[4,3]");
        check_shape("_FusedElementwise", program(), "?;[];[4,1]", "?");
    }

    #[test]
    fn programs_that_make_no_sense_are_refused() {
        let code = |program: &[&str]| {
            let result = run_op("_FusedElementwise", attrs![("program", program)], &[Tensor::scalar(1f32)]);
            result.err().map(|status| status.code())
        };
        for program in [&["Mul 0 1"][..], &["Sine 0 0"], &["Neg"], &["Neg 0 0 0"], &["Neg x 0"], &["Neg 300 0"]] {
            assert_eq!(code(program), Some(Code::InvalidArgument), "{program:?}");
        }
        assert_eq!(code(&["Neg 0 0"]), None);
    }
}
