//! Learning rates that depend on the step, as TensorFlow 1 computes them.

use super::expression::{Number, add, binary, cast, div, mul, sub, unary};
use crate::kept::kept;
use crate::variable::Variable;
use graph::{Graph, Output};
use tensor::{DType, Result, Status, Tensor};

/// Adds `learning_rate * decay_rate ^ (global_step / decay_steps)`; with `staircase` the exponent is rounded down.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::exponential_decay;
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let rate = exponential_decay(0.1, &step, 100.0, 0.5, true);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&step.assign(&g.constant(250i64))])?;
/// assert!((session.eval::<f32>(&rate)? - 0.025).abs() < 1e-6);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn exponential_decay(
    learning_rate: impl Into<Number>,
    global_step: &Variable,
    decay_steps: f64,
    decay_rate: f64,
    staircase: bool,
) -> Output {
    decayed("ExponentialDecay", global_step, |graph| {
        let (rate, dtype) = start(graph, learning_rate.into())?;
        let exponent = progress(graph, global_step, decay_steps, dtype, staircase)?;
        let decayed = binary(graph, "Pow", "Pow", decay_rate, &exponent)?;
        mul(graph, &rate, &decayed)
    })
}

/// Adds `learning_rate * exp(-decay_rate * global_step / decay_steps)`.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::natural_exp_decay;
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let rate = natural_exp_decay(1.0, &step, 100.0, 1.0, false);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&step.assign(&g.constant(100i64))])?;
/// assert!((session.eval::<f32>(&rate)? - (-1f32).exp()).abs() < 1e-6);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn natural_exp_decay(
    learning_rate: impl Into<Number>,
    global_step: &Variable,
    decay_steps: f64,
    decay_rate: f64,
    staircase: bool,
) -> Output {
    decayed("NaturalExpDecay", global_step, |graph| {
        let (rate, dtype) = start(graph, learning_rate.into())?;
        let exponent = progress(graph, global_step, decay_steps, dtype, staircase)?;
        let exponent = mul(graph, -decay_rate, &exponent)?;
        let decayed = unary(graph, "Exp", &exponent)?;
        mul(graph, &rate, &decayed)
    })
}

/// Adds `learning_rate / (1 + decay_rate * global_step / decay_steps)`.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::inverse_time_decay;
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let rate = inverse_time_decay(1.0, &step, 100.0, 1.0, false);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&step.assign(&g.constant(300i64))])?;
/// assert_eq!(session.eval::<f32>(&rate)?, 0.25);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn inverse_time_decay(
    learning_rate: impl Into<Number>,
    global_step: &Variable,
    decay_steps: f64,
    decay_rate: f64,
    staircase: bool,
) -> Output {
    decayed("InverseTimeDecay", global_step, |graph| {
        let (rate, dtype) = start(graph, learning_rate.into())?;
        let exponent = progress(graph, global_step, decay_steps, dtype, staircase)?;
        let scaled = mul(graph, decay_rate, &exponent)?;
        let divisor = add(graph, 1.0, &scaled)?;
        div(graph, &rate, &divisor)
    })
}

/// Adds a learning rate that decays polynomially from `learning_rate` to `end_learning_rate` over `decay_steps`, and stays there;
/// with `cycle` it restarts, each time with a longer period.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::polynomial_decay;
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let rate = polynomial_decay(1.0, &step, 100.0, 0.0, 1.0, false);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&step.assign(&g.constant(25i64))])?;
/// assert_eq!(session.eval::<f32>(&rate)?, 0.75);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn polynomial_decay(
    learning_rate: impl Into<Number>,
    global_step: &Variable,
    decay_steps: f64,
    end_learning_rate: f64,
    power: f64,
    cycle: bool,
) -> Output {
    decayed("PolynomialDecay", global_step, |graph| {
        let (rate, dtype) = start(graph, learning_rate.into())?;
        let step = cast(graph, &global_step.read(), dtype)?;
        let (step, steps): (Output, Number) = if cycle {
            let share = div(graph, &step, decay_steps)?;
            let rounds = binary(graph, "Maximum", "Maximum", &unary(graph, "Ceil", &share)?, 1.0)?;
            (step, mul(graph, decay_steps, &rounds)?.into())
        } else {
            (binary(graph, "Minimum", "Minimum", &step, decay_steps)?, decay_steps.into())
        };
        let share = div(graph, &step, steps)?;
        let range = sub(graph, &rate, end_learning_rate)?;
        let left = sub(graph, 1.0, &share)?;
        let curve = binary(graph, "Pow", "Pow", &left, power)?;
        let scaled = mul(graph, &range, &curve)?;
        add(graph, &scaled, end_learning_rate)
    })
}

/// Adds a learning rate that decays along half a cosine to `alpha` times itself over `decay_steps`.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::cosine_decay;
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let rate = cosine_decay(1.0, &step, 100.0, 0.0);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&step.assign(&g.constant(50i64))])?;
/// assert!((session.eval::<f32>(&rate)? - 0.5).abs() < 1e-6);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn cosine_decay(learning_rate: impl Into<Number>, global_step: &Variable, decay_steps: f64, alpha: f64) -> Output {
    decayed("CosineDecay", global_step, |graph| {
        let (rate, dtype) = start(graph, learning_rate.into())?;
        let step = cast(graph, &global_step.read(), dtype)?;
        let step = binary(graph, "Minimum", "Minimum", &step, decay_steps)?;
        let share = div(graph, &step, decay_steps)?;
        let angle = mul(graph, std::f64::consts::PI, &share)?;
        let cosine = unary(graph, "Cos", &angle)?;
        let raised = add(graph, 1.0, &cosine)?;
        let half = mul(graph, 0.5, &raised)?;
        let scaled = mul(graph, 1.0 - alpha, &half)?;
        let decayed = add(graph, &scaled, alpha)?;
        mul(graph, &rate, &decayed)
    })
}

/// Adds a learning rate that is `values[i]` up to and including step `boundaries[i]`, and the last value afterwards.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::piecewise_constant;
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let rate = piecewise_constant(&step, &[100, 200], &[0.1, 0.01, 0.001]);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&step.assign(&g.constant(150i64))])?;
/// assert_eq!(session.eval::<f32>(&rate)?, 0.01);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn piecewise_constant(global_step: &Variable, boundaries: &[i64], values: &[f64]) -> Output {
    decayed("PiecewiseConstant", global_step, |graph| {
        if boundaries.len() + 1 != values.len() {
            let what = "The length of boundaries should be 1 less than the length of values";
            return Err(Status::invalid_argument(what));
        }
        let step = cast(graph, &global_step.read(), DType::Int64)?;
        let constant = |value: f64| graph.constant_tensor(&Tensor::scalar(value as f32));
        let mut rate = constant(values[values.len() - 1]);
        // In reverse order, so that the first boundary that hasn't been passed decides.
        for (boundary, value) in boundaries.iter().zip(values).rev() {
            let limit = graph.constant_tensor(&Tensor::scalar(*boundary));
            let before = graph.op("LessEqual").input(&step).input(&limit).try_build()?.output(0);
            let select = graph.op("Select").input(&before).input(&constant(*value)).input(&rate);
            rate = select.try_build()?.output(0);
        }
        Ok(rate)
    })
}

/// Adds a learning rate in a scope with its name; a mistake is kept in the graph.
#[track_caller]
fn decayed(name: &str, global_step: &Variable, build: impl FnOnce(&Graph) -> Result<Output>) -> Output {
    let step = global_step.handle();
    kept(&format!("learning rate {name}"), &[step], || step.graph().name_scope(name, build))
}

fn start(graph: &Graph, learning_rate: Number) -> Result<(Output, DType)> {
    let rate = learning_rate.to_output(graph, "learning_rate", DType::Float)?;
    let dtype = rate.dtype();
    Ok((rate, dtype))
}

fn progress(graph: &Graph, global_step: &Variable, decay_steps: f64, dtype: DType, staircase: bool) -> Result<Output> {
    let step = cast(graph, &global_step.read(), dtype)?;
    let share = div(graph, &step, decay_steps)?;
    if staircase { unary(graph, "Floor", &share) } else { Ok(share) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variable::create_global_step;
    use crate::{Graph, Session};

    /// Returns the rates at some steps.
    fn rates(build: impl Fn(&Variable) -> Output, steps: &[i64]) -> Vec<f32> {
        let graph = Graph::new();
        let step = create_global_step(&graph);
        let rate = build(&step);
        let session = Session::new(&graph).unwrap();
        let at = |at: i64| session.runner().feed(step.value(), Tensor::scalar(at)).fetch(&rate).run().unwrap();
        steps.iter().map(|&step| at(step)[0].to_scalar().unwrap()).collect()
    }

    fn close(a: &[f32], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} and {b:?}");
    }

    #[test]
    fn decays() {
        close(&rates(|step| exponential_decay(0.1, step, 10.0, 0.5, false), &[0, 5, 10]), &[0.1, 0.070_710_68, 0.05]);
        close(&rates(|step| exponential_decay(0.1, step, 10.0, 0.5, true), &[9, 10, 25]), &[0.1, 0.05, 0.025]);
        close(&rates(|step| natural_exp_decay(1.0, step, 1.0, 0.5, false), &[0, 2]), &[1.0, 0.367_879_44]);
        close(&rates(|step| inverse_time_decay(1.0, step, 1.0, 0.5, false), &[0, 2]), &[1.0, 0.5]);
        close(&rates(|step| polynomial_decay(1.0, step, 10.0, 0.1, 1.0, false), &[0, 5, 20]), &[1.0, 0.55, 0.1]);
        close(&rates(|step| polynomial_decay(1.0, step, 10.0, 0.1, 1.0, true), &[5, 15]), &[0.55, 0.325]);
        close(&rates(|step| piecewise_constant(step, &[2, 4], &[1.0, 0.5, 0.1]), &[2, 3, 5]), &[1.0, 0.5, 0.1]);
    }
}
