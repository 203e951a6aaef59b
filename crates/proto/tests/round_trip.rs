//! Checks that messages survive the wire, that maps are written in order, and that bytes are not copied on arrival.

use bytes::Bytes;
use proto::attr_value::Value;
use proto::{AttrValue, DataType, GraphDef, Message, NodeDef, TensorProto, VersionDef};
use proto::{graph_debug_info, tensor_shape_proto};

#[test]
fn tensor_survives_the_wire() {
    let tensor = TensorProto {
        dtype: DataType::DtString as i32,
        tensor_shape: Some(proto::TensorShapeProto {
            dim: vec![
                tensor_shape_proto::Dim { size: -1, name: "batch".to_string() },
                tensor_shape_proto::Dim { size: 2, name: String::new() },
            ],
            unknown_rank: false,
        }),
        tensor_content: Bytes::from_static(b"\x01\x01ab"),
        // Not valid UTF-8: a string tensor holds any bytes.
        string_val: vec![Bytes::from_static(b"\xff\x00"), Bytes::new()],
        float_val: vec![f32::MIN_POSITIVE, -0.0],
        int64_val: vec![i64::MIN, -1, i64::MAX],
        uint64_val: vec![u64::MAX],
        bool_val: vec![true, false],
        ..TensorProto::default()
    };
    assert_round_trip(&tensor);
}

#[test]
fn unset_and_zero_members_of_a_oneof_differ() {
    let zero = AttrValue { value: Some(Value::I(0)) };
    assert_round_trip(&zero);
    assert_ne!(zero.encode_to_vec(), AttrValue::default().encode_to_vec());
}

#[test]
fn graph_survives_the_wire() {
    let mut debug_info = proto::GraphDebugInfo::default();
    debug_info.traces_by_id.insert(
        u64::MAX,
        graph_debug_info::StackTrace {
            file_line_cols: vec![graph_debug_info::FileLineCol {
                // proto2 distinguishes a zero that is set from a field that is not.
                line: Some(0),
                ..Default::default()
            }],
            frame_id: vec![1, 2],
        },
    );
    let graph = GraphDef {
        node: vec![node(["T", "_output_shapes", "shape"]), NodeDef::default()],
        versions: Some(VersionDef { producer: 1645, min_consumer: 12, bad_consumers: vec![7, 9] }),
        library: Some(proto::FunctionDefLibrary {
            function: vec![proto::FunctionDef {
                ret: [("y".to_string(), "add:z:0".to_string())].into(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        debug_info: Some(debug_info),
        ..GraphDef::default()
    };
    assert_round_trip(&graph);
}

#[test]
fn maps_are_written_in_the_order_of_their_keys() {
    let forward = node(["a", "b", "c", "d"]);
    let backward = node(["d", "c", "b", "a"]);
    let encoded = forward.encode_to_vec();
    assert_eq!(encoded, backward.encode_to_vec());

    let positions: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|key| {
            // Field 1 of a map entry, of length 1.
            let needle = [0x0a, 1, key.as_bytes()[0]];
            encoded.windows(3).position(|window| window == needle)
        })
        .collect();
    assert!(positions.iter().all(Option::is_some), "{positions:?}");
    assert!(positions.is_sorted(), "{positions:?}");
}

#[test]
fn repeated_numbers_are_packed() {
    let tensor = TensorProto { int_val: vec![1, 2, 3], ..TensorProto::default() };
    // Field 7 with a length: three varints follow.
    assert_eq!(tensor.encode_to_vec(), [0x3a, 3, 1, 2, 3]);
    // A writer may also leave them unpacked.
    let unpacked = [0x38, 1, 0x38, 2, 0x38, 3];
    assert_eq!(TensorProto::decode(&unpacked[..]), Ok(tensor));
}

#[test]
fn decoded_bytes_share_the_received_buffer() {
    let tensor = TensorProto { tensor_content: Bytes::from(vec![7; 4096]), ..TensorProto::default() };
    let received = Bytes::from(tensor.encode_to_vec());
    let range = received.as_ptr_range();
    let decoded = TensorProto::decode(received.clone()).expect("what we encoded decodes");
    assert!(range.contains(&decoded.tensor_content.as_ptr()));
}

#[test]
fn truncated_and_malformed_messages_are_refused() {
    let encoded = node(["T"]).encode_to_vec();
    assert!(NodeDef::decode(&encoded[..encoded.len() - 1]).is_err());
    // A length of 2^63 for `name`.
    let oversized = [0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    assert!(NodeDef::decode(&oversized[..]).is_err());
}

#[test]
fn calls_belong_to_their_service() {
    use proto::service::{master, worker};
    for (name, calls) in [(master::NAME, master::ALL), (worker::NAME, worker::ALL)] {
        let prefix = format!("/{name}/");
        assert!(calls.iter().all(|call| call.starts_with(&prefix)));
    }
}

fn assert_round_trip<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M) {
    let encoded = message.encode_to_vec();
    assert_eq!(encoded.len(), message.encoded_len());
    assert_eq!(M::decode(&encoded[..]).as_ref(), Ok(message));
}

fn node<const N: usize>(attributes: [&str; N]) -> NodeDef {
    NodeDef {
        name: "scope/add".to_string(),
        op: "AddV2".to_string(),
        input: vec!["x".to_string(), "y:1".to_string(), "^init".to_string()],
        device: "/job:ps/task:0".to_string(),
        attr: attributes
            .iter()
            .map(|key| {
                let value = Some(Value::Type(DataType::DtFloat as i32));
                (key.to_string(), AttrValue { value })
            })
            .collect(),
        ..NodeDef::default()
    }
}
