//! Einsum: sums of products in index notation.

use super::einsum_equation::{Equation, Label};
use super::einsum_gradient::einsum_gradient;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::matmul::{MatMulElement, MatMulShape, batch_matmul};
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// Lists the kernels, by the addition of each type.
macro_rules! einsum_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |builder| Einsum::<$ty>::create(builder, $function),
        },)*)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Einsum",
        inputs: &["inputs: N * T"],
        outputs: &["output: T"],
        attrs: &["equation: string", "N: int >= 1", "T: type"],
        flags: OpFlags::NONE,
    },
    shape: einsum_shape,
    gradient: Gradient::Fn(einsum_gradient),
    kernels: einsum_kernels!(
        [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| x + y,
        [i32, i64] => |x, y| x.wrapping_add(y),
    ),
}];

/// Returns the sum of products that an equation such as `ij,jk->ik` describes, of one or two inputs.
#[track_caller]
pub fn einsum(equation: &str, inputs: &[Output]) -> Output {
    let [first, ..] = inputs else {
        return graph::builder::mistaken_output(
            "Einsum",
            tensor::Status::invalid_argument("einsum needs at least one input"),
        );
    };
    first.graph().op("Einsum").inputs(inputs).attr("equation", equation).output()
}

fn einsum_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let equation = Equation::parse(&c.attrs.string("equation")?, c.num_inputs())?;
    let mut ranks = Vec::new();
    for index in 0..c.num_inputs() {
        match c.input(index).rank() {
            Some(rank) => ranks.push(rank),
            None => return Ok(()),
        }
    }
    let explicit = equation.expand(&ranks)?;
    let mut sizes: Vec<(Label, Option<i64>)> = Vec::new();
    for (index, labels) in explicit.inputs.iter().enumerate() {
        for (axis, label) in labels.iter().enumerate() {
            let size = c.input(index).dim(axis);
            match sizes.iter_mut().find(|(other, _)| other == label) {
                None => sizes.push((*label, size)),
                Some((_, known)) => *known = merge_size(*label, *known, size)?,
            }
        }
    }
    let dims: Option<Vec<Option<i64>>> = explicit
        .output
        .iter()
        .map(|label| sizes.iter().find(|(other, _)| other == label).map(|(_, size)| *size))
        .collect();
    let dims = dims.ok_or_else(|| Status::invalid_argument("an output label is in no input"))?;
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

/// Returns the merged size of two axes with the same label; only those of an ellipsis broadcast.
fn merge_size(label: Label, a: Option<i64>, b: Option<i64>) -> Result<Option<i64>> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Ok(Some(a)),
        (Some(1), other) | (other, Some(1)) if label.broadcasts() => Ok(other),
        (Some(a), Some(b)) => {
            Err(Status::invalid_argument(format!("Expected dimension {a} for label {label}, but got dimension {b}")))
        }
        (known, None) | (None, known) => Ok(known),
    }
}

struct Einsum<T> {
    equation: Equation,
    add: fn(T, T) -> T,
    element: PhantomData<fn(T)>,
}

impl<T: Element + MatMulElement> Einsum<T> {
    fn create(builder: &KernelBuilder<'_>, add: fn(T, T) -> T) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let count = usize::try_from(attrs.int("N")?).unwrap_or(0);
        let equation = Equation::parse(&attrs.string("equation")?, count)?;
        BoxedKernel::new(Einsum { equation, add, element: PhantomData::<fn(T)> })
    }
}

/// An axis of a view: its label, size and stride.
#[derive(Clone, Copy, Debug)]
struct Axis {
    label: Label,
    size: usize,
    stride: usize,
}

/// Fails unless all axes of a letter have the same size.
fn check_sizes(inputs: &[&Tensor], labels: &[Vec<Label>]) -> Result<()> {
    let mut sizes: Vec<(Label, i64)> = Vec::new();
    for (input, labels) in inputs.iter().zip(labels) {
        for (axis, (&label, &size)) in labels.iter().zip(input.dims()).enumerate() {
            match sizes.iter().find(|(known, _)| *known == label && !label.broadcasts()) {
                Some(&(_, expected)) if expected != size => {
                    return Err(Status::invalid_argument(format!(
                        "Expected dimension {expected} at axis {axis} of the input shaped {} but got dimension {size}",
                        input.shape()
                    )));
                }
                Some(_) => {}
                None => sizes.push((label, size)),
            }
        }
    }
    Ok(())
}

/// Returns the axes of a tensor, one for each label; axes with one label are its diagonal.
fn axes_of(labels: &[Label], dims: &[usize]) -> Result<Vec<Axis>> {
    let mut axes: Vec<Axis> = Vec::new();
    let mut stride = 1;
    for (&label, &size) in labels.iter().zip(dims).rev() {
        match axes.iter_mut().find(|axis| axis.label == label) {
            None => axes.push(Axis { label, size, stride }),
            Some(axis) if axis.size == size => axis.stride += stride,
            Some(axis) => {
                return Err(Status::invalid_argument(format!(
                    "Expected dimension {} for label {label}, but got dimension {size}",
                    axis.size
                )));
            }
        }
        stride *= size.max(1);
    }
    axes.reverse();
    Ok(axes)
}

/// A view to copy: the axes that are kept, in the order of the copy, and those that are summed.
struct View {
    kept: Vec<Axis>,
    summed: Vec<Axis>,
}

/// Copies a view in row-major order.
fn gather<T: Element>(from: &[T], view: &View, add: fn(T, T) -> T) -> Vec<T> {
    let mut out = Vec::with_capacity(size_of(&view.kept));
    let terms = offsets(&view.summed);
    let (inner, outer) = match view.kept.split_last() {
        Some((last, outer)) => (*last, outer),
        None => (Axis { label: Label::NONE, size: 1, stride: 0 }, &view.kept[..]),
    };
    for start in offsets(outer) {
        for step in 0..inner.size {
            let base = start + step * inner.stride;
            let total = match terms.split_first() {
                None => T::default(),
                Some((&first, rest)) => {
                    rest.iter().fold(from[base + first], |total, &term| add(total, from[base + term]))
                }
            };
            out.push(total);
        }
    }
    out
}

/// Returns the offset of every combination of indices, the last axis fastest.
fn offsets(axes: &[Axis]) -> Vec<usize> {
    let mut all = vec![0];
    for axis in axes {
        all = all.iter().flat_map(|&start| (0..axis.size).map(move |index| start + index * axis.stride)).collect();
    }
    all
}

/// Returns the number of combinations of indices.
fn size_of(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.size).product()
}

impl<T: Element + MatMulElement> Kernel for Einsum<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let output = match Plan::new(&self.equation, context)? {
            Plan::Sum(view, place) => place.arrange(&gather(context.input(0)?.as_slice::<T>()?, &view, self.add)),
            Plan::Product(product) => {
                let left = gather(context.input(0)?.as_slice::<T>()?, &product.left, self.add);
                let right = gather(context.input(1)?.as_slice::<T>()?, &product.right, self.add);
                let shape = product.matrices;
                let mut values = vec![T::default(); product.batch * shape.m * shape.n];
                batch_matmul(shape, &left, &right, &mut values, |item| item, |item| item);
                product.place.arrange(&values)
            }
        }?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// The plan for inputs of given shapes. It doesn't depend on the element type, so it is compiled once.
enum Plan {
    Sum(View, Place),
    Product(Product),
}

/// Both operands as batches of matrices, and the destination of their product.
struct Product {
    left: View,
    right: View,
    batch: usize,
    matrices: MatMulShape,
    place: Place,
}

impl Plan {
    fn new(equation: &Equation, context: &OpContext<'_>) -> Result<Plan> {
        let inputs = context.input_list(0..context.num_inputs())?;
        let ranks: Vec<usize> = inputs.iter().map(|input| input.shape().rank()).collect();
        let equation = equation.expand(&ranks)?;
        check_sizes(&inputs, &equation.inputs)?;
        let mut axes = Vec::new();
        for (input, labels) in inputs.iter().zip(&equation.inputs) {
            axes.push(axes_of(labels, &input.shape().to_usize())?);
        }
        match &mut axes[..] {
            [axes] => {
                let (kept, summed): (Vec<Axis>, Vec<Axis>) =
                    axes.iter().copied().partition(|axis: &Axis| equation.output.contains(&axis.label));
                let place = Place::new(&kept, &equation.output)?;
                Ok(Plan::Sum(View { kept, summed }, place))
            }
            [a, b] => Product::new(a, b, &equation.output).map(Plan::Product),
            _ => Err(Status::invalid_argument("Einsum takes one or two inputs")),
        }
    }
}

impl Product {
    fn new(a: &mut [Axis], b: &mut [Axis], output: &[Label]) -> Result<Product> {
        // Axes of an ellipsis broadcast: the one of size 1 is repeated by a stride of 0.
        for axis in a.iter_mut() {
            let Some(other) = b.iter_mut().find(|other| other.label == axis.label) else { continue };
            if axis.size == other.size {
                continue;
            }
            let (size, other_size) = (axis.size, other.size);
            merge_size(axis.label, Some(size as i64), Some(other_size as i64))?;
            if size == 1 {
                (axis.size, axis.stride) = (other_size, 0);
            } else {
                (other.size, other.stride) = (size, 0);
            }
        }
        let find = |axes: &[Axis], label: Label| axes.iter().find(|axis| axis.label == label).copied();
        // Classifies axes by whether they are in the other operand, and in the output.
        let select = |axes: &[Axis], other: &[Axis], shared: bool, in_output: bool| -> Vec<Axis> {
            let fits =
                |axis: &Axis| find(other, axis.label).is_some() == shared && output.contains(&axis.label) == in_output;
            axes.iter().copied().filter(fits).collect()
        };
        let batch = select(a, b, true, true);
        let contracted = select(a, b, true, false);
        let free_a = select(a, b, false, true);
        let free_b = select(b, a, false, true);
        let of_b = |axes: &[Axis]| -> Vec<Axis> { axes.iter().filter_map(|axis| find(b, axis.label)).collect() };
        let left = View { kept: [&batch[..], &free_a, &contracted].concat(), summed: select(a, b, false, false) };
        let right = View {
            kept: [&of_b(&batch)[..], &of_b(&contracted), &free_b].concat(),
            summed: select(b, a, false, false),
        };
        let matrices = MatMulShape::new(size_of(&free_a), size_of(&contracted), size_of(&free_b));
        let place = Place::new(&[&batch[..], &free_a, &free_b].concat(), output)?;
        Ok(Product { left, right, batch: size_of(&batch), matrices, place })
    }
}

/// The destination of values in the output.
struct Place {
    shape: Shape,
    /// The output's axes, in the order of the values' axes; a repeated label is a diagonal.
    axes: Vec<Axis>,
}

impl Place {
    /// Computes the destination of values in row-major order of the given axes.
    fn new(axes: &[Axis], output: &[Label]) -> Result<Place> {
        let size = |label: &Label| axes.iter().find(|axis| axis.label == *label).map(|axis| axis.size);
        let dims: Option<Vec<usize>> = output.iter().map(size).collect();
        let dims = dims.ok_or_else(|| Status::invalid_argument("an output label is in no input"))?;
        let targets = axes_of(output, &dims)?;
        let targets: Option<Vec<Axis>> =
            axes.iter().map(|axis| targets.iter().find(|target| target.label == axis.label).copied()).collect();
        let axes = targets.ok_or_else(|| Status::internal("a kept label is not in the output"))?;
        Ok(Place { shape: Shape::from_usize(&dims)?, axes })
    }

    fn arrange<T: Element>(&self, values: &[T]) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(T::DTYPE, self.shape.clone())?;
        let elements = tensor.make_mut::<T>()?;
        if !values.is_empty() {
            for (&value, target) in values.iter().zip(offsets(&self.axes)) {
                elements[target] = value;
            }
        }
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};

    fn run(equation: &str, inputs: &[Tensor]) -> Result<Tensor> {
        run_op("Einsum", attrs![("equation", equation)], inputs).map(|mut outputs| outputs.remove(0))
    }

    fn ramp(dims: &[i64]) -> Tensor {
        let values: Vec<f64> = (0..dims.iter().product()).map(|index: i64| (index % 7) as f64 - 2.0).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    #[test]
    fn one_operand() {
        let x = Tensor::from_slice(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
        let values = |equation: &str| run(equation, &[x.clone()]).unwrap().as_slice::<i32>().unwrap().to_vec();
        assert_eq!(values("ij->ji"), [1, 3, 2, 4]);
        assert_eq!(values("ij->j"), [4, 6]);
        assert_eq!(values("ii->"), [5]);
        assert_eq!(values("ii->i"), [1, 4]);
        assert_eq!(values("...->..."), [1, 2, 3, 4]);
        let y = run("i->ii", &[Tensor::vector(&[7i32, 8])]).unwrap();
        assert_eq!(y.as_slice::<i32>().unwrap(), &[7, 0, 0, 8]);
    }

    #[test]
    fn two_operands() {
        let a = Tensor::from_slice(&[2, 2], &[1i64, 2, 3, 4]).unwrap();
        let b = Tensor::from_slice(&[2, 2], &[5i64, 6, 7, 8]).unwrap();
        let values =
            |equation: &str| run(equation, &[a.clone(), b.clone()]).unwrap().as_slice::<i64>().unwrap().to_vec();
        assert_eq!(values("ij,jk->ik"), [19, 22, 43, 50]);
        assert_eq!(values("ij,jk->ki"), [19, 43, 22, 50]);
        assert_eq!(values("ij,ij->"), [70]);
        assert_eq!(values("ij,ij->ij"), [5, 12, 21, 32]);
        assert_eq!(values("ij,kl->i"), [3 * 26, 7 * 26]);
        let batch = Tensor::from_slice(&[2, 1, 2], &[1i64, 2, 3, 4]).unwrap();
        let y = run("...ij,...jk->...ik", &[batch, b]).unwrap();
        assert_eq!((y.dims(), y.as_slice::<i64>().unwrap()), (&[2, 1, 2][..], &[19, 22, 43, 50][..]));
    }

    #[test]
    fn bad_equations_are_errors() {
        let x = || Tensor::from_slice(&[2, 3], &[0f32; 6]).unwrap();
        for equation in ["ij", "ij->k", "i->i", "ii->i", "ij,jk->ik", "....->i", "ij->ij->", "ijk...->"] {
            assert!(run(equation, &[x()]).is_err(), "{equation}");
        }
        assert!(run("ij,jk->ik", &[x(), x()]).is_err());
    }

    #[test]
    fn shapes() {
        let attrs = attrs![("equation", "...ij,...jk->...ik"), ("N", 2i64)];
        let shapes = infer("Einsum", attrs, "[7,1,2,?];[5,?,3]", &[]).unwrap();
        assert_eq!(shapes[0].to_string(), "[7,5,2,3]");
    }

    #[test]
    fn gradients() {
        for equation in ["ij->ji", "ij->j", "ij->", "ij->i"] {
            check_gradient(&[ramp(&[2, 3])], |_, x| einsum(equation, x));
        }
        for equation in ["ii->", "ii->i"] {
            check_gradient(&[ramp(&[3, 3])], |_, x| einsum(equation, x));
        }
        for equation in ["ij,jk->ik", "ij,jk->ki", "ij,jk->", "ij,jk->j", "ij,jk->i"] {
            check_gradient(&[ramp(&[2, 3]), ramp(&[3, 4])], |_, x| einsum(equation, x));
        }
        check_gradient(&[ramp(&[2, 1, 2, 3]), ramp(&[4, 3, 2])], |_, x| einsum("...ij,...jk->...ik", x));
    }
}
