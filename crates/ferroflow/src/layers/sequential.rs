//! [`Sequential`]: a stack of layers.

use super::Layer;
use graph::Output;

/// A stack of layers that are applied one after the other, as one layer. Functions are layers, too.
///
/// ```
/// use ferroflow::layers::{Apply, Dense, Flatten, Sequential};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let network = Sequential::new()
///     .add(Flatten::new())
///     .add(Dense::new(100))
///     .add(|x: &Output| x.clip(-1.0, 1.0))
///     .add(Dense::new(10));
/// let logits = g.placeholder::<f32>((None, 28, 28)).apply(&network);
/// assert_eq!(logits.shape(), PartialShape::from([-1, 10]));
/// // Applied again, it shares its weights.
/// let others = g.placeholder::<f32>((None, 784)).apply(&network);
/// assert_eq!(ferroflow::variable::trainable_variables(&g)?.len(), 4);
/// # Ok::<(), Status>(())
/// ```
#[derive(Default)]
pub struct Sequential<'a> {
    layers: Vec<Box<dyn Layer + 'a>>,
}

impl<'a> Sequential<'a> {
    /// Returns a stack without layers, which returns its input.
    ///
    /// ```
    /// use ferroflow::layers::{Apply, Sequential};
    /// use ferroflow::prelude::*;
    ///
    /// let x = Graph::new().constant([1f32, 2.0]);
    /// assert_eq!(x.apply(&Sequential::new()).name(), x.name());
    /// ```
    pub fn new() -> Sequential<'a> {
        Sequential::default()
    }

    /// Appends a layer.
    ///
    /// ```
    /// use ferroflow::layers::{Activation, Dense, Sequential};
    ///
    /// let mut network = Sequential::new();
    /// for units in [64, 32] {
    ///     network = network.add(Dense::new(units).activation(Activation::Relu));
    /// }
    /// ```
    #[expect(clippy::should_implement_trait, reason = "it is what such a method is called, and layers are no numbers")]
    pub fn add(mut self, layer: impl Layer + 'a) -> Self {
        self.layers.push(Box::new(layer));
        self
    }
}

impl Layer for Sequential<'_> {
    #[track_caller]
    fn apply(&self, x: &Output) -> Output {
        x.graph().called_here(|_| self.layers.iter().fold(x.clone(), |x, layer| layer.apply(&x)))
    }
}

/// A function of an output is a layer.
impl<F: Fn(&Output) -> Output> Layer for F {
    fn apply(&self, x: &Output) -> Output {
        self(x)
    }
}
