//! Random graphs made from the definitions of the ops: nodes with odd attributes on odd inputs, and then some damage. Everything
//! is determined by a seed.

use graph::{Arg, ArgType, OpLookup, OpSchema};
use numeric::stable::SplitMix64;
use proto::attr_value::{ListValue, Value};
use proto::op_def::AttrDef;
use proto::tensor_shape_proto::Dim;
use proto::{AttrValue, GraphDef, NameAttrList, NodeDef, TensorProto, TensorShapeProto};
use std::collections::BTreeMap;
use tensor::DType;

/// Makes random choices, which are the same on all platforms.
pub struct Chooser(SplitMix64);

impl Chooser {
    /// Returns a chooser with a seed.
    pub fn new(seed: u64) -> Chooser {
        Chooser(SplitMix64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995_1234_5678))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a random number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    /// Returns true once in `times` times on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the choices.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// A graph with its feeds and fetches.
#[derive(Debug)]
pub struct RandomGraph {
    /// The graph.
    pub def: GraphDef,
    /// The fed placeholders and their values.
    pub feeds: Vec<(String, TensorProto)>,
    /// The tensors to fetch.
    pub fetches: Vec<String>,
    /// The nodes to run.
    pub targets: Vec<String>,
}

/// Ops that write files, communicate with other processes or wait forever.
pub(crate) const HARMFUL: [&str; 12] = [
    "_Send",
    "_Recv",
    "_HostSend",
    "_HostRecv",
    "WriteFile",
    "Save",
    "SaveSlices",
    "SaveV2",
    "MergeV2Checkpoints",
    "CreateSummaryFileWriter",
    "CreateSummaryDbWriter",
    "Abort",
];

/// Ops that search the disk, fill the log or, with random arguments, take long.
const TEDIOUS: [&str; 4] = ["MatchingFiles", "Print", "PrintV2", "AudioSummaryV2"];

const TYPES: [DType; 16] = [
    DType::Float,
    DType::Int32,
    DType::Float,
    DType::Int64,
    DType::String,
    DType::Bool,
    DType::Double,
    DType::UInt8,
    DType::Half,
    DType::BFloat16,
    DType::Complex64,
    DType::Int8,
    DType::UInt64,
    DType::Int16,
    DType::Resource,
    DType::Variant,
];

const SHAPES: [&[i64]; 16] = [
    &[],
    &[],
    &[1],
    &[2],
    &[3],
    &[4],
    &[0],
    &[2, 2],
    &[2, 3],
    &[3, 2],
    &[0, 3],
    &[2, 0],
    &[1, 2, 3],
    &[1, 4, 4, 2],
    &[2, 2, 2, 3],
    &[1, 2, 2, 2, 1],
];

const NUMBERS: [i64; 20] = [
    0,
    1,
    2,
    3,
    4,
    -1,
    0,
    1,
    2,
    7,
    -2,
    100,
    -7,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
    1 << 62,
    255,
];

const FLOATS: [f64; 10] = [0.0, 1.0, -1.0, 0.5, 2.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e38, -1e-30];

const WORDS: [&str; 20] = [
    "",
    "a",
    "b c",
    "NHWC",
    "NCHW",
    "SAME",
    "VALID",
    "1",
    "-3.5e3",
    "ZLIB",
    "GZIP",
    "(",
    "a.*",
    "\\1",
    "{}",
    "ij,jk->ik",
    "REFLECT",
    "mean",
    "1,2,3",
    "\u{e9}\u{4e2d}",
];

/// Returns a graph of a few nodes.
pub fn random_graph(chooser: &mut Chooser, names: &[&'static str]) -> RandomGraph {
    let mut maker = Maker { chooser, def: GraphDef::default(), feeds: Vec::new(), outputs: Vec::new(), next: 0 };
    let count = 1 + maker.chooser.below(4);
    let mut last = Vec::new();
    for _ in 0..count {
        let name = loop {
            let name = *maker.chooser.one_of(names);
            if !HARMFUL.contains(&name) && !TEDIOUS.contains(&name) {
                break name;
            }
        };
        if let Some(info) = ops::registry().op(name) {
            last.push(maker.node(&info.schema, 0));
        }
    }
    let mut fetches = Vec::new();
    let mut targets = Vec::new();
    for (node, outputs) in last {
        match outputs {
            0 => targets.push(node),
            _ => fetches.push(format!("{node}:{}", maker.chooser.below(outputs))),
        }
    }
    if maker.chooser.once_in(4) {
        maker.damage();
    }
    let Maker { mut def, feeds, .. } = maker;
    def.library = Some(library());
    RandomGraph { def, feeds, fetches, targets }
}

struct Maker<'a> {
    chooser: &'a mut Chooser,
    def: GraphDef,
    feeds: Vec<(String, TensorProto)>,
    /// The outputs so far: name, type, whether it is a reference.
    outputs: Vec<(String, DType, bool)>,
    next: usize,
}

impl Maker<'_> {
    /// Adds a node with its inputs, and returns its name and the number of its outputs.
    fn node(&mut self, schema: &OpSchema, depth: usize) -> (String, usize) {
        let mut attrs: BTreeMap<String, Value> = BTreeMap::new();
        for attr in &schema.attrs {
            let value = self.attr(attr);
            attrs.insert(attr.name.clone(), value);
        }
        let mut inputs = Vec::new();
        for arg in &schema.inputs {
            for dtype in types_of(&arg.ty, &attrs) {
                inputs.push(self.input(dtype, arg, depth));
            }
        }
        let name = self.name("n");
        let mut count = 0;
        for arg in &schema.outputs {
            for dtype in types_of(&arg.ty, &attrs) {
                self.outputs.push((format!("{name}:{count}"), dtype, arg.is_ref));
                count += 1;
            }
        }
        if self.chooser.once_in(20) {
            // A missing attribute has its default, or is an error.
            if let Some(name) = attrs.keys().nth(self.chooser.below(attrs.len())).cloned() {
                attrs.remove(&name);
            }
        }
        self.push(&name, &schema.name, inputs, attrs);
        (name, count)
    }

    fn push(&mut self, name: &str, op: &str, inputs: Vec<String>, attrs: BTreeMap<String, Value>) {
        let attr = attrs.into_iter().map(|(name, value)| (name, AttrValue { value: Some(value) })).collect();
        self.def.node.push(NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            input: inputs,
            attr,
            ..Default::default()
        });
    }

    fn name(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    fn input(&mut self, dtype: DType, arg: &Arg, depth: usize) -> String {
        let fitting: Vec<String> = self
            .outputs
            .iter()
            .filter(|(_, ty, is_ref)| *ty == dtype && *is_ref == arg.is_ref)
            .map(|(name, ..)| name.clone())
            .collect();
        if !fitting.is_empty() && self.chooser.once_in(2) {
            return self.chooser.one_of(&fitting).clone();
        }
        if arg.is_ref {
            return self.variable(dtype);
        }
        match dtype {
            DType::Resource | DType::Variant => self.made_by_an_op(dtype, depth),
            _ => self.tensor(dtype, &arg.name),
        }
    }

    /// Returns a constant or a placeholder that is fed.
    fn tensor(&mut self, dtype: DType, argument: &str) -> String {
        let value = self.tensor_proto(dtype, argument);
        let name = self.name("c");
        let mut attrs = BTreeMap::from([("dtype".to_owned(), Value::Type(value.dtype))]);
        if self.chooser.once_in(2) {
            attrs.insert(
                "shape".to_owned(),
                Value::Shape(TensorShapeProto { unknown_rank: true, ..Default::default() }),
            );
            self.push(&name, "Placeholder", Vec::new(), attrs);
            self.feeds.push((format!("{name}:0"), value));
        } else {
            attrs.insert("value".to_owned(), Value::Tensor(Box::new(value)));
            self.push(&name, "Const", Vec::new(), attrs);
        }
        name
    }

    /// Adds a variable of some shape, which may be initialized.
    fn variable(&mut self, dtype: DType) -> String {
        let value = self.tensor_proto(dtype, "");
        let (variable, constant, assign) = (self.name("v"), self.name("c"), self.name("a"));
        let dtype = Value::Type(value.dtype);
        let shape = Value::Shape(value.tensor_shape.clone().unwrap_or_default());
        self.push(
            &variable,
            "VariableV2",
            Vec::new(),
            BTreeMap::from([("dtype".into(), dtype.clone()), ("shape".into(), shape)]),
        );
        if self.chooser.once_in(4) {
            return variable;
        }
        let attrs = BTreeMap::from([("dtype".into(), dtype.clone()), ("value".into(), Value::Tensor(Box::new(value)))]);
        self.push(&constant, "Const", Vec::new(), attrs);
        self.push(&assign, "Assign", vec![variable, constant], BTreeMap::from([("T".into(), dtype)]));
        assign
    }

    /// Adds an op that produces a handle or a variant, which constants cannot have.
    fn made_by_an_op(&mut self, dtype: DType, depth: usize) -> String {
        const HANDLES: [&str; 12] = [
            "VarHandleOp",
            "FIFOQueueV2",
            "HashTableV2",
            "MutableHashTableV2",
            "StackV2",
            "TensorArrayV3",
            "IteratorV2",
            "RandomShuffleQueueV2",
            "MutexV2",
            "TFRecordReaderV2",
            "MutableDenseHashTableV2",
            "ResourceConditionalAccumulator",
        ];
        const VARIANTS: [&str; 10] = [
            "EmptyTensorList",
            "TensorListReserve",
            "TensorListFromTensor",
            "RangeDataset",
            "TensorSliceDataset",
            "BatchDatasetV2",
            "ShuffleDataset",
            "TensorDataset",
            "TakeDataset",
            "TensorListPushBack",
        ];
        let choices: &[&str] = if dtype == DType::Resource { &HANDLES } else { &VARIANTS };
        let mut op = *self.chooser.one_of(choices);
        if depth > 3 {
            op = if dtype == DType::Resource { "VarHandleOp" } else { "EmptyTensorList" };
        }
        match ops::registry().op(op) {
            Some(info) => self.node(&info.schema, depth + 1).0,
            None => self.tensor(DType::Float, ""),
        }
    }

    fn dtype(&mut self) -> DType {
        *self.chooser.one_of(&TYPES)
    }

    fn number(&mut self) -> i64 {
        *self.chooser.one_of(&NUMBERS)
    }

    fn small_number(&mut self) -> i64 {
        if self.chooser.once_in(12) { self.number() } else { self.chooser.below(4) as i64 }
    }

    fn attr(&mut self, attr: &AttrDef) -> Value {
        if let Some(default) = attr.default_value.as_ref().and_then(|value| value.value.clone())
            && self.chooser.once_in(2)
        {
            return default;
        }
        let allowed = attr.allowed_values.as_ref().and_then(|value| match &value.value {
            Some(Value::List(list)) => Some(list.clone()),
            _ => None,
        });
        match attr.r#type.as_str() {
            "type" => Value::Type(self.type_number(allowed.as_deref())),
            "int" => {
                let low = if attr.has_minimum { attr.minimum } else { 0 };
                let number = self.small_number();
                Value::I(if self.chooser.once_in(10) { number } else { number.max(low) })
            }
            "float" => Value::F(*self.chooser.one_of(&FLOATS) as f32),
            "bool" => Value::B(self.chooser.once_in(2)),
            "string" => {
                let texts: Vec<Vec<u8>> =
                    allowed.map(|list| list.s.iter().map(|text| text.to_vec()).collect()).unwrap_or_default();
                let text = if texts.is_empty() {
                    self.chooser.one_of(&WORDS).as_bytes().to_vec()
                } else {
                    self.chooser.one_of(&texts).clone()
                };
                Value::S(text.into())
            }
            "shape" => Value::Shape(self.shape()),
            "tensor" => {
                let dtype = self.dtype();
                Value::Tensor(Box::new(self.tensor_proto(dtype, "")))
            }
            "func" => Value::Func(Box::new(self.function())),
            kind => Value::List(Box::new(self.list(kind, attr, allowed.as_deref()))),
        }
    }

    fn list(&mut self, kind: &str, attr: &AttrDef, allowed: Option<&ListValue>) -> ListValue {
        let mut list = ListValue::default();
        let low = if attr.has_minimum { attr.minimum.clamp(0, 4) as usize } else { 0 };
        let count = low + self.chooser.below(3);
        match kind {
            "list(type)" => (0..count).for_each(|_| list.r#type.push(self.type_number(allowed))),
            "list(int)" => {
                // Windows and strides have four or five numbers, which are rarely valid by chance.
                const USUAL: [&[i64]; 5] =
                    [&[1, 1, 1, 1], &[1, 2, 2, 1], &[1, 2, 1, 1], &[1, 1, 1, 1, 1], &[1, 2, 2, 2, 1]];
                if self.chooser.once_in(3) {
                    (0..count + 1).for_each(|_| list.i.push(self.small_number()));
                } else {
                    list.i = self.chooser.one_of(&USUAL).to_vec();
                }
            }
            "list(float)" => (0..count).for_each(|_| list.f.push(*self.chooser.one_of(&FLOATS) as f32)),
            "list(string)" => {
                (0..count).for_each(|_| list.s.push(self.chooser.one_of(&WORDS).as_bytes().to_vec().into()))
            }
            "list(shape)" => (0..count).for_each(|_| list.shape.push(self.shape())),
            "list(func)" => (0..count).for_each(|_| list.func.push(self.function())),
            "list(bool)" => (0..count).for_each(|_| list.b.push(self.chooser.once_in(2))),
            _ => {}
        }
        list
    }

    fn type_number(&mut self, allowed: Option<&ListValue>) -> i32 {
        match allowed {
            Some(list) if !list.r#type.is_empty() && !self.chooser.once_in(40) => *self.chooser.one_of(&list.r#type),
            _ => self.dtype() as i32,
        }
    }

    fn function(&mut self) -> NameAttrList {
        let name = *self.chooser.one_of(&["same", "endless", "nothing", "yes", "absent"]);
        NameAttrList { name: name.to_owned(), ..Default::default() }
    }

    fn shape(&mut self) -> TensorShapeProto {
        if self.chooser.once_in(5) {
            return TensorShapeProto { unknown_rank: true, ..Default::default() };
        }
        let mut sizes = self.chooser.one_of(&SHAPES).to_vec();
        if self.chooser.once_in(8) {
            sizes.push(self.number());
        }
        shape_of(&sizes)
    }

    fn tensor_proto(&mut self, dtype: DType, argument: &str) -> TensorProto {
        // Arguments for sizes are usually small vectors or scalars.
        let is_size = ["shape", "size", "axis", "dim", "num", "begin", "end", "indices", "k", "perm"]
            .iter()
            .any(|part| argument.contains(part));
        let sizes = if is_size && self.chooser.once_in(2) {
            *self.chooser.one_of(&SHAPES[..8])
        } else {
            *self.chooser.one_of(&SHAPES)
        };
        let count: i64 = sizes.iter().product();
        let mut proto = TensorProto { dtype: dtype as i32, tensor_shape: Some(shape_of(sizes)), ..Default::default() };
        if dtype == DType::String {
            proto.string_val = (0..count).map(|_| self.chooser.one_of(&WORDS).as_bytes().to_vec().into()).collect();
        } else {
            let usual = self.chooser.once_in(2);
            let bytes: Vec<u8> = (0..count).flat_map(|_| self.element(dtype, usual)).collect();
            proto.tensor_content = bytes.into();
        }
        proto
    }

    fn element(&mut self, dtype: DType, usual: bool) -> Vec<u8> {
        let number = if usual { self.chooser.below(3) as i64 } else { self.number() };
        let float = if usual { self.chooser.below(5) as f64 - 1.5 } else { *self.chooser.one_of(&FLOATS) };
        match dtype {
            DType::Float => (float as f32).to_le_bytes().to_vec(),
            DType::Double => float.to_le_bytes().to_vec(),
            DType::Complex64 => [(float as f32).to_le_bytes(), (number as f32).to_le_bytes()].concat(),
            DType::Complex128 => [float.to_le_bytes(), (number as f64).to_le_bytes()].concat(),
            DType::Half | DType::BFloat16 => (self.chooser.draw() as u16).to_le_bytes().to_vec(),
            DType::Bool => vec![(number & 1) as u8],
            _ => number.to_le_bytes().iter().copied().cycle().take(dtype.size().min(8)).collect(),
        }
    }

    /// Damages something in the graph.
    fn damage(&mut self) {
        let node = self.chooser.below(self.def.node.len());
        let other = self.def.node[self.chooser.below(self.def.node.len())].name.clone();
        let number = self.number();
        let dtype = self.dtype() as i32;
        let damaged = &mut self.def.node[node];
        match self.chooser.below(7) {
            0 => damaged.input.push(format!("^{other}")),
            1 if !damaged.input.is_empty() => {
                let index = self.chooser.below(damaged.input.len());
                damaged.input[index] = format!("{other}:{}", self.chooser.below(3));
            }
            2 => drop(damaged.input.pop()),
            3 => {
                damaged.device =
                    (*self.chooser.one_of(&["/cpu:7", "/gpu:0", "/job:absent", "what", "/task:0"])).to_owned()
            }
            4 => {
                if let Some(value) = damaged.attr.values_mut().next() {
                    value.value = Some(Value::I(number));
                }
            }
            5 => {
                if let Some(value) = damaged.attr.get_mut("T") {
                    value.value = Some(Value::Type(dtype));
                }
            }
            _ => damaged.name = other,
        }
    }
}

fn shape_of(sizes: &[i64]) -> TensorShapeProto {
    TensorShapeProto {
        dim: sizes.iter().map(|&size| Dim { size, ..Default::default() }).collect(),
        ..Default::default()
    }
}

/// Returns the types of the tensors of an argument; types that the attributes do not determine are float.
fn types_of(ty: &ArgType, attrs: &BTreeMap<String, Value>) -> Vec<DType> {
    let named = |number: i32| DType::from_i32(number).unwrap_or(DType::Float);
    match ty {
        ArgType::Fixed(dtype) => vec![*dtype],
        ArgType::Attr(name) => match attrs.get(name) {
            Some(Value::Type(number)) => vec![named(*number)],
            _ => vec![DType::Float],
        },
        ArgType::Repeated { count, ty } => match attrs.get(count) {
            Some(Value::I(count)) => types_of(ty, attrs).repeat((*count).clamp(0, 4) as usize),
            _ => Vec::new(),
        },
        ArgType::List(name) => match attrs.get(name) {
            Some(Value::List(list)) => list.r#type.iter().map(|&number| named(number)).collect(),
            _ => Vec::new(),
        },
    }
}

/// Returns functions for attributes: the identity, one that calls itself, an empty one, a predicate.
fn library() -> proto::FunctionDefLibrary {
    let float = DType::Float as i32;
    let argument =
        |name: &str, dtype: i32| proto::op_def::ArgDef { name: name.to_owned(), r#type: dtype, ..Default::default() };
    let function = |name: &str, node: Vec<NodeDef>, result: &str| proto::FunctionDef {
        signature: Some(proto::OpDef {
            name: name.to_owned(),
            input_arg: vec![argument("x", float)],
            output_arg: vec![argument("y", float)],
            ..Default::default()
        }),
        node_def: node,
        ret: [("y".to_owned(), result.to_owned())].into(),
        ..Default::default()
    };
    let types = |name: &str| {
        (
            name.to_owned(),
            AttrValue { value: Some(Value::List(ListValue { r#type: vec![float], ..Default::default() }.into())) },
        )
    };
    let itself = Value::Func(NameAttrList { name: "endless".to_owned(), ..Default::default() }.into());
    let call = NodeDef {
        name: "again".to_owned(),
        op: "PartitionedCall".to_owned(),
        input: vec!["x".to_owned()],
        attr: [types("Tin"), types("Tout"), ("f".to_owned(), AttrValue { value: Some(itself) })].into(),
        ..Default::default()
    };
    let truth = TensorProto { dtype: DType::Bool as i32, bool_val: vec![true], ..Default::default() };
    let constant = NodeDef {
        name: "true".to_owned(),
        op: "Const".to_owned(),
        attr: [
            ("dtype".to_owned(), AttrValue { value: Some(Value::Type(truth.dtype)) }),
            ("value".to_owned(), AttrValue { value: Some(Value::Tensor(truth.clone().into())) }),
        ]
        .into(),
        ..Default::default()
    };
    let mut yes = function("yes", vec![constant], "true:output:0");
    if let Some(signature) = &mut yes.signature {
        signature.output_arg = vec![argument("y", truth.dtype)];
    }
    let nothing = proto::FunctionDef {
        signature: Some(proto::OpDef { name: "nothing".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    proto::FunctionDefLibrary {
        function: vec![
            function("same", Vec::new(), "x"),
            function("endless", vec![call], "again:output:0"),
            yes,
            nothing,
        ],
        ..Default::default()
    }
}
