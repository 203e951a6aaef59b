//! Summaries: values of a step for TensorBoard. The functions here add TensorFlow's summary ops to a graph, and [`FileWriter`]
//! writes their outputs to event files.

mod file_writer;

pub use file_writer::{FileWriter, SessionStatus};

use crate::kept::{kept, kept_in};
use crate::variable::{collections, named_constant};
use graph::{Graph, Output};
use prost::Message;
use proto::SummaryMetadata;
use proto::summary_metadata::PluginData;
use tensor::{Result, Tensor};

/// The default for the most images of a batch.
///
/// ```
/// use ferroflow::summary::{self, DEFAULT_MAX_IMAGES};
///
/// let g = ferroflow::Graph::new();
/// let pictures = g.constant(vec![0f32; 2 * 4 * 4]);
/// let pictures = ferroflow::ops::TensorOps::reshape(&pictures, [2, 4, 4, 1]);
/// assert_eq!(summary::image("digits", &pictures, DEFAULT_MAX_IMAGES).op.op_type(), "ImageSummary");
/// ```
pub const DEFAULT_MAX_IMAGES: i64 = 3;

/// Adds a summary of a scalar; the name becomes its tag.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::summary::{self, FileWriter};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// let g = Graph::new();
/// let loss = summary::scalar("loss", &g.constant(0.5f32));
/// let writer = FileWriter::new(logdir)?;
/// writer.add_summary(&Session::new(&g)?.run(&[&loss])?[0], 1)?;
/// writer.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn scalar(name: &str, value: &Output) -> Output {
    in_scope("scalar", name, value, |graph, whole, tag| {
        let tag = named_constant(graph, "tags", &Tensor::string(tag.to_owned()));
        Ok(graph.op("ScalarSummary").name(whole).input(&tag).input(value).try_build()?.output(0))
    })
}

/// Adds a histogram of a tensor's elements.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::summary;
///
/// let g = Graph::new();
/// let weights = summary::histogram("weights", &g.constant([0.1f32, 0.2, 0.3]));
/// let serialized = Session::new(&g)?.run(&[&weights])?;
/// assert!(!serialized[0].strings()?[0].is_empty());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn histogram(name: &str, values: &Output) -> Output {
    in_scope("histogram", name, values, |graph, whole, tag| {
        let tag = named_constant(graph, "tag", &Tensor::string(tag.to_owned()));
        Ok(graph.op("HistogramSummary").name(whole).input(&tag).input(values).try_build()?.output(0))
    })
}

/// Adds a summary of images, `[batch, height, width, channels]` with 1, 3 or 4 channels; at most `max_images` of a batch.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::summary;
///
/// let g = Graph::new();
/// let pictures = g.constant([0.5f32; 4 * 4 * 3]).reshape([1, 4, 4, 3]);
/// let summary = summary::image("input", &pictures, 1);
/// assert!(!Session::new(&g)?.run(&[&summary])?[0].strings()?[0].is_empty());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn image(name: &str, pictures: &Output, max_images: i64) -> Output {
    in_scope("image", name, pictures, |graph, whole, tag| {
        let tag = named_constant(graph, "tag", &Tensor::string(tag.to_owned()));
        let op = graph.op("ImageSummary").name(whole).input(&tag).input(pictures).attr("max_images", max_images);
        Ok(op.try_build()?.output(0))
    })
}

/// Adds a summary of text, a tensor of strings, which TensorBoard shows as Markdown.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::summary;
///
/// let g = Graph::new();
/// let notes = summary::text("notes", &g.constant("**learning rate** 0.1"));
/// assert!(!Session::new(&g)?.run(&[&notes])?[0].strings()?[0].is_empty());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn text(name: &str, text: &Output) -> Output {
    let plugin_data = PluginData { plugin_name: "text".to_owned(), ..Default::default() };
    let metadata = SummaryMetadata { plugin_data: Some(plugin_data), ..Default::default() }.encode_to_vec();
    in_scope("text", name, text, |graph, whole, tag| {
        let tag = named_constant(graph, "tag", &Tensor::string(tag.to_owned()));
        let metadata = named_constant(graph, "serialized_summary_metadata", &Tensor::string(metadata));
        let op = graph.op("TensorSummaryV2").name(whole).input(&tag).input(text).input(&metadata);
        Ok(op.try_build()?.output(0))
    })
}

/// Merges several summaries into one.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::summary;
///
/// let g = Graph::new();
/// let loss = summary::scalar("loss", &g.constant(0.5f32));
/// let rate = summary::scalar("learning_rate", &g.constant(0.1f32));
/// let both = summary::merge(&g, &[loss, rate]);
/// assert_eq!(both.op.op_type(), "MergeSummary");
/// ```
#[track_caller]
pub fn merge(graph: &Graph, summaries: &[Output]) -> Output {
    let inputs: Vec<&Output> = summaries.iter().collect();
    let add = || graph.name_scope("Merge", |graph| graph.op("MergeSummary").inputs(summaries).try_build());
    kept_in(graph, "summary merge", &inputs, || Ok(add()?.output(0)), Output::clone)
}

/// Merges all summaries of the graph into one; returns `None` if there are none.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::summary;
///
/// let g = Graph::new();
/// assert!(summary::merge_all(&g).is_none());
/// summary::scalar("loss", &g.constant(0.5f32));
/// summary::scalar("learning_rate", &g.constant(0.1f32));
/// assert_eq!(summary::merge_all(&g).unwrap().op.num_inputs(), 2);
/// ```
#[track_caller]
pub fn merge_all(graph: &Graph) -> Option<Output> {
    let all = graph.collection(collections::SUMMARIES);
    if all.is_empty() { None } else { Some(merge(graph, &all)) }
}

/// Runs `build` in a scope with the summary's name; the tag is the scope's final name. Adds the result to the graph's summaries;
/// keeps a mistake in the graph.
#[track_caller]
fn in_scope(kind: &str, name: &str, of: &Output, build: impl FnOnce(&Graph, &str, &str) -> Result<Output>) -> Output {
    let graph = of.graph();
    let add = || {
        let summary = graph.name_scope(&clean_tag(name), |graph| {
            let tag = graph.current_name_scope();
            build(graph, &format!("{tag}/"), &tag)
        })?;
        graph.add_to_collection(collections::SUMMARIES, &summary);
        Ok(summary)
    };
    kept(&format!("summary {kind}"), &[of], add)
}

/// Replaces the characters that a node's name can't contain, as TensorFlow does with tags.
fn clean_tag(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '\\');
    let cleaned: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    cleaned.trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_lose_what_names_cannot_have() {
        assert_eq!(clean_tag("/the loss (mean)"), "the_loss__mean_");
        assert_eq!(clean_tag("layer1/weights"), "layer1/weights");
    }
}
