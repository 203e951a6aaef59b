//! Conversions between axis orders: DataFormatDimMap, DataFormatVecPermute.

use graph::ShapeContext;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape};
use num_traits::{AsPrimitive, PrimInt};
use std::marker::PhantomData;
use tensor::{Element, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DataFormatDimMap",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {int32, int64} = DT_INT32", "src_format: string = 'NHWC'", "dst_format: string = 'NCHW'"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [i32, i64] => DimMap),
    },
    Op {
        def: OpDef {
            name: "DataFormatVecPermute",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {int32, int64} = DT_INT32", "src_format: string = 'NHWC'", "dst_format: string = 'NCHW'"],
            flags: OpFlags::NONE,
        },
        shape: permute_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [i32, i64] => VecPermute),
    },
];

fn permute_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let x = c.with_rank_at_least(0, 1)?;
    c.with_rank_at_most(0, 2)?;
    c.set_output(0, x);
    Ok(())
}

/// Two orders of the same axes.
struct Formats {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Formats {
    fn new(builder: &KernelBuilder<'_>) -> Result<Formats> {
        let attrs = builder.attrs();
        let (source, target) = (attrs.bytes("src_format")?.to_vec(), attrs.bytes("dst_format")?.to_vec());
        for (name, format) in [("Source", &source), ("Destination", &target)] {
            if !(4..=5).contains(&format.len()) {
                return Err(Status::invalid_argument(format!(
                    "{name} format must be of length 4 or 5, received {}",
                    String::from_utf8_lossy(format)
                )));
            }
        }
        let sorted = |format: &[u8]| {
            let mut letters = format.to_vec();
            letters.sort_unstable();
            letters
        };
        let letters = sorted(&source);
        if letters != sorted(&target) || letters.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Status::invalid_argument(format!(
                "Destination and source format must determine a permutation, got {} and {}",
                String::from_utf8_lossy(&source),
                String::from_utf8_lossy(&target)
            )));
        }
        Ok(Formats { source, target })
    }
}

struct DimMap<T> {
    /// The new position of each axis.
    places: Vec<usize>,
    element: PhantomData<fn(T)>,
}

impl<T: Element + PrimInt + AsPrimitive<i64>> DimMap<T>
where
    usize: AsPrimitive<T>,
{
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let Formats { source, target } = Formats::new(builder)?;
        let place = |letter: &u8| target.iter().position(|other| other == letter).unwrap_or(0);
        BoxedKernel::new(DimMap::<T> { places: source.iter().map(place).collect(), element: PhantomData })
    }
}

impl<T: Element + PrimInt + AsPrimitive<i64>> Kernel for DimMap<T>
where
    usize: AsPrimitive<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let x = context.input(0)?;
        let rank = self.places.len() as i64;
        let mut mapped = Vec::with_capacity(x.num_elements());
        for &axis in x.as_slice::<T>()? {
            let axis: i64 = axis.as_();
            if axis < -rank || axis >= rank {
                return Err(Status::invalid_argument(format!("x must be in [-{rank}, {rank}), got {axis}")));
            }
            let place = self.places[(if axis < 0 { axis + rank } else { axis }) as usize];
            mapped.push(place.as_());
        }
        let output = Tensor::from_slice(x.dims(), &mapped)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct VecPermute<T> {
    formats: Formats,
    element: PhantomData<fn(T)>,
}

impl<T: Element> VecPermute<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(VecPermute::<T> { formats: Formats::new(builder)?, element: PhantomData })
    }
}

impl<T: Element> Kernel for VecPermute<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let x = context.input(0)?;
        let shape = x.shape();
        let rank = self.formats.source.len();
        let rows = match shape.dims() {
            [rows] | [rows, 2] => *rows as usize,
            _ => {
                return Err(Status::invalid_argument(format!(
                    "input must be a vector or 2D tensor, but got shape {shape}"
                )));
            }
        };
        // Without batch and channels only the spatial axes are given.
        let is_spatial = rows + 2 == rank;
        if rows != rank && !is_spatial {
            return Err(Status::invalid_argument(format!(
                "1D input must be of size {} or {rank}, but got shape {shape}",
                rank - 2
            )));
        }
        let chosen = |format: &[u8]| -> Vec<u8> {
            format.iter().copied().filter(|letter| !is_spatial || !b"NC".contains(letter)).collect()
        };
        let (source, target) = (chosen(&self.formats.source), chosen(&self.formats.target));
        if source.len() != rows {
            return Err(Status::invalid_argument("the format must name the batch and the channels N and C"));
        }
        let values = x.as_slice::<T>()?;
        let width = x.num_elements() / rows.max(1);
        let mut permuted = Vec::with_capacity(values.len());
        for letter in target {
            let row = source.iter().position(|&other| other == letter).unwrap_or(0);
            permuted.extend_from_slice(&values[row * width..(row + 1) * width]);
        }
        let output = Tensor::from_slice(x.dims(), &permuted)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    #[test]
    fn axes_move() {
        let y = run_op("DataFormatDimMap", attrs![], &[Tensor::vector(&[0i32, 1, 2, 3, -1])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[0, 2, 3, 1, 1]);
        assert!(run_op("DataFormatDimMap", attrs![], &[Tensor::vector(&[4i32])]).is_err());
        let y = run_op("DataFormatVecPermute", attrs![], &[Tensor::vector(&[7i64, 4, 9, 3])]).unwrap();
        assert_eq!(y[0].as_slice::<i64>().unwrap(), &[7, 3, 4, 9]);
        let pads = Tensor::from_slice(&[4, 2], &[7i32, 4, 9, 3, 4, 5, 5, 1]).unwrap();
        let y = run_op("DataFormatVecPermute", attrs![], &[pads]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[7, 4, 5, 1, 9, 3, 4, 5]);
        let spatial = attrs![("src_format", "NHWC"), ("dst_format", "NWHC")];
        let y = run_op("DataFormatVecPermute", spatial, &[Tensor::vector(&[3i32, 4])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[4, 3]);
        for (source, target) in [("NHWC", "NHW"), ("NHWC", "NHWD"), ("NHHC", "NHHC")] {
            let attrs = attrs![("src_format", source), ("dst_format", target)];
            assert!(run_op("DataFormatDimMap", attrs, &[Tensor::vector(&[0i32])]).is_err(), "{source} {target}");
        }
    }
}
