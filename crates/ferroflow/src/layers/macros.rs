//! Macros for the options that many layers have.

/// An example of one option in the documentation of a layer.
macro_rules! option_example {
    ($example:literal, $($call:tt)*) => {
        concat!(
            "\n```\nuse ferroflow::layers::*;\nuse ferroflow::variable::Kind;\nuse ferroflow::variable_scope::Reuse;\n",
            "use ferroflow::initializers;\n\nlet layer = ",
            $example,
            $($call)*,
            ";\n```"
        )
    };
}

/// Name, reuse, `trainable`, the representation of variables, and `variables`.
macro_rules! base_options {
    ($layer:ident $(<const $n:ident>)?, $example:literal) => {
        impl $(<const $n: usize>)? $layer $(<$n>)? {
            /// Sets the name of the layer's variable scope. The default is the layer's default name, with a number appended if it
            /// is already used.
            #[doc = option_example!($example, ".name(\"first\")")]
            pub fn name(mut self, name: &str) -> Self {
                self.base.name = Some(name.to_owned());
                self
            }

            /// Sets whether a named layer creates or finds its variables; by default as in the enclosing variable scope.
            #[doc = option_example!($example, ".name(\"first\").reuse(Reuse::Auto)")]
            pub fn reuse(mut self, reuse: $crate::variable_scope::Reuse) -> Self {
                self.base.reuse = reuse;
                self
            }

            /// Sets whether optimizers change the layer's weights; by default they do.
            #[doc = option_example!($example, ".trainable(false)")]
            pub fn trainable(mut self, trainable: bool) -> Self {
                self.base.trainable = trainable;
                self
            }

            /// Sets how the layer's variables are represented in the graph.
            #[doc = option_example!($example, ".kind(Kind::Resource)")]
            pub fn kind(mut self, kind: $crate::variable::Kind) -> Self {
                self.base.kind = kind;
                self
            }

            /// Returns the layer's variables in a graph; there are none before it is applied.
            #[doc = concat!(
                "\n```\nuse ferroflow::layers::*;\n\nlet layer = ", $example,
                ";\nassert!(layer.variables(&ferroflow::Graph::new()).is_empty());\n```"
            )]
            #[track_caller]
            pub fn variables(&self, graph: &graph::Graph) -> Vec<$crate::Variable> {
                graph.kept(self.base.variables(graph), Vec::new)
            }
        }
    };
}

/// Initializer, regularizer and constraint of one weight.
macro_rules! weight_options {
    ($layer:ident $(<const $n:ident>)?, $example:literal, $field:ident, $noun:literal,
     $initializer:ident, $regularizer:ident, $constraint:ident) => {
        impl $(<const $n: usize>)? $layer $(<$n>)? {
            #[doc = concat!("Sets the first value of ", $noun, ".")]
            #[doc = option_example!($example, concat!(".", stringify!($initializer), "(initializers::zeros())"))]
            pub fn $initializer(mut self, initializer: $crate::initializers::Initializer) -> Self {
                self.$field.initializer = Some(initializer);
                self
            }

            #[doc = concat!("Sets what is added to the regularization losses for ", $noun, ".")]
            #[doc = option_example!($example, concat!(".", stringify!($regularizer), "(regularizers::l2(0.01))"))]
            pub fn $regularizer(mut self, regularizer: $crate::layers::regularizers::Regularizer) -> Self {
                self.$field.regularizer = Some(regularizer);
                self
            }

            #[doc = concat!("Sets what optimizers make of ", $noun, " after each change.")]
            #[doc = option_example!($example, concat!(".", stringify!($constraint), "(constraints::non_negative())"))]
            pub fn $constraint(mut self, constraint: $crate::layers::constraints::Constraint) -> Self {
                self.$field.constraint = Some(constraint);
                self
            }
        }
    };
}

/// Activation and bias, with the bias's options.
macro_rules! bias_options {
    ($layer:ident $(<const $n:ident>)?, $example:literal) => {
        impl $(<const $n: usize>)? $layer $(<$n>)? {
            /// Sets the activation function, which is applied to each element of the result.
            #[doc = option_example!($example, ".activation(Activation::Relu)")]
            pub fn activation(mut self, activation: $crate::layers::Activation) -> Self {
                self.activation = activation;
                self
            }

            /// Sets whether a bias is added; by default it is.
            #[doc = option_example!($example, ".use_bias(false)")]
            pub fn use_bias(mut self, use_bias: bool) -> Self {
                self.use_bias = use_bias;
                self
            }
        }

        weight_options!($layer $(<const $n>)?, $example, bias, "the bias",
            bias_initializer, bias_regularizer, bias_constraint);
    };
}

/// The options of convolutions: strides, padding and data format.
macro_rules! window_options {
    ($layer:ident $(<const $n:ident>)?, $example:literal, $spatial:expr) => {
        impl $(<const $n: usize>)? $layer $(<$n>)? {
            /// Sets the strides of the window.
            #[doc = option_example!($example, ".strides(2)")]
            pub fn strides(mut self, strides: impl $crate::layers::Sizes<$spatial>) -> Self {
                self.strides = strides.sizes();
                self
            }

            /// Sets the padding at the edges.
            #[doc = option_example!($example, ".padding(Padding::Same)")]
            pub fn padding(mut self, padding: $crate::layers::Padding) -> Self {
                self.padding = padding;
                self
            }

            /// Sets the position of the channels.
            #[doc = option_example!($example, ".data_format(DataFormat::ChannelsLast)")]
            pub fn data_format(mut self, data_format: $crate::layers::DataFormat) -> Self {
                self.data_format = data_format;
                self
            }
        }
    };
}

/// The dilation of convolutions.
macro_rules! dilation_option {
    ($layer:ident $(<const $n:ident>)?, $example:literal, $spatial:expr) => {
        impl $(<const $n: usize>)? $layer $(<$n>)? {
            /// Sets the distance between the window's elements; it can't be combined with strides.
            #[doc = option_example!($example, ".dilation_rate(2)")]
            pub fn dilation_rate(mut self, dilation_rate: impl $crate::layers::Sizes<$spatial>) -> Self {
                self.dilation_rate = dilation_rate.sizes();
                self
            }
        }
    };
}

/// `apply`, which keeps the mistakes that `add` returns, and the trait `Layer`.
macro_rules! apply_layer {
    ($layer:ident $(<const $n:ident>)?) => {
        impl $(<const $n: usize>)? $crate::layers::Layer for $layer $(<$n>)? {
            #[track_caller]
            fn apply(&self, x: &graph::Output) -> graph::Output {
                let what = concat!("layer ", stringify!($layer)).to_owned();
                $(let what = format!("{what}{}D", $n);)?
                $crate::compose::kept(&what, &[x], || self.add(x))
            }
        }

        impl $(<const $n: usize>)? $layer $(<$n>)? {
            /// Adds the layer to the graph; see [`Layer::apply`]($crate::layers::Layer::apply).
            ///
            /// ```
            /// use ferroflow::layers::Flatten;
            /// use ferroflow::{Graph, PartialShape};
            ///
            /// let g = Graph::new();
            /// let x = g.placeholder::<f32>([8, 2, 3]);
            /// assert_eq!(Flatten::new().apply(&x).shape(), PartialShape::from([8, 6]));
            /// ```
            #[track_caller]
            pub fn apply(&self, x: &graph::Output) -> graph::Output {
                let what = concat!("layer ", stringify!($layer)).to_owned();
                $(let what = format!("{what}{}D", $n);)?
                $crate::compose::kept(&what, &[x], || self.add(x))
            }
        }
    };
}
