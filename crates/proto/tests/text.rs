//! The text form of messages against another implementation of it, and with invalid texts.

use proptest::prelude::*;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use proto::attr_value::{ListValue, Value};
use proto::{AttrValue, ConfigProto, GraphDef, Message, NodeDef, ServerDef, TensorProto, text};
use std::collections::BTreeMap;

const GRAPH: &str = "tensorflow.GraphDef";
const SERVER: &str = "tensorflow.ServerDef";

#[test]
fn both_forms_are_those_of_another_implementation() {
    let graph = graph();
    let ours = text::format(GRAPH, &graph).unwrap();
    assert_eq!(reference_parse::<GraphDef>(GRAPH, &ours), graph, "{ours}");
    for pretty in [false, true] {
        let theirs = reference_format(GRAPH, &graph, pretty);
        assert_eq!(text::parse::<GraphDef>(GRAPH, &theirs).unwrap(), graph, "{theirs}");
    }
    assert_eq!(text::parse::<GraphDef>(GRAPH, &ours).unwrap(), graph);
}

#[test]
fn every_spelling_is_read() {
    let text = r#"
        # The cluster.
        cluster < job { name: 'ps' tasks: [{key: 0, value: "a:1"}, {key: 0x1; value: "b" ':2'}] } >
        job_name: "p\163\x2e\u00e9\U0001F600\t\"'" ; task_index: -1, protocol: 'grpc'
        default_session_config: {
          device_count { key: "CPU" value: 02 }
          gpu_options { per_process_gpu_memory_fraction: 2.5e-1f allow_growth: t }
          graph_options { optimizer_options { global_jit_level: ON_1 opt_level: -1 } timeline_step: 3 }
          operation_timeout_in_ms: 9223372036854775807 device_filters: [] log_device_placement: True
          experimental { session_metadata { name: "x" version: 7 } }
        }"#;
    let def: ServerDef = text::parse(SERVER, text).unwrap();
    assert_eq!(def, reference_parse(SERVER, text));
    assert_eq!(def.job_name, "ps.é😀\t\"'");
    assert_eq!(def.cluster.unwrap().job[0].tasks, BTreeMap::from([(0, "a:1".to_owned()), (1, "b:2".to_owned())]));
    assert_eq!(def.default_session_config.unwrap().gpu_options.unwrap().per_process_gpu_memory_fraction, 0.25);
}

#[test]
fn an_any_is_read_with_its_type_or_without() {
    let name = "tensorflow.RecvTensorRequest";
    let with = "transport_options { [type.googleapis.com/tensorflow.ServerDef] { job_name: 'ps' } }";
    let without = r#"transport_options { type_url: "type.googleapis.com/tensorflow.ServerDef" value: "\022\002ps" }"#;
    let read: proto::RecvTensorRequest = text::parse(name, with).unwrap();
    assert_eq!(read, text::parse(name, without).unwrap());
    assert_eq!(read, reference_parse(name, with));
    let error = text::parse::<proto::RecvTensorRequest>(name, "transport_options { [a/b.C] {} }").unwrap_err();
    assert_eq!(error.to_string(), "1:21: the type 'a/b.C' is not known");
}

#[test]
fn a_wrong_text_says_where() {
    for (text, message) in [
        ("job_nam: 'ps'", "1:1: there is no field 'job_nam' here"),
        ("job_name: 'ps'\n  task_index: many", "2:15: an integer in the field's range is expected"),
        ("task_index: 2147483648", "1:13: an integer in the field's range is expected"),
        ("port: -", "1:7: a number is expected"),
        ("job_name 'ps'", "1:10: a colon is expected after 'job_name'"),
        ("job_name: ps", "1:11: a text in quotes is expected"),
        ("job_name: 'ps", "1:14: the closing quote is missing"),
        ("job_name: '\\q'", "1:13: this character can't follow a backslash"),
        ("job_name: '\\777'", "1:13: this is no byte"),
        ("job_name: '\\377'", "1:11: the text is not UTF-8"),
        ("job_name: '\\ud800'", "1:13: this is no Unicode character"),
        ("job_name: 'a' job_name: 'b'", "1:15: 'job_name' can't be given after 'job_name'"),
        ("cluster { job { name: 'ps' }", "1:29: the text ends inside a message"),
        ("cluster: 3", "1:10: '{' is expected"),
        ("}", "1:1: a field's name is expected"),
        ("default_session_config { log_device_placement: 2 }", "1:48: 'true' or 'false' is expected"),
        (
            "default_session_config { graph_options { optimizer_options { global_jit_level: ON } } }",
            "1:80: tensorflow.OptimizerOptions.GlobalJitLevel has no value 'ON'",
        ),
        ("default_session_config { device_filters: ['a' 'b' }", "1:51: a comma or the end of the list is expected"),
        ("default_session_config { gpu_options { per_process_gpu_memory_fraction: x } }", "1:73: a number is expected"),
    ] {
        assert_eq!(text::parse::<ServerDef>(SERVER, text).unwrap_err().to_string(), message, "{text}");
    }
    let deep = "value { list { func { attr { key: 'a' ".repeat(50);
    let error = text::parse::<NodeDef>("tensorflow.NodeDef", &format!("attr {{ {deep}")).unwrap_err();
    assert_eq!(error.to_string(), "more than 100 messages are inside each other");
    let error = text::parse::<AttrValue>("tensorflow.AttrValue", "i: 1 f: 2").unwrap_err();
    assert_eq!(error.to_string(), "1:6: 'f' can't be given after 'i'");
    assert_eq!(text::parse::<ServerDef>("Nothing", "").unwrap_err().to_string(), "there is no message Nothing");
}

proptest! {
    #[test]
    fn any_tensor_goes_both_ways(
        floats in prop::collection::vec(any::<f32>(), 0..5),
        doubles in prop::collection::vec(any::<f64>(), 0..5),
        longs in prop::collection::vec(any::<i64>(), 0..5),
        ints in prop::collection::vec(any::<i32>(), 0..5),
        strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5),
        bools in prop::collection::vec(any::<bool>(), 0..5),
        words in prop::collection::vec(any::<u64>(), 0..5),
        dtype in -3..200,
    ) {
        let not_nan = |value: &f64| !value.is_nan();
        let tensor = TensorProto {
            dtype,
            float_val: floats.into_iter().filter(|&value| not_nan(&f64::from(value))).collect(),
            double_val: doubles.into_iter().filter(not_nan).collect(),
            int64_val: longs,
            int_val: ints,
            string_val: strings.into_iter().map(Into::into).collect(),
            bool_val: bools,
            uint64_val: words,
            ..TensorProto::default()
        };
        let text = text::format("tensorflow.TensorProto", &tensor).unwrap();
        prop_assert_eq!(&text::parse::<TensorProto>("tensorflow.TensorProto", &text).unwrap(), &tensor);
        prop_assert_eq!(&reference_parse::<TensorProto>("tensorflow.TensorProto", &text), &tensor);
    }

    #[test]
    fn no_text_does_harm(at in 0usize..2000, remove in 0usize..9, insert in "[\\PC\n]{0,9}") {
        let text = text::format(GRAPH, &graph()).unwrap();
        let (start, end) = (at.min(text.len()), (at + remove).min(text.len()));
        let changed = format!("{}{insert}{}", &text[..start], &text[end..]);
        if let Ok(read) = text::parse::<GraphDef>(GRAPH, &changed) {
            let again = text::format(GRAPH, &read).unwrap();
            prop_assert_eq!(text::parse::<GraphDef>(GRAPH, &again).unwrap().encode_to_vec(), read.encode_to_vec());
        }
    }
}

/// Returns a graph with an attribute of every kind, and edge cases of maps and floats.
fn graph() -> GraphDef {
    let tensor = TensorProto {
        dtype: 1,
        tensor_content: vec![0, 1, 0x80, 0xff, b'"', b'\\', b'\n', b'9'].into(),
        float_val: vec![1.0, -0.0, 1e-5, 3.4e38, f32::INFINITY, f32::NEG_INFINITY, 0.1],
        ..TensorProto::default()
    };
    let list = ListValue {
        i: vec![1, -1, i64::MIN],
        f: vec![0.5],
        b: vec![true, false],
        r#type: vec![1, 777],
        ..ListValue::default()
    };
    let values = [
        ("", Value::S("first".into())),
        ("T", Value::Type(1)),
        ("bool", Value::B(false)),
        ("float", Value::F(-1.5e-30)),
        ("int", Value::I(i64::MAX)),
        ("list", Value::List(Box::new(list))),
        ("none", Value::Placeholder("é".to_owned())),
        ("value", Value::Tensor(Box::new(tensor))),
    ];
    let mut attr: BTreeMap<String, AttrValue> =
        values.into_iter().map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) })).collect();
    attr.insert("unset".to_owned(), AttrValue::default());
    let node = NodeDef { name: "a/b".to_owned(), op: "Const".to_owned(), attr, ..NodeDef::default() };
    GraphDef { node: vec![node, NodeDef::default()], ..GraphDef::default() }
}

#[test]
fn a_map_s_entries_have_both_fields() {
    let config = ConfigProto { device_count: BTreeMap::from([("CPU".to_owned(), 0)]), ..ConfigProto::default() };
    let text = text::format("tensorflow.ConfigProto", &config).unwrap();
    assert_eq!(text, "device_count {\n  key: \"CPU\"\n  value: 0\n}\n");
}

fn descriptor(name: &str) -> MessageDescriptor {
    DescriptorPool::decode(proto::DESCRIPTORS).unwrap().get_message_by_name(name).unwrap()
}

fn reference_parse<M: Message + Default>(name: &str, text: &str) -> M {
    let message =
        DynamicMessage::parse_text_format(descriptor(name), text).unwrap_or_else(|error| panic!("{error}: {text}"));
    M::decode(&*message.encode_to_vec()).unwrap()
}

fn reference_format(name: &str, message: &impl Message, pretty: bool) -> String {
    let message = DynamicMessage::decode(descriptor(name), &*message.encode_to_vec()).unwrap();
    message.to_text_format_with_options(&FormatOptions::new().pretty(pretty))
}
