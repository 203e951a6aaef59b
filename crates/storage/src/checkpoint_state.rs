//! The file `checkpoint` of a directory, which names the newest checkpoint and those that are kept.
//!
//! It is a [`CheckpointState`] in protobuf's text format. It is written last and in one step, so that it never names a
//! checkpoint that isn't complete.

use crate::bundle::meta_filename;
use crate::file_system::{FileSystem, path};
use proto::CheckpointState;
use std::fmt::Write;
use tensor::{Result, Status};

/// The name of the file, unless the user wants another.
pub const DEFAULT_FILENAME: &str = "checkpoint";

/// How [`update_checkpoint_state`] names checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SavedPaths {
    /// As they are given; with a relative directory, relative to it.
    #[default]
    AsGiven,
    /// Relative to the directory, so that it can be moved.
    Relative,
}

/// Makes the state that names `state`'s checkpoints as TensorFlow does, without writing it.
///
/// The newest checkpoint is added to the list of all when it isn't its last. When the directory is relative, relative
/// paths, which start at the working directory, become relative to the directory.
pub fn checkpoint_state_for(save_dir: &str, mut state: CheckpointState, paths: SavedPaths) -> Result<CheckpointState> {
    if state.all_model_checkpoint_paths.last() != Some(&state.model_checkpoint_path) {
        state.all_model_checkpoint_paths.push(state.model_checkpoint_path.clone());
    }
    let (count, timestamps) = (state.all_model_checkpoint_paths.len(), state.all_model_checkpoint_timestamps.len());
    if timestamps != 0 && timestamps != count {
        return Err(Status::invalid_argument(format!(
            "Checkpoint timestamps, if provided, must match checkpoint paths (got {count} paths and {timestamps} \
             timestamps)"
        )));
    }
    let named = |given: &str| {
        let relative = !path::is_absolute(given);
        // A relative path in a relative directory starts where the directory's does.
        if (relative && !path::is_absolute(save_dir)) || (!relative && paths == SavedPaths::Relative) {
            path::relative_to(given, save_dir)
        } else {
            given.to_owned()
        }
    };
    for checkpoint in state.all_model_checkpoint_paths.iter_mut().chain([&mut state.model_checkpoint_path]) {
        *checkpoint = named(checkpoint);
    }
    Ok(state)
}

/// Writes a directory's state; see [`checkpoint_state_for`] for the paths in it.
pub fn update_checkpoint_state(
    file_system: &dyn FileSystem,
    save_dir: &str,
    state: CheckpointState,
    latest_filename: Option<&str>,
    paths: SavedPaths,
) -> Result<()> {
    let filename = path::join(save_dir, latest_filename.unwrap_or(DEFAULT_FILENAME));
    let state = checkpoint_state_for(save_dir, state, paths)?;
    if path::join(save_dir, &state.model_checkpoint_path) == filename {
        return Err(Status::invalid_argument(format!(
            "Save path '{}' conflicts with path used for checkpoint state.  Please use a different save path.",
            state.model_checkpoint_path
        )));
    }
    file_system.write_atomically(&filename, to_text(&state).as_bytes())
}

/// Reads a directory's state, with the paths in it made relative to the working directory; `None` when there is none.
pub fn get_checkpoint_state(
    file_system: &dyn FileSystem,
    checkpoint_dir: &str,
    latest_filename: Option<&str>,
) -> Result<Option<CheckpointState>> {
    let filename = path::join(checkpoint_dir, latest_filename.unwrap_or(DEFAULT_FILENAME));
    if !file_system.exists(&filename)? {
        return Ok(None);
    }
    let content = file_system.read(&filename)?;
    let mut state = parse(&content).map_err(|status| status.context(&filename))?;
    if state.model_checkpoint_path.is_empty() {
        return Err(Status::invalid_argument(format!(
            "Invalid checkpoint state loaded from {checkpoint_dir}: {filename} has no model_checkpoint_path"
        )));
    }
    let all = state.all_model_checkpoint_paths.iter_mut();
    for checkpoint in all.chain([&mut state.model_checkpoint_path]) {
        *checkpoint = path::join(checkpoint_dir, checkpoint);
    }
    Ok(Some(state))
}

/// Returns the prefix of the newest checkpoint in a directory; `None` when there is none, or its index is gone.
pub fn latest_checkpoint(
    file_system: &dyn FileSystem,
    checkpoint_dir: &str,
    latest_filename: Option<&str>,
) -> Result<Option<String>> {
    let Some(state) = get_checkpoint_state(file_system, checkpoint_dir, latest_filename)? else { return Ok(None) };
    let prefix = state.model_checkpoint_path;
    Ok(file_system.exists(&meta_filename(&prefix))?.then_some(prefix))
}

/// Returns the text of a state.
pub fn to_text(state: &CheckpointState) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name}: {value}");
    };
    if !state.model_checkpoint_path.is_empty() {
        line("model_checkpoint_path", &quoted(&state.model_checkpoint_path));
    }
    for checkpoint in &state.all_model_checkpoint_paths {
        line("all_model_checkpoint_paths", &quoted(checkpoint));
    }
    for &timestamp in &state.all_model_checkpoint_timestamps {
        line("all_model_checkpoint_timestamps", &double(timestamp));
    }
    if state.last_preserved_timestamp != 0.0 {
        line("last_preserved_timestamp", &double(state.last_preserved_timestamp));
    }
    text
}

fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for byte in value.bytes() {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// Writes the shortest text that reads back as the same number.
fn double(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else {
        format!("{value:?}")
    }
}

/// Parses the text of a state; an error names the line and column.
pub fn parse(text: &[u8]) -> Result<CheckpointState> {
    let mut parser = Parser { text, position: 0 };
    let mut state = CheckpointState::default();
    while let Some(name) = parser.field_name()? {
        match name.as_str() {
            "model_checkpoint_path" => state.model_checkpoint_path = parser.single(Parser::string)?,
            "all_model_checkpoint_paths" => {
                parser.repeated(Parser::string, &mut state.all_model_checkpoint_paths)?;
            }
            "all_model_checkpoint_timestamps" => {
                parser.repeated(Parser::number, &mut state.all_model_checkpoint_timestamps)?;
            }
            "last_preserved_timestamp" => state.last_preserved_timestamp = parser.single(Parser::number)?,
            _ => return Err(parser.error(format!("a CheckpointState has no field named \"{name}\""))),
        }
        parser.skip_separator();
    }
    Ok(state)
}

/// A reader of as much of protobuf's text format as a message of strings and numbers needs.
struct Parser<'text> {
    text: &'text [u8],
    position: usize,
}

impl Parser<'_> {
    fn error(&self, problem: impl AsRef<str>) -> Status {
        let before = &self.text[..self.position.min(self.text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let column = before.len() - before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1) + 1;
        Status::data_loss(format!("{line}:{column}: {}", problem.as_ref()))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => self.position += 1,
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.position += 1;
                    }
                }
                _ => break,
            }
        }
    }

    fn take(&mut self, expected: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(expected);
        self.position += usize::from(found);
        found
    }

    fn skip_separator(&mut self) {
        if !self.take(b',') {
            self.take(b';');
        }
    }

    fn word(&mut self, allowed: impl Fn(u8) -> bool) -> String {
        let start = self.position;
        while self.peek().is_some_and(&allowed) {
            self.position += 1;
        }
        String::from_utf8_lossy(&self.text[start..self.position]).into_owned()
    }

    fn field_name(&mut self) -> Result<Option<String>> {
        self.skip_space();
        if self.peek().is_none() {
            return Ok(None);
        }
        let name = self.word(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() {
            return Err(self.error("expected the name of a field"));
        }
        if !self.take(b':') {
            return Err(self.error("expected \":\""));
        }
        Ok(Some(name))
    }

    fn single<T>(&mut self, value: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        self.skip_space();
        value(self)
    }

    /// Reads one value, or several in brackets.
    fn repeated<T>(&mut self, value: impl Fn(&mut Self) -> Result<T>, values: &mut Vec<T>) -> Result<()> {
        if !self.take(b'[') {
            values.push(self.single(value)?);
            return Ok(());
        }
        if self.take(b']') {
            return Ok(());
        }
        loop {
            values.push(self.single(&value)?);
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.error("expected \",\" or \"]\""));
            }
        }
    }

    fn number(&mut self) -> Result<f64> {
        let start = self.position;
        let word = self.word(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
        let number = word.strip_suffix(['f', 'F']).filter(|_| !word.ends_with("inf")).unwrap_or(&word);
        number.parse().map_err(|_| {
            self.position = start;
            self.error(format!("expected a number, found \"{word}\""))
        })
    }

    /// Reads one or more quoted strings, which are put together.
    fn string(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        let start = self.position;
        let mut found = false;
        while let Some(quote @ (b'"' | b'\'')) = self.peek() {
            self.position += 1;
            self.quoted(quote, &mut bytes)?;
            self.skip_space();
            found = true;
        }
        if !found {
            return Err(self.error("expected a string"));
        }
        String::from_utf8(bytes).map_err(|_| {
            self.position = start;
            self.error("the string is not valid UTF-8")
        })
    }

    fn quoted(&mut self, quote: u8, bytes: &mut Vec<u8>) -> Result<()> {
        loop {
            let byte = self.peek().filter(|&byte| byte != b'\n');
            let byte = byte.ok_or_else(|| self.error("the string has no end"))?;
            self.position += 1;
            match byte {
                _ if byte == quote => return Ok(()),
                b'\\' => self.escape(bytes)?,
                _ => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let byte = self.peek().ok_or_else(|| self.error("the string has no end"))?;
        self.position += 1;
        let plain = match byte {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' | b'\'' | b'"' | b'?' => byte,
            b'0'..=b'7' => {
                self.position -= 1;
                let value = self.digits(8, 1, 3)?;
                u8::try_from(value).map_err(|_| self.error("the octal escape is larger than a byte"))?
            }
            b'x' | b'X' => self.digits(16, 1, 2)? as u8,
            b'u' | b'U' => {
                let length = if byte == b'u' { 4 } else { 8 };
                let value = self.digits(16, length, length)?;
                let character = char::from_u32(value).ok_or_else(|| self.error("the escape is no character"))?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.error(format!("there is no escape \\{}", byte.escape_ascii()))),
        };
        bytes.push(plain);
        Ok(())
    }

    fn digits(&mut self, radix: u32, min: usize, max: usize) -> Result<u32> {
        let mut value = 0u32;
        let mut count = 0;
        while count < max
            && let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(radix))
        {
            value = value << radix.trailing_zeros() | digit;
            self.position += 1;
            count += 1;
        }
        if count < min { Err(self.error("the escape has too few digits")) } else { Ok(value) }
    }
}

#[cfg(test)]
mod tests;
