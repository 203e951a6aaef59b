//! UnicodeScript: the script of a character, by its number in ICU.

use super::unicode_script_table::RUNS;
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{Result, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "UnicodeScript",
        inputs: &["input: int32"],
        outputs: &["output: int32"],
        attrs: &[],
        flags: OpFlags::NONE,
    },
    shape: shape::unchanged,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(|_| BoxedKernel::new(UnicodeScript))],
}];

/// A number that isn't a code point has no script.
const NO_SCRIPT: i32 = -1;

fn script(code_point: i32) -> i32 {
    match u32::try_from(code_point) {
        Ok(code_point) if code_point <= u32::from(char::MAX) => {
            let behind = RUNS.partition_point(|(start, _)| *start <= code_point);
            RUNS[..behind].last().map_or(NO_SCRIPT, |(_, script)| i32::from(*script))
        }
        _ => NO_SCRIPT,
    }
}

struct UnicodeScript;

impl Kernel for UnicodeScript {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let code_points = input.as_slice::<i32>()?;
        let output = Tensor::build(input.shape().clone(), |output: &mut [i32]| {
            output.iter_mut().zip(code_points).for_each(|(output, &code_point)| *output = script(code_point));
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn scripts() {
        const COMMON: i32 = 0;
        const CYRILLIC: i32 = 8;
        const GREEK: i32 = 14;
        const HAN: i32 = 17;
        const LATIN: i32 = 25;
        const UNKNOWN: i32 = 103;
        let input =
            Tensor::vector(&['a' as i32, '1' as i32, 'Ω' as i32, 'ж' as i32, '字' as i32, 0x10_ffff, 0x11_0000, -1]);
        let output = run_op("UnicodeScript", attrs![], &[input]).unwrap();
        let expected = [LATIN, COMMON, GREEK, CYRILLIC, HAN, UNKNOWN, NO_SCRIPT, NO_SCRIPT];
        assert_eq!(output[0].as_slice::<i32>().unwrap(), &expected);
        assert!(RUNS.is_sorted_by_key(|(start, _)| *start) && RUNS[0].0 == 0);
        check_shape("UnicodeScript", attrs![], "[2,?]", "[2,?]");
    }
}
