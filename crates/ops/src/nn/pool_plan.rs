//! The sizes of a pooling, from attributes or, in the second version of the ops, from inputs.

use super::window::{Images, Window};
use graph::ShapeContext;
use kernel::{AttrMap, KernelBuilder, OpContext};
use numeric::pool::PoolShape;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The source of a pooling's window and strides.
pub(super) enum Source {
    /// Attributes, which are known when the kernel is created.
    Attrs(PoolWindow),
    /// Two inputs, the first of which has this index.
    Inputs { first: usize, spatial: usize, attrs: AttrMap },
}

/// A sliding window over images.
#[derive(Clone)]
pub(super) struct PoolWindow {
    pub window: Window,
    pub size: [usize; 3],
    pub channel_size: usize,
}

impl PoolWindow {
    pub(super) fn new(attrs: &AttrMap, spatial: usize, size: &[i64], strides: &[i64]) -> Result<PoolWindow> {
        if size.len() != spatial + 2 {
            return Err(Status::invalid_argument(format!(
                "Sliding window ksize field must specify {} dimensions",
                spatial + 2
            )));
        }
        let window = Window::new(attrs, spatial, strides)?;
        let (batch, size, channel_size) = window.steps(size, "ksize")?;
        if batch != 1 {
            return Err(Status::unimplemented("Pooling is not yet supported on the batch dimension."));
        }
        Ok(PoolWindow { window, size, channel_size })
    }

    pub(super) fn from_attrs(attrs: &AttrMap, spatial: usize) -> Result<PoolWindow> {
        PoolWindow::new(attrs, spatial, attrs.ints("ksize")?, attrs.ints("strides")?)
    }

    /// Returns whether the window extends over channels rather than pixels; it can't be both.
    pub(super) fn pools_channels(&self) -> Result<bool> {
        if self.channel_size == 1 {
            // A stride along channels that are pooled separately has no effect.
            return Ok(false);
        }
        if self.size != [1; 3] || self.window.strides != [1; 3] {
            return Err(Status::unimplemented(
                "MaxPooling supports exactly one of pooling across depth or pooling across width/height.",
            ));
        }
        if self.channel_size != self.window.channel_stride {
            return Err(Status::unimplemented(
                "Depthwise max pooling requires the depth window to equal the depth stride",
            ));
        }
        Ok(true)
    }

    /// Plans the pooling of images of a shape.
    pub(super) fn plan(&self, input: &Shape, name: &str) -> Result<PoolPlan> {
        if self.pools_channels()? {
            return Err(Status::unimplemented("Non-spatial pooling is not yet supported. Volunteers? :)"));
        }
        let images = self.window.images(input, name)?;
        let (size, pad_before) = self.window.slide(images.size, self.size)?;
        let output = Images { size, ..images };
        let shape = PoolShape {
            batch: images.batch,
            channels: images.channels,
            input: images.size,
            window: self.size,
            output: size,
            strides: self.window.strides,
            pad_before,
        };
        // A window entirely within the padding would have no elements.
        for axis in 0..3 {
            if size[axis] > 0 && (pad_before[axis] >= self.size[axis].max(1) && images.size[axis] > 0) {
                return Err(Status::invalid_argument(format!(
                    "padding {} must be smaller than the window {}",
                    pad_before[axis], self.size[axis]
                )));
            }
        }
        Ok(PoolPlan { window: self.window.clone(), shape, input: images, output })
    }
}

/// The sizes of a pooling, checked.
pub(super) struct PoolPlan {
    pub window: Window,
    pub shape: PoolShape,
    pub input: Images,
    pub output: Images,
}

impl PoolPlan {
    /// Checks that a tensor has the shape of the output.
    pub(super) fn check_output(&self, shape: &Shape, name: &str) -> Result<()> {
        let expected = self.window.shape(&self.output)?;
        if shape != &expected {
            return Err(Status::invalid_argument(format!("Expected {name} shape to be {expected}, but got {shape}")));
        }
        Ok(())
    }

    /// Returns whether there is nothing to compute.
    pub(super) fn is_empty(&self) -> bool {
        self.shape.in_len() == 0 || self.shape.out_len() == 0
    }
}

impl Source {
    /// Reads attributes, or the indices of the inputs.
    pub(super) fn new(builder: &KernelBuilder<'_>, spatial: usize) -> Result<Source> {
        if let Ok(range) = builder.input_range("ksize") {
            return Ok(Source::Inputs { first: range.start, spatial, attrs: builder.attrs().clone() });
        }
        Ok(Source::Attrs(PoolWindow::from_attrs(builder.attrs(), spatial)?))
    }

    /// Returns the window for one run.
    pub(super) fn window(&self, context: &OpContext<'_>) -> Result<PoolWindow> {
        match self {
            Source::Attrs(window) => Ok(window.clone()),
            Source::Inputs { first, spatial, attrs } => {
                let numbers = |tensor: &Tensor| tensor.to_indices();
                let (size, strides) = (numbers(context.input(*first)?)?, numbers(context.input(first + 1)?)?);
                PoolWindow::new(attrs, *spatial, &size, &strides)
            }
        }
    }
}

/// The shape function of poolings over `N` axes.
pub(super) fn pool_shape<const N: usize>(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, N + 2)?;
    let pool = PoolWindow::from_attrs(c.attrs, N)?;
    let output = pooled(&pool, &input)?;
    for index in 0..c.num_outputs() {
        c.set_output(index, output.clone());
    }
    Ok(())
}

/// As [`pool_shape`] in two dimensions, with the window in inputs.
pub(super) fn pool_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 4)?;
    let (Some(size), Some(strides)) = (c.constant(1), c.constant(2)) else {
        c.set_output(0, PartialShape::unknown_of_rank(4));
        return Ok(());
    };
    let pool = PoolWindow::new(c.attrs, 2, &size.to_indices()?, &strides.to_indices()?)?;
    let output = pooled(&pool, &input)?;
    c.set_output(0, output);
    Ok(())
}

fn pooled(pool: &PoolWindow, input: &PartialShape) -> Result<PartialShape> {
    let spatial = pool.window.spatial;
    let size: Vec<Option<i64>> = pool.size[3 - spatial..].iter().map(|&size| Some(size as i64)).collect();
    let channels = input.dim(pool.window.channel_axis()).map(|channels| channels / pool.channel_size as i64);
    pool.window.slide_partial(input, &size, channels)
}
