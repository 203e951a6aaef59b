//! The gradient of [`Einsum`](super::einsum()), which is again a sum of products.

use super::einsum_equation::{Equation, Label};
use crate::compose::{Gradients, binary, conj, constant, int_vector, reduce_broadcast, reshape, shape_of, sum};
use graph::Output;
use kernel::{Grad, GradientArgs};
use tensor::{Result, Status, Tensor};

/// Builds the gradients with respect to one or two inputs. With an ellipsis, the ranks must be known.
pub(super) fn einsum_gradient(args: &GradientArgs<'_>) -> Gradients {
    let count = args.op.num_inputs();
    let Some(grad) = args.grad(0) else { return Ok(vec![None; count]) };
    let equation = Equation::parse(&args.op.attrs().string("equation")?, count)?;
    let inputs: Vec<Output> = (0..count).map(|index| args.input(index)).collect();
    let ranks: Option<Vec<usize>> = inputs.iter().map(|input| input.shape().rank()).collect();
    let ranks = ranks.ok_or_else(|| Status::unimplemented("the gradient of Einsum needs inputs of known rank"))?;
    let explicit = equation.expand(&ranks)?;
    let output = text(&explicit.output);
    let operands: Vec<String> = explicit.inputs.iter().map(|labels| text(labels)).collect();
    let mut grads = Vec::new();
    for (index, own) in operands.iter().enumerate() {
        let (source, terms, factors) = match operands.get(1 - index.min(1)).filter(|_| count == 2) {
            Some(other) => {
                let factor = conj(&inputs[1 - index])?;
                (format!("{output}{other}"), format!("{output},{other}"), vec![grad.clone(), factor])
            }
            None => (output.clone(), output.clone(), vec![grad.clone()]),
        };
        // The axes of this operand that the others have; along the rest the gradient is repeated.
        let axes = unique(own);
        let known: String = axes.chars().filter(|&letter| source.contains(letter)).collect();
        if own.contains(ELLIPSIS) && known != axes {
            return Err(Status::unimplemented("the gradient of an Einsum that sums axes beside an ellipsis"));
        }
        let mut result = if source.contains(ELLIPSIS) && !own.contains(ELLIPSIS) {
            // TensorFlow's op doesn't sum the axes of an ellipsis itself.
            let all = add_einsum(&format!("{terms}->{ELLIPSIS}{known}"), &factors)?;
            let extra = all.shape().rank().unwrap_or(0).saturating_sub(known.len());
            let axes: Vec<i32> = (0..extra as i32).collect();
            if extra > 0 { sum(&all, &int_vector(all.graph(), &axes)?, false)? } else { all }
        } else {
            add_einsum(&format!("{terms}->{known}"), &factors)?
        };
        if known != axes {
            result = repeat(&result, &inputs[index], own, &axes, &known)?;
        }
        if axes != *own {
            result = add_einsum(&format!("{axes}->{own}"), &[result])?;
        }
        if own.contains(ELLIPSIS) {
            if result.shape().rank() != inputs[index].shape().rank() && !own.starts_with(ELLIPSIS) {
                return Err(Status::unimplemented("the gradient of an Einsum that adds axes behind its first"));
            }
            result = reduce_broadcast(&inputs[index], &result.clone(), Some(result), None)?.0.unwrap_or(grad.clone());
        }
        grads.push(Some(Grad::from(result)));
    }
    Ok(grads)
}

/// Stands for an ellipsis while letters are rearranged.
const ELLIPSIS: char = '.';

/// Writes labels as letters, with one mark for all axes of an ellipsis.
fn text(labels: &[Label]) -> String {
    let mut text = String::new();
    for label in labels {
        match label {
            Label::Letter(letter) => text.push(*letter),
            Label::Ellipsis(_) if text.contains(ELLIPSIS) => {}
            Label::Ellipsis(_) => text.push(ELLIPSIS),
        }
    }
    text
}

/// Returns the distinct letters of a string, in order.
fn unique(text: &str) -> String {
    let mut seen = String::new();
    for letter in text.chars() {
        if !seen.contains(letter) {
            seen.push(letter);
        }
    }
    seen
}

fn add_einsum(equation: &str, inputs: &[Output]) -> Result<Output> {
    let graph = inputs[0].graph();
    let equation = equation.replace(ELLIPSIS, "...");
    Ok(graph.op("Einsum").inputs(inputs).attr("equation", equation).try_build()?.output(0))
}

/// Repeats a gradient with the axes `known` along those of `axes` that are missing, to the input's size.
fn repeat(grad: &Output, input: &Output, own: &str, axes: &str, known: &str) -> Result<Output> {
    let graph = grad.graph();
    let places: Vec<i32> = axes.chars().map(|letter| own.find(letter).unwrap_or(0) as i32).collect();
    let axis = constant(graph, &Tensor::scalar(0i32))?;
    let gather = graph.op("GatherV2").input(&shape_of(input)?).input(&int_vector(graph, &places)?).input(&axis);
    let whole = gather.try_build()?.output(0);
    // Ones for the missing axes.
    let mask: Vec<i32> = axes.chars().map(|letter| i32::from(known.contains(letter))).collect();
    let ones: Vec<i32> = mask.iter().map(|flag| 1 - flag).collect();
    let masked = binary("Mul", &whole, &int_vector(graph, &mask)?)?;
    let thin = binary("AddV2", &masked, &int_vector(graph, &ones)?)?;
    binary("BroadcastTo", &reshape(grad, &thin)?, &whole)
}
