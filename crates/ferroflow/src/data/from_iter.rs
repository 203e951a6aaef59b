//! Datasets of Rust iterators, for sessions of this process: a thread of the program produces an element whenever an iterator of
//! the dataset requests one.

use super::Dataset;
use super::callbacks::{call, serve};
use super::element::IntoElement;
use graph::{Graph, Output};
use kernel::Callback;
use std::collections::BTreeMap;
use tensor::{DType, IntoTensor, PartialShape, Result, Status, Tensor};

impl Dataset {
    /// Returns a dataset of the elements of a Rust iterator, which restarts in every epoch.
    ///
    /// The first element defines the types and shapes of the components. The elements come from a thread of this program, so the
    /// session must be in this process; on a remote server, the dataset fails with an error that says so.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let words = Dataset::from_iter(&g, ["to", "be", "or", "not"]).batch(4, false);
    /// let iterator = words.make_initializable_iterator();
    /// let next = iterator.get_next();
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[iterator.initializer().unwrap()])?;
    /// assert_eq!(session.run(&[&next[0]])?[0].strings()?[3], "not");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn from_iter<I>(graph: &Graph, elements: I) -> Dataset
    where
        I: IntoIterator + Clone + Send + 'static,
        I::Item: IntoElement,
        I::IntoIter: Send + 'static,
    {
        match from_iterator(graph, elements) {
            Ok(dataset) => dataset,
            Err(status) => Dataset::mistaken(graph, "FlatMapDataset", status),
        }
    }
}

/// The functions that the ops call.
const BEGIN: &str = "from_iter_begin";
const NEXT: &str = "from_iter_next";

/// The most open iterators of one dataset. One that is abandoned before its end counts until others displace it.
const UNDER_WAY_MAX: usize = 1024;

#[track_caller]
fn from_iterator<I>(graph: &Graph, elements: I) -> Result<Dataset>
where
    I: IntoIterator + Clone + Send + 'static,
    I::Item: IntoElement,
    I::IntoIter: Send + 'static,
{
    let first = elements.clone().into_iter().next();
    let none = || Status::invalid_argument("an iterator without elements doesn't say what its elements are");
    let first = first.ok_or_else(none)?.into_element()?;
    let types: Vec<DType> = first.iter().map(Tensor::dtype).collect();
    let shapes: Vec<PartialShape> = first.iter().map(|tensor| PartialShape::from(tensor.shape())).collect();
    if types.is_empty() {
        return Err(Status::invalid_argument("an element without components"));
    }
    let client = start(graph, elements, first)?;
    // Each element is preceded by a flag that says whether there is one; at the end, the element is a placeholder of zeros.
    let with_flag: Vec<DType> = [DType::Bool].into_iter().chain(types.iter().copied()).collect();
    let flag_and_shapes = || std::iter::once(PartialShape::scalar()).chain(shapes.iter().cloned());
    let next = |number: &Output| {
        let made = call(number.graph(), &client, NEXT, std::slice::from_ref(number), &with_flag);
        made.iter().zip(flag_and_shapes()).for_each(|(output, shape)| drop(output.set_shape(&shape)));
        made
    };
    Ok(Dataset::from_tensors(graph, 0i64).flat_map(|graph, _| {
        let number = call(graph, &client, BEGIN, &[], &[DType::Int64]).remove(0);
        let elements = Dataset::range(graph, i64::MAX).map_with(&[&number], |_, outside| next(&outside[0]));
        elements.take_while(|element| element[0].clone()).map(|element| element[1..].to_vec())
    }))
}

/// Starts the thread that produces the elements; returns the id under which ops find it.
fn start<I>(graph: &Graph, elements: I, first: Vec<Tensor>) -> Result<String>
where
    I: IntoIterator + Clone + Send + 'static,
    I::Item: IntoElement,
    I::IntoIter: Send + 'static,
{
    let (mut under_way, mut count) = (BTreeMap::new(), 0i64);
    let answer = move |call: &Callback| match number(call).map(|at| (at, under_way.get_mut(&at).map(Iterator::next))) {
        None => {
            count += 1;
            under_way.insert(count, elements.clone().into_iter());
            if under_way.len() > UNDER_WAY_MAX {
                under_way.pop_first();
            }
            Ok(vec![Tensor::scalar(count)])
        }
        Some((_, Some(Some(element)))) => element.into_element().and_then(|element| checked(element, &first)),
        Some((at, Some(None))) => {
            under_way.remove(&at);
            made_up(&first)
        }
        Some((_, None)) => {
            Err(Status::failed_precondition(format!("more than {UNDER_WAY_MAX} iterators of a dataset are under way")))
        }
    };
    serve(graph, "an iterator of this program", vec![Box::new(answer)])
}

/// Returns the answer for the end of the iterator.
fn made_up(first: &[Tensor]) -> Result<Vec<Tensor>> {
    let zeros = first.iter().map(|tensor| Tensor::zeros(tensor.dtype(), tensor.shape().clone()));
    std::iter::once(Ok(flag(false)?)).chain(zeros).collect()
}

fn flag(value: bool) -> Result<Tensor> {
    value.into_tensor()
}

/// Returns the number of an open iterator; a call without a number opens one.
fn number(call: &Callback) -> Option<i64> {
    call.args.first()?.to_scalar().ok()
}

/// Checks that an element has the types and shapes of the first one, and prepends the flag that there is one.
fn checked(element: Vec<Tensor>, first: &[Tensor]) -> Result<Vec<Tensor>> {
    let described = |element: &[Tensor]| {
        let all: Vec<String> = element.iter().map(|tensor| format!("{} {}", tensor.dtype(), tensor.shape())).collect();
        all.join(", ")
    };
    let same = |(one, two): (&Tensor, &Tensor)| one.dtype() == two.dtype() && one.shape() == two.shape();
    if element.len() != first.len() || !element.iter().zip(first).all(same) {
        let (first, given) = (described(first), described(&element));
        return Err(Status::invalid_argument(format!(
            "the iterator's first element is {first}, and a later one {given}"
        )));
    }
    Ok(std::iter::once(flag(true)?).chain(element).collect())
}
