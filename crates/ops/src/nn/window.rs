//! Common parts of convolutions and poolings: the positions of the axes, and the sliding window.

use kernel::AttrMap;
use smallvec::SmallVec;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor};

/// How far a window may extend beyond the input: elements of a padded copy per element of the input, and a minimum.
const PADDED_RATIO_MAX: usize = 64;
const PADDED_ALWAYS: usize = 1 << 26;

/// A sliding window over two or three spatial axes. Arrays hold depth, rows and columns; a missing depth is 1.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// 2 or 3.
    pub spatial: usize,
    pub channels_first: bool,
    pub strides: [usize; 3],
    pub dilations: [usize; 3],
    /// The step along the channels; other than 1 for pooling across them only.
    pub channel_stride: usize,
    padding: Padding,
}

#[derive(Clone, Debug)]
enum Padding {
    Same,
    Valid,
    Explicit([(usize, usize); 3]),
}

/// The sizes of a tensor of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Images {
    pub batch: usize,
    pub size: [usize; 3],
    pub channels: usize,
}

impl Window {
    /// Reads strides, dilations, padding and format from a node's attributes.
    pub(super) fn from_attrs(attrs: &AttrMap, spatial: usize) -> Result<Window> {
        Window::new(attrs, spatial, attrs.ints("strides")?)
    }

    /// As [`from_attrs`](Self::from_attrs), with strides that aren't an attribute.
    pub(super) fn new(attrs: &AttrMap, spatial: usize, strides: &[i64]) -> Result<Window> {
        let format = attrs.string("data_format").unwrap_or_else(|_| "NHWC".to_owned());
        let channels_first = match format.as_str() {
            "NHWC" | "NDHWC" => false,
            "NCHW" | "NCDHW" => true,
            other => return Err(Status::unimplemented(format!("data format {other} is for GPUs only"))),
        };
        let mut window = Window {
            spatial,
            channels_first,
            strides: [1; 3],
            dilations: [1; 3],
            channel_stride: 1,
            padding: Padding::Valid,
        };
        let (batch, strides, channels) = window.steps(strides, "strides")?;
        window.strides = strides;
        if batch != 1 {
            return Err(Status::invalid_argument(
                "Current implementation does not yet support strides in the batch and depth dimensions.",
            ));
        }
        window.channel_stride = channels;
        if let Ok(dilations) = attrs.ints("dilations") {
            window.dilations = match window.steps(dilations, "dilations")? {
                (1, dilations, 1) => dilations,
                _ => {
                    return Err(Status::invalid_argument(
                        "Current implementation does not yet support dilations in the batch and depth dimensions.",
                    ));
                }
            };
        }
        window.padding = match attrs.string("padding")?.as_str() {
            "SAME" => Padding::Same,
            "EXPLICIT" => window.explicit(attrs.ints("explicit_paddings")?)?,
            _ => Padding::Valid,
        };
        Ok(window)
    }

    /// Splits a list with a number for each axis into those for the batch, the spatial axes and the channels.
    pub(super) fn steps(&self, list: &[i64], name: &str) -> Result<(usize, [usize; 3], usize)> {
        if list.len() != self.spatial + 2 {
            return Err(Status::invalid_argument(format!(
                "Sliding window {name} field must specify {} dimensions",
                self.spatial + 2
            )));
        }
        let mut positive: SmallVec<[usize; 5]> = SmallVec::new();
        for &step in list {
            match usize::try_from(step) {
                Ok(step) if step > 0 && step <= i32::MAX as usize => positive.push(step),
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "Sliding window {name} must be positive. Stride must be > 0, but got {step}"
                    )));
                }
            }
        }
        let (spatial, channels) = self.split(&positive);
        Ok((positive[0], spatial, channels))
    }

    /// Splits the axes behind the batch.
    fn split(&self, list: &[usize]) -> ([usize; 3], usize) {
        let (first, channel) = if self.channels_first { (2, 1) } else { (1, self.spatial + 1) };
        let mut spatial = [1; 3];
        spatial[3 - self.spatial..].copy_from_slice(&list[first..first + self.spatial]);
        (spatial, list[channel])
    }

    fn explicit(&self, paddings: &[i64]) -> Result<Padding> {
        if paddings.len() != 2 * (self.spatial + 2) {
            return Err(Status::invalid_argument(format!(
                "explicit_paddings attribute must contain {} values, but got: {}",
                2 * (self.spatial + 2),
                paddings.len()
            )));
        }
        let (befores, afters): (Vec<i64>, Vec<i64>) = paddings.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
        let checked = |list: &[i64]| -> Result<Vec<usize>> {
            let convert = |&padding: &i64| {
                usize::try_from(padding).ok().filter(|&padding| padding <= i32::MAX as usize).ok_or_else(|| {
                    Status::invalid_argument(format!(
                        "All elements of explicit_paddings must be nonnegative, got {padding}"
                    ))
                })
            };
            list.iter().map(convert).collect()
        };
        let (befores, afters) = (checked(&befores)?, checked(&afters)?);
        let mut pairs = [(0, 0); 3];
        let (first, channel) = if self.channels_first { (2, 1) } else { (1, self.spatial + 1) };
        if [befores[0], afters[0], befores[channel], afters[channel]] != [0; 4] {
            return Err(Status::invalid_argument(
                "Nonzero explicit padding in the batch or depth dimensions is not supported",
            ));
        }
        for axis in 0..self.spatial {
            pairs[3 - self.spatial + axis] = (befores[first + axis], afters[first + axis]);
        }
        Ok(Padding::Explicit(pairs))
    }

    /// Splits the shape of a tensor of images.
    pub(super) fn images(&self, shape: &Shape, name: &str) -> Result<Images> {
        if shape.rank() != self.spatial + 2 {
            return Err(Status::invalid_argument(format!("{name} must be {}-dimensional: {shape}", self.spatial + 2)));
        }
        let dims = shape.to_usize();
        let (size, channels) = self.split(&dims);
        Ok(Images { batch: dims[0], size, channels })
    }

    /// Returns the shape of a tensor of images in the node's format.
    pub(super) fn shape(&self, images: &Images) -> Result<Shape> {
        let mut dims: SmallVec<[usize; 5]> = SmallVec::from_slice(&[images.batch]);
        if self.channels_first {
            dims.push(images.channels);
        }
        dims.extend_from_slice(&images.size[3 - self.spatial..]);
        if !self.channels_first {
            dims.push(images.channels);
        }
        Shape::from_usize(&dims)
    }

    /// Returns the size of the output along a spatial axis, and the padding before the input.
    fn along(&self, axis: usize, input: usize, window: usize) -> Result<(usize, usize)> {
        let stride = self.strides[axis];
        let reach = window
            .checked_sub(1)
            .and_then(|steps| steps.checked_mul(self.dilations[axis]))
            .and_then(|steps| steps.checked_add(1))
            .filter(|&reach| reach <= i32::MAX as usize)
            .ok_or_else(|| {
                Status::invalid_argument(format!("a window of {window} steps of {} is too large", self.dilations[axis]))
            })?;
        let negative = |size: i64| {
            Status::invalid_argument(format!(
                "Computed output size would be negative: {size} [input_size: {input}, effective_filter_size: {reach}, stride: {stride}]"
            ))
        };
        let slide = |padded: usize| -> Result<usize> {
            // An output of size 0 is allowed, a negative one isn't.
            let size = (padded + stride).checked_sub(reach).map(|rest| rest / stride);
            size.ok_or_else(|| negative((padded as i64 + stride as i64 - reach as i64) / stride as i64))
        };
        match &self.padding {
            Padding::Valid => Ok((slide(input)?, 0)),
            Padding::Explicit(pairs) => {
                let (before, after) = pairs[axis];
                Ok((slide(input + before + after)?, before))
            }
            Padding::Same => {
                let output = input.div_ceil(stride);
                let needed = (output.saturating_sub(1) * stride + reach).saturating_sub(input);
                Ok((output, if output == 0 { 0 } else { needed / 2 }))
            }
        }
    }

    /// Returns the spatial size of the output and the padding before the input.
    pub(super) fn slide(&self, input: [usize; 3], window: [usize; 3]) -> Result<([usize; 3], [usize; 3])> {
        let (mut output, mut before) = ([1; 3], [0; 3]);
        for axis in 3 - self.spatial..3 {
            (output[axis], before[axis]) = self.along(axis, input[axis], window[axis])?;
        }
        Ok((output, before))
    }

    /// Refuses windows that extend so far beyond the input that a padded copy of it would not fit into memory.
    pub(super) fn check_reach(&self, images: &Images, window: [usize; 3], output: [usize; 3]) -> Result<()> {
        let mut padded = Some(images.channels);
        for axis in 0..3 {
            let reach = output[axis]
                .saturating_sub(1)
                .checked_mul(self.strides[axis])
                .and_then(|start| start.checked_add(window[axis].saturating_sub(1).checked_mul(self.dilations[axis])?))
                .and_then(|reach| reach.checked_add(1));
            padded = padded.zip(reach).and_then(|(padded, reach)| padded.checked_mul(reach));
        }
        let size = images.size.iter().product::<usize>() * images.channels;
        match padded {
            Some(padded) if padded <= PADDED_ALWAYS || padded / PADDED_RATIO_MAX <= size => Ok(()),
            _ => Err(Status::invalid_argument("the window reaches too far beyond the input")),
        }
    }

    /// Returns the spatial sizes of an output whose input and `window` are partly known.
    pub(super) fn slide_partial(
        &self,
        input: &PartialShape,
        window: &[Option<i64>],
        channels: Option<i64>,
    ) -> Result<PartialShape> {
        let first = if self.channels_first { 2 } else { 1 };
        let mut dims: SmallVec<[Option<i64>; 5]> = SmallVec::from_slice(&[input.dim(0)]);
        if self.channels_first {
            dims.push(channels);
        }
        for position in 0..self.spatial {
            let axis = 3 - self.spatial + position;
            let size = match (input.dim(first + position), window[position]) {
                (Some(input), Some(window)) => {
                    Some(self.along(axis, input as usize, usize::try_from(window).unwrap_or(0))?.0 as i64)
                }
                // With padding that preserves the size, the window doesn't matter for it.
                (Some(input), None) => match self.padding {
                    Padding::Same => Some((input as usize).div_ceil(self.strides[axis]) as i64),
                    _ => None,
                },
                _ => None,
            };
            dims.push(size);
        }
        if !self.channels_first {
            dims.push(channels);
        }
        Ok(PartialShape::new(&dims))
    }

    /// Returns the axis of the channels.
    pub(super) fn channel_axis(&self) -> usize {
        if self.channels_first { 1 } else { self.spatial + 1 }
    }

    /// Returns the elements of a tensor of images with the channels last.
    pub(super) fn channels_last<T: Element>(&self, tensor: &Tensor) -> Result<Tensor> {
        if !self.channels_first {
            return Ok(tensor.clone());
        }
        let mut permutation: SmallVec<[usize; 5]> = SmallVec::from_slice(&[0]);
        permutation.extend(2..self.spatial + 2);
        permutation.push(1);
        transposed::<T>(tensor, &permutation)
    }

    /// Returns a tensor whose channels are last in the node's format.
    pub(super) fn from_channels_last<T: Element>(&self, tensor: Tensor) -> Result<Tensor> {
        if !self.channels_first {
            return Ok(tensor);
        }
        let mut permutation: SmallVec<[usize; 5]> = SmallVec::from_slice(&[0, self.spatial + 1]);
        permutation.extend(1..self.spatial + 1);
        transposed::<T>(&tensor, &permutation)
    }

    /// Returns the shape of a tensor of images with the channels last.
    pub(super) fn shape_channels_last(&self, images: &Images) -> Result<Shape> {
        Window { channels_first: false, ..self.clone() }.shape(images)
    }
}

fn transposed<T: Element>(tensor: &Tensor, permutation: &[usize]) -> Result<Tensor> {
    let dims = tensor.shape().to_usize();
    let from = tensor.as_slice::<T>()?;
    let shape = Shape::from_usize(&numeric::transpose::transposed_dims(&dims, permutation))?;
    Tensor::build(shape, |to: &mut [T]| numeric::transpose::transpose(from, &dims, permutation, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attrs;

    fn window(padding: &str, stride: i64, dilation: i64) -> Window {
        let attrs = attrs![
            ("strides", &[1, stride, stride, 1][..]),
            ("dilations", &[1, dilation, dilation, 1][..]),
            ("padding", padding),
            ("explicit_paddings", &[0i64, 0, 1, 2, 0, 0, 0, 0][..]),
        ];
        Window::from_attrs(&attrs, 2).unwrap()
    }

    #[test]
    fn sizes_follow_the_padding() {
        assert_eq!(window("VALID", 2, 1).along(1, 7, 3).unwrap(), (3, 0));
        assert_eq!(window("SAME", 2, 1).along(1, 7, 3).unwrap(), (4, 1));
        assert_eq!(window("SAME", 1, 2).along(1, 7, 3).unwrap(), (7, 2));
        assert_eq!(window("EXPLICIT", 1, 1).along(1, 7, 3).unwrap(), (8, 1));
        assert_eq!(window("VALID", 1, 1).along(1, 2, 3).unwrap(), (0, 0));
        let status = window("VALID", 1, 1).along(1, 1, 3).unwrap_err();
        assert!(status.message().starts_with("Computed output size would be negative: -1"), "{status}");
        assert!(window("SAME", 1, i64::from(i32::MAX)).along(1, 5, 3).is_err());
    }

    #[test]
    fn bad_attributes_are_refused() {
        for strides in [&[1i64, 1, 1][..], &[1, 0, 1, 1], &[1, -1, 1, 1], &[2, 1, 1, 1]] {
            assert!(Window::from_attrs(&attrs![("strides", strides), ("padding", "SAME")], 2).is_err(), "{strides:?}");
        }
    }
}
