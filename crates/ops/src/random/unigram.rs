//! Classes drawn by frequency: a table of fixed weights, and a tree of weights that grow.

use super::generator::SingleSample;
use crate::file_access::Lines;
use storage::record::CompressionType;
use tensor::{Result, Status};

/// Draws by fixed weights: a number selects an entry, and another decides between its two classes (Walker's alias method).
pub(super) struct AliasTable {
    weights: Vec<f32>,
    total: f32,
    /// For each entry, the probability of its own class, and the other class.
    places: Vec<(f32, u32)>,
}

/// The classes of a table.
pub(super) struct Weights {
    pub distortion: f32,
    pub reserved: i64,
    pub shards: i64,
    pub shard: i64,
}

impl AliasTable {
    /// Returns the table of `range` classes for the frequency of each class.
    pub(super) fn from_counts(weights: &Weights, range: i64, counts: &[f32]) -> Result<AliasTable> {
        AliasTable::new(weights, range, counts.iter().map(|&count| Ok(count)))
    }

    /// Reads the table from a file: a class's frequency is in the last column of its line.
    pub(super) fn from_file(weights: &Weights, range: i64, path: &str) -> Result<AliasTable> {
        const BUFFER_BYTES: usize = 256 << 10;
        let mut lines = Lines::open(path, CompressionType::None, BUFFER_BYTES)?;
        let counts = std::iter::from_fn(|| lines.next_line().transpose()).map(|line| {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            let last = line.rsplit(',').next().unwrap_or_default().trim();
            last.parse::<f32>()
                .map_err(|_| Status::invalid_argument(format!("Wrong vocabulary format at line: {line}")))
        });
        AliasTable::new(weights, range, counts)
    }

    fn new(of: &Weights, range: i64, counts: impl Iterator<Item = Result<f32>>) -> Result<AliasTable> {
        let mine = |id: i64| id % of.shards == of.shard;
        let mut weights: Vec<f32> = Vec::new();
        let mut total = 0f32;
        if of.reserved > range {
            return Err(Status::invalid_argument(format!("{} reserved ids of {range} classes", of.reserved)));
        }
        weights.extend((0..of.reserved).filter(|&id| mine(id)).map(|_| 0.0));
        let first = weights.len() as i64;
        for (id, count) in (first..).zip(counts) {
            let count = count?;
            if mine(id) {
                let weight = count.powf(of.distortion);
                total += weight;
                weights.push(weight);
            }
        }
        if weights.len() as i64 != range {
            return Err(Status::invalid_argument(format!(
                "range is {range} must be equal to weights size  {}",
                weights.len()
            )));
        }
        Ok(AliasTable { places: aliases(&weights), weights, total })
    }

    pub(super) fn sample(&self, random: &mut SingleSample) -> i64 {
        let fraction = random.fraction();
        let place = random.below(self.places.len() as u32);
        let (own, other) = self.places[place as usize];
        i64::from(if fraction < own { place } else { other })
    }

    pub(super) fn probability(&self, class: i64) -> f32 {
        usize::try_from(class).ok().and_then(|class| self.weights.get(class)).map_or(0.0, |weight| weight / self.total)
    }
}

fn aliases(weights: &[f32]) -> Vec<(f32, u32)> {
    let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    // The product is first rounded to single precision, as in TensorFlow.
    let mut shares: Vec<f64> = weights.iter().map(|weight| f64::from(weight * weights.len() as f32) / sum).collect();
    let mut places: Vec<(f32, u32)> = (0..weights.len() as u32).map(|class| (1.0, class)).collect();
    let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|&class| shares[class] < 1.0);
    while let (Some(&from), Some(&to)) = (high.last(), low.last()) {
        low.pop();
        high.pop();
        places[to] = (shares[to] as f32, from as u32);
        shares[from] -= 1.0 - shares[to];
        if shares[from] < 1.0 { low.push(from) } else { high.push(from) }
    }
    places
}

/// Draws by weights that start at one and grow with each class that is seen. The sums of pairs, of pairs of pairs and so on form
/// a tree with the total at its root.
pub(super) struct GrowingWeights {
    /// The levels of the tree, the root first.
    levels: Vec<Vec<i32>>,
    range: usize,
}

impl GrowingWeights {
    pub(super) fn new(range: i64) -> Result<GrowingWeights> {
        const RANGE_MAX: i64 = i32::MAX as i64 - 1;
        if !(1..=RANGE_MAX).contains(&range) {
            return Err(Status::invalid_argument(format!("range_max must be less than {RANGE_MAX}, got {range}")));
        }
        let range = range as usize;
        let mut levels = vec![vec![1i32; range]];
        while levels[0].len() > 1 {
            let sums = levels[0].chunks(2).map(|pair| pair.iter().sum()).collect();
            levels.insert(0, sums);
        }
        Ok(GrowingWeights { levels, range })
    }

    fn total(&self) -> i32 {
        self.levels[0][0]
    }

    pub(super) fn sample(&self, random: &mut SingleSample) -> i64 {
        let mut position = random.below(self.total() as u32) as i32;
        let mut index = 0;
        for level in &self.levels[1..] {
            index *= 2;
            if position >= level[index] {
                position -= level[index];
                index += 1;
            }
        }
        index as i64
    }

    pub(super) fn probability(&self, class: i64) -> f32 {
        let weight = usize::try_from(class).ok().and_then(|class| self.levels[self.levels.len() - 1].get(class));
        weight.map_or(0.0, |&weight| weight as f32 / self.total() as f32)
    }

    /// Refuses classes that are not in the tree.
    pub(super) fn check(&self, classes: &[i64]) -> Result<()> {
        match classes.iter().find(|&&class| class < 0 || class >= self.range as i64) {
            Some(class) => Err(Status::invalid_argument(format!("class {class} is not in [0, {})", self.range))),
            None => Ok(()),
        }
    }

    /// Counts seen classes, which must have been checked.
    pub(super) fn see(&mut self, classes: &[i64]) {
        let most = (i32::MAX - self.total()) as usize;
        for &class in classes.iter().take(most) {
            let mut index = class as usize;
            for level in self.levels.iter_mut().rev() {
                level[index] += 1;
                index /= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Weights = Weights { distortion: 1.0, reserved: 0, shards: 1, shard: 0 };

    /// Draws many times, and compares the frequency of each class with its probability.
    fn check_frequencies(range: i64, sample: impl Fn(&mut SingleSample) -> i64, probability: impl Fn(i64) -> f32) {
        const DRAWS: usize = 20_000;
        let mut random = SingleSample::new((7, 11));
        let mut counts = vec![0usize; range as usize];
        (0..DRAWS).for_each(|_| counts[sample(&mut random) as usize] += 1);
        for (class, count) in counts.iter().enumerate() {
            let (share, expected) = (*count as f32 / DRAWS as f32, probability(class as i64));
            assert!((share - expected).abs() < 0.02, "class {class}: {share} instead of {expected}");
        }
    }

    #[test]
    fn fixed_weights_are_drawn_in_proportion() {
        let table = AliasTable::from_counts(&PLAIN, 5, &[1.0, 5.0, 2.0, 0.0, 4.0]).unwrap();
        check_frequencies(5, |random| table.sample(random), |class| table.probability(class));
        assert_eq!(table.probability(5), 0.0);
        assert!(AliasTable::from_counts(&PLAIN, 4, &[1.0; 5]).is_err());
        let reserved = Weights { reserved: 2, ..PLAIN };
        assert_eq!(AliasTable::from_counts(&reserved, 3, &[1.0]).unwrap().probability(2), 1.0);
    }

    #[test]
    fn a_file_has_the_counts_in_its_last_column() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vocabulary");
        std::fs::write(&path, "the,3\na,1\n").unwrap();
        let table = AliasTable::from_file(&PLAIN, 2, path.to_str().unwrap()).unwrap();
        assert_eq!([table.probability(0), table.probability(1)], [0.75, 0.25]);
        std::fs::write(&path, "the,3\na,b\n").unwrap();
        assert!(AliasTable::from_file(&PLAIN, 2, path.to_str().unwrap()).is_err());
    }

    #[test]
    fn classes_that_are_seen_come_more_often() {
        let mut weights = GrowingWeights::new(5).unwrap();
        assert_eq!(weights.probability(3), 0.2);
        weights.see(&[3, 3, 3, 4]);
        assert_eq!(weights.probability(3), 4.0 / 9.0);
        check_frequencies(5, |random| weights.sample(random), |class| weights.probability(class));
        assert!(weights.check(&[5]).is_err() && weights.check(&[-1]).is_err());
    }
}
