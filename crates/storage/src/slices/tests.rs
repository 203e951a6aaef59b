//! What is written is read, in slices and from several files; what is damaged is refused.

use super::{SliceReader, SliceWriter};
use crate::bundle::{TensorSlice, parse_shape_and_slice};
use crate::file_system::{FileSystem, FileSystems};
use crate::table::{TableOptions, TableWriter};
use prost::Message;
use proto::{SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices, VersionDef};
use std::sync::Arc;
use tensor::{Code, Complex32, Complex64, DType, Shape, Tensor, f16};

struct Folder {
    directory: tempfile::TempDir,
    files: Arc<dyn FileSystem>,
}

impl Folder {
    fn new() -> Folder {
        Folder { directory: tempfile::tempdir().unwrap(), files: Arc::new(FileSystems::local()) }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn writer(&self, name: &str) -> SliceWriter {
        SliceWriter::new(self.files.clone(), &self.path(name))
    }

    fn reader(&self, pattern: &str) -> tensor::Result<SliceReader> {
        SliceReader::open(&*self.files, &self.path(pattern))
    }

    /// Writes a file with a list of contents and nothing else.
    fn write_contents(&self, name: &str, tensor: SavedSliceMeta, versions: VersionDef) {
        let mut file = self.files.create(&self.path(name)).unwrap();
        let mut table = TableWriter::new(&mut *file, TableOptions::default());
        let meta = SavedTensorSliceMeta { tensor: vec![tensor], versions: Some(versions) };
        table.add(b"", &SavedTensorSlices { meta: Some(meta), data: None }.encode_to_vec()).unwrap();
        table.finish().unwrap();
        file.close().unwrap();
    }
}

#[test]
fn tensors_of_every_type_come_back() {
    let folder = Folder::new();
    let tensors = [
        Tensor::vector(&[1f32, -2.5]),
        Tensor::vector(&[1f64, -2.5]),
        Tensor::vector(&[f16::from_f32(1.5), f16::MIN]),
        Tensor::vector(&[i8::MIN, i8::MAX]),
        Tensor::vector(&[i16::MIN, i16::MAX]),
        Tensor::vector(&[i32::MIN, i32::MAX]),
        Tensor::vector(&[i64::MIN, i64::MAX]),
        Tensor::vector(&[0u8, u8::MAX]),
        Tensor::vector(&[0u16, u16::MAX]),
        Tensor::vector(&[true, false]),
        Tensor::vector(&[Complex32::new(1.0, 2.0), Complex32::new(3.0, 4.0)]),
        Tensor::vector(&[Complex64::new(1.0, 2.0), Complex64::new(3.0, 4.0)]),
        Tensor::from_strings(Shape::vector(2), vec!["a".into(), "".into()]).unwrap(),
        Tensor::vector(&[i8::MIN, i8::MAX]).with_dtype(DType::QInt8).unwrap(),
        Tensor::vector(&[0u8, u8::MAX]).with_dtype(DType::QUInt8).unwrap(),
        Tensor::vector(&[i32::MIN, i32::MAX]).with_dtype(DType::QInt32).unwrap(),
        Tensor::scalar(3f32),
        Tensor::zeros(DType::Int32, Shape::new(&[0, 3]).unwrap()).unwrap(),
    ];
    let mut writer = folder.writer("all");
    for (index, tensor) in tensors.iter().enumerate() {
        writer.add(&format!("t{index}"), tensor).unwrap();
    }
    writer.finish().unwrap();
    let reader = folder.reader("all").unwrap();
    for (index, tensor) in tensors.iter().enumerate() {
        let name = format!("t{index}");
        assert_eq!(reader.info(&name).unwrap(), (tensor.dtype(), tensor.shape()));
        assert_eq!(format!("{:?}", reader.lookup(&name).unwrap()), format!("{tensor:?}"));
        if tensor.shape().is_vector() {
            let second = reader.lookup_slice(&name, &TensorSlice::parse("1,1").unwrap()).unwrap();
            assert_eq!(format!("{second:?}"), format!("{:?}", tensor.slice_rows(1, 2).unwrap()));
        }
    }
    assert_eq!(std::fs::read_dir(folder.directory.path()).unwrap().count(), 1, "nothing temporary is left");
}

#[test]
fn slices_of_several_files_are_put_together() {
    let folder = Folder::new();
    let rows = |from: i32| Tensor::from_slice(&[2, 3], &(from..from + 6).collect::<Vec<i32>>()).unwrap();
    for (name, spec, from) in [("x-0", "4 3 0,2:-", 0), ("x-1", "4 3 2,2:-", 6)] {
        let (whole, slice, _) = parse_shape_and_slice(spec).unwrap();
        let mut writer = folder.writer(name);
        writer.add_slice("w", &whole, &slice, &rows(from)).unwrap();
        writer.finish().unwrap();
    }
    let reader = folder.reader("x-?").unwrap();
    assert_eq!(reader.lookup("w").unwrap().as_slice::<i32>().unwrap(), &(0..12).collect::<Vec<_>>());
    let middle = reader.lookup_slice("w", &TensorSlice::parse("1,2:1,2").unwrap()).unwrap();
    assert_eq!(middle.as_slice::<i32>().unwrap(), &[4, 5, 7, 8]);
    let half = folder.reader("x-0").unwrap();
    assert_eq!(half.lookup("w").unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(half.lookup("v").unwrap_err().code(), Code::NotFound);
    assert_eq!(folder.reader("y-?").err().map(|status| status.code()), Some(Code::NotFound));
}

#[test]
fn what_cannot_be_read_again_is_not_written() {
    let folder = Folder::new();
    let mut writer = folder.writer("x");
    let tensor = Tensor::vector(&[1f32, 2.0]);
    writer.add("a", &tensor).unwrap();
    let code = |result: tensor::Result<()>| result.unwrap_err().code();
    assert_eq!(code(writer.add("a", &tensor)), Code::InvalidArgument);
    let part = TensorSlice::parse("0,2").unwrap();
    assert_eq!(code(writer.add_slice("a", &Shape::vector(4), &part, &tensor)), Code::InvalidArgument);
    assert_eq!(code(writer.add_slice("b", &Shape::vector(1), &part, &tensor)), Code::InvalidArgument);
    assert_eq!(code(writer.add("b", &Tensor::scalar(1u64))), Code::InvalidArgument);
    let half = Tensor::zeros(DType::BFloat16, Shape::scalar()).unwrap();
    assert_eq!(code(writer.add("b", &half)), Code::Unimplemented);
    let nowhere = SliceWriter::new(folder.files.clone(), &folder.path("no/such/folder"));
    assert_eq!(code(nowhere.finish()), Code::NotFound);
}

#[test]
fn damaged_files_are_refused() {
    let folder = Folder::new();
    let mut writer = folder.writer("x");
    writer.add("w", &Tensor::vector(&[7i64; 100])).unwrap();
    writer.finish().unwrap();
    let content = std::fs::read(folder.path("x")).unwrap();
    let open_and_read = || folder.reader("x").and_then(|reader| reader.lookup("w"));
    for end in 0..content.len() {
        std::fs::write(folder.path("x"), &content[..end]).unwrap();
        assert_eq!(open_and_read().unwrap_err().code(), Code::DataLoss, "{end} bytes");
    }
    for position in 0..content.len() {
        let mut damaged = content.clone();
        damaged[position] ^= 1;
        std::fs::write(folder.path("x"), &damaged).unwrap();
        // A bit of the padding in the footer is nobody's; any other is noticed.
        if let Ok(read) = open_and_read() {
            assert_eq!(read.as_slice::<i64>().unwrap(), &[7; 100]);
        }
    }
}

#[test]
fn contents_that_lie_make_nothing_large() {
    let folder = Folder::new();
    let shape = Shape::new(&[1 << 40]).unwrap();
    let listed = |texts: &[&str]| SavedSliceMeta {
        name: "w".to_owned(),
        shape: Some(shape.to_proto()),
        r#type: DType::Float as i32,
        slice: texts.iter().map(|text| TensorSlice::parse(text).unwrap().to_proto()).collect(),
    };
    let code = |tensor: SavedSliceMeta, versions: VersionDef| {
        folder.write_contents("x", tensor, versions);
        folder.reader("x").and_then(|reader| reader.lookup("w")).unwrap_err().code()
    };
    let current = || VersionDef { producer: 1, ..Default::default() };
    assert_eq!(code(listed(&["-"]), current()), Code::DataLoss);
    assert_eq!(code(listed(&["0,1", "1,1099511627775"]), current()), Code::DataLoss);
    assert_eq!(code(listed(&["-", "0,5"]), current()), Code::DataLoss);
    assert_eq!(code(listed(&["0,1099511627777"]), current()), Code::DataLoss);
    let newer = VersionDef { producer: 9, min_consumer: 9, ..Default::default() };
    assert_eq!(code(listed(&["-"]), newer), Code::InvalidArgument);
}
