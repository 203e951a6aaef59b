//! How kernels call functions: [`Callee`] and [`FunctionCall`].

use crate::step::{FunctionDone, FunctionHandle, FunctionPlace, FunctionRuntime, Step};
use crate::{AsyncContext, AsyncKernel, OpContext};
use graph::AttrMap;
use parking_lot::Mutex;
use proto::NameAttrList;
use std::sync::{Arc, Weak};
use tensor::{Result, Status, Tensor};

/// A function that a node calls.
pub struct Callee {
    named: Arc<(String, AttrMap)>,
    /// The handle, and the runtime that returned it, since a kernel may outlive a runtime.
    instance: Mutex<Option<Bound>>,
}

/// The last binding of a callee.
struct Bound {
    runtime: Weak<dyn FunctionRuntime>,
    place: FunctionPlace,
    handle: FunctionHandle,
}

impl Callee {
    /// Returns the function that an attribute refers to. It is looked up when it is first bound.
    pub fn new(function: &NameAttrList) -> Callee {
        Callee::named(&function.name, AttrMap::from(&function.attr))
    }

    fn named(name: &str, attrs: AttrMap) -> Callee {
        Callee { named: Arc::new((name.to_owned(), attrs)), instance: Mutex::new(None) }
    }

    /// Binds the function to a step, to run on the step's device.
    pub fn bind(&self, step: &Arc<Step>) -> Result<BoundFunction> {
        self.bind_at(step, FunctionPlace::Here)
    }

    /// Binds the function to a step, to run on the devices that its body requests.
    pub fn bind_as_requested(&self, step: &Arc<Step>) -> Result<BoundFunction> {
        self.bind_at(step, FunctionPlace::AsRequested)
    }

    /// Binds the function to a step, to run at a place.
    pub fn bind_at(&self, step: &Arc<Step>, place: FunctionPlace) -> Result<BoundFunction> {
        let runtime = step
            .functions
            .clone()
            .ok_or_else(|| Status::not_found(format!("Function {} is not defined.", self.named.0)))?;
        let mut instance = self.instance.lock();
        if let Some(bound) = &*instance
            && std::ptr::addr_eq(bound.runtime.as_ptr(), Arc::as_ptr(&runtime))
            && bound.place == place
        {
            return Ok(BoundFunction { handle: bound.handle, runtime, named: self.named.clone(), place });
        }
        let handle = runtime.instantiate(&self.named.0, &self.named.1, &place)?;
        *instance = Some(Bound { runtime: Arc::downgrade(&runtime), place: place.clone(), handle });
        Ok(BoundFunction { handle, runtime, named: self.named.clone(), place })
    }
}

/// A function that a step can run.
#[derive(Clone)]
pub struct BoundFunction {
    handle: FunctionHandle,
    runtime: Arc<dyn FunctionRuntime>,
    /// The name and attributes.
    named: Arc<(String, AttrMap)>,
    place: FunctionPlace,
}

impl BoundFunction {
    /// Returns the function with its own state, which belongs to the owner of `forks`.
    pub fn forked(&self, forks: &FunctionForks) -> Result<BoundFunction> {
        let Some(runtime) = forks.of(&self.runtime) else { return Ok(self.clone()) };
        let handle = runtime.instantiate(&self.named.0, &self.named.1, &self.place)?;
        Ok(BoundFunction { handle, runtime, named: self.named.clone(), place: self.place.clone() })
    }

    /// Runs the function within a step, and calls `done` with its results.
    pub fn run(&self, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone) {
        self.runtime.run(self.handle, args, step, done);
    }

    /// Runs the function, and ends a node's work with the results as outputs.
    pub fn run_to_finish(&self, args: Vec<Tensor>, context: AsyncContext) {
        let step = context.step().clone();
        self.run(args, &step, Box::new(move |results| context.finish_with(|context| set_outputs(context, results?))));
    }
}

/// Runtimes for an owner whose functions have their own state, such as an iterator over a dataset.
#[derive(Default)]
pub struct FunctionForks {
    /// Each runtime and its fork.
    forks: Mutex<Vec<(Arc<dyn FunctionRuntime>, Arc<dyn FunctionRuntime>)>>,
}

impl FunctionForks {
    /// Returns the fork of a runtime, or `None` if it has none or is itself a fork.
    fn of(&self, runtime: &Arc<dyn FunctionRuntime>) -> Option<Arc<dyn FunctionRuntime>> {
        let mut forks = self.forks.lock();
        if forks.iter().any(|(_, fork)| Arc::ptr_eq(fork, runtime)) {
            return None;
        }
        if let Some((_, fork)) = forks.iter().find(|(original, _)| Arc::ptr_eq(original, runtime)) {
            return Some(fork.clone());
        }
        let fork = runtime.fork()?;
        forks.push((runtime.clone(), fork.clone()));
        Some(fork)
    }
}

/// The kernel of a node that calls a function: the inputs are the arguments, the outputs the results.
pub struct FunctionCall {
    function: Callee,
}

impl FunctionCall {
    /// Returns the kernel for a call of this function.
    pub fn new(name: &str, attrs: AttrMap) -> FunctionCall {
        FunctionCall { function: Callee::named(name, attrs) }
    }
}

impl AsyncKernel for FunctionCall {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = take_args(&mut context.op(), 0)
            .and_then(|args| Ok((args, self.function.bind_as_requested(context.step())?)));
        match prepared {
            Ok((args, function)) => function.run_to_finish(args, context),
            Err(status) => context.finish(Err(status)),
        }
    }
}

/// Sets a function's results as a node's outputs.
pub fn set_outputs(context: &mut OpContext<'_>, results: Vec<Tensor>) -> Result<()> {
    if results.len() != context.num_outputs() {
        return Err(Status::invalid_argument(format!(
            "Expecting {} return values from the function, but got {}",
            context.num_outputs(),
            results.len()
        )));
    }
    for (index, result) in results.into_iter().enumerate() {
        context.set_output(index, result);
    }
    Ok(())
}

/// Takes the inputs from `first` on as arguments.
pub fn take_args(context: &mut OpContext<'_>, first: usize) -> Result<Vec<Tensor>> {
    (first..context.num_inputs()).map(|index| context.take_input(index)).collect()
}
