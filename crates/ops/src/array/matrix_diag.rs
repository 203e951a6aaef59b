//! Diagonals of matrices: MatrixDiag, MatrixDiagPart, MatrixSetDiag, in all versions.

use super::diagonals::{Alignment, Band, Layout};
use crate::compose::{call, constant, int_scalar};
use crate::movement::Movable;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "MatrixDiag",
            inputs: &["diagonal: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: diag_v1_shape,
        gradient: Gradient::Fn(diag_gradient),
        kernels: DIAG,
    },
    Op {
        def: OpDef {
            name: "MatrixDiagV2",
            inputs: &["diagonal: T", "k: int32", "num_rows: int32", "num_cols: int32", "padding_value: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: diag_shape,
        gradient: Gradient::Fn(diag_gradient),
        kernels: DIAG,
    },
    Op {
        def: OpDef {
            name: "MatrixDiagV3",
            inputs: &["diagonal: T", "k: int32", "num_rows: int32", "num_cols: int32", "padding_value: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"],
            flags: OpFlags::NONE,
        },
        shape: diag_shape,
        gradient: Gradient::Fn(diag_gradient),
        kernels: DIAG,
    },
    Op {
        def: OpDef {
            name: "BatchMatrixDiag",
            inputs: &["diagonal: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: diag_v1_shape,
        gradient: Gradient::Unsupported,
        kernels: DIAG,
    },
    Op {
        def: OpDef {
            name: "MatrixDiagPart",
            inputs: &["input: T"],
            outputs: &["diagonal: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: diag_part_v1_shape,
        gradient: Gradient::Fn(diag_part_gradient),
        kernels: PART,
    },
    Op {
        def: OpDef {
            name: "MatrixDiagPartV2",
            inputs: &["input: T", "k: int32", "padding_value: T"],
            outputs: &["diagonal: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: diag_part_shape,
        gradient: Gradient::Fn(diag_part_gradient),
        kernels: PART,
    },
    Op {
        def: OpDef {
            name: "MatrixDiagPartV3",
            inputs: &["input: T", "k: int32", "padding_value: T"],
            outputs: &["diagonal: T"],
            attrs: &["T: type", "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"],
            flags: OpFlags::NONE,
        },
        shape: diag_part_shape,
        gradient: Gradient::Fn(diag_part_gradient),
        kernels: PART,
    },
    Op {
        def: OpDef {
            name: "BatchMatrixDiagPart",
            inputs: &["input: T"],
            outputs: &["diagonal: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: diag_part_v1_shape,
        gradient: Gradient::Unsupported,
        kernels: PART,
    },
    Op {
        def: OpDef {
            name: "MatrixSetDiag",
            inputs: &["input: T", "diagonal: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: set_diag_shape,
        gradient: Gradient::Fn(set_diag_gradient),
        kernels: SET,
    },
    Op {
        def: OpDef {
            name: "MatrixSetDiagV2",
            inputs: &["input: T", "diagonal: T", "k: int32"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: set_diag_shape,
        gradient: Gradient::Fn(set_diag_gradient),
        kernels: SET,
    },
    Op {
        def: OpDef {
            name: "MatrixSetDiagV3",
            inputs: &["input: T", "diagonal: T", "k: int32"],
            outputs: &["output: T"],
            attrs: &["T: type", "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"],
            flags: OpFlags::NONE,
        },
        shape: set_diag_shape,
        gradient: Gradient::Fn(set_diag_gradient),
        kernels: SET,
    },
    Op {
        def: OpDef {
            name: "BatchMatrixSetDiag",
            inputs: &["input: T", "diagonal: T"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: set_diag_shape,
        gradient: Gradient::Unsupported,
        kernels: SET,
    },
];

const DIAG: &[KernelDef] = &[KernelDef::any(|builder| BoxedKernel::new(MatrixDiag { alignment: alignment(builder)? }))];
const PART: &[KernelDef] =
    &[KernelDef::any(|builder| BoxedKernel::new(MatrixDiagPart { alignment: alignment(builder)? }))];
const SET: &[KernelDef] =
    &[KernelDef::any(|builder| BoxedKernel::new(MatrixSetDiag { alignment: alignment(builder)? }))];

fn alignment(builder: &KernelBuilder<'_>) -> Result<Alignment> {
    Alignment::from_attrs(builder.attrs())
}

/// Returns matrices whose main diagonals are the last dimension of `diagonal`.
#[track_caller]
pub fn matrix_diag(diagonal: &Output) -> Output {
    diagonal.graph().op("MatrixDiag").input(diagonal).output()
}

/// Returns the main diagonals of the matrices in the last two dimensions of `input`.
#[track_caller]
pub fn matrix_diag_part(input: &Output) -> Output {
    input.graph().op("MatrixDiagPart").input(input).output()
}

/// Returns `input` with the main diagonals of its matrices replaced.
#[track_caller]
pub fn matrix_set_diag(input: &Output, diagonal: &Output) -> Output {
    input.graph().op("MatrixSetDiag").input(input).input(diagonal).output()
}

/// The attributes by which an op of this family describes its diagonals: `k` and `align`, if it has them.
struct Which {
    k: Option<Output>,
    align: String,
}

impl Which {
    fn of(args: &GradientArgs<'_>, k: usize) -> Result<Which> {
        let has_k = args.op.num_inputs() > k && args.op.input(k).dtype() == DType::Int32;
        let align = args.op.attrs().string("align").unwrap_or_else(|_| "LEFT_LEFT".to_owned());
        Ok(Which { k: if has_k { Some(args.input(k)) } else { None }, align })
    }

    fn index(&self, like: &Output) -> Result<Output> {
        match &self.k {
            Some(k) => Ok(k.clone()),
            None => int_scalar(like.graph(), 0),
        }
    }

    fn part(&self, matrix: &Output) -> Result<Output> {
        let padding = constant(matrix.graph(), &Tensor::zeros(matrix.dtype(), Shape::scalar())?)?;
        let builder = matrix.graph().op("MatrixDiagPartV3").input(matrix).input(&self.index(matrix)?).input(&padding);
        builder.attr("align", &self.align[..]).try_build()?.try_output(0)
    }

    fn set(&self, matrix: &Output, diagonal: &Output) -> Result<Output> {
        let builder = matrix.graph().op("MatrixSetDiagV3").input(matrix).input(diagonal).input(&self.index(matrix)?);
        builder.attr("align", &self.align[..]).try_build()?.try_output(0)
    }
}

fn diag_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let mut grads = vec![None; args.op.num_inputs()];
    if let Some(grad) = args.grad(0) {
        grads[0] = Some(Which::of(args, 1)?.part(&grad)?.into());
    }
    Ok(grads)
}

fn diag_part_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let mut grads = vec![None; args.op.num_inputs()];
    if let Some(grad) = args.grad(0) {
        let zeros = call("ZerosLike", &[&args.input(0)])?;
        grads[0] = Some(Which::of(args, 1)?.set(&zeros, &grad)?.into());
    }
    Ok(grads)
}

fn set_diag_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let mut grads = vec![None; args.op.num_inputs()];
    if let Some(grad) = args.grad(0) {
        let which = Which::of(args, 2)?;
        let zeros = call("ZerosLike", &[&args.input(1)])?;
        grads[0] = Some(which.set(&grad, &zeros)?.into());
        grads[1] = Some(which.part(&grad)?.into());
    }
    Ok(grads)
}

fn diag_v1_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 1)?;
    let Some(rank) = input.rank() else { return Ok(()) };
    c.set_output(0, input.concat(&input.slice(rank - 1, rank)));
    Ok(())
}

fn diag_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 1)?;
    let (Some(rank), Some(k)) = (input.rank(), c.constant(1)) else { return Ok(()) };
    let band = Band::from_tensor(&k)?;
    let kept = if band.count() == 1 { rank.checked_sub(1) } else { rank.checked_sub(2) };
    let kept = kept.ok_or_else(|| Status::invalid_argument("diagonal must have a row for each diagonal"))?;
    let size = |index: usize| c.constant(index).map(|size| size.to_index()).transpose();
    let (rows, columns) = (size(2)?, size(3)?);
    let sizes = match (input.dim(rank - 1), rows, columns) {
        (Some(longest), Some(rows), Some(columns)) => {
            let (rows, columns) = band.matrix_size(longest, rows, columns)?;
            [Some(rows), Some(columns)]
        }
        _ => [rows.filter(|&rows| rows >= 0), columns.filter(|&columns| columns >= 0)],
    };
    c.set_output(0, input.slice(0, kept).concat(&PartialShape::new(&sizes)));
    Ok(())
}

fn diag_part_v1_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 2)?;
    let Some(rank) = input.rank() else { return Ok(()) };
    let len = input.dim(rank - 2).zip(input.dim(rank - 1)).map(|(rows, columns)| rows.min(columns));
    c.set_output(0, input.slice(0, rank - 2).concat(&PartialShape::new(&[len])));
    Ok(())
}

fn diag_part_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 2)?;
    let (Some(rank), Some(k)) = (input.rank(), c.constant(1)) else { return Ok(()) };
    let band = Band::from_tensor(&k)?;
    let longest = match (input.dim(rank - 2), input.dim(rank - 1)) {
        (Some(rows), Some(columns)) => {
            band.check(rows, columns)?;
            Some(band.longest(rows, columns))
        }
        _ => None,
    };
    let tail: SmallVec<[Option<i64>; 2]> = if band.count() == 1 {
        [longest].into_iter().collect()
    } else {
        [Some(band.count()), longest].into_iter().collect()
    };
    c.set_output(0, input.slice(0, rank - 2).concat(&PartialShape::new(&tail)));
    Ok(())
}

fn set_diag_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, 2)?;
    c.with_rank_at_least(1, 1)?;
    c.set_output(0, input);
    Ok(())
}

struct MatrixDiag {
    alignment: Alignment,
}

impl Kernel for MatrixDiag {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let diagonal = context.input(0)?;
        let has_band = context.num_inputs() > 1;
        let band = if has_band { Band::from_tensor(context.input(1)?)? } else { Band::MAIN };
        let shape = diagonal.shape();
        let rows_of_diagonals = if band.count() > 1 { 2 } else { 1 };
        if shape.rank() < rows_of_diagonals {
            return Err(Status::invalid_argument(format!(
                "diagonal must be at least {rows_of_diagonals}-dim, received shape: {shape}"
            )));
        }
        if band.count() > 1 && shape.dim(shape.rank() - 2) != band.count() {
            return Err(Status::invalid_argument(
                "The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index \
                 range.",
            ));
        }
        let longest = shape.dim(shape.rank() - 1);
        let (rows, columns) = if has_band {
            let size = |index: usize, name: &str| context.scalar::<i32>(index, name).map(i64::from);
            band.matrix_size(longest, size(2, "num_rows")?, size(3, "num_cols")?)?
        } else {
            (longest, longest)
        };
        let padding = if has_band { Some(context.input(4)?) } else { None };
        let batch = shape.slice(0, shape.rank() - rows_of_diagonals);
        let layout = Layout { band, rows, columns, longest, alignment: self.alignment };
        let out_shape = batch.concat(&Shape::new(&[rows, columns])?)?;
        let output = with_movable!(diagonal.dtype(), E => spread::<E>(diagonal, &layout, padding, out_shape))?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the value for positions without a diagonal.
fn padding_value<E: Movable>(padding: Option<&Tensor>) -> Result<E> {
    let value = match padding {
        Some(padding) if padding.num_elements() == 1 => E::view(padding)?.first().cloned(),
        Some(padding) => {
            return Err(Status::invalid_argument(format!(
                "padding_value must be a scalar, received shape: {}",
                padding.shape()
            )));
        }
        None => E::zero(),
    };
    value.ok_or_else(|| Status::invalid_argument("there is no value to fill with"))
}

fn spread<E: Movable>(diagonal: &Tensor, layout: &Layout, padding: Option<&Tensor>, shape: Shape) -> Result<Tensor> {
    let value: E = padding_value(padding)?;
    let from = E::view(diagonal)?;
    let (matrix_len, diagonals_len) = lengths(layout);
    E::build(diagonal.dtype(), shape, |to| {
        to.fill(value);
        if matrix_len == 0 || diagonals_len == 0 {
            return;
        }
        for (to, from) in to.chunks_exact_mut(matrix_len).zip(from.chunks_exact(diagonals_len)) {
            layout.for_each(|place, diagonal| to[place].clone_from(&from[diagonal]));
        }
    })
}

fn lengths(layout: &Layout) -> (usize, usize) {
    ((layout.rows * layout.columns) as usize, (layout.band.count() * layout.longest) as usize)
}

struct MatrixDiagPart {
    alignment: Alignment,
}

impl Kernel for MatrixDiagPart {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let has_band = context.num_inputs() > 1;
        let band = if has_band { Band::from_tensor(context.input(1)?)? } else { Band::MAIN };
        let padding = if has_band { Some(context.input(2)?) } else { None };
        let (batch, layout) = matrix_layout(input, band, self.alignment)?;
        let tail = if band.count() == 1 {
            Shape::new(&[layout.longest])?
        } else {
            Shape::new(&[band.count(), layout.longest])?
        };
        let shape = batch.concat(&tail)?;
        let output = with_movable!(input.dtype(), E => collect::<E>(input, &layout, padding, shape))?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the shape of the batch, and the positions of the diagonals in its matrices.
fn matrix_layout(input: &Tensor, band: Band, alignment: Alignment) -> Result<(Shape, Layout)> {
    let shape = input.shape();
    if shape.rank() < 2 {
        return Err(Status::invalid_argument(format!("input must be at least 2-dim, received shape: {shape}")));
    }
    let (rows, columns) = (shape.dim(shape.rank() - 2), shape.dim(shape.rank() - 1));
    band.check(rows, columns)?;
    let longest = band.longest(rows, columns).max(0);
    Ok((shape.slice(0, shape.rank() - 2), Layout { band, rows, columns, longest, alignment }))
}

fn collect<E: Movable>(input: &Tensor, layout: &Layout, padding: Option<&Tensor>, shape: Shape) -> Result<Tensor> {
    let from = E::view(input)?;
    let value: E = match (padding, from.first()) {
        (None, Some(first)) => first.clone(),
        _ => padding_value(padding)?,
    };
    let (matrix_len, diagonals_len) = lengths(layout);
    E::build(input.dtype(), shape, |to| {
        to.fill(value);
        if matrix_len == 0 || diagonals_len == 0 {
            return;
        }
        for (to, from) in to.chunks_exact_mut(diagonals_len).zip(from.chunks_exact(matrix_len)) {
            layout.for_each(|place, diagonal| to[diagonal].clone_from(&from[place]));
        }
    })
}

struct MatrixSetDiag {
    alignment: Alignment,
}

impl Kernel for MatrixSetDiag {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let band = if context.num_inputs() > 2 { Band::from_tensor(context.input(2)?)? } else { Band::MAIN };
        let (batch, layout) = matrix_layout(context.input(0)?, band, self.alignment)?;
        let tail = if band.count() == 1 {
            Shape::new(&[layout.longest])?
        } else {
            Shape::new(&[band.count(), layout.longest])?
        };
        let expected = batch.concat(&tail)?;
        let given = context.input(1)?.shape();
        if given != &expected {
            let rank = given.rank();
            if band.count() > 1 && (rank < 2 || given.dim(rank - 2) != band.count()) {
                return Err(Status::invalid_argument(format!(
                    "The number of diagonals provided in `diag` is not consistent with `lower_diag_index` and \
                     `upper_diag_index`: expected shape {expected}, got {given}"
                )));
            }
            return Err(Status::invalid_argument(format!(
                "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to \
                 the longests diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: {}\nDiagonal shape: \
                 {given}\nExpected diagonal shape: {expected}",
                context.input(0)?.shape()
            )));
        }
        let target = context.take_input(0)?;
        let diagonal = context.input(1)?;
        let (matrix_len, diagonals_len) = lengths(&layout);
        let output = with_movable!(target.dtype(), E => {
            let from = E::view(diagonal)?;
            E::modify(target, |to| {
                if matrix_len > 0 && diagonals_len > 0 {
                    for (to, from) in to.chunks_exact_mut(matrix_len).zip(from.chunks_exact(diagonals_len)) {
                        layout.for_each(|place, diagonal| to[place].clone_from(&from[diagonal]));
                    }
                }
                Ok(())
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use graph::{AttrMap, Graph};
    use tensor::{Result, Tensor};

    fn matrix() -> Tensor {
        Tensor::from_slice(&[3, 4], &(1..13).collect::<Vec<i32>>()).unwrap()
    }

    fn run(op: &str, attrs: AttrMap, inputs: &[Tensor]) -> Result<(Vec<i64>, Vec<i32>)> {
        let y = run_op(op, attrs, inputs)?;
        Ok((y[0].dims().to_vec(), y[0].as_slice::<i32>()?.to_vec()))
    }

    fn k(values: &[i32]) -> Tensor {
        Tensor::vector(values)
    }

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn parts() {
        for (align, expected) in [
            ("LEFT_RIGHT", [3, 8, 9, 2, 7, 12, 1, 6, 11, 9, 5, 10]),
            ("RIGHT_LEFT", [9, 3, 8, 2, 7, 12, 1, 6, 11, 5, 10, 9]),
            ("LEFT_LEFT", [3, 8, 9, 2, 7, 12, 1, 6, 11, 5, 10, 9]),
            ("RIGHT_RIGHT", [9, 3, 8, 2, 7, 12, 1, 6, 11, 9, 5, 10]),
        ] {
            let inputs = [matrix(), k(&[-1, 2]), Tensor::scalar(9i32)];
            let (dims, values) = run("MatrixDiagPartV3", attrs![("align", align)], &inputs).unwrap();
            assert_eq!((&dims[..], &values[..]), (&[4, 3][..], &expected[..]), "{align}");
        }
        assert_eq!(run("MatrixDiagPart", attrs![], &[matrix()]).unwrap(), (vec![3], vec![1, 6, 11]));
        let inputs = [matrix(), k(&[-2, 0]), Tensor::scalar(9i32)];
        assert_eq!(run("MatrixDiagPartV2", attrs![], &inputs).unwrap().1, [1, 6, 11, 5, 10, 9, 9, 9, 9]);
        for bad in [&[4, 4][..], &[1, 0], &[-3, 0], &[0, 1, 2]] {
            assert!(run("MatrixDiagPartV3", attrs![], &[matrix(), k(bad), Tensor::scalar(9i32)]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn matrices() {
        let rows = || Tensor::from_slice(&[2, 3], &[1i32, 2, 3, 4, 5, 6]).unwrap();
        let diag = |diagonal: Tensor, band: &[i32], rows: i32, columns: i32, padding: i32, align: &str| {
            let scalar = Tensor::scalar::<i32>;
            let inputs = [diagonal, k(band), scalar(rows), scalar(columns), scalar(padding)];
            run("MatrixDiagV3", attrs![("align", align)], &inputs)
        };
        assert_eq!(diag(rows(), &[0, 1], -1, -1, 0, "LEFT_RIGHT").unwrap().1, [4, 1, 0, 0, 5, 2, 0, 0, 6]);
        assert_eq!(diag(rows(), &[-1, 0], -1, -1, 9, "RIGHT_LEFT").unwrap().1, [1, 9, 9, 4, 2, 9, 9, 5, 3]);
        let vector = || Tensor::vector(&[1i32, 2]);
        assert_eq!(
            diag(vector(), &[1], -1, -1, 0, "RIGHT_LEFT").unwrap(),
            (vec![3, 3], vec![0, 1, 0, 0, 0, 2, 0, 0, 0])
        );
        assert_eq!(diag(vector(), &[0], 3, -1, 0, "RIGHT_LEFT").unwrap(), (vec![3, 2], vec![1, 0, 0, 2, 0, 0]));
        assert_eq!(diag(vector(), &[-1], -1, 5, 0, "RIGHT_LEFT").unwrap().0, [3, 5]);
        assert!(diag(vector(), &[0], 4, 4, 0, "RIGHT_LEFT").is_err());
        assert!(diag(vector(), &[0], 1, -1, 0, "RIGHT_LEFT").is_err());
        assert_eq!(run("MatrixDiag", attrs![], &[rows()]).unwrap().0, [2, 3, 3]);
    }

    #[test]
    fn replacing() {
        let set = |op: &str, diagonal: Tensor, band: Option<&[i32]>| {
            let inputs: Vec<Tensor> = [Some(matrix()), Some(diagonal), band.map(k)].into_iter().flatten().collect();
            run(op, attrs![], &inputs).map(|(_, values)| values)
        };
        let two = |values: &[i32]| Tensor::from_slice(&[2, 3], values).unwrap();
        assert_eq!(
            set("MatrixSetDiagV3", two(&[0, 91, 92, 93, 94, 95]), Some(&[0, 1])).unwrap(),
            [93, 0, 3, 4, 5, 94, 91, 8, 9, 10, 95, 92]
        );
        assert_eq!(
            set("MatrixSetDiagV2", two(&[91, 92, 93, 94, 95, 0]), Some(&[-1, 0])).unwrap(),
            [91, 2, 3, 4, 94, 92, 7, 8, 9, 95, 93, 12]
        );
        assert_eq!(
            set("MatrixSetDiag", Tensor::vector(&[91, 92, 93]), None).unwrap(),
            [91, 2, 3, 4, 5, 92, 7, 8, 9, 10, 93, 12]
        );
        assert!(set("MatrixSetDiagV3", Tensor::vector(&[91, 92]), Some(&[0])).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("MatrixDiag", attrs![], "[2,?]", "[2,?,?]");
        check_shape("MatrixDiagPart", attrs![], "[?,3,4]", "[?,3]");
        let shape = infer("MatrixDiagPartV3", attrs![], "[?,3,4];[2];[]", &[(1, k(&[-1, 2]))]).unwrap();
        assert_eq!(shape[0].to_string(), "[?,4,3]");
        let constants = [(1, k(&[1])), (2, Tensor::scalar(-1i32)), (3, Tensor::scalar(-1i32))];
        let shape = infer("MatrixDiagV3", attrs![], "[?,2];[1];[];[];[]", &constants).unwrap();
        assert_eq!(shape[0].to_string(), "[?,3,3]");
        check_shape("MatrixSetDiagV3", attrs![], "[2,3,?];[2,3];[]", "[2,3,?]");
    }

    #[test]
    fn gradients() {
        let matrix = Tensor::from_slice(&[2, 3], &[1f64, 2., 3., 4., 5., 6.]).unwrap();
        let vector = Tensor::vector(&[1f64, 2.]);
        check_gradient(&[vector.clone()], |_, xs| super::matrix_diag(&xs[0]));
        check_gradient(&[matrix.clone()], |_, xs| super::matrix_diag_part(&xs[0]));
        check_gradient(&[matrix.clone(), vector], |_, xs| super::matrix_set_diag(&xs[0], &xs[1]));
        check_gradient(&[matrix], |graph: &Graph, xs| {
            let band = graph.constant_tensor(&k(&[0, 1]));
            let padding = graph.constant_tensor(&Tensor::scalar(0f64));
            graph.op("MatrixDiagPartV3").input(&xs[0]).input(&band).input(&padding).output()
        });
    }
}
