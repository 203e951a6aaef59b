//! The asset files of a SavedModel: the tensors that get their paths, and their names in the model.

use super::{ASSETS, ASSETS_COLLECTION};
use graph::Output;
use prost::Message;
use proto::collection_def::Kind;
use proto::tensor_info::Encoding;
use proto::{AssetFileDef, MetaGraphDef};
use std::collections::BTreeMap;
use storage::file_system::{FileSystem, path};
use tensor::{DType, Result, Status, Tensor};

/// The files that were copied to a model, by their names in it.
#[derive(Default)]
pub(super) struct Assets {
    sources: BTreeMap<String, String>,
}

impl Assets {
    /// Copies the file that a constant names to the model's directory, unless it is there already; returns its entry for the
    /// MetaGraph.
    ///
    /// Files of the same name with different contents get a number appended.
    pub(super) fn add(&mut self, files: &dyn FileSystem, directory: &str, tensor: &Output) -> Result<AssetFileDef> {
        let source = path_of(tensor)?;
        let content =
            files.read(&source).map_err(|status| status.context(format!("the asset of '{}'", tensor.name())))?;
        let (mut name, mut number) = (path::basename(&source).to_owned(), 0);
        while let Some(other) = self.sources.get(&name) {
            if *other == source || files.read(other)? == content {
                break;
            }
            number += 1;
            name = format!("{}_{number}", path::basename(&source));
        }
        if !self.sources.contains_key(&name) {
            let directory = path::join(directory, ASSETS);
            files.create_dir_all(&directory)?;
            files.write_atomically(&path::join(&directory, &name), &content)?;
            self.sources.insert(name.clone(), source);
        }
        let tensor_info = proto::TensorInfo { encoding: Some(Encoding::Name(tensor.name())), ..Default::default() };
        Ok(AssetFileDef { tensor_info: Some(tensor_info), filename: name })
    }
}

/// Returns the path in a constant.
fn path_of(tensor: &Output) -> Result<String> {
    let not_a_path =
        |what: String| Status::invalid_argument(format!("'{}' is not the path of an asset: {what}", tensor.name()));
    if tensor.op.op_type() != "Const" || tensor.dtype() != DType::String {
        return Err(not_a_path(format!(
            "it is a {} of type {}, not a constant string",
            tensor.op.op_type(),
            tensor.dtype()
        )));
    }
    match tensor.constant_value().as_ref().map(Tensor::strings) {
        Some(Ok([path])) => {
            String::from_utf8(path.to_vec()).map_err(|_| not_a_path("it is not valid UTF-8".to_owned()))
        }
        _ => Err(not_a_path("it is not a single string".to_owned())),
    }
}

/// Returns the tensors that get paths of files, with the paths: TensorFlow 2 keeps them in a field of the MetaGraph, TensorFlow 1
/// in a collection.
pub(super) fn asset_feeds(meta: &MetaGraphDef, directory: &str) -> Result<Vec<(String, String)>> {
    let in_collection;
    let defs = match meta.collection_def.get(ASSETS_COLLECTION).and_then(|collection| collection.kind.as_ref()) {
        Some(Kind::AnyList(list)) if meta.asset_file_def.is_empty() => {
            let defs = list.value.iter().map(|any| AssetFileDef::decode(&any.value[..]));
            in_collection = defs
                .collect::<std::result::Result<Vec<_>, _>>()
                .map_err(|error| Status::data_loss(format!("a broken asset in '{ASSETS_COLLECTION}': {error}")))?;
            &in_collection
        }
        _ => &meta.asset_file_def,
    };
    let mut feeds = Vec::with_capacity(defs.len());
    for def in defs {
        match def.tensor_info.as_ref().and_then(|info| info.encoding.as_ref()) {
            Some(Encoding::Name(name)) => {
                feeds.push((name.clone(), path::join(&path::join(directory, ASSETS), &def.filename)));
            }
            _ => return Err(Status::data_loss(format!("the asset '{}' has no tensor", def.filename))),
        }
    }
    Ok(feeds)
}
