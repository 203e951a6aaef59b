//! Where: the positions of the nonzero elements.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels};
use smallvec::SmallVec;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// TensorFlow has no kernel for more dimensions.
const RANK_MAX: usize = 8;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Where",
        inputs: &["input: T"],
        outputs: &["index: int64"],
        attrs: &[
            "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = DT_BOOL",
        ],
        flags: OpFlags::NONE,
    },
    shape: where_shape,
    gradient: Gradient::Unsupported,
    kernels: kernels!("T": [
        bool, f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
    ] => Where),
}];

/// Returns the positions of the elements that are true or nonzero, one row for each, in row-major order.
#[track_caller]
pub fn where_true(condition: &Output) -> Output {
    condition.graph().op("Where").input(condition).output()
}

fn where_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rank = c.input(0).rank().map(|rank| rank as i64);
    c.set_output(0, PartialShape::new(&[None, rank]));
    Ok(())
}

struct Where<T>(PhantomData<fn(T)>);

impl<T: Element> Where<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Where::<T>(PhantomData))
    }
}

impl<T: Element> Kernel for Where<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let elements = input.as_slice::<T>()?;
        let is_set = |element: &T| *element != T::default();
        let count = elements.iter().filter(|element| is_set(element)).count();
        let rank = input.shape().rank();
        if rank > RANK_MAX {
            return Err(Status::invalid_argument(format!("WhereOp : Unhandled input dimensions: {rank}")));
        }
        let dims = input.shape().to_usize();
        let shape = Shape::from_usize(&[count, rank])?;
        let output = Tensor::build(shape, |to: &mut [i64]| match &dims[..] {
            [] => {}
            [_] => {
                let set = elements.iter().enumerate().filter(|(_, element)| is_set(element));
                to.iter_mut().zip(set).for_each(|(to, (index, _))| *to = index as i64);
            }
            [outer @ .., inner] => locate(elements, outer, (*inner).max(1), to, is_set),
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Works row by row, so that the outer indices are computed once per row.
fn locate<T>(elements: &[T], outer: &[usize], inner: usize, to: &mut [i64], is_set: impl Fn(&T) -> bool) {
    let rank = outer.len() + 1;
    let mut rows = to.chunks_exact_mut(rank);
    let mut place: SmallVec<[i64; 8]> = SmallVec::from_elem(0, outer.len());
    for run in elements.chunks_exact(inner) {
        for (index, _) in run.iter().enumerate().filter(|(_, element)| is_set(element)) {
            if let Some(row) = rows.next() {
                row[..rank - 1].copy_from_slice(&place);
                row[rank - 1] = index as i64;
            }
        }
        for (index, &size) in place.iter_mut().zip(outer).rev() {
            *index += 1;
            if *index < size as i64 {
                break;
            }
            *index = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[2, 1, 2], &[true, false, true, true]).unwrap();
        let y = run_op("Where", attrs![], &[x]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i64>().unwrap()), (&[3i64, 3][..], &[0, 0, 0, 1, 0, 0, 1, 0, 1][..]));
        let y = run_op("Where", attrs![], &[Tensor::vector(&[0f32, -0.0, f32::NAN, 3.0])]).unwrap();
        assert_eq!(y[0].as_slice::<i64>().unwrap(), &[2, 3]);
        let y = run_op("Where", attrs![], &[Tensor::scalar(true)]).unwrap();
        assert_eq!(y[0].dims(), [1, 0]);
        let empty = Tensor::from_slice::<i32>(&[3, 0, 2], &[]).unwrap();
        assert_eq!(run_op("Where", attrs![], &[empty]).unwrap()[0].dims(), [0, 3]);
    }

    #[test]
    fn shapes() {
        check_shape("Where", attrs![], "[2,?,3]", "[?,3]");
        check_shape("Where", attrs![], "?", "[?,?]");
    }
}
