//! Operators on variables: `&x * &w + &b`. A [`Variable`] can be used wherever an output is expected.

use crate::variable::Variable;
use graph::{IntoOperand, Output};
use std::ops::{Add, Deref, Div, Mul, Neg, Rem, Sub};

/// A variable has the methods of its [value](Variable::value), and can be used as an output.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant([[1f32, 2.0], [3.0, 4.0]]));
/// let product = g.constant([[1f32, 1.0]]).matmul(&w).sum() + w.square().mean();
/// let session = Session::new(&g)?;
/// session.run_ops(&[w.initializer()])?;
/// assert_eq!(session.eval::<f32>(&product)?, 17.5);
/// assert_eq!(session.run(&[&w])?[0].to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Status>(())
/// ```
impl Deref for Variable {
    type Target = Output;

    fn deref(&self) -> &Output {
        self.value()
    }
}

impl IntoOperand for &Variable {
    fn operand(self, _: &Output) -> Output {
        self.value().clone()
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident),*) => {$(
        impl<R: IntoOperand> $operator<R> for &Variable {
            type Output = Output;
            #[track_caller]
            fn $method(self, other: R) -> Output {
                self.value().$method(other)
            }
        }
        operators!(@scalar $operator $method f32 f64 i32);
    )*};
    (@scalar $operator:ident $method:ident $($scalar:ty)*) => {$(
        impl $operator<&Variable> for $scalar {
            type Output = Output;
            #[track_caller]
            fn $method(self, other: &Variable) -> Output {
                self.$method(other.value())
            }
        }
    )*};
}

operators!(Add add, Sub sub, Mul mul, Div div, Rem rem);

impl Neg for &Variable {
    type Output = Output;
    #[track_caller]
    fn neg(self) -> Output {
        -self.value()
    }
}
