//! Output for people: Assert, Print, PrintV2; and the time: Timestamp.

use super::summarize::summarize_value;
use crate::compose::Gradients;
use crate::file_access::file_system;
use graph::{Graph, Operation, Output};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Assert",
            inputs: &["condition: bool", "data: T"],
            outputs: &[],
            attrs: &["T: list(type) >= 1", "summarize: int = 3"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Assert { summarize: builder.attrs().int("summarize")? }))],
    },
    Op {
        def: OpDef {
            name: "Print",
            inputs: &["input: T", "data: U"],
            outputs: &["output: T"],
            attrs: &[
                "T: type",
                "U: list(type) >= 0",
                "message: string = ''",
                "first_n: int = -1",
                "summarize: int = 3",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(print_gradient),
        kernels: &[KernelDef::any(Print::create)],
    },
    Op {
        def: OpDef {
            name: "PrintV2",
            inputs: &["input: string"],
            outputs: &[],
            attrs: &["output_stream: string = 'stderr'", "end: string = '\\n'"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(PrintV2::create)],
    },
    Op {
        def: OpDef { name: "Timestamp", inputs: &[], outputs: &["ts: double"], attrs: &[], flags: OpFlags::STATEFUL },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Timestamp))],
    },
];

/// Fails the step if a condition is false; the error shows the data.
#[track_caller]
pub fn assert_true(condition: &Output, data: &[Output]) -> Operation {
    condition.graph().op("Assert").input(condition).inputs(data).build()
}

/// Returns `input`, and prints a message and data whenever it is computed.
#[track_caller]
pub fn print(input: &Output, data: &[Output], message: &str) -> Output {
    input.graph().op("Print").input(input).inputs(data).attr("message", message).output()
}

/// Returns the time in seconds since 1970.
#[track_caller]
pub fn timestamp(graph: &Graph) -> Output {
    graph.op("Timestamp").output()
}

fn print_gradient(args: &GradientArgs<'_>) -> Gradients {
    let mut grads = vec![None; args.op.num_inputs()];
    grads[0] = args.grads[0].clone();
    Ok(grads)
}

struct Assert {
    summarize: i64,
}

impl Kernel for Assert {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let condition = context.input(0)?;
        if !condition.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("In[0] should be a scalar: {}", condition.shape())));
        }
        if condition.to_scalar::<bool>()? {
            return Ok(());
        }
        let mut shown = Vec::new();
        for index in 1..context.num_inputs() {
            shown.push(format!("[{}]", summarize_value(context.input(index)?, self.summarize)?));
        }
        Err(Status::invalid_argument(format!("assertion failed: {}", shown.join(" "))))
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Print {
    message: String,
    summarize: i64,
    /// The number of further prints; a negative one means no limit.
    left: AtomicI64,
}

impl Print {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(Print {
            message: attrs.string("message")?,
            summarize: attrs.int("summarize")?,
            left: AtomicI64::new(attrs.int("first_n")?),
        })
    }

    fn may_print(&self) -> bool {
        let count = |left: i64| if left > 0 { Some(left - 1) } else { None };
        self.left.load(Ordering::Relaxed) < 0
            || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

impl Kernel for Print {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        if self.may_print() {
            let mut text = self.message.clone();
            for index in 1..context.num_inputs() {
                text.push_str(&format!("[{}]", summarize_value(context.input(index)?, self.summarize)?));
            }
            context.step().logger.log("info", &text);
        }
        let value = context.take_value(0);
        context.set_output_value(0, value);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// The destination of `PrintV2`.
enum Stream {
    Log(&'static str),
    File(String),
}

struct PrintV2 {
    stream: Stream,
    end: Vec<u8>,
}

impl PrintV2 {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let name = attrs.string("output_stream")?;
        let stream = match name.as_str() {
            "stdout" | "stderr" | "log(info)" => Stream::Log("info"),
            "log(warning)" => Stream::Log("warning"),
            "log(error)" => Stream::Log("error"),
            other => match other.strip_prefix("file://") {
                Some(path) => Stream::File(path.to_owned()),
                None => {
                    return Err(Status::invalid_argument(format!(
                        "Unknown output stream: {other}, Valid streams are: stdout, stderr, log(info), log(warning), log(error), file://path"
                    )));
                }
            },
        };
        let writes_file = matches!(stream, Stream::File(_));
        let kernel = PrintV2 { stream, end: attrs.bytes("end")?.to_vec() };
        if writes_file { BoxedKernel::new_blocking(kernel) } else { BoxedKernel::new(kernel) }
    }
}

impl Kernel for PrintV2 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        if !input.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("Input is expected to be scalar, but got {}", input.shape())));
        }
        let mut text = input.strings()?.first().map(|text| text.to_vec()).unwrap_or_default();
        text.extend_from_slice(&self.end);
        match &self.stream {
            Stream::Log(level) => {
                let text = text.strip_suffix(b"\n").unwrap_or(&text);
                context.step().logger.log(level, &String::from_utf8_lossy(text));
                Ok(())
            }
            Stream::File(path) => {
                let mut file = file_system().open_append(path)?;
                file.append(&text)?;
                file.close()
            }
        }
    }
}

struct Timestamp;

impl Kernel for Timestamp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        // Before 1970 the clock is wrong anyway.
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        context.set_output(0, Tensor::scalar(seconds));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::{Code, Tensor};

    #[test]
    fn assertions_show_their_data() {
        let data = [Tensor::scalar(false), Tensor::vector(&[1i32, 2, 3, 4]), Tensor::string("why")];
        let types = [tensor::DType::Int32, tensor::DType::String];
        let status = run_op("Assert", attrs![("T", &types[..])], &data).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("assertion failed: [1 2 3...] [why]"), "{status}");
    }

    #[test]
    fn printing_passes_its_input_on() {
        let inputs = [Tensor::vector(&[1f32]), Tensor::scalar(7i32)];
        let y = run_op("Print", attrs![("message", "x: ")], &inputs).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[1.0]);
        assert!(run_op("PrintV2", attrs![("output_stream", "nowhere")], &[Tensor::string("x")]).is_err());
    }

    #[test]
    fn the_time_is_after_2020() {
        let y = run_op("Timestamp", attrs![], &[]).unwrap();
        assert!(y[0].to_scalar::<f64>().unwrap() > 1.5e9);
    }
}
