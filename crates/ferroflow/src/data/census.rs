//! The Adult census set: 48,842 people, and whether their income is above 50,000 dollars a year.
//!
//! ```
//! # #[cfg(feature = "census")] {
//! use ferroflow::data::census::Census;
//!
//! let census = Census::builtin()?;
//! assert_eq!((census.train.len(), census.test.len()), (32_561, 16_281));
//! # }
//! # Ok::<(), ferroflow::Status>(())
//! ```

use super::Dataset;
use bytes::Bytes;
use flate2::read::GzDecoder;
use graph::Graph;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tensor::{Result, Shape, Status, Tensor};

/// The features, in the order of a dataset's components: first the numeric ones, then the strings. The label, 1 for an income
/// above 50,000 dollars, is last.
///
/// ```
/// use ferroflow::data::census::FEATURES;
///
/// assert_eq!((FEATURES[0], FEATURES[12]), ("age", "native_country"));
/// ```
pub const FEATURES: [&str; 13] = [
    "age",
    "education_num",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "gender",
    "native_country",
];

/// The number of numeric features.
const NUMBERS: usize = 5;

/// The columns of the file, which spells the features differently, and has a weight that isn't a feature.
const HEADER: [&str; 15] = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "educational-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "gender",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
];

/// The features' positions in a line of the file.
const COLUMNS: [usize; 13] = [0, 4, 10, 11, 12, 1, 3, 5, 6, 7, 8, 9, 13];

/// The number of rows at the beginning of the file that are test rows.
const TEST_ROWS: usize = 16_281;

/// The most bytes that a file is decompressed to.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;

/// The rows of the set.
///
/// ```
/// # #[cfg(feature = "census")] {
/// use ferroflow::data::census::{Census, FEATURES};
/// use ferroflow::estimator::Input;
///
/// let census = Census::builtin()?;
/// let input = move |g: &ferroflow::Graph| Input::new(&census.test.dataset(g).batch(100, false), &FEATURES).label();
/// # input(&ferroflow::Graph::new());
/// # }
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Census {
    /// The training rows.
    pub train: Rows,
    /// The test rows.
    pub test: Rows,
}

/// A subset of the rows.
///
/// ```
/// # #[cfg(feature = "census")] {
/// use ferroflow::data::census::{Census, Rows};
///
/// let rows: Rows = Census::builtin()?.test;
/// assert!(!rows.is_empty());
/// # }
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rows(Arc<[Tensor]>);

impl Census {
    /// Returns the rows that are bundled with the library.
    ///
    /// ```
    /// # #[cfg(feature = "census")] {
    /// assert_eq!(ferroflow::data::census::Census::builtin()?.test.len(), 16_281);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[cfg(feature = "census")]
    pub fn builtin() -> Result<Census> {
        Census::parse("the rows that come along", &unpacked("the rows that come along", census::ADULT)?)
    }

    /// Reads `adult.csv` or `adult.csv.gz` from a directory.
    ///
    /// ```
    /// use ferroflow::data::census::Census;
    ///
    /// assert_eq!(Census::from_dir("/no/such/directory").unwrap_err().code(), ferroflow::Code::NotFound);
    /// ```
    pub fn from_dir(directory: impl AsRef<Path>) -> Result<Census> {
        let plain = directory.as_ref().join("adult.csv");
        let path = if plain.exists() { plain } else { directory.as_ref().join("adult.csv.gz") };
        let name = path.display().to_string();
        let bytes = std::fs::read(&path).map_err(|error| Status::not_found(format!("{name}: {error}")))?;
        let text = if name.ends_with(".gz") { unpacked(&name, &bytes)? } else { bytes };
        Census::parse(&name, &text)
    }

    fn parse(name: &str, text: &[u8]) -> Result<Census> {
        let text = std::str::from_utf8(text).map_err(|error| Status::data_loss(format!("{name}: {error}")))?;
        let mut lines = text.lines();
        if lines.next().is_none_or(|header| !header.split(',').eq(HEADER)) {
            return Err(Status::invalid_argument(format!("{name}: line 1 is not {}", HEADER.join(","))));
        }
        let mut fields = Vec::new();
        for (index, line) in lines.enumerate() {
            let words: Vec<&str> = line.split(',').collect();
            if words.len() != HEADER.len() {
                let (number, count) = (index + 2, words.len());
                return Err(Status::data_loss(format!(
                    "{name}: line {number} has {count} fields, not {}",
                    HEADER.len()
                )));
            }
            fields.push(words);
        }
        if fields.len() <= TEST_ROWS {
            let count = fields.len();
            return Err(Status::invalid_argument(format!(
                "{name}: {count} rows, and the first {TEST_ROWS} are test rows"
            )));
        }
        let (test, train) = fields.split_at(TEST_ROWS);
        Ok(Census { train: Rows::of(name, train, TEST_ROWS)?, test: Rows::of(name, test, 0)? })
    }
}

impl Rows {
    fn of(name: &str, fields: &[Vec<&str>], first: usize) -> Result<Rows> {
        let mut components = Vec::with_capacity(FEATURES.len() + 1);
        for (feature, &column) in COLUMNS.iter().enumerate() {
            let words = fields.iter().map(|words| words[column].trim());
            components.push(match feature < NUMBERS {
                true => {
                    let number = |(index, word): (usize, &str)| {
                        word.parse::<f32>().map_err(|_| {
                            let line = first + index + 2;
                            Status::data_loss(format!(
                                "{name}: line {line}: '{word}' is no number ({})",
                                HEADER[column]
                            ))
                        })
                    };
                    Tensor::vector(&words.enumerate().map(number).collect::<Result<Vec<f32>>>()?)
                }
                false => {
                    let words = words.map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
                    Tensor::from_strings(Shape::vector(fields.len()), words)?
                }
            });
        }
        let labels = fields.iter().map(|words| i64::from(words[HEADER.len() - 1].trim().starts_with(">50K")));
        components.push(Tensor::vector(&labels.collect::<Vec<i64>>()));
        Ok(Rows(components.into()))
    }

    /// Returns the number of rows.
    ///
    /// ```
    /// # #[cfg(feature = "census")] {
    /// assert_eq!(ferroflow::data::census::Census::builtin()?.train.len(), 32_561);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn len(&self) -> usize {
        self.0.first().map_or(0, Tensor::num_elements)
    }

    /// Returns whether there are no rows.
    ///
    /// ```
    /// # #[cfg(feature = "census")] {
    /// assert!(!ferroflow::data::census::Census::builtin()?.train.is_empty());
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a dataset of the rows: the [`FEATURES`], and the label.
    ///
    /// ```
    /// # #[cfg(feature = "census")] {
    /// use ferroflow::data::census::Census;
    ///
    /// let g = ferroflow::Graph::new();
    /// assert_eq!(Census::builtin()?.test.dataset(&g).types().len(), 14);
    /// # }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn dataset(&self, graph: &Graph) -> Dataset {
        Dataset::from_tensor_slices(graph, self.0.to_vec())
    }
}

fn unpacked(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(bytes)
        .take(UNPACKED_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| Status::data_loss(format!("{name} is damaged: {error}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "census")]
    #[test]
    fn the_rows_that_come_along() {
        let census = Census::builtin().unwrap();
        let positive = |rows: &Rows| rows.0[13].to_vec::<i64>().unwrap().iter().sum::<i64>();
        assert_eq!((positive(&census.test), positive(&census.train)), (3846, 7841));
        assert_eq!(census.test.0[0].to_vec::<f32>().unwrap()[..2], [25.0, 38.0]);
        assert_eq!(census.test.0[12].to_strings().unwrap()[0], "United-States");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_shown_with_its_line() {
        let wrong = |text: &str| Census::parse("adult.csv", text.as_bytes()).unwrap_err().message().to_owned();
        assert!(wrong("age,work").contains("line 1 is not age,workclass"));
        let header = HEADER.join(",");
        assert!(wrong(&format!("{header}\n1,2")).contains("line 2 has 2 fields, not 15"));
        assert!(wrong(&header).contains("0 rows, and the first 16281"));
        let row = "1,a,1,a,1,a,a,a,a,a,0,0,40,a,<=50K\n";
        let text = format!("{header}\n{}{}", row.repeat(TEST_ROWS), row.replace("40", "forty"));
        assert!(wrong(&text).contains("line 16283: 'forty' is no number (hours-per-week)"), "{}", wrong(&text));
    }
}
