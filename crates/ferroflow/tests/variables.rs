//! Variables by name, their scopes and collections, and where they may be made and read.

use ferroflow::ops::{array, math};
use ferroflow::prelude::*;
use ferroflow::train::{GradientDescentOptimizer, global_variables_initializer};
use ferroflow::variable::{Kind, collections, trainable_variables};
use ferroflow::variable_scope::{Reuse, get_variable, variable_scope};
use ferroflow::{Code, Result, initializers};

fn less(x: &Output, y: &Output) -> Output {
    x.graph().op("Less").input(x).input(y).output()
}

#[test]
fn a_scope_makes_variables_or_finds_them() -> Result<()> {
    let in_scope = |g: &Graph, reuse, name: &str, dims: &[i64]| {
        variable_scope(g, "layer", reuse, |g| {
            variable_scope(g, "inner", Reuse::New, |g| get_variable(g, name, dims).get())
        })
    };
    let g = Graph::new();
    let made = in_scope(&g, Reuse::New, "w", &[2, 3]);
    assert_eq!(made.name(), "layer/inner/w");
    let found = in_scope(&g, Reuse::Existing, "w", &[2, 3]);
    assert_eq!(found.handle().edge(), made.handle().edge());
    assert_eq!(in_scope(&g, Reuse::Auto, "w", &[2, 3]).name(), "layer/inner/w");
    assert_eq!(in_scope(&g, Reuse::Auto, "b", &[3]).name(), "layer/inner/b");
    g.finish()?;
    for (reuse, name, dims, words) in [
        (Reuse::New, "w", &[2, 3][..], "Variable layer/inner/w already exists, disallowed"),
        (Reuse::Existing, "absent", &[2], "Variable layer/inner/absent does not exist"),
        (Reuse::Existing, "w", &[3, 2], "Trying to share variable layer/inner/w, but specified shape [3,2]"),
        (Reuse::New, "negative", &[-1], "-1"),
    ] {
        let g = Graph::new();
        in_scope(&g, Reuse::New, "w", &[2, 3]);
        in_scope(&g, reuse, name, dims);
        let status = g.finish().unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(words), "{status}");
        // What failed left nothing behind.
        assert_eq!(g.collection(collections::GLOBAL_VARIABLES).len(), 1);
    }
    Ok(())
}

#[test]
fn collections_hold_what_they_should() -> Result<()> {
    let g = Graph::new();
    get_variable(&g, "trained", &[2]).get();
    get_variable(&g, "kept", &[2]).trainable(false).get();
    get_variable(&g, "own", &[2]).collections(&[collections::LOCAL_VARIABLES, "mine"]).get();
    let names = |collection: &str| g.collection(collection).iter().map(|v| v.op.name()).collect::<Vec<_>>();
    assert_eq!(names(collections::GLOBAL_VARIABLES), ["trained", "kept"]);
    assert_eq!(names(collections::TRAINABLE_VARIABLES), ["trained"]);
    assert_eq!(names(collections::LOCAL_VARIABLES), ["own"]);
    assert_eq!(names("mine"), ["own"]);
    Ok(())
}

#[test]
fn initializers_give_the_first_values() -> Result<()> {
    let g = Graph::new();
    let int = get_variable(&g, "int", &[2]).dtype(DType::Int32).get();
    let seven = get_variable(&g, "seven", &[2]).initializer(initializers::constant(7.0)).get();
    let given = initializers::tensor(Tensor::vector(&[1f32, 2.0]));
    let given = get_variable(&g, "given", &[2]).initializer(given).kind(Kind::Resource).get();
    let glorot = get_variable(&g, "glorot", &[30, 20]).get();
    let session = Session::new(&g)?;
    let status = session.run(&[seven.value()]).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("seven"), "{status}");
    session.run_ops(&[&global_variables_initializer(&g)])?;
    let values = session.run(&[int.value(), seven.value(), given.value(), glorot.value()])?;
    assert_eq!(values[0].as_slice::<i32>()?, [0, 0]);
    assert_eq!(values[1].as_slice::<f32>()?, [7.0, 7.0]);
    assert_eq!(values[2].as_slice::<f32>()?, [1.0, 2.0]);
    let bound = (6f32 / 50.0).sqrt();
    let glorot = values[3].as_slice::<f32>()?;
    assert!(glorot.iter().all(|value| value.abs() <= bound) && glorot.iter().any(|value| value.abs() > bound / 2.0));
    // A first value of another shape is a mistake of the call, and leaves no variable.
    let wrong = initializers::tensor(Tensor::vector(&[1f32, 2.0]));
    assert_eq!(trainable_variables(&g)?.len(), 4);
    get_variable(&g, "wrong", &[3]).initializer(wrong).get();
    assert!(g.finish().unwrap_err().message().contains("the first value of variable 'wrong'"));
    assert_eq!(g.collection(collections::TRAINABLE_VARIABLES).len(), 4);
    Ok(())
}

/// A variable that is made in a branch or a loop's body belongs to the program, not to the branch.
#[test]
fn a_variable_made_in_a_branch_or_loop() -> Result<()> {
    for kind in [Kind::Ref, Kind::Resource] {
        let g = Graph::new();
        let no = array::placeholder_with_default(&g.constant_tensor(&Tensor::scalar(false)), &PartialShape::scalar());
        let make = |g: &graph::Graph, name: &str| {
            let request = get_variable(g, name, &[]).initializer(initializers::constant(3.0));
            request.kind(kind).get()
        };
        let x = g.constant_tensor(&Tensor::scalar(2f32));
        let y = g.cond(&no, |g| vec![make(g, "v").read() * &x], |_| vec![x.clone()]).remove(0);
        let four = g.constant_tensor(&Tensor::scalar(4i32));
        let z = g.while_loop(
            &[g.constant_tensor(&Tensor::scalar(0i32)), y],
            |_, vars| less(&vars[0], &four),
            |g, vars| vec![&vars[0] + 1, &vars[1] * &make(g, "w").read()],
        );
        let init = global_variables_initializer(&g);
        let session = Session::new(&g)?;
        session.run_ops(&[&init])?;
        assert_eq!(session.eval::<f32>(&z[1])?, 2.0 * 81.0);
        let yes = session.runner().feed(&no, Tensor::scalar(true)).fetch(&z[1]).run()?;
        assert_eq!(yes[0].to_scalar::<f32>()?, 6.0 * 81.0);
        let v = trainable_variables(&g)?;
        assert_eq!(v.len(), 2);
        assert_eq!(session.eval::<f32>(v[0].value())?, 3.0);
    }
    Ok(())
}

/// What a branch and a loop read of a variable counts for its gradient.
#[test]
fn a_variable_read_in_a_branch_and_a_loop_is_trained() -> Result<()> {
    for kind in [Kind::Ref, Kind::Resource] {
        for (flag, expected) in [(true, 30.0), (false, 24.0)] {
            let g = Graph::new();
            let flag = g.constant_tensor(&Tensor::scalar(flag));
            let flag = array::placeholder_with_default(&flag, &PartialShape::scalar());
            let two = initializers::constant(2.0);
            let v = get_variable(&g, "v", &[2]).initializer(two).kind(kind).get();
            let y = g.cond(&flag, |_| vec![v.read() * 6.0], |g| vec![g.constant_tensor(&Tensor::vector(&[0f32, 0.0]))]);
            let three = g.constant_tensor(&Tensor::scalar(3i32));
            let ones = g.constant_tensor(&Tensor::vector(&[2f32, 2.0]));
            let z = g.while_loop(
                &[g.constant_tensor(&Tensor::scalar(0i32)), ones],
                |_, vars| less(&vars[0], &three),
                |_, vars| vec![&vars[0] + 1, &vars[1] * &v.read()],
            );
            let loss = math::reduce_sum(&(&y[0] + &z[1]), None, false);
            let train = GradientDescentOptimizer::new(1.0).minimize(&loss, None)?;
            let init = global_variables_initializer(&g);
            let session = Session::new(&g)?;
            session.run_ops(&[&init])?;
            session.run_ops(&[&train])?;
            assert_eq!(session.run(&[v.value()])?[0].as_slice::<f32>()?, [2.0 - expected, 2.0 - expected], "{kind:?}");
        }
    }
    Ok(())
}

#[test]
fn variables_are_operands_on_either_side() -> Result<()> {
    let g = Graph::new();
    let (x, w) = (g.constant([1f32, 2.0]), Variable::new(&g, "w", &g.constant([3f32, 4.0])));
    let b = Variable::builder(&g, "b").kind(Kind::Resource).build_constant(&Tensor::scalar(10f32));
    let sums = [&x * &w + &b, &w - &x, 2.0 * &w, -&w, &b / 4.0, &w * &w, w.square() - 1.0];
    let session = Session::new(&g)?;
    session.run_ops(&[w.initializer(), b.initializer()])?;
    let expected: [&[f32]; 7] =
        [&[13.0, 18.0], &[2.0, 2.0], &[6.0, 8.0], &[-3.0, -4.0], &[2.5], &[9.0, 16.0], &[8.0, 15.0]];
    for (sum, expected) in sums.iter().zip(expected) {
        assert_eq!(session.eval::<Vec<f32>>(sum)?, expected);
    }
    assert_eq!(session.eval::<f32>(&b)?, 10.0);
    Ok(())
}
