//! The equations of [`Einsum`](super::einsum()): labels of axes, with an ellipsis for unlabelled ones.

use std::fmt;
use tensor::{Result, Status};

/// The label of an axis: a letter, or an axis of an ellipsis, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Letter(char),
    Ellipsis(usize),
}

impl Label {
    /// A label that no axis has.
    pub(super) const NONE: Label = Label::Ellipsis(usize::MAX);

    /// Returns whether an axis of size 1 matches any size.
    pub(super) fn broadcasts(self) -> bool {
        matches!(self, Label::Ellipsis(_))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Letter(letter) => write!(f, "'{letter}'"),
            Label::Ellipsis(axis) => write!(f, "axis {axis} of the ellipsis"),
        }
    }
}

/// The labels of an operand, and the position of its ellipsis.
#[derive(Clone, Debug)]
struct Subscript {
    labels: Vec<Label>,
    ellipsis: Option<usize>,
}

impl Subscript {
    fn parse(text: &str, equation: &str) -> Result<Subscript> {
        let invalid = |what: &str| Err(Status::invalid_argument(format!("{what} in einsum equation: {equation}")));
        let (text, ellipsis) = match text.find("...") {
            Some(position) => (format!("{}{}", &text[..position], &text[position + 3..]), Some(position)),
            None => (text.to_owned(), None),
        };
        if text.contains('.') {
            return invalid("Found more than one ellipsis");
        }
        // TensorFlow accepts any byte as a label.
        Ok(Subscript { labels: text.bytes().map(char::from).map(Label::Letter).collect(), ellipsis })
    }

    /// Replaces the ellipsis by labels for `count` axes.
    fn expand(&self, count: usize) -> Vec<Label> {
        let mut labels = self.labels.clone();
        if let Some(position) = self.ellipsis {
            labels.splice(position..position, (0..count).rev().map(Label::Ellipsis));
        }
        labels
    }
}

/// An equation as it was written.
#[derive(Clone, Debug)]
pub(super) struct Equation {
    inputs: Vec<Subscript>,
    output: Subscript,
}

/// An equation in which every axis has its label.
#[derive(Clone, Debug)]
pub(super) struct Explicit {
    pub inputs: Vec<Vec<Label>>,
    pub output: Vec<Label>,
}

impl Equation {
    /// Parses an equation with `count` inputs.
    pub(super) fn parse(equation: &str, count: usize) -> Result<Equation> {
        let parts: Vec<&str> = equation.split("->").collect();
        let [inputs, output] = parts[..] else {
            return Err(Status::invalid_argument(format!("Expected exactly one '->' in einsum equation: {equation}")));
        };
        let inputs: Vec<Subscript> =
            inputs.split(',').map(|labels| Subscript::parse(labels, equation)).collect::<Result<_>>()?;
        if inputs.len() != count || count > 2 {
            return Err(Status::invalid_argument(format!(
                "Expected {count} inputs (at most 2) in equation {equation} but got: {}",
                inputs.len()
            )));
        }
        let output = Subscript::parse(output, equation)?;
        for label in &output.labels {
            if !inputs.iter().any(|input| input.labels.contains(label)) {
                return Err(Status::invalid_argument(format!(
                    "Label {label} of the output is in no input: {equation}"
                )));
            }
        }
        Ok(Equation { inputs, output })
    }

    /// Labels every axis, for inputs of these ranks.
    pub(super) fn expand(&self, ranks: &[usize]) -> Result<Explicit> {
        let mut most = 0;
        let mut inputs = Vec::new();
        for (index, (input, &rank)) in self.inputs.iter().zip(ranks).enumerate() {
            let count = rank.checked_sub(input.labels.len()).filter(|&count| count == 0 || input.ellipsis.is_some());
            let Some(count) = count else {
                return Err(Status::invalid_argument(format!(
                    "Expected input {index} to have rank {}{} but got: {rank}",
                    if input.ellipsis.is_some() { "at least " } else { "" },
                    input.labels.len()
                )));
            };
            most = most.max(count);
            inputs.push(input.expand(count));
        }
        if most > 0 && self.output.ellipsis.is_none() {
            return Err(Status::invalid_argument(format!(
                "Output contains {most} broadcasting dimension(s) but no ellipsis (...) was found in the output subscripts."
            )));
        }
        Ok(Explicit { inputs, output: self.output.expand(most) })
    }
}
