//! Chains of element-wise functions in one pass: a small program runs on one block of elements after the other, so that its
//! intermediate results never leave the cache.
//!
//! ```
//! use numeric::fused::{Function, Input, Instruction, run};
//! // tanh(a * b)
//! let program = [Instruction::new(Function::Mul, 0, 1), Instruction::new(Function::Tanh, 2, 2)];
//! let mut out = [1.0f32; 2];
//! run(&program, &[Input::Elements(&[0.0, 1.0]), Input::Scalar(0.5)], &mut out);
//! assert_eq!(out[0], 0.0);
//! ```

use crate::parallel;
use crate::simd_math::SimdMath;
use cpu_macros::each_level;

/// The number of elements in a block.
const BLOCK: usize = 256;

/// The block for outputs so small that initializing a whole one would take longer than the program.
const SMALL_BLOCK: usize = 16;

/// The longest program.
pub const INSTRUCTIONS_MAX: usize = 16;

/// The most inputs of a program.
pub const INPUTS_MAX: usize = 8;

/// A function of one operand `x`, or of two, named after the equivalent op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `-x`.
    Neg,
    /// `|x|`.
    Abs,
    /// `x²`.
    Square,
    /// `√x`.
    Sqrt,
    /// `1 / √x`.
    Rsqrt,
    /// `eˣ`.
    Exp,
    /// The natural logarithm.
    Log,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `max(x, 0)`.
    Relu,
    /// `1 / x`.
    Reciprocal,
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x y`.
    Mul,
    /// `x / y`.
    Div,
    /// The larger of both; NaN if either is NaN.
    Maximum,
    /// The smaller of both; NaN if either is NaN.
    Minimum,
    /// `(x - y)²`.
    SquaredDifference,
    /// The gradient of a hyperbolic tangent with the value `x`, given the gradient `y` of its output.
    TanhGrad,
    /// The gradient of a logistic function with the value `x`, given the gradient `y` of its output.
    SigmoidGrad,
    /// The gradient `x` where `y` is positive.
    ReluGrad,
}

impl Function {
    /// All functions.
    pub const ALL: &'static [Function] = &[
        Function::Neg,
        Function::Abs,
        Function::Square,
        Function::Sqrt,
        Function::Rsqrt,
        Function::Exp,
        Function::Log,
        Function::Tanh,
        Function::Sigmoid,
        Function::Relu,
        Function::Reciprocal,
        Function::Add,
        Function::Sub,
        Function::Mul,
        Function::Div,
        Function::Maximum,
        Function::Minimum,
        Function::SquaredDifference,
        Function::TanhGrad,
        Function::SigmoidGrad,
        Function::ReluGrad,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Function::Neg => "Neg",
            Function::Abs => "Abs",
            Function::Square => "Square",
            Function::Sqrt => "Sqrt",
            Function::Rsqrt => "Rsqrt",
            Function::Exp => "Exp",
            Function::Log => "Log",
            Function::Tanh => "Tanh",
            Function::Sigmoid => "Sigmoid",
            Function::Relu => "Relu",
            Function::Reciprocal => "Reciprocal",
            Function::Add => "Add",
            Function::Sub => "Sub",
            Function::Mul => "Mul",
            Function::Div => "Div",
            Function::Maximum => "Maximum",
            Function::Minimum => "Minimum",
            Function::SquaredDifference => "SquaredDifference",
            Function::TanhGrad => "TanhGrad",
            Function::SigmoidGrad => "SigmoidGrad",
            Function::ReluGrad => "ReluGrad",
        }
    }

    /// Returns whether it has one operand.
    pub fn is_unary(self) -> bool {
        matches!(
            self,
            Function::Neg
                | Function::Abs
                | Function::Square
                | Function::Sqrt
                | Function::Rsqrt
                | Function::Exp
                | Function::Log
                | Function::Tanh
                | Function::Sigmoid
                | Function::Relu
                | Function::Reciprocal
        )
    }

    /// Estimates the nanoseconds per element.
    fn cost_ns(self) -> f64 {
        match self {
            Function::Exp | Function::Log | Function::Tanh | Function::Sigmoid => 0.9,
            Function::Sqrt | Function::Rsqrt | Function::Reciprocal | Function::Div => 0.4,
            _ => 0.1,
        }
    }
}

/// A step of a program. Operands are registers: first the inputs, then the results of the steps before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What is computed.
    pub function: Function,
    /// The register of the first operand.
    pub x: u8,
    /// The register of the second operand; ignored by functions of one.
    pub y: u8,
}

impl Instruction {
    /// Makes an instruction.
    pub fn new(function: Function, x: u8, y: u8) -> Instruction {
        Instruction { function, x, y }
    }
}

/// An input of a program.
#[derive(Clone, Copy)]
pub enum Input<'a, T> {
    /// One element for each element of the output.
    Elements(&'a [T]),
    /// The same value for all elements.
    Scalar(T),
}

/// An element type of programs.
pub trait FusedElement: Copy + Default + Send + Sync {
    /// Computes one element.
    fn compute(function: Function, x: Self, y: Self) -> Self;
    #[doc(hidden)]
    fn compute_block(function: Function, x: &[Self], y: &[Self], out: &mut [Self]);
}

/// Returns whether a program is valid for this number of inputs: not empty, not too long, and every operand an input or an
/// earlier result.
pub fn is_valid(program: &[Instruction], num_inputs: usize) -> bool {
    let fits = |(index, instruction): (usize, &Instruction)| {
        let registers = num_inputs + index;
        let has_y = instruction.function.is_unary() || usize::from(instruction.y) < registers;
        usize::from(instruction.x) < registers && has_y
    };
    !program.is_empty()
        && program.len() <= INSTRUCTIONS_MAX
        && (1..=INPUTS_MAX).contains(&num_inputs)
        && program.iter().enumerate().all(fits)
}

/// Runs a program, whose last step is the output. Panics if the program is not valid or lengths differ.
pub fn run<T: FusedElement>(program: &[Instruction], inputs: &[Input<'_, T>], out: &mut [T]) {
    assert!(is_valid(program, inputs.len()), "the program is not valid");
    for input in inputs {
        if let Input::Elements(elements) = input {
            assert_eq!(elements.len(), out.len(), "input and output differ in length");
        }
    }
    let cost_ns = program.iter().map(|instruction| instruction.function.cost_ns()).sum::<f64>() + 0.3;
    if out.len() <= SMALL_BLOCK {
        return run_chunk::<T, SMALL_BLOCK>(program, inputs, 0, out);
    }
    parallel::for_each_chunk_mut(out, 1, cost_ns, |start, chunk| {
        run_chunk::<T, BLOCK>(program, inputs, start, chunk);
    });
}

fn run_chunk<T: FusedElement, const BLOCK: usize>(
    program: &[Instruction],
    inputs: &[Input<'_, T>],
    start: usize,
    out: &mut [T],
) {
    let mut scalars = [[T::default(); BLOCK]; INPUTS_MAX];
    for (block, input) in scalars.iter_mut().zip(inputs) {
        if let Input::Scalar(value) = input {
            block[..BLOCK.min(out.len())].fill(*value);
        }
    }
    let mut results = [[T::default(); BLOCK]; INSTRUCTIONS_MAX];
    let last = program.len() - 1;
    let mut at = start;
    for block in out.chunks_mut(BLOCK) {
        let len = block.len();
        for (index, instruction) in program.iter().enumerate() {
            let (before, from_here) = results.split_at_mut(index);
            let operand = |register: u8| {
                let register = usize::from(register);
                match inputs.get(register) {
                    Some(Input::Elements(elements)) => &elements[at..at + len],
                    Some(Input::Scalar(_)) => &scalars[register][..len],
                    None => &before[register - inputs.len()][..len],
                }
            };
            let x = operand(instruction.x);
            let y = if instruction.function.is_unary() { x } else { operand(instruction.y) };
            let result = if index == last { &mut *block } else { &mut from_here[0][..len] };
            T::compute_block(instruction.function, x, y, result);
        }
        at += len;
    }
}

/// Expands to one loop for each function, so that the function is chosen once per block, not once per element.
macro_rules! for_each_function {
    ($function:ident, $scalar:ty, $x:ident, $y:ident, $out:ident) => {
        for_each_function!(@ $function, $scalar, $x, $y, $out;
            Neg Abs Square Sqrt Rsqrt Exp Log Tanh Sigmoid Relu Reciprocal Add Sub Mul Div Maximum Minimum
            SquaredDifference TanhGrad SigmoidGrad ReluGrad)
    };
    (@ $function:ident, $scalar:ty, $x:ident, $y:ident, $out:ident; $($name:ident)*) => {
        match $function {
            $(Function::$name => {
                for ((out, &x), &y) in $out.iter_mut().zip($x).zip($y) {
                    *out = <$scalar as FusedElement>::compute(Function::$name, x, y);
                }
            })*
        }
    };
}

macro_rules! impl_element {
    ($scalar:ty, $compute_block:ident) => {
        impl FusedElement for $scalar {
            #[inline(always)]
            fn compute(function: Function, x: $scalar, y: $scalar) -> $scalar {
                match function {
                    Function::Neg => -x,
                    Function::Abs => x.abs(),
                    Function::Square => x * x,
                    Function::Sqrt => x.simd_sqrt(),
                    Function::Rsqrt => x.simd_rsqrt(),
                    Function::Exp => x.simd_exp(),
                    Function::Log => x.simd_log(),
                    Function::Tanh => x.simd_tanh(),
                    Function::Sigmoid => x.simd_sigmoid(),
                    Function::Relu => {
                        // Never returns -0, and keeps NaN.
                        if x <= 0.0 { 0.0 } else { x }
                    }
                    Function::Reciprocal => 1.0 / x,
                    Function::Add => x + y,
                    Function::Sub => x - y,
                    Function::Mul => x * y,
                    Function::Div => x / y,
                    Function::Maximum => {
                        if y > x || y.is_nan() {
                            y
                        } else {
                            x
                        }
                    }
                    Function::Minimum => {
                        if y < x || y.is_nan() {
                            y
                        } else {
                            x
                        }
                    }
                    Function::SquaredDifference => (x - y) * (x - y),
                    Function::TanhGrad => y * (1.0 - x * x),
                    Function::SigmoidGrad => y * ((1.0 - x) * x),
                    Function::ReluGrad => {
                        if y > 0.0 {
                            x
                        } else {
                            0.0
                        }
                    }
                }
            }

            fn compute_block(function: Function, x: &[$scalar], y: &[$scalar], out: &mut [$scalar]) {
                $compute_block(function, x, y, out);
            }
        }

        #[each_level]
        fn $compute_block(function: Function, x: &[$scalar], y: &[$scalar], out: &mut [$scalar]) {
            for_each_function!(function, $scalar, x, y, out);
        }
    };
}
impl_element!(f32, compute_block_f32);
impl_element!(f64, compute_block_f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(program: &[Instruction], inputs: &[Input<'_, f64>], index: usize) -> f64 {
        let mut registers: Vec<f64> = inputs
            .iter()
            .map(|input| match input {
                Input::Elements(elements) => elements[index],
                Input::Scalar(value) => *value,
            })
            .collect();
        for instruction in program {
            let (x, y) = (registers[usize::from(instruction.x)], registers[usize::from(instruction.y)]);
            registers.push(f64::compute(instruction.function, x, y));
        }
        registers[registers.len() - 1]
    }

    #[test]
    fn every_function_in_a_program_of_any_length_of_input() {
        for len in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 200_000] {
            let a: Vec<f64> = (0..len).map(|index| 0.1 + (index % 17) as f64 / 7.0).collect();
            let b: Vec<f64> = (0..len).map(|index| 1.5 - (index % 11) as f64 / 5.0).collect();
            let inputs = [Input::Elements(&a[..]), Input::Scalar(0.75), Input::Elements(&b[..])];
            for &function in Function::ALL {
                let program = [
                    Instruction::new(Function::Mul, 2, 1),
                    Instruction::new(function, 0, 3),
                    Instruction::new(Function::Add, 4, 0),
                ];
                let mut out = vec![0.0; len];
                run(&program, &inputs, &mut out);
                for index in 0..len {
                    let expected = reference(&program, &inputs, index);
                    // Loops for wider vectors must not fuse multiplications and additions, so the values are equal to the bit.
                    assert_eq!(out[index].to_bits(), expected.to_bits(), "{} at {index}", function.name());
                }
            }
        }
    }

    #[test]
    fn single_precision() {
        let program = [Instruction::new(Function::Sub, 0, 1), Instruction::new(Function::Relu, 2, 0)];
        let mut out = [0f32; 3];
        run(&program, &[Input::Elements(&[1.0, f32::NAN, -3.0]), Input::Scalar(0.25)], &mut out);
        assert_eq!((out[0], out[2]), (0.75, 0.0));
        assert!(out[1].is_nan());
    }

    #[test]
    fn programs_that_are_not_valid() {
        let one = |function, x, y| [Instruction::new(function, x, y)];
        assert!(is_valid(&one(Function::Add, 0, 1), 2));
        assert!(is_valid(&one(Function::Neg, 0, 99), 1));
        assert!(!is_valid(&one(Function::Add, 0, 1), 1));
        assert!(!is_valid(&one(Function::Neg, 1, 0), 1));
        assert!(!is_valid(&[], 1));
        assert!(!is_valid(&[Instruction::new(Function::Neg, 0, 0); INSTRUCTIONS_MAX + 1], 1));
        assert!(!is_valid(&one(Function::Neg, 0, 0), INPUTS_MAX + 1));
    }
}
