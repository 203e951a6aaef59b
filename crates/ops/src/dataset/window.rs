//! Sliding windows over a dataset: WindowDataset returns each as a dataset, SlidingWindowDataset as a batch.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel,
    dataset_op, dataset_tensor, element_bytes, input_dataset, ready,
};
use super::batch::batched;
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "WindowDataset",
        &[INPUT, "size: int64", "shift: int64", "stride: int64", "drop_remainder: bool"],
        &[TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        &[KernelDef::any(|_| {
            dataset_kernel(|context| Window::new(context, argument(context, 4, "drop_remainder")?, Output::Datasets))
        })],
    ),
    dataset_op(
        "SlidingWindowDataset",
        &[INPUT, "window_size: int64", "window_shift: int64", "window_stride: int64"],
        &["drop_remainder: bool = true", TYPES, SHAPES],
        OpFlags::NONE,
        SLIDING,
    ),
    dataset_op(
        "ExperimentalSlidingWindowDataset",
        &[INPUT, "window_size: int64", "window_shift: int64", "window_stride: int64"],
        &[TYPES, SHAPES],
        OpFlags::NONE,
        SLIDING,
    ),
];

const SLIDING: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let drop_remainder = builder.attrs().bool("drop_remainder").unwrap_or(true);
    dataset_kernel(move |context| Window::new(context, drop_remainder, Output::Batches))
})];

/// A dataset of given elements.
pub(super) struct Elements(pub(super) Arc<Vec<Element>>);

impl Dataset for Elements {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(ElementsIterator { elements: self.0.clone(), next: 0 }))
    }

    fn cardinality(&self) -> i64 {
        self.0.len() as i64
    }
}

struct ElementsIterator {
    elements: Arc<Vec<Element>>,
    next: usize,
}

impl DatasetIterator for ElementsIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        let element = self.elements.get(self.next).cloned();
        self.next += usize::from(element.is_some());
        ready(Ok(element))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(std::future::ready(Ok(Position::of::<Self>().size(self.next))))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            self.next = position.read::<Self>()?.size()?;
            Ok(())
        })
    }
}

/// The form in which windows are returned.
#[derive(Clone, Copy)]
enum Output {
    Datasets,
    Batches,
}

#[derive(Clone)]
struct Window {
    input: Arc<dyn Dataset>,
    size: usize,
    shift: usize,
    stride: usize,
    drop_remainder: bool,
    output: Output,
}

impl Window {
    fn new(context: &OpContext<'_>, drop_remainder: bool, output: Output) -> Result<Window> {
        let positive = |index: usize, name: &str| {
            let number = argument::<i64>(context, index, name)?;
            let number = usize::try_from(number).ok().filter(|&number| number > 0);
            number.ok_or_else(|| Status::invalid_argument(format!("Window {name} must be greater than zero.")))
        };
        Ok(Window {
            input: input_dataset(context, 0)?,
            size: positive(1, "size")?,
            shift: positive(2, "shift")?,
            stride: positive(3, "stride")?,
            drop_remainder,
            output,
        })
    }

    /// Returns the number of elements that a window spans.
    fn span(&self) -> usize {
        (self.size - 1).saturating_mul(self.stride).saturating_add(1)
    }
}

impl Dataset for Window {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = Some(self.input.iterator(nesting.deeper()?)?);
        Ok(Box::new(WindowIterator { input, window: self.clone(), buffer: VecDeque::new(), buffer_bytes: 0 }))
    }

    fn cardinality(&self) -> i64 {
        let (all, shift) = (self.input.cardinality(), self.shift as i64);
        match all {
            all if all < 0 => all,
            all if !self.drop_remainder => all / shift + i64::from(all % shift != 0),
            all => match all - self.span() as i64 {
                rest if rest < 0 => 0,
                rest => rest / shift + 1,
            },
        }
    }
}

struct WindowIterator {
    input: Option<Box<dyn DatasetIterator>>,
    window: Window,
    /// The buffer for the next windows; an element that failed fails every window that contains it.
    buffer: VecDeque<Result<Element>>,
    buffer_bytes: usize,
}

impl WindowIterator {
    /// Removes elements from the buffer, and skips those that were never in it.
    async fn shift(&mut self, step: &Arc<Step>) -> Result<()> {
        for _ in 0..self.window.shift {
            turn(step).await?;
            if let Some(element) = self.buffer.pop_front() {
                let bytes = element.as_ref().map_or(0, element_bytes);
                self.buffer_bytes = self.buffer_bytes.saturating_sub(bytes);
                continue;
            }
            let Some(input) = &mut self.input else { break };
            if input.next(step).await?.is_none() {
                self.input = None;
            }
        }
        Ok(())
    }
}

impl DatasetIterator for WindowIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while self.buffer.len() < self.window.span()
                && let Some(input) = &mut self.input
            {
                turn(step).await?;
                match input.next(step).await {
                    Ok(Some(element)) => {
                        self.buffer_bytes = self.buffer_bytes.saturating_add(element_bytes(&element));
                        tensor::check_elements_fit(self.buffer_bytes, 1)?;
                        self.buffer.push_back(Ok(element));
                    }
                    Ok(None) => self.input = None,
                    Err(status) if step.cancellation.is_cancelled() => return Err(status),
                    Err(status) => self.buffer.push_back(Err(status)),
                }
            }
            let is_short = self.buffer.len() < self.window.span();
            if self.buffer.is_empty() || (is_short && self.window.drop_remainder) {
                return Ok(None);
            }
            let elements: Result<Vec<Element>> = self.buffer.iter().step_by(self.window.stride).cloned().collect();
            self.shift(step).await?;
            let elements = elements?;
            match self.window.output {
                Output::Batches => batched(&elements, None).map(Some),
                Output::Datasets => windows(&elements).map(Some),
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let position = Position::of::<Self>().size(self.buffer.len());
            let results = self.buffer.iter().map(|element| element.clone().map(Some));
            let position = results.fold(position, |position, result| position.result(&result));
            position.within_maybe(&mut self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            for _ in 0..reader.size()? {
                let element = reader.result()?.map(Option::unwrap_or_default);
                self.buffer_bytes = self.buffer_bytes.saturating_add(element.as_ref().map_or(0, element_bytes));
                self.buffer.push_back(element);
            }
            reader.within_or_ended(&mut self.input, step).await
        })
    }
}

/// Returns a dataset of each component of a window.
fn windows(elements: &[Element]) -> Result<Element> {
    let num_components = elements.first().map_or(0, Vec::len);
    let component = |index: usize| {
        let one = |element: &Element| element.get(index).map(|tensor| vec![tensor.clone()]);
        let part: Option<Vec<Element>> = elements.iter().map(one).collect();
        let part = part.ok_or_else(|| Status::invalid_argument("elements of a window differ in their components"))?;
        Ok(dataset_tensor(Arc::new(Elements(Arc::new(part))), Nesting::default()))
    };
    (0..num_components).map(component).collect()
}
