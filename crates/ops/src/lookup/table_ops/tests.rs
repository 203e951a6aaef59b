//! Tests of tables, with TensorFlow's results.

use super::*;
use crate::lookup::initialize_table;
use crate::testing::TestSession;
use tensor::Code;

fn texts(values: &[&'static str]) -> Tensor {
    let texts = values.iter().map(|text| bytes::Bytes::from_static(text.as_bytes())).collect();
    Tensor::from_strings(Shape::vector(values.len()), texts).unwrap()
}

fn constant(session: &TestSession, value: Tensor) -> Output {
    session.graph.constant_tensor(&value)
}

fn first_line(status: &Status) -> &str {
    status.message().lines().next().unwrap_or_default()
}

#[test]
fn a_table_is_filled_once() {
    let session = TestSession::new();
    let table = hash_table(&session.graph, DType::String, DType::Int64, "x");
    let keys = constant(&session, texts(&["a", "z"]));
    let find = lookup_table_find(&table, &keys, &constant(&session, Tensor::scalar(-1i64)));
    let status = session.fetch(&find, &[]).unwrap_err();
    assert_eq!((status.code(), first_line(&status)), (Code::FailedPrecondition, "Table not initialized."));
    let fill = |keys: &[&'static str], values: &[i64]| {
        initialize_table(&table, &constant(&session, texts(keys)), &constant(&session, Tensor::vector(values)))
    };
    session.run(&fill(&["a", "b"], &[1, 2]), &[]).unwrap();
    assert_eq!(session.fetch(&find, &[]).unwrap().as_slice::<i64>().unwrap(), &[1, -1]);
    session.run(&fill(&["a", "b"], &[1, 2]), &[]).unwrap();
    let status = session.run(&fill(&["a", "b", "c"], &[1, 2, 3]), &[]).unwrap_err();
    assert_eq!(first_line(&status), "Table was already initialized with different data.");
    let insert = lookup_table_insert(&table, &keys, &constant(&session, Tensor::vector(&[1i64, 2])));
    assert_eq!(session.run(&insert, &[]).unwrap_err().code(), Code::Unimplemented);
    let numbers = constant(&session, Tensor::vector(&[1i64]));
    let wrong = lookup_table_find(&table, &numbers, &constant(&session, Tensor::scalar(-1i64)));
    assert_eq!(
        first_line(&session.fetch(&wrong, &[]).unwrap_err()),
        "Signature mismatch, have: resource, int64, int64->int64 expected: resource, string, int64->int64"
    );
    let other = hash_table(&session.graph, DType::Int64, DType::Int64, "x");
    assert_eq!(
        first_line(&session.fetch(&lookup_table_size(&other), &[]).unwrap_err()),
        "Conflicting key/value dtypes int64->int64 with string-int64 for table x"
    );
}

#[test]
fn a_key_has_one_value() {
    let session = TestSession::new();
    let table = hash_table(&session.graph, DType::String, DType::Int64, "");
    let keys = constant(&session, texts(&["a", "a"]));
    let fill = initialize_table(&table, &keys, &constant(&session, Tensor::vector(&[1i64, 2])));
    assert_eq!(
        first_line(&session.run(&fill, &[]).unwrap_err()),
        "HashTable has different value for same key. Key a has 1 and trying to add value 2"
    );
    let fill = initialize_table(&table, &keys, &constant(&session, Tensor::vector(&[1i64, 1])));
    session.run(&fill, &[]).unwrap();
    assert_eq!(session.fetch(&lookup_table_size(&table), &[]).unwrap().to_scalar::<i64>().unwrap(), 1);
}

#[test]
fn keys_come_and_go() {
    let session = TestSession::new();
    let table = mutable_hash_table(&session.graph, DType::Int64, DType::String, "");
    let insert = |keys: &[i64], values: &[&'static str]| {
        let (keys, values) = (constant(&session, Tensor::vector(keys)), constant(&session, texts(values)));
        session.run(&lookup_table_insert(&table, &keys, &values), &[])
    };
    insert(&[1, 2, 3], &["one", "two", "three"]).unwrap();
    insert(&[2], &["zwei"]).unwrap();
    let keys = constant(&session, Tensor::vector(&[1i64, 9]));
    let remove = session.graph.op("LookupTableRemoveV2").input(&table).input(&keys).build();
    session.run(&remove, &[]).unwrap();
    let keys = constant(&session, Tensor::from_slice(&[2, 2], &[1i64, 2, 3, 4]).unwrap());
    let find = lookup_table_find(&table, &keys, &constant(&session, Tensor::string("?")));
    assert_eq!(session.fetch(&find, &[]).unwrap().strings().unwrap(), &["?", "zwei", "three", "?"]);
    let (keys, values) = lookup_table_export(&table, DType::Int64, DType::String);
    assert_eq!(session.fetch(&keys, &[]).unwrap().as_slice::<i64>().unwrap(), &[3, 2]);
    assert_eq!(session.fetch(&values, &[]).unwrap().strings().unwrap(), &["three", "zwei"]);
    assert_eq!(first_line(&insert(&[1, 2], &["x"]).unwrap_err()), "Expected shape [2] for value, got [1]");
    let import = lookup_table_import(
        &table,
        &constant(&session, Tensor::vector(&[7i64])),
        &constant(&session, texts(&["seven"])),
    );
    session.run(&import, &[]).unwrap();
    assert_eq!(session.fetch(&lookup_table_size(&table), &[]).unwrap().to_scalar::<i64>().unwrap(), 1);
}

#[test]
fn values_may_be_vectors() {
    let session = TestSession::new();
    let op = session.graph.op("MutableHashTableOfTensors").attr("key_dtype", DType::String);
    let table = op.attr("value_dtype", DType::Float).attr("value_shape", PartialShape::from_dims(&[2])).output();
    let input = |value: Tensor| constant(&session, value);
    let rows = Tensor::from_slice(&[2, 2], &[1f32, 2., 3., 4.]).unwrap();
    let insert = |values: Tensor| {
        let op = session.graph.op("LookupTableInsert").input(&table).input(&input(texts(&["a", "b"])));
        session.run(&op.input(&input(values)).build(), &[])
    };
    insert(rows).unwrap();
    let keys = input(texts(&["b", "z"]));
    let find = |default: Tensor| {
        session
            .fetch(&session.graph.op("LookupTableFind").input(&table).input(&keys).input(&input(default)).output(), &[])
    };
    assert_eq!(find(Tensor::vector(&[-1f32, -2.])).unwrap().as_slice::<f32>().unwrap(), &[3., 4., -1., -2.]);
    assert_eq!(
        first_line(&find(Tensor::vector(&[-1f32])).unwrap_err()),
        "Expected shape [2] or [2,2] for default value, got [1]"
    );
    let status = insert(Tensor::vector(&[1f32, 2.])).unwrap_err();
    assert_eq!(first_line(&status), "Expected shape [2,2] for value, got [2]");
}

#[test]
fn dense_tables_show_their_buckets() {
    let session = TestSession::new();
    let input = |value: Tensor| constant(&session, value);
    let make = |buckets: i64| {
        let op = session.graph.op("MutableDenseHashTableV2").input(&input(Tensor::scalar(0i64)));
        let op = op.input(&input(Tensor::scalar(-1i64))).attr("value_dtype", DType::Float);
        op.attr("value_shape", PartialShape::from_dims(&[1])).attr("initial_num_buckets", buckets).output()
    };
    let table = make(4);
    let insert = |keys: &[i64]| {
        let values: Vec<f32> = keys.iter().map(|&key| key as f32).collect();
        let values = Tensor::from_slice(&[keys.len() as i64, 1], &values).unwrap();
        session.run(&lookup_table_insert(&table, &input(Tensor::vector(keys)), &input(values)), &[])
    };
    insert(&[5, 6]).unwrap();
    let (keys, values) = lookup_table_export(&table, DType::Int64, DType::Float);
    let exported = session.fetch(&keys, &[]).unwrap();
    assert_eq!((exported.dims(), exported.as_slice::<i64>().unwrap()), (&[4, 1][..], &[0, 5, 6, 0][..]));
    insert(&[7, 8, 9]).unwrap();
    assert_eq!(session.fetch(&keys, &[]).unwrap().as_slice::<i64>().unwrap(), &[8, 9, 0, 0, 0, 5, 6, 7]);
    let all = session.fetch(&values, &[]).unwrap();
    assert_eq!(all.as_slice::<f32>().unwrap(), &[8., 9., 0., 0., 0., 5., 6., 7.]);
    assert_eq!(first_line(&insert(&[0]).unwrap_err()), "Using the empty_key as a table key is not allowed");
    assert_eq!(first_line(&insert(&[-1]).unwrap_err()), "Using the deleted_key as a table key is not allowed");
    let exported = session.fetch(&keys, &[]).unwrap();
    let import = lookup_table_import(&table, &input(exported), &input(all));
    session.run(&import, &[]).unwrap();
    assert_eq!(session.fetch(&lookup_table_size(&table), &[]).unwrap().to_scalar::<i64>().unwrap(), 5);
    // A removed key leaves a mark, and the next key on the same path takes its place, even if it also exists further along.
    let table = make(8);
    let insert = |keys: &[i64]| {
        let values = Tensor::from_slice(&[keys.len() as i64, 1], &vec![1f32; keys.len()]).unwrap();
        session.run(&lookup_table_insert(&table, &input(Tensor::vector(keys)), &input(values)), &[]).unwrap();
    };
    let buckets = || {
        let (keys, _) = lookup_table_export(&table, DType::Int64, DType::Float);
        let size = session.fetch(&lookup_table_size(&table), &[]).unwrap().to_scalar::<i64>().unwrap();
        (session.fetch(&keys, &[]).unwrap().as_slice::<i64>().unwrap().to_vec(), size)
    };
    insert(&[1, 9, 17, 3]);
    assert_eq!(buckets(), (vec![0, 1, 9, 3, 17, 0, 0, 0], 4));
    let remove = session.graph.op("LookupTableRemoveV2").input(&table).input(&input(Tensor::vector(&[9i64, 55])));
    session.run(&remove.build(), &[]).unwrap();
    assert_eq!(buckets(), (vec![0, 1, -1, 3, 17, 0, 0, 0], 3));
    insert(&[17]);
    insert(&[25, 3]);
    assert_eq!(buckets(), (vec![0, 1, 17, 3, 17, 0, 0, 25], 5));
    insert(&[4, 5, 6, 7]);
    assert_eq!(buckets(), (vec![0, 1, 17, 3, 4, 5, 6, 7, 0, 25, 0, 0, 0, 0, 0, 0], 8));
    assert!(session.fetch(&lookup_table_size(&make(1 << 50)), &[]).is_err());
    assert!(session.fetch(&lookup_table_size(&make(3)), &[]).unwrap_err().message().contains("power of 2, got: 3"));
}
