//! Copying a box out of one array into a box of another, as runs of consecutive elements.

use super::tensor_slice::Extent;
use tensor::{Result, Shape, Status};

/// Elements that are consecutive in both arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) source: usize,
    pub(crate) destination: usize,
    pub(crate) length: usize,
}

/// The runs of a box, in the order in which the source holds them.
#[derive(Clone)]
pub(crate) struct Runs {
    length: usize,
    /// The dimensions outside a run, the outermost first: how many steps, and how far one goes.
    outer: Vec<Step>,
    counters: Vec<usize>,
    next: Option<Run>,
}

#[derive(Clone, Copy)]
struct Step {
    count: usize,
    source: usize,
    destination: usize,
}

impl Runs {
    /// Returns the runs of the box where `source` and `destination`, both boxes of one tensor, overlap, or `None`.
    pub(crate) fn between(source: &[Extent], destination: &[Extent]) -> Option<Runs> {
        let mut overlap = Vec::with_capacity(source.len());
        for (a, b) in source.iter().zip(destination) {
            let start = a.start.max(b.start);
            let end = (a.start + a.length).min(b.start + b.length);
            if end <= start {
                return None;
            }
            overlap.push(Extent { start, length: end - start });
        }
        // From the innermost dimension outwards: as long as both arrays have all of it, the run goes on.
        let (mut source_stride, mut destination_stride) = (1usize, 1usize);
        let mut first = Run { source: 0, destination: 0, length: 1 };
        let mut outer = Vec::new();
        for ((part, a), b) in overlap.iter().zip(source).zip(destination).rev() {
            first.source += (part.start - a.start) as usize * source_stride;
            first.destination += (part.start - b.start) as usize * destination_stride;
            let count = part.length as usize;
            if outer.is_empty() && first.length == source_stride && first.length == destination_stride {
                first.length *= count;
            } else if count > 1 {
                outer.push(Step { count, source: source_stride, destination: destination_stride });
            }
            source_stride *= a.length as usize;
            destination_stride *= b.length as usize;
        }
        outer.reverse();
        let counters = vec![0; outer.len()];
        Some(Runs { length: first.length, outer, counters, next: Some(first) })
    }

    /// Returns how many elements a run has.
    pub(crate) fn run_length(&self) -> usize {
        self.length
    }

    /// Returns how many elements there are in all.
    pub(crate) fn total(&self) -> usize {
        self.outer.iter().map(|step| step.count).product::<usize>() * self.length
    }

    /// Returns where the last run ends in the source.
    pub(crate) fn source_end(&self) -> usize {
        let start = self.next.map_or(0, |run| run.source);
        start + self.outer.iter().map(|step| (step.count - 1) * step.source).sum::<usize>() + self.length
    }

    /// Returns the same runs in bytes.
    pub(crate) fn scaled(mut self, element_bytes: usize) -> Runs {
        self.length *= element_bytes;
        for step in &mut self.outer {
            step.source *= element_bytes;
            step.destination *= element_bytes;
        }
        if let Some(next) = &mut self.next {
            next.source *= element_bytes;
            next.destination *= element_bytes;
            next.length = self.length;
        }
        self
    }
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let current = self.next?;
        let mut following = current;
        self.next = None;
        for (step, counter) in self.outer.iter().zip(&mut self.counters).rev() {
            *counter += 1;
            following.source += step.source;
            following.destination += step.destination;
            if *counter < step.count {
                self.next = Some(following);
                break;
            }
            *counter = 0;
            following.source -= step.source * step.count;
            following.destination -= step.destination * step.count;
        }
        Some(current)
    }
}

/// Returns the runs for every one of the boxes `stored` that holds a part of `wanted`, with its index.
///
/// Fails when the boxes overlap, or don't hold all of `wanted`.
pub(crate) fn covering_runs(stored: &[Vec<Extent>], wanted: &[Extent]) -> Result<Vec<(usize, Runs)>> {
    let mut parts = Vec::new();
    let mut total = 0u128;
    for (index, source) in stored.iter().enumerate() {
        if let Some(runs) = Runs::between(source, wanted) {
            total += runs.total() as u128;
            parts.push((index, runs));
        }
    }
    let wanted_total: u128 = wanted.iter().map(|extent| extent.length as u128).product();
    if total < wanted_total {
        return Err(Status::invalid_argument("Does not have sufficient slices"));
    }
    let boxes: Vec<&Vec<Extent>> = parts.iter().map(|(index, _)| &stored[*index]).collect();
    // Without overlap a sum that is large enough can't hide a hole.
    if overlapping(boxes) || total > wanted_total {
        return Err(Status::data_loss("Overlapping slices"));
    }
    Ok(parts)
}

/// Returns whether two of the boxes share an element.
fn overlapping(mut boxes: Vec<&Vec<Extent>>) -> bool {
    let rank = boxes.first().map_or(0, |extents| extents.len());
    // Sorted along the dimension in which they differ most, each has few neighbours that it could overlap.
    let distinct_starts = |dimension: usize| {
        let mut starts: Vec<i64> = boxes.iter().map(|extents| extents[dimension].start).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    let Some(dimension) = (0..rank).max_by_key(|&dimension| distinct_starts(dimension)) else {
        return boxes.len() > 1;
    };
    boxes.sort_unstable_by_key(|extents| extents[dimension].start);
    boxes.iter().enumerate().any(|(index, extents)| {
        let end = extents[dimension].start + extents[dimension].length;
        boxes[index + 1..]
            .iter()
            .take_while(|other| other[dimension].start < end)
            .any(|other| Runs::between(extents, other).is_some())
    })
}

/// Returns the extents of a whole tensor.
pub(crate) fn whole(shape: &Shape) -> Vec<Extent> {
    shape.dims().iter().map(|&length| Extent { start: 0, length }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents(text: &str) -> Vec<Extent> {
        let parts = text.split(':').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| part.split_once(',').unwrap());
        pairs.map(|(start, length)| Extent { start: start.parse().unwrap(), length: length.parse().unwrap() }).collect()
    }

    #[test]
    fn contiguous_boxes_are_one_run() {
        let runs: Vec<Run> = Runs::between(&extents("0,10:0,4"), &extents("2,3:0,4")).unwrap().collect();
        assert_eq!(runs, [Run { source: 8, destination: 0, length: 12 }]);
        let runs: Vec<Run> = Runs::between(&extents(""), &extents("")).unwrap().collect();
        assert_eq!(runs, [Run { source: 0, destination: 0, length: 1 }]);
        assert!(Runs::between(&extents("0,2"), &extents("2,3")).is_none());
    }

    #[test]
    fn columns_are_many_runs() {
        let runs = Runs::between(&extents("0,3:0,5"), &extents("0,3:1,2")).unwrap();
        assert_eq!((runs.run_length(), runs.total(), runs.source_end()), (2, 6, 13));
        let sources: Vec<(usize, usize)> = runs.scaled(4).map(|run| (run.source, run.destination)).collect();
        assert_eq!(sources, [(4, 0), (24, 8), (44, 16)]);
    }

    #[test]
    fn holes_and_overlaps_are_errors() {
        let stored = |texts: &[&str]| texts.iter().map(|text| extents(text)).collect::<Vec<_>>();
        let wanted = extents("0,10:0,2");
        let check = |texts: &[&str]| covering_runs(&stored(texts), &wanted).map(|parts| parts.len());
        assert_eq!(check(&["0,4:0,2", "4,6:0,2"]), Ok(2));
        assert_eq!(check(&["0,4:0,2", "4,6:0,2", "10,4:0,2"]), Ok(2));
        assert_eq!(check(&["0,5:0,1", "0,5:1,1", "5,5:0,1", "5,5:1,1"]), Ok(4));
        assert!(check(&["0,4:0,2", "5,5:0,2"]).is_err());
        assert!(check(&["0,5:0,2", "0,5:0,2"]).is_err());
        assert!(check(&["0,6:0,2", "4,6:0,2"]).is_err());
    }

    proptest! {
        #[test]
        fn boxes_are_copied(
            dims in prop::collection::vec(1i64..5, 0..4),
            cuts in prop::collection::vec((0i64..5, 0i64..5, 0i64..5, 0i64..5), 4),
        ) {
            let cut = |(start, length): (i64, i64), dim: i64| {
                let start = start.min(dim - 1);
                Extent { start, length: (length + 1).min(dim - start) }
            };
            let pairs = || cuts.iter().zip(&dims);
            let source: Vec<Extent> = pairs().map(|(c, &dim)| cut((c.0, c.1), dim)).collect();
            let destination: Vec<Extent> = pairs().map(|(c, &dim)| cut((c.2, c.3), dim)).collect();
            // The position of every element of a box in the whole tensor, in the box's own order.
            let positions = |extents: &[Extent]| {
                let mut positions = vec![0i64];
                for (extent, dim) in extents.iter().zip(&dims) {
                    positions = positions.iter().flat_map(|base| {
                        (extent.start..extent.start + extent.length).map(move |index| base * dim + index)
                    }).collect();
                }
                positions
            };
            let (from, to) = (positions(&source), positions(&destination));
            let mut copied = vec![-1; to.len()];
            let mut last = None;
            let runs = Runs::between(&source, &destination);
            if let Some(runs) = &runs {
                let end = runs.clone().last().map(|run| run.source + run.length);
                prop_assert_eq!(end, Some(runs.source_end()));
            }
            for run in runs.into_iter().flatten() {
                prop_assert!(last < Some(run.source));
                last = Some(run.source);
                copied[run.destination..run.destination + run.length]
                    .copy_from_slice(&from[run.source..run.source + run.length]);
            }
            let expected: Vec<i64> =
                to.iter().map(|position| if from.contains(position) { *position } else { -1 }).collect();
            prop_assert_eq!(copied, expected);
        }
    }
}
