//! Rectifiers: Relu, Relu6, Elu, Selu, LeakyRelu, and their gradient ops.

use crate::testing_free::*;
