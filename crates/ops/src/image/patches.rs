//! Sliding windows over images: ExtractImagePatches, ExtractVolumePatches.

use crate::compose::{Gradients, binary, int_scalar, int_vector, reshape, shape_of, ternary, unary};
use crate::movement::Movable;
use graph::Output;
use kernel::{
    AttrMap, BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    ShapeContext,
};
use tensor::{PartialShape, Result, Shape, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ExtractImagePatches",
            inputs: &["images: T"],
            outputs: &["patches: T"],
            attrs: &[
                "ksizes: list(int) >= 4",
                "strides: list(int) >= 4",
                "rates: list(int) >= 4",
                "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128, bool}",
                "padding: {'SAME', 'VALID'}",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| patches_shape(c, 2),
        gradient: Gradient::Fn(image_patches_gradient),
        kernels: &[KernelDef::any(|builder| Patches::create(builder, 2))],
    },
    Op {
        def: OpDef {
            name: "ExtractVolumePatches",
            inputs: &["input: T"],
            outputs: &["patches: T"],
            attrs: &[
                "ksizes: list(int) >= 5",
                "strides: list(int) >= 5",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "padding: {'SAME', 'VALID'}",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| patches_shape(c, 3),
        gradient: Gradient::Fn(volume_patches_gradient),
        kernels: &[KernelDef::any(|builder| Patches::create(builder, 3))],
    },
];

fn patches_shape(c: &mut ShapeContext<'_>, spatial: usize) -> Result<()> {
    let input = c.with_rank(0, spatial + 2)?;
    let windows = Windows::new(c.attrs, spatial)?;
    let mut dims = vec![input.dim(0)];
    for axis in 0..spatial {
        dims.push(match input.dim(axis + 1) {
            Some(size) => Some(windows.place(axis, size as usize)?.0 as i64),
            None => None,
        });
    }
    dims.push(input.dim(spatial + 1).map(|depth| depth.saturating_mul(windows.taps() as i64)));
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

fn image_patches_gradient(args: &GradientArgs<'_>) -> Gradients {
    patches_gradient(args, "ExtractImagePatches", 2)
}

fn volume_patches_gradient(args: &GradientArgs<'_>) -> Gradients {
    patches_gradient(args, "ExtractVolumePatches", 3)
}

/// Adds the gradient of each patch element to its pixel: patches of pixel numbers say which that is.
fn patches_gradient(args: &GradientArgs<'_>, op: &str, spatial: i32) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let graph = grad.graph();
    let images = args.input(0);
    let shape = shape_of(&images)?;
    let part = |start: i32, length: i32| {
        ternary("Slice", &shape, &int_vector(graph, &[start])?, &int_vector(graph, &[length])?)
    };
    let concat = |parts: &[&Output]| -> Result<Output> {
        let op = graph.op("ConcatV2").inputs(parts.iter().copied()).input(&int_scalar(graph, 0)?);
        Ok(op.attr("N", parts.len() as i64).try_build()?.output(0))
    };
    let (one, single) = (int_scalar(graph, 1)?, int_vector(graph, &[1])?);
    let sizes = part(1, spatial)?;
    let count = binary("Prod", &sizes, &int_vector(graph, &[0])?)?;
    let numbers = ternary("Range", &one, &binary("AddV2", &count, &one)?, &one)?;
    let numbers = reshape(&numbers, &concat(&[&single, &sizes, &single])?)?;
    let attrs = args.op.attrs();
    let mut sources = graph.op(op).input(&numbers).attr("padding", attrs.string("padding")?);
    for name in ["ksizes", "strides", "rates"] {
        if let Ok(list) = attrs.ints(name) {
            sources = sources.attr(name, list);
        }
    }
    let all = int_vector(graph, &[-1])?;
    // Positions outside the images are zero, which must not be the number of a pixel.
    let sources = binary("Sub", &reshape(&sources.try_build()?.output(0), &all)?, &one)?;
    let swapped = int_vector(graph, &[1, 0, 2])?;
    let by_tap = reshape(&grad, &concat(&[&part(0, 1)?, &all, &part(spatial + 1, 1)?])?)?;
    let by_tap = binary("Transpose", &by_tap, &swapped)?;
    let sums = ternary("UnsortedSegmentSum", &by_tap, &sources, &count)?;
    let back = reshape(&binary("Transpose", &sums, &swapped)?, &unary("Identity", &shape)?)?;
    Ok(vec![Some(back.into())])
}

/// The window over the spatial axes.
struct Windows {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    rates: Vec<usize>,
    same: bool,
}

impl Windows {
    fn new(attrs: &AttrMap, spatial: usize) -> Result<Windows> {
        let list = |name: &str| -> Result<Vec<usize>> {
            let list = attrs.ints(name)?;
            if list.len() != spatial + 2 {
                return Err(Status::invalid_argument(format!(
                    "the {name} attribute must contain {} values, but got: {}",
                    spatial + 2,
                    list.len()
                )));
            }
            if list[0] != 1 || list[spatial + 1] != 1 {
                return Err(Status::unimplemented(format!("Only support {name} across space.")));
            }
            let inner = list[1..=spatial].iter();
            inner
                .map(|&value| match value {
                    1..=0x7fff_ffff => Ok(value as usize),
                    _ => Err(Status::out_of_range(format!("{name} is out of range."))),
                })
                .collect()
        };
        let (sizes, strides) = (list("ksizes")?, list("strides")?);
        let rates = if attrs.contains_key("rates") { list("rates")? } else { vec![1; spatial] };
        if sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size)).is_none() {
            return Err(Status::invalid_argument("the windows are too large"));
        }
        Ok(Windows { sizes, strides, rates, same: attrs.string("padding")? == "SAME" })
    }

    /// Returns the number of elements of a window.
    fn taps(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the number of windows along an axis, and how far before the input the first one begins.
    fn place(&self, axis: usize, input: usize) -> Result<(usize, usize)> {
        let stride = self.strides[axis] as i64;
        let reach = (self.sizes[axis] as i64 - 1).saturating_mul(self.rates[axis] as i64).saturating_add(1);
        let input = input as i64;
        if self.same {
            let count = (input + stride - 1) / stride;
            let covered = ((count - 1) * stride).saturating_add(reach);
            return Ok((count as usize, (covered.saturating_sub(input).max(0) / 2) as usize));
        }
        let count = input.saturating_sub(reach).saturating_add(stride) / stride;
        match usize::try_from(count) {
            Ok(count) => Ok((count, 0)),
            Err(_) => Err(Status::invalid_argument(format!(
                "Computed output size would be negative: {count} [input_size: {input}, effective_filter_size: {reach}, \
                 stride: {stride}]"
            ))),
        }
    }
}

struct Patches {
    spatial: usize,
    windows: Windows,
}

impl Patches {
    fn create(builder: &KernelBuilder<'_>, spatial: usize) -> Result<BoxedKernel> {
        BoxedKernel::new(Patches { spatial, windows: Windows::new(builder.attrs(), spatial)? })
    }
}

impl Kernel for Patches {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let shape = input.shape();
        if shape.rank() != self.spatial + 2 {
            return Err(Status::invalid_argument(format!("input must be {}-dimensional{shape}", self.spatial + 2)));
        }
        // A flat image is a volume with a single plane.
        let mut plan = Plan { depth: shape.size(self.spatial + 1), ..Plan::default() };
        let mut sizes = vec![shape.dim(0)];
        for axis in 0..self.spatial {
            let at = 3 - self.spatial + axis;
            plan.input[at] = shape.size(axis + 1);
            (plan.output[at], plan.before[at]) = self.windows.place(axis, shape.size(axis + 1))?;
            plan.window[at] = self.windows.sizes[axis];
            plan.stride[at] = self.windows.strides[axis];
            plan.rate[at] = self.windows.rates[axis];
            sizes.push(plan.output[at] as i64);
        }
        let length = (plan.depth as i64).checked_mul(self.windows.taps() as i64);
        sizes.push(length.ok_or_else(|| Status::invalid_argument("the patches are too large"))?);
        let shape = Shape::new(&sizes)?;
        let output = with_movable!(input.dtype(), E => {
            let zero = E::zero().ok_or_else(|| Status::invalid_argument("patches of elements without a zero"))?;
            let from = E::view(input)?;
            E::build(input.dtype(), shape, |to| plan.copy(from, to, &zero))
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// The sizes along the three spatial axes.
struct Plan {
    input: [usize; 3],
    output: [usize; 3],
    before: [usize; 3],
    window: [usize; 3],
    stride: [usize; 3],
    rate: [usize; 3],
    depth: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { input: [1; 3], output: [1; 3], before: [0; 3], window: [1; 3], stride: [1; 3], rate: [1; 3], depth: 0 }
    }
}

impl Plan {
    /// Returns the input position of a window's element along an axis.
    fn source(&self, axis: usize, window: usize, tap: usize) -> Option<usize> {
        let place = (window * self.stride[axis] + tap * self.rate[axis]).checked_sub(self.before[axis])?;
        (place < self.input[axis]).then_some(place)
    }

    fn copy<E: Clone>(&self, from: &[E], to: &mut [E], zero: &E) {
        if to.is_empty() {
            return;
        }
        let mut pixels = to.chunks_exact_mut(self.depth);
        let volume: usize = self.input.iter().product();
        let windows: usize = self.output.iter().product();
        let taps: usize = self.window.iter().product();
        let count = pixels.len() / (windows * taps);
        for batch in 0..count {
            for window in 0..windows {
                let at = split(window, self.output);
                for tap in 0..taps {
                    let inside = split(tap, self.window);
                    let place = (0..3).try_fold(0, |place, axis| {
                        Some(place * self.input[axis] + self.source(axis, at[axis], inside[axis])?)
                    });
                    let Some(to) = pixels.next() else { return };
                    match place {
                        Some(place) => {
                            let start = (batch * volume + place) * self.depth;
                            to.clone_from_slice(&from[start..start + self.depth]);
                        }
                        None => to.fill(zero.clone()),
                    }
                }
            }
        }
    }
}

/// Returns an index along each of three axes.
fn split(index: usize, sizes: [usize; 3]) -> [usize; 3] {
    [index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use tensor::Tensor;

    fn windows(padding: &str) -> AttrMap {
        let ints = |list: &'static [i64]| list;
        attrs![
            ("ksizes", ints(&[1, 2, 2, 1])),
            ("strides", ints(&[1, 1, 1, 1])),
            ("rates", ints(&[1, 1, 1, 1])),
            ("padding", padding)
        ]
    }

    #[test]
    fn values() {
        let image = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let patches = run_op("ExtractImagePatches", windows("SAME"), &[image]).unwrap();
        assert_eq!(patches[0].dims(), [1, 2, 2, 4]);
        let expected = [1., 2., 3., 4., 2., 0., 4., 0., 3., 4., 0., 0., 4., 0., 0., 0.];
        assert_eq!(patches[0].as_slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn shapes() {
        check_shape("ExtractImagePatches", windows("VALID"), "[?,5,?,3]", "[?,4,?,12]");
    }

    #[test]
    fn gradients() {
        let values: Vec<f64> = (0..24).map(|index| f64::from(index) / 7.0).collect();
        let image = Tensor::from_slice(&[2, 3, 2, 2], &values).unwrap();
        for padding in ["SAME", "VALID"] {
            check_gradient(&[image.clone()], |graph, x| {
                let mut op = graph.op("ExtractImagePatches").input(&x[0]);
                for (name, value) in windows(padding) {
                    op = op.attr(&name, value);
                }
                op.output()
            });
        }
    }
}
