//! Regular expressions: RegexFullMatch, RegexReplace, and both with a static pattern.
//!
//! TensorFlow's patterns are RE2's. The `regex` crate comes from the same family; where the two read a pattern
//! differently, [`translate`] rewrites it.

use bytes::{Bytes, BytesMut};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use parking_lot::Mutex;
use regex::bytes::{Captures, Regex, RegexBuilder};
use std::sync::Arc;
use tensor::{Result, Status, StringElement, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RegexFullMatch",
            inputs: &["input: string", "pattern: string"],
            outputs: &["output: bool"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: full_match_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(FullMatch::create)],
    },
    Op {
        def: OpDef {
            name: "StaticRegexFullMatch",
            inputs: &["input: string"],
            outputs: &["output: bool"],
            attrs: &["pattern: string"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(FullMatch::create)],
    },
    Op {
        def: OpDef {
            name: "RegexReplace",
            inputs: &["input: string", "pattern: string", "rewrite: string"],
            outputs: &["output: string"],
            attrs: &["replace_global: bool = true"],
            flags: OpFlags::NONE,
        },
        shape: replace_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Replace::create)],
    },
    Op {
        def: OpDef {
            name: "StaticRegexReplace",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &["pattern: string", "rewrite: string", "replace_global: bool = true"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Replace::create)],
    },
];

/// Returns whether each whole string matches a pattern.
#[track_caller]
pub fn regex_full_match(input: &Output, pattern: &str) -> Output {
    input.graph().op("StaticRegexFullMatch").input(input).attr("pattern", pattern).output()
}

/// Replaces the matches of a pattern in each string; `\1` in `rewrite` stands for the first group.
#[track_caller]
pub fn regex_replace(input: &Output, pattern: &str, rewrite: &str) -> Output {
    input.graph().op("StaticRegexReplace").input(input).attr("pattern", pattern).attr("rewrite", rewrite).output()
}

fn full_match_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    shape::unchanged(c)
}

fn replace_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    c.with_rank(2, 0)?;
    shape::unchanged(c)
}

/// A pattern that is compiled on first use.
struct Pattern {
    whole: bool,
    last: Mutex<Option<(Bytes, Arc<Regex>)>>,
}

impl Pattern {
    fn new(whole: bool) -> Pattern {
        Pattern { whole, last: Mutex::new(None) }
    }

    fn compile(&self, pattern: &Bytes) -> Result<Arc<Regex>> {
        let mut last = self.last.lock();
        if let Some((known, regex)) = &*last
            && known == pattern
        {
            return Ok(regex.clone());
        }
        let regex = Arc::new(compile(pattern, self.whole)?);
        *last = Some((pattern.clone(), regex.clone()));
        Ok(regex)
    }
}

fn compile(pattern: &[u8], whole: bool) -> Result<Regex> {
    let invalid = |reason: &str| {
        Status::invalid_argument(format!("Invalid pattern: {}, error: {reason}", String::from_utf8_lossy(pattern)))
    };
    let text = std::str::from_utf8(pattern).map_err(|_| invalid("invalid UTF-8"))?;
    let translated = translate(text);
    let anchored = if whole { format!(r"\A(?:{translated})\z") } else { translated };
    RegexBuilder::new(&anchored).build().map_err(|error| invalid(&error.to_string()))
}

/// Rewrites syntax that RE2 interprets differently from the `regex` crate: `\d`, `\w`, `\s` and `\b` are ASCII, `\Q…\E` quotes,
/// `\C` is any byte, an open brace that doesn't start a count is literal, and within brackets only ranges are special.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(next) = rest.chars().next() {
        if next == '\\' {
            rest = translate_escape(&rest[1..], in_class, &mut out);
            continue;
        }
        rest = &rest[next.len_utf8()..];
        match next {
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if let Some(behind) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = behind;
                }
                // A bracket right at the start is a member of the class.
                if let Some(behind) = rest.strip_prefix(']') {
                    out.push_str(r"\]");
                    rest = behind;
                }
            }
            '[' if rest.starts_with(':') && rest.contains(":]") => {
                let end = rest.find(":]").map_or(rest.len(), |end| end + 2);
                out.push('[');
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(next);
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '{' if !in_class && !starts_count(rest) => out.push_str(r"\{"),
            other => out.push(other),
        }
    }
    out
}

/// Returns whether the text after an open brace makes it a count: `3}`, `3,}`, `3,5}`.
fn starts_count(rest: &str) -> bool {
    let Some(end) = rest.find('}') else { return false };
    let (low, high) = rest[..end].split_once(',').unwrap_or((&rest[..end], ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !low.is_empty() && is_number(low) && is_number(high)
}

/// Translates the text after a backslash, and returns the rest.
fn translate_escape<'a>(rest: &'a str, in_class: bool, out: &mut String) -> &'a str {
    let Some(escaped) = rest.chars().next() else {
        out.push('\\');
        return rest;
    };
    let behind = &rest[escaped.len_utf8()..];
    match (escaped, in_class) {
        ('Q', false) => {
            let end = behind.find(r"\E");
            out.push_str(&regex::escape(&behind[..end.unwrap_or(behind.len())]));
            return end.map_or("", |end| &behind[end + 2..]);
        }
        ('d', false) => out.push_str("[0-9]"),
        ('w', false) => out.push_str("[0-9A-Za-z_]"),
        ('s', false) => out.push_str(r"[\t\n\f\r ]"),
        ('d', true) => out.push_str("0-9"),
        ('w', true) => out.push_str("0-9A-Za-z_"),
        ('s', true) => out.push_str(r"\t\n\f\r\x20"),
        ('D', _) => out.push_str("[^0-9]"),
        ('W', _) => out.push_str("[^0-9A-Za-z_]"),
        ('S', _) => out.push_str(r"[^\t\n\f\r ]"),
        ('b', false) => out.push_str(r"(?-u:\b)"),
        ('B', false) => out.push_str(r"(?-u:\B)"),
        ('C', false) => out.push_str("(?s-u:.)"),
        // The text in these braces is a name or a number, and a caret before a name negates it.
        ('p' | 'P' | 'x', _) if behind.starts_with('{') && behind.contains('}') => {
            let end = behind.find('}').unwrap_or(behind.len() - 1);
            let inside = &behind[1..end];
            let (kind, inside) = match (escaped, inside.strip_prefix('^')) {
                ('p', Some(name)) => ('P', name),
                ('P', Some(name)) => ('p', name),
                _ => (escaped, inside),
            };
            out.push('\\');
            out.push(kind);
            out.push('{');
            out.push_str(inside);
            out.push('}');
            return &behind[end + 1..];
        }
        (other, _) => {
            out.push('\\');
            out.push(other);
        }
    }
    behind
}

/// The source of a kernel's pattern: an attribute, or an input.
enum Source {
    Attr(Bytes),
    Input(usize),
}

impl Source {
    fn new(builder: &KernelBuilder<'_>, name: &str, input: usize) -> Result<Source> {
        if builder.node.inputs.len() > 1 || builder.node.schema.inputs.len() > 1 {
            return Ok(Source::Input(input));
        }
        Ok(Source::Attr(builder.attrs().bytes(name)?.clone()))
    }

    fn get(&self, context: &OpContext<'_>, name: &str) -> Result<Bytes> {
        match self {
            Source::Attr(text) => Ok(text.clone()),
            Source::Input(index) => {
                let tensor = context.input(*index)?;
                match tensor.strings()? {
                    [text] if tensor.shape().is_scalar() => Ok(text.clone()),
                    _ => {
                        Err(Status::invalid_argument(format!("{name} must be scalar, but received {}", tensor.shape())))
                    }
                }
            }
        }
    }
}

struct FullMatch {
    source: Source,
    pattern: Pattern,
}

impl FullMatch {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let kernel = FullMatch { source: Source::new(builder, "pattern", 1)?, pattern: Pattern::new(true) };
        if let Source::Attr(text) = &kernel.source {
            kernel.pattern.compile(text)?;
        }
        BoxedKernel::new(kernel)
    }
}

/// The approximate cost of matching a short string.
const NS_PER_STRING: f64 = 100.0;

impl Kernel for FullMatch {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let regex = self.pattern.compile(&self.source.get(context, "Pattern")?)?;
        let input = context.input(0)?;
        let strings = input.strings()?;
        let output = Tensor::build(input.shape().clone(), |out: &mut [bool]| {
            numeric::parallel::for_each_chunk_mut(out, 1, NS_PER_STRING, |first, out| {
                out.iter_mut().zip(&strings[first..]).for_each(|(out, text)| *out = regex.is_match(text));
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct Replace {
    source: Source,
    rewrite: Source,
    pattern: Pattern,
    everywhere: bool,
}

impl Replace {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let kernel = Replace {
            source: Source::new(builder, "pattern", 1)?,
            rewrite: Source::new(builder, "rewrite", 2)?,
            pattern: Pattern::new(false),
            everywhere: builder.attrs().bool("replace_global")?,
        };
        if let Source::Attr(text) = &kernel.source {
            kernel.pattern.compile(text)?;
        }
        BoxedKernel::new(kernel)
    }
}

impl Kernel for Replace {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let regex = self.pattern.compile(&self.source.get(context, "Pattern")?)?;
        let rewrite = Rewrite::parse(&self.rewrite.get(context, "Rewrite")?);
        // A rewrite with a group that doesn't exist changes nothing, as in RE2.
        if rewrite.groups > regex.captures_len() {
            let input = context.take_input(0)?;
            context.set_output(0, input);
            return Ok(());
        }
        let mut output = context.take_input(0)?;
        for text in output.strings_mut()? {
            if let Some(replaced) = rewrite.apply(&regex, text, self.everywhere) {
                *text = replaced;
            }
        }
        context.set_output(0, output);
        Ok(())
    }
}

/// The replacement of a match.
struct Rewrite {
    parts: Vec<Part>,
    /// The number of groups needed, including the whole match.
    groups: usize,
}

enum Part {
    Text(Vec<u8>),
    Group(usize),
}

impl Rewrite {
    fn parse(rewrite: &[u8]) -> Rewrite {
        let mut parsed = Rewrite { parts: Vec::new(), groups: 0 };
        let mut text = Vec::new();
        let mut bytes = rewrite.iter();
        while let Some(&byte) = bytes.next() {
            if byte != b'\\' {
                text.push(byte);
                continue;
            }
            match bytes.next() {
                Some(digit @ b'0'..=b'9') => {
                    let group = usize::from(digit - b'0');
                    parsed.groups = parsed.groups.max(group + 1);
                    parsed.parts.push(Part::Text(std::mem::take(&mut text)));
                    parsed.parts.push(Part::Group(group));
                }
                Some(b'\\') => text.push(b'\\'),
                // RE2 stops at an unknown escape.
                _ => break,
            }
        }
        parsed.parts.push(Part::Text(text));
        parsed
    }

    /// Returns the string with its matches replaced, if there are any.
    fn apply(&self, regex: &Regex, text: &StringElement, everywhere: bool) -> Option<StringElement> {
        let limit = if everywhere { usize::MAX } else { 1 };
        let mut out = BytesMut::new();
        let mut copied = 0;
        let mut found = false;
        for captures in regex.captures_iter(text).take(limit) {
            let Some(whole) = captures.get(0) else { continue };
            // An empty match is between characters, never inside one.
            if whole.is_empty() && text.get(whole.start()).is_some_and(|byte| byte & 0xc0 == 0x80) {
                continue;
            }
            found = true;
            out.extend_from_slice(&text[copied..whole.start()]);
            self.write(&captures, &mut out);
            copied = whole.end();
        }
        found.then(|| {
            out.extend_from_slice(&text[copied..]);
            out.freeze()
        })
    }

    fn write(&self, captures: &Captures<'_>, out: &mut BytesMut) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Group(group) => {
                    out.extend_from_slice(captures.get(*group).map_or(&[], |group| group.as_bytes()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Result, Shape, Tensor};

    fn texts(texts: &[&[u8]]) -> Tensor {
        let values = texts.iter().map(|text| bytes::Bytes::copy_from_slice(text)).collect();
        Tensor::from_strings(Shape::vector(texts.len()), values).unwrap()
    }

    fn matches(pattern: &str, text: &[u8]) -> bool {
        let static_answer = run_op("StaticRegexFullMatch", attrs![("pattern", pattern)], &[texts(&[text])]).unwrap();
        let inputs = [texts(&[text]), Tensor::string(pattern.to_owned())];
        let answer = run_op("RegexFullMatch", attrs![], &inputs).unwrap()[0].as_slice::<bool>().unwrap()[0];
        assert_eq!(static_answer[0].as_slice::<bool>().unwrap(), [answer]);
        answer
    }

    /// The answers are TensorFlow's.
    #[test]
    fn classes_of_characters_by_name() {
        let matches =
            |pattern: &str, text: &str| super::compile(pattern.as_bytes(), true).unwrap().is_match(text.as_bytes());
        assert!(matches(r"\p{Ll}+", "äb") && !matches(r"\p{Ll}", "Ä") && matches(r"\P{Ll}", "Ä"));
        assert!(matches(r"[\p{Lu}\d]+", "Ä7") && matches(r"\p{^Ll}", "Ä") && matches(r"\pN", "7"));
        assert!(matches(r"\p{Greek}", "λ") && matches(r"\x{1F}", "\u{1f}") && matches(r"a{2}\p{Any}{2}", "aaxy"));
        assert!(super::compile(br"\p{Nothing}", true).is_err());
    }

    #[test]
    fn full_matches() {
        for (pattern, text, expected) in [
            ("a.*c", "abc".as_bytes(), true),
            ("a.*c", b"xabc", false),
            ("a.*c", b"abc\n", false),
            ("(?i)ABC", b"aBc", true),
            (r"\d", "٣".as_bytes(), false),
            (r"\d", b"3", true),
            (r"\w", "é".as_bytes(), false),
            (r"\W", "é".as_bytes(), true),
            (r"\s", b"\x0b", false),
            (r"[\s\d]+", b" 1", true),
            (".", b"\xff", false),
            (r"\Qa.b\E", b"a.b", true),
            ("x{,3}", b"x{,3}", true),
            ("x{2,3}", b"xx", true),
            ("[[a&b]+", b"a&&b", true),
            ("[]a]+", b"]a", true),
            ("[[:alpha:]]+", b"ab", true),
            ("a|ab", b"ab", true),
            (r"\C\C", "é".as_bytes(), true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text:?}");
        }
        let status = run_op("StaticRegexFullMatch", attrs![("pattern", "(")], &[texts(&[b"x"])]).unwrap_err();
        assert!(status.message().contains("Invalid pattern: ("), "{status}");
        assert!(run_op("RegexFullMatch", attrs![], &[texts(&[b"x"]), Tensor::string("(")]).is_err());
        assert!(run_op("RegexFullMatch", attrs![], &[texts(&[b"x"]), Tensor::string(&b"\xff"[..])]).is_err());
    }

    #[test]
    fn replaces() {
        let replace = |text: &str, pattern: &str, rewrite: &str, everywhere: bool| -> Result<String> {
            let attrs = attrs![("pattern", pattern), ("rewrite", rewrite), ("replace_global", everywhere)];
            let fixed = run_op("StaticRegexReplace", attrs, &[texts(&[text.as_bytes()])])?;
            let string = |text: &str| Tensor::string(text.to_owned());
            let inputs = [texts(&[text.as_bytes()]), string(pattern), string(rewrite)];
            let computed = run_op("RegexReplace", attrs![("replace_global", everywhere)], &inputs)?;
            assert_eq!(fixed[0].strings()?, computed[0].strings()?);
            Ok(String::from_utf8(fixed[0].strings()?[0].to_vec()).unwrap())
        };
        // As TensorFlow answers.
        assert_eq!(replace("aabb", "a(b?)", r"<\1\0\\>", true).unwrap(), r"<a\><bab\>b");
        assert_eq!(replace("aabb", "a", "x", false).unwrap(), "xabb");
        assert_eq!(replace("abc", "", "-", true).unwrap(), "-a-b-c-");
        assert_eq!(replace("abc", "b*", "x", true).unwrap(), "xaxcx");
        assert_eq!(replace("abc", "a", r"\1", true).unwrap(), "abc");
        assert_eq!(replace("abc", "a", r"\q", true).unwrap(), "bc");
        assert_eq!(replace("日本", "", "-", true).unwrap(), "-日-本-");
        assert!(replace("abc", "(", "x", true).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("RegexFullMatch", attrs![], "[2,?];[]", "[2,?]");
        check_shape("RegexReplace", attrs![], "[2,?];[];[]", "[2,?]");
    }
}
