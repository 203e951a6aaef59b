//! Conditionals whose branches are functions: If, Case, and ToBool, which defines truth.

use super::runner::{Callee, is_true, take_args};
use graph::ShapeContext;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, shape,
};
use tensor::{Result, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "If",
            inputs: &["cond: Tcond", "input: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tcond: type",
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "then_branch: func",
                "else_branch: func",
                "output_shapes: list(shape) = []",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: branch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(If::create)],
    },
    Op {
        def: OpDef {
            name: "StatelessIf",
            inputs: &["cond: Tcond", "input: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tcond: type",
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "then_branch: func",
                "else_branch: func",
                "output_shapes: list(shape) = []",
            ],
            flags: OpFlags::NONE,
        },
        shape: branch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(If::create)],
    },
    Op {
        def: OpDef {
            name: "_If",
            inputs: &["cond: Tcond", "input: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tcond: type",
                "Tin: list(type) >= 1",
                "Tout: list(type) >= 1",
                "then_branch: func",
                "else_branch: func",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(If::create)],
    },
    Op {
        def: OpDef {
            name: "Case",
            inputs: &["branch_index: int32", "input: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "branches: list(func) >= 1",
                "output_shapes: list(shape) = []",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: branch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Case::create)],
    },
    Op {
        def: OpDef {
            name: "StatelessCase",
            inputs: &["branch_index: int32", "input: Tin"],
            outputs: &["output: Tout"],
            attrs: &[
                "Tin: list(type) >= 0",
                "Tout: list(type) >= 0",
                "branches: list(func) >= 1",
                "output_shapes: list(shape) = []",
            ],
            flags: OpFlags::NONE,
        },
        shape: branch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Case::create)],
    },
    Op {
        def: OpDef {
            name: "ToBool",
            inputs: &["input: T"],
            outputs: &["output: bool"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ToBool))],
    },
];

fn branch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (index, shape) in c.attrs.shapes("output_shapes")?.into_iter().enumerate() {
        c.set_output(index, shape);
    }
    Ok(())
}

struct If {
    then_branch: Callee,
    else_branch: Callee,
}

impl If {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let branch = |name: &str| Ok(Callee::new(builder.attrs().func(name)?));
        BoxedKernel::new_async(If { then_branch: branch("then_branch")?, else_branch: branch("else_branch")? })
    }
}

impl AsyncKernel for If {
    fn compute(&self, mut context: AsyncContext) {
        let mut prepare = || {
            let mut op = context.op();
            let branch = if is_true(op.input(0)?)? { &self.then_branch } else { &self.else_branch };
            let args = take_args(&mut op, 1)?;
            Ok((args, branch.bind_as_requested(context.step())?))
        };
        match prepare() {
            Ok((args, branch)) => branch.run_to_finish(args, context),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct Case {
    branches: Vec<Callee>,
}

impl Case {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let branches: Vec<Callee> = builder.attrs().funcs("branches")?.iter().map(Callee::new).collect();
        if branches.is_empty() {
            return Err(tensor::Status::invalid_argument("Case needs at least one branch"));
        }
        BoxedKernel::new_async(Case { branches })
    }
}

impl AsyncKernel for Case {
    fn compute(&self, mut context: AsyncContext) {
        let mut prepare = || {
            let mut op = context.op();
            let index = op.scalar::<i32>(0, "branch_index")?;
            // For an index out of range the last branch is taken.
            let last = self.branches.len() - 1;
            let branch = &self.branches[usize::try_from(index).map_or(last, |index| index.min(last))];
            let args = take_args(&mut op, 1)?;
            Ok((args, branch.bind_as_requested(context.step())?))
        };
        match prepare() {
            Ok((args, branch)) => branch.run_to_finish(args, context),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct ToBool;

impl Kernel for ToBool {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = is_true(context.input(0)?)?;
        context.set_output(0, Tensor::scalar(value));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::super::runner::tests::{Closures, func, run_with_functions};
    use crate::testing::{attrs, check_shape, run_op};
    use proto::attr_value::ListValue;
    use tensor::{DType, PartialShape, Result, Tensor};

    fn functions() -> Closures {
        let constant = |value: i32| move |_: Vec<Tensor>| Ok(vec![Tensor::scalar(value)]);
        Closures::default().with("a", constant(1)).with("b", constant(2))
    }

    #[test]
    fn ifs() {
        let choose = |cond: Tensor| -> Result<i32> {
            let types = attrs![
                ("Tin", &[][..] as &[DType]),
                ("Tout", &[DType::Int32][..]),
                ("then_branch", func("a")),
                ("else_branch", func("b"))
            ];
            run_with_functions("If", types, &[cond], functions())?[0].to_scalar()
        };
        assert_eq!(choose(Tensor::scalar(true)).unwrap(), 1);
        assert_eq!(choose(Tensor::scalar(0i32)).unwrap(), 2);
        assert_eq!(choose(Tensor::string("yes")).unwrap(), 1);
    }

    #[test]
    fn cases() {
        for (index, expected) in [(0, 1), (1, 2), (5, 2), (-1, 2)] {
            let branches = ListValue { func: vec![func("a"), func("b")], ..Default::default() };
            let types = attrs![("Tin", &[][..] as &[DType]), ("Tout", &[DType::Int32][..]), ("branches", branches)];
            let outputs = run_with_functions("StatelessCase", types, &[Tensor::scalar(index)], functions()).unwrap();
            assert_eq!(outputs[0].to_scalar::<i32>().unwrap(), expected);
        }
    }

    #[test]
    fn truth_and_shapes() {
        assert!(!run_op("ToBool", attrs![], &[Tensor::scalar(0u8)]).unwrap()[0].to_scalar::<bool>().unwrap());
        let shapes = [PartialShape::from_dims(&[2, -1])];
        let attrs = attrs![
            ("Tin", &[][..] as &[DType]),
            ("Tout", &[DType::Int32][..]),
            ("output_shapes", &shapes[..]),
            ("then_branch", func("a")),
            ("else_branch", func("b"))
        ];
        check_shape("If", attrs, "[]", "[2,?]");
    }
}
