//! The checks of the gradient ops of convolutions, in TensorFlow's order and with its texts.

use super::window::{Images, Window};
use tensor::{Result, Shape, Status};

/// The shapes of a convolution's input, filter and output. For a gradient op, two are the shapes of inputs, and one is given as sizes.
pub(super) struct ConvShapes<'a> {
    pub input: &'a Shape,
    pub filter: &'a Shape,
    pub gradient: &'a Shape,
}

impl ConvShapes<'_> {
    /// Checks that the shapes are compatible for a gradient op.
    pub(super) fn check(&self, window: &Window, op: &str) -> Result<()> {
        match window.spatial {
            2 => self.check_images(window, &op.replace("Backprop", "CustomBackprop")),
            _ => self.check_volumes(window, &format!("{}Op", op.trim_end_matches("V2"))),
        }
    }

    fn check_images(&self, window: &Window, label: &str) -> Result<()> {
        self.check_ranks(label, 4)?;
        let (input, gradient) = (window.images(self.input, "input")?, window.images(self.gradient, "out_backprop")?);
        self.check_batch(&input, &gradient, label)?;
        let filter = self.filter.dims();
        if filter[2] == 0 {
            return error(format!("{label}: filter depth must be strictly greated than zero"));
        }
        if !input.channels.is_multiple_of(filter[2] as usize) {
            return error(format!("{label}: input depth must be evenly divisible by filter depth"));
        }
        self.check_outputs(&gradient, label)?;
        self.check_spatial(window, &input, &gradient, label)
    }

    fn check_volumes(&self, window: &Window, label: &str) -> Result<()> {
        if label.contains("Filter") {
            if self.filter.rank() != 5 {
                return error("filter_sizes tensor must have 5 dimensions".to_owned());
            }
            if self.input.rank() == 5 {
                let (input, filter) = (window.images(self.input, "input")?.channels, self.filter.dims()[3]);
                if input as i64 != filter {
                    return error(format!(
                        "input and filter_sizes must have the same number of channels. Got {input} for input and {filter} \
                         for filter_sizes"
                    ));
                }
            }
        } else if self.input.rank() != 5 {
            return error("input tensor must have 5 dimensions".to_owned());
        }
        self.check_ranks(label, 5)?;
        let (input, gradient) = (window.images(self.input, "input")?, window.images(self.gradient, "out_backprop")?);
        self.check_batch(&input, &gradient, label)?;
        self.check_outputs(&gradient, label)?;
        self.check_spatial(window, &input, &gradient, label)
    }

    fn check_ranks(&self, label: &str, rank: usize) -> Result<()> {
        for (name, shape) in [("input", self.input), ("filter", self.filter), ("out_backprop", self.gradient)] {
            if shape.rank() != rank {
                return error(format!("{label}: {name} must be {rank}-dimensional: {shape}"));
            }
        }
        Ok(())
    }

    fn check_batch(&self, input: &Images, gradient: &Images, label: &str) -> Result<()> {
        if input.batch != gradient.batch {
            return error(format!(
                "{label}: input and out_backprop must have the same batch size. Input batch: {}, outbackprop batch: {}, \
                 batch_dim: 0",
                input.batch, gradient.batch
            ));
        }
        Ok(())
    }

    fn check_outputs(&self, gradient: &Images, label: &str) -> Result<()> {
        if self.filter.dims().last() != Some(&(gradient.channels as i64)) {
            return error(format!("{label}: filter and out_backprop must have the same out_depth"));
        }
        Ok(())
    }

    fn check_spatial(&self, window: &Window, input: &Images, gradient: &Images, label: &str) -> Result<()> {
        let mut size = [1; 3];
        for (size, &dim) in size[3 - window.spatial..].iter_mut().zip(self.filter.dims()) {
            *size = dim as usize;
        }
        let (computed, _) = window.slide(input.size, size)?;
        let first = if window.channels_first { 2 } else { 1 };
        for position in 0..window.spatial {
            let axis = 3 - window.spatial + position;
            if gradient.size[axis] != computed[axis] {
                return error(format!(
                    "{label}: Size of out_backprop doesn't match computed: actual = {}, computed = {} spatial_dim: {} \
                     input: {} filter: {} output: {} stride: {} dilation: {}",
                    gradient.size[axis],
                    computed[axis],
                    first + position,
                    input.size[axis],
                    size[axis],
                    gradient.size[axis],
                    window.strides[axis],
                    window.dilations[axis]
                ));
            }
        }
        Ok(())
    }

    /// As [`check`](Self::check), for depthwise convolutions.
    pub(super) fn check_depthwise(&self, window: &Window, label: &str) -> Result<()> {
        for (name, shape) in [("input", self.input), ("filter", self.filter), ("out_backprop", self.gradient)] {
            if shape.rank() != 4 {
                return error(format!("{label}: {name} must be 4-dimensional: {shape}"));
            }
        }
        let (input, gradient) = (window.images(self.input, "input")?, window.images(self.gradient, "out_backprop")?);
        let filter = self.filter.dims();
        if input.batch != gradient.batch {
            return error(format!("{label}: input and out_backprop must have the same batch size"));
        }
        if input.channels as i64 != filter[2] {
            return error(format!("{label}: input and filter must have the same in_depth"));
        }
        if filter[3].saturating_mul(filter[2]) != gradient.channels as i64 {
            return error(format!("{label}: depth_multiplier * in_depth not equal to out_depth"));
        }
        let (computed, _) = window.slide(input.size, [1, filter[0] as usize, filter[1] as usize])?;
        for (axis, name) in [(1, "rows"), (2, "cols")] {
            if gradient.size[axis] != computed[axis] {
                return error(format!(
                    "{label}: Number of {name} of out_backprop doesn't match computed: actual = {}, computed = {}",
                    gradient.size[axis], computed[axis]
                ));
            }
        }
        Ok(())
    }
}

fn error(text: String) -> Result<()> {
    Err(Status::invalid_argument(text))
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    #[test]
    fn gradients_that_do_not_fit_are_refused() {
        let zeros =
            |dims: &[i64]| Tensor::from_slice(dims, &vec![0f32; dims.iter().product::<i64>() as usize]).unwrap();
        let refused = |op: &str, sizes: &[i32], filter: &[i64]| {
            let attrs = attrs![("strides", &[1i64, 1, 1, 1][..]), ("padding", "VALID")];
            let inputs = [Tensor::vector(sizes), zeros(filter), zeros(&[2, 3, 3, 4])];
            run_op(op, attrs, &inputs).unwrap_err().message().to_owned()
        };
        let text = refused("Conv2DBackpropInput", &[2, 9, 5, 3], &[3, 3, 3, 4]);
        assert!(text.contains("actual = 3, computed = 7 spatial_dim: 1 input: 9 filter: 3 output: 3"), "{text}");
        let text = refused("Conv2DBackpropInput", &[2, 5, 5, 3], &[3, 3, 3, 5]);
        assert!(text.contains("Conv2DCustomBackpropInput: filter and out_backprop must have the same"), "{text}");
        let text = refused("DepthwiseConv2dNativeBackpropInput", &[1, 5, 5, 2], &[3, 3, 2, 2]);
        assert!(
            text.contains("DepthwiseConv2DBackpropInput: input and out_backprop must have the same batch"),
            "{text}"
        );
    }
}
