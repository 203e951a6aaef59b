//! How kernels call functions; the executor implements it.

use crate::{AsyncContext, AsyncKernel, OpContext, Step};
use graph::AttrMap;
use parking_lot::Mutex;
use proto::NameAttrList;
use std::sync::{Arc, Weak};
use tensor::{Result, Status, Tensor};

/// Names an instantiated function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionHandle(pub u64);

/// Is given a function's results.
pub type FunctionDone = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// Where the body of a function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionPlace {
    /// On the caller's device, whatever the body asks for.
    Here,
    /// Where the body asks for, perhaps on several devices. What asks for nothing stays on the caller's device.
    AsRequested,
    /// On this device, whatever the body asks for.
    On(String),
}

/// Runs the functions of a graph's library.
pub trait FunctionRuntime: Send + Sync {
    /// Compiles a function for given attributes and a place, once.
    fn instantiate(&self, name: &str, attrs: &AttrMap, place: &FunctionPlace) -> Result<FunctionHandle>;

    /// Returns a runtime of the same functions whose stateful kernels start anew and belong to it alone; `None` where that
    /// makes no difference.
    fn fork(&self) -> Option<Arc<dyn FunctionRuntime>> {
        None
    }

    /// Runs a function within a step, perhaps to its end on this thread, and gives `done` the results.
    fn run(&self, handle: FunctionHandle, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone);
}

/// A function that a node calls.
pub struct Callee {
    named: Arc<(String, AttrMap)>,
    /// The handle, and the runtime that gave it: a kernel may outlive one runtime and meet another.
    instance: Mutex<Option<Bound>>,
}

/// What a callee was bound to last.
struct Bound {
    runtime: Weak<dyn FunctionRuntime>,
    place: FunctionPlace,
    handle: FunctionHandle,
}

impl Callee {
    /// Names the function that an attribute refers to; it is found when first bound.
    pub fn new(function: &NameAttrList) -> Callee {
        Callee::named(&function.name, AttrMap::from(&function.attr))
    }

    fn named(name: &str, attrs: AttrMap) -> Callee {
        Callee { named: Arc::new((name.to_owned(), attrs)), instance: Mutex::new(None) }
    }

    /// Returns the function as this step can run it on its own device.
    pub fn bind(&self, step: &Arc<Step>) -> Result<BoundFunction> {
        self.bind_at(step, FunctionPlace::Here)
    }

    /// Returns the function as this step can run it on the devices that its body asks for.
    pub fn bind_as_requested(&self, step: &Arc<Step>) -> Result<BoundFunction> {
        self.bind_at(step, FunctionPlace::AsRequested)
    }

    /// Returns the function as this step can run it at a place.
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
    /// Its name and attributes.
    named: Arc<(String, AttrMap)>,
    place: FunctionPlace,
}

impl BoundFunction {
    /// Returns the function with state that belongs to whoever holds `forks`.
    pub fn forked(&self, forks: &FunctionForks) -> Result<BoundFunction> {
        let Some(runtime) = forks.of(&self.runtime) else { return Ok(self.clone()) };
        let handle = runtime.instantiate(&self.named.0, &self.named.1, &self.place)?;
        Ok(BoundFunction { handle, runtime, named: self.named.clone(), place: self.place.clone() })
    }

    /// Runs the function within a step and gives `done` its results.
    pub fn run(&self, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone) {
        self.runtime.run(self.handle, args, step, done);
    }

    /// Runs the function and ends a node's work with its results as the outputs.
    pub fn run_to_finish(&self, args: Vec<Tensor>, context: AsyncContext) {
        let step = context.step().clone();
        self.run(args, &step, Box::new(move |results| context.finish_with(|context| set_outputs(context, results?))));
    }
}

/// The runtimes of someone whose functions have state of their own, as every iterator over a dataset has.
#[derive(Default)]
pub struct FunctionForks {
    /// Each runtime and its fork.
    forks: Mutex<Vec<(Arc<dyn FunctionRuntime>, Arc<dyn FunctionRuntime>)>>,
}

impl FunctionForks {
    /// Returns the fork of a runtime, unless it has none or is one itself.
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

/// The kernel of a node that is a call: its inputs are the arguments, its outputs the results.
pub struct FunctionCall {
    function: Callee,
}

impl FunctionCall {
    /// Makes the kernel of a call of this function.
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

/// Takes all inputs from `first` on.
pub fn take_args(context: &mut OpContext<'_>, first: usize) -> Result<Vec<Tensor>> {
    (first..context.num_inputs()).map(|index| context.take_input(index)).collect()
}
