//! [`Padding`]: the padding of convolutions and pools at the edges.

/// The padding of windows that extend beyond the edge.
///
/// ```
/// use ops::nn::{Padding, max_pool};
///
/// let g = graph::Graph::new();
/// let images = g.placeholder::<f32>((None, 5, 5, 3));
/// assert_eq!(max_pool(&images, [2, 2], [2, 2], Padding::Same).shape(), (None, 3, 3, 3).into());
/// assert_eq!(max_pool(&images, [2, 2], [2, 2], Padding::Valid).shape(), (None, 2, 2, 3).into());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Windows are inside: the result is smaller.
    #[default]
    Valid,
    /// Zeros are added so that, with strides of 1, the result has the size of the input.
    Same,
}

impl Padding {
    /// Returns the value of the attribute `padding`.
    ///
    /// ```
    /// assert_eq!(ops::nn::Padding::Same.attr(), "SAME");
    /// ```
    pub fn attr(self) -> &'static str {
        match self {
            Padding::Valid => "VALID",
            Padding::Same => "SAME",
        }
    }
}
