//! Connectionist temporal classification of one sequence: the loss with its gradient, and a beam search for likely labellings.
//!
//! All probabilities are logarithms, because those of whole sequences underflow.

use crate::float::WideFloat;
use crate::softmax;
use cpu_macros::each_level;
use std::collections::{BTreeMap, BinaryHeap};
use std::{cmp, mem};

/// Returns the negative logarithm of the probability of `labels`, and writes its gradient with respect to the logits.
///
/// `logits` and `gradient` have a row of `classes` for each step; the last class is the blank. With `merge_repeated`, a class
/// that repeats on consecutive steps is one label; without, it is one label per step.
pub fn loss<T: WideFloat>(
    logits: &[T],
    classes: usize,
    labels: &[usize],
    merge_repeated: bool,
    gradient: &mut [T],
) -> T {
    assert_eq!(logits.len(), gradient.len(), "logits and gradient differ in length");
    assert!(classes > 0 && logits.len().is_multiple_of(classes), "logits must be whole rows");
    assert!(labels.iter().all(|&label| label + 1 < classes), "labels must be classes other than the blank");
    let steps = logits.len() / classes;
    if steps == 0 {
        return T::zero();
    }
    let mut log_probability = vec![T::zero(); logits.len()];
    softmax::log_softmax(logits, classes, &mut log_probability);
    let lattice = Lattice::new(labels, classes, merge_repeated);
    let forward = lattice.forward(&log_probability, steps);
    let total = lattice.end(&forward[(steps - 1) * lattice.len()..]);
    for (gradient, &log_probability) in gradient.iter_mut().zip(&log_probability) {
        *gradient = log_probability.simd_exp();
    }
    if total > T::neg_infinity() {
        lattice.subtract_shares(&forward, &log_probability, total, gradient);
    }
    -total
}

/// The states that a labelling passes through: blanks, with one label between any two.
struct Lattice<T> {
    classes: usize,
    /// The class of each state.
    class_of: Vec<usize>,
    /// Zero where a state may follow itself, else minus infinity.
    stay: Vec<T>,
    /// Zero where a state may follow the one two before it, skipping the blank between, else minus infinity.
    skip: Vec<T>,
}

impl<T: WideFloat> Lattice<T> {
    fn new(labels: &[usize], classes: usize, merge_repeated: bool) -> Lattice<T> {
        let blank = classes - 1;
        let mut class_of = vec![blank; 2 * labels.len() + 1];
        for (index, &label) in labels.iter().enumerate() {
            class_of[2 * index + 1] = label;
        }
        let gate = |is_open: bool| if is_open { T::zero() } else { T::neg_infinity() };
        let is_label = |state: usize| state % 2 == 1;
        let states = 0..class_of.len();
        let stay = states.clone().map(|state| gate(merge_repeated || !is_label(state))).collect();
        let repeats = |state: usize| class_of[state] == class_of[state - 2];
        let skip =
            states.map(|state| gate(is_label(state) && state >= 2 && !(merge_repeated && repeats(state)))).collect();
        Lattice { classes, class_of, stay, skip }
    }

    fn len(&self) -> usize {
        self.class_of.len()
    }

    /// Returns for each step and state the probability of all paths to it, its own emission included.
    fn forward(&self, log_probability: &[T], steps: usize) -> Vec<T> {
        let states = self.len();
        let mut ways = vec![T::neg_infinity(); steps * states];
        // Two unreachable states in front spare the loop a special case for the first two.
        let mut before = vec![T::neg_infinity(); states + 2];
        let mut emitted = vec![T::zero(); states];
        for (step, ways) in ways.chunks_exact_mut(states).enumerate() {
            self.emit(&log_probability[step * self.classes..][..self.classes], &mut emitted);
            if step == 0 {
                let starts = states.min(2);
                ways[..starts].copy_from_slice(&emitted[..starts]);
            } else {
                advance(&before, &self.stay, &self.skip, &emitted, ways);
            }
            before[2..].copy_from_slice(ways);
        }
        ways
    }

    fn emit(&self, log_probability: &[T], emitted: &mut [T]) {
        for (emitted, &class) in emitted.iter_mut().zip(&self.class_of) {
            *emitted = log_probability[class];
        }
    }

    /// Returns the probability of all complete paths: those that end in the last label or the blank after it.
    fn end(&self, ways: &[T]) -> T {
        let last = self.len() - 1;
        if last == 0 { ways[0] } else { log_add(ways[last], ways[last - 1]) }
    }

    /// Subtracts from each class of each step the share of the paths that pass through it.
    fn subtract_shares(&self, forward: &[T], log_probability: &[T], total: T, gradient: &mut [T]) {
        let states = self.len();
        let steps = forward.len() / states;
        // From the end, the states and the gates between them are in reverse order.
        let reversed = |gates: &[T], offset: usize| -> Vec<T> {
            (0..states)
                .map(|state| gates.get(states - 1 - state + offset).copied().unwrap_or_else(T::neg_infinity))
                .collect()
        };
        let (stay, skip) = (reversed(&self.stay, 0), reversed(&self.skip, 2));
        let mut after = vec![T::neg_infinity(); states + 2];
        let mut ways = vec![T::neg_infinity(); states];
        ways[..states.min(2)].fill(T::zero());
        let mut emitted = vec![T::zero(); states];
        let nothing = vec![T::zero(); states];
        for step in (0..steps).rev() {
            let row = step * self.classes..(step + 1) * self.classes;
            let forward = &forward[step * states..(step + 1) * states];
            let gradient = &mut gradient[row.clone()];
            for ((&backward, &forward), &class) in ways.iter().rev().zip(forward).zip(&self.class_of) {
                gradient[class] = gradient[class] - (forward + backward - total).simd_exp();
            }
            // Only the later steps emit here: the forward pass has counted this state's own emission.
            self.emit(&log_probability[row], &mut emitted);
            for ((after, &way), &emitted) in after[2..].iter_mut().zip(&ways).zip(emitted.iter().rev()) {
                *after = way + emitted;
            }
            advance(&after, &stay, &skip, &nothing, &mut ways);
        }
    }
}

/// Writes for each state the summed probability of arriving from itself and from the two states before it.
#[each_level]
fn advance<T: WideFloat>(before: &[T], stay: &[T], skip: &[T], emitted: &[T], ways: &mut [T]) {
    let states = ways.len();
    let (two_before, one_before, same) = (&before[..states], &before[1..states + 1], &before[2..states + 2]);
    let (stay, skip, emitted) = (&stay[..states], &skip[..states], &emitted[..states]);
    for state in 0..states {
        let (a, b, c) = (same[state] + stay[state], one_before[state], two_before[state] + skip[state]);
        let most = if a > b { a } else { b };
        let most = if c > most { c } else { most };
        // Minus infinity less minus infinity would be NaN.
        let base = if most == T::neg_infinity() { T::zero() } else { most };
        let sum = (a - base).simd_exp() + (b - base).simd_exp() + (c - base).simd_exp();
        ways[state] = base + sum.simd_log() + emitted[state];
    }
}

/// Returns the logarithm of the sum of two numbers, given their logarithms.
fn log_add<T: WideFloat>(a: T, b: T) -> T {
    let (most, least) = if a > b { (a, b) } else { (b, a) };
    if least == T::neg_infinity() { most } else { most + (least - most).simd_exp().simd_log1p() }
}

/// One labelling that a search found.
pub struct Path<T> {
    /// The labels in order.
    pub labels: Vec<usize>,
    /// The logarithm of its probability.
    pub log_probability: T,
}

/// Returns the likeliest labellings, best first, that a beam search of this width finds: at most `width`.
///
/// `logits` has a row of `classes` for each step; the last class is the blank.
pub fn beam_search<T: WideFloat>(logits: &[T], classes: usize, width: usize) -> Vec<Path<T>> {
    assert!(classes > 0 && logits.len().is_multiple_of(classes), "logits must be whole rows");
    assert!(width > 0, "a search keeps one labelling at least");
    let mut log_probability = vec![T::zero(); logits.len()];
    softmax::log_softmax(logits, classes, &mut log_probability);
    let mut search = Search::new(width);
    for row in log_probability.chunks_exact(classes) {
        search.step(row);
    }
    let order = search.beam.take_sorted();
    order.into_iter().map(|node| search.path(node)).collect()
}

/// The probabilities of a labelling up to one step.
#[derive(Clone, Copy)]
struct Chance<T> {
    /// Of all paths.
    total: T,
    /// Of those that end in a blank.
    blank: T,
    /// Of those that end in the last label.
    label: T,
}

impl<T: WideFloat> Chance<T> {
    fn none() -> Chance<T> {
        Chance { total: T::neg_infinity(), blank: T::neg_infinity(), label: T::neg_infinity() }
    }

    fn is_some(&self) -> bool {
        self.total != T::neg_infinity()
    }
}

/// A labelling: a label appended to a shorter labelling.
struct Node<T> {
    parent: Option<usize>,
    label: usize,
    children: BTreeMap<usize, usize>,
    old: Chance<T>,
    new: Chance<T>,
}

struct Search<T> {
    nodes: Vec<Node<T>>,
    beam: Beam<T>,
}

impl<T: WideFloat> Search<T> {
    fn new(width: usize) -> Search<T> {
        let start = Chance { total: T::zero(), blank: T::zero(), label: T::neg_infinity() };
        let root = Node { parent: None, label: usize::MAX, children: BTreeMap::new(), old: start, new: start };
        let mut beam = Beam { width, kept: BinaryHeap::new() };
        beam.kept.push(Kept { total: T::zero(), node: 0 });
        Search { nodes: vec![root], beam }
    }

    fn step(&mut self, row: &[T]) {
        let blank = row.len() - 1;
        let branches = self.beam.take_sorted();
        for &node in &branches {
            self.nodes[node].old = self.nodes[node].new;
        }
        for &node in &branches {
            let Node { parent, label, old, mut new, .. } = self.nodes[node];
            if let Some(parent) = parent {
                let parent = &self.nodes[parent];
                if parent.new.is_some() {
                    let before = if label == parent.label { parent.old.blank } else { parent.old.total };
                    new.label = log_add(new.label, before);
                }
                new.label = new.label + row[label];
            }
            new.blank = old.total + row[blank];
            new.total = log_add(new.blank, new.label);
            self.nodes[node].new = new;
            self.beam.kept.push(Kept { total: new.total, node });
        }
        for &node in &branches {
            if self.beam.accepts(self.nodes[node].old.total) {
                self.grow(node, &row[..blank]);
            }
        }
    }

    /// Adds the labellings that are one label longer and likely enough to stay in the beam.
    fn grow(&mut self, node: usize, row: &[T]) {
        for (label, &log_probability) in row.iter().enumerate() {
            let parent = &self.nodes[node];
            let child = parent.children.get(&label).copied();
            if child.is_some_and(|child| self.nodes[child].new.is_some()) {
                continue;
            }
            let before = if label == parent.label { parent.old.blank } else { parent.old.total };
            let total = log_probability + before;
            if !self.beam.accepts(total) {
                continue;
            }
            let chance = Chance { total, blank: T::neg_infinity(), label: total };
            let child = child.unwrap_or_else(|| self.add(node, label));
            self.nodes[child].new = chance;
            if let Some(dropped) = self.beam.push(Kept { total, node: child }) {
                self.nodes[dropped].new = Chance::none();
            }
        }
    }

    fn add(&mut self, parent: usize, label: usize) -> usize {
        let child = self.nodes.len();
        let (old, new) = (Chance::none(), Chance::none());
        self.nodes.push(Node { parent: Some(parent), label, children: BTreeMap::new(), old, new });
        self.nodes[parent].children.insert(label, child);
        child
    }

    fn path(&self, node: usize) -> Path<T> {
        let mut labels = Vec::new();
        let mut at = node;
        while let Some(parent) = self.nodes[at].parent {
            labels.push(self.nodes[at].label);
            at = parent;
        }
        labels.reverse();
        Path { labels, log_probability: self.nodes[node].new.total }
    }
}

/// The likeliest labellings so far, the least likely on top.
struct Beam<T> {
    width: usize,
    kept: BinaryHeap<Kept<T>>,
}

impl<T: WideFloat> Beam<T> {
    /// Returns whether a labelling of this probability enters the beam.
    fn accepts(&self, total: T) -> bool {
        total > T::neg_infinity()
            && (self.kept.len() < self.width || self.kept.peek().is_some_and(|least| total > least.total))
    }

    /// Adds a labelling, and returns the one that it displaces.
    fn push(&mut self, kept: Kept<T>) -> Option<usize> {
        let dropped = if self.kept.len() >= self.width { self.kept.pop() } else { None };
        self.kept.push(kept);
        dropped.map(|kept| kept.node)
    }

    /// Empties the beam, likeliest first.
    fn take_sorted(&mut self) -> Vec<usize> {
        mem::take(&mut self.kept).into_sorted_vec().into_iter().map(|kept| kept.node).collect()
    }
}

struct Kept<T> {
    total: T,
    node: usize,
}

impl<T: WideFloat> Ord for Kept<T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        let by_chance = other.total.partial_cmp(&self.total).unwrap_or(cmp::Ordering::Equal);
        // Among equals, the older one ranks higher.
        by_chance.then(self.node.cmp(&other.node))
    }
}

impl<T: WideFloat> PartialOrd for Kept<T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: WideFloat> PartialEq for Kept<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: WideFloat> Eq for Kept<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f64; 12] = [0.1, -0.3, 0.6, 0.9, 0.2, -0.5, -0.2, 0.4, 0.3, 0.8, -0.9, 0.1];
    const CLASSES: usize = 3;

    /// Calls `f` with every sequence of classes and its probability.
    fn for_each_way(f: &mut dyn FnMut(&[usize], f64)) {
        let mut probability = vec![0.0; LOGITS.len()];
        softmax::softmax(&LOGITS, CLASSES, &mut probability);
        let steps = LOGITS.len() / CLASSES;
        for code in 0..CLASSES.pow(steps as u32) {
            let way: Vec<usize> = (0..steps).map(|step| code / CLASSES.pow(step as u32) % CLASSES).collect();
            f(&way, way.iter().enumerate().map(|(step, class)| probability[step * CLASSES + class]).product());
        }
    }

    fn labels_of(way: &[usize], merge_repeated: bool) -> Vec<usize> {
        let mut last = None;
        let mut labels = Vec::new();
        for &class in way {
            if class != CLASSES - 1 && !(merge_repeated && last == Some(class)) {
                labels.push(class);
            }
            last = Some(class);
        }
        labels
    }

    fn probability_of(labels: &[usize], merge_repeated: bool) -> f64 {
        let mut sum = 0.0;
        for_each_way(&mut |way, probability| {
            if labels_of(way, merge_repeated) == labels {
                sum += probability;
            }
        });
        sum
    }

    #[test]
    fn the_loss_counts_every_way() {
        let mut gradient = [0.0; LOGITS.len()];
        for merge_repeated in [true, false] {
            for labels in [&[0][..], &[0, 1], &[1, 1], &[0, 1, 0], &[0, 1, 0, 1], &[]] {
                let expected = -probability_of(labels, merge_repeated).ln();
                let got = loss(&LOGITS, CLASSES, labels, merge_repeated, &mut gradient);
                assert!((got - expected).abs() < 1e-9, "{labels:?}: {got} instead of {expected}");
            }
        }
        assert_eq!(loss(&LOGITS, CLASSES, &[0, 0, 0], true, &mut gradient), f64::INFINITY);
        assert!(
            (gradient[..3].iter().sum::<f64>() - 1.0).abs() < 1e-9,
            "without a way the gradient is the distribution"
        );
    }

    #[test]
    fn the_gradient_is_the_slope() {
        const DELTA: f64 = 1e-5;
        let mut unused = [0.0; LOGITS.len()];
        for merge_repeated in [true, false] {
            let mut gradient = [0.0; LOGITS.len()];
            loss(&LOGITS, CLASSES, &[1, 0], merge_repeated, &mut gradient);
            for index in 0..LOGITS.len() {
                let mut at = |delta: f64| {
                    let mut logits = LOGITS;
                    logits[index] += delta;
                    loss(&logits, CLASSES, &[1, 0], merge_repeated, &mut unused)
                };
                let expected = (at(DELTA) - at(-DELTA)) / (2.0 * DELTA);
                assert!(
                    (gradient[index] - expected).abs() < 1e-6,
                    "{index}: {} instead of {expected}",
                    gradient[index]
                );
            }
        }
    }

    #[test]
    fn improbable_labels_have_a_finite_loss() {
        let logits: Vec<f32> = (0..300).map(|index| if index % 3 == 0 { 90.0 } else { 0.0 }).collect();
        let mut gradient = vec![0f32; logits.len()];
        let got = loss(&logits, 3, &[1; 40], true, &mut gradient);
        assert!(got.is_finite() && got > 3000.0, "{got}");
        assert!(gradient.iter().all(|value| value.is_finite()));
    }

    #[test]
    fn a_wide_search_finds_every_labelling() {
        let paths = beam_search(&LOGITS, CLASSES, 1000);
        assert!(paths.is_sorted_by(|a, b| a.log_probability >= b.log_probability));
        for path in &paths {
            let expected = probability_of(&path.labels, true).ln();
            assert!((path.log_probability - expected).abs() < 1e-9, "{:?}", path.labels);
        }
        let sum: f64 = paths.iter().map(|path| path.log_probability.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert_eq!(beam_search(&LOGITS, CLASSES, 2).len(), 2);
        assert_eq!(beam_search::<f32>(&[], CLASSES, 2)[0].labels, []);
    }
}
