//! Patterns with `*`, `?` and `[...]`, as the POSIX shell has them, over any file system.

use super::{FileSystem, path};
use tensor::{Code, Result};

/// Returns the paths that match, sorted.
pub(super) fn glob<F: FileSystem + ?Sized>(file_system: &F, pattern: &str) -> Result<Vec<String>> {
    if !has_wildcard(pattern) {
        return Ok(if file_system.exists(pattern)? { vec![pattern.to_owned()] } else { Vec::new() });
    }
    // Everything up to the first component with a wildcard is taken as it stands, a scheme included.
    let fixed = fixed_directory(pattern);
    let mut found = vec![fixed.to_owned()];
    let mut components = pattern[fixed.len()..].split('/').filter(|component| !component.is_empty()).peekable();
    while let Some(component) = components.next() {
        let more = components.peek().is_some();
        let mut matched = Vec::new();
        for directory in &found {
            expand(file_system, directory, component, more, &mut matched)?;
        }
        found = matched;
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the front of a pattern up to the last slash before its first wildcard.
pub(super) fn fixed_directory(pattern: &str) -> &str {
    let wildcard = pattern.find(WILDCARDS).unwrap_or(pattern.len());
    &pattern[..pattern[..wildcard].rfind('/').map_or(0, |slash| slash + 1)]
}

const WILDCARDS: [char; 4] = ['*', '?', '[', '\\'];

fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(WILDCARDS)
}

/// Adds what in `directory` matches one component; when more components follow, directories only.
fn expand<F: FileSystem + ?Sized>(
    file_system: &F,
    directory: &str,
    component: &str,
    more: bool,
    matched: &mut Vec<String>,
) -> Result<()> {
    if !has_wildcard(component) {
        let child = path::join(directory, component);
        if file_system.exists(&child)? {
            matched.push(child);
        }
        return Ok(());
    }
    let names = match file_system.list(if directory.is_empty() { "." } else { directory }) {
        Ok(names) => names,
        // What can't be listed holds nothing that matches, and must not hide what is found elsewhere.
        Err(status) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition | Code::PermissionDenied) => {
            return Ok(());
        }
        Err(status) => return Err(status),
    };
    for name in names {
        let hidden = name.starts_with('.') && !component.starts_with('.');
        if hidden || !matches(component, &name) {
            continue;
        }
        let child = path::join(directory, &name);
        if !more || file_system.stat(&child).is_ok_and(|statistics| statistics.is_directory) {
            matched.push(child);
        }
    }
    Ok(())
}

/// Returns whether `name` matches `pattern`; no wildcard matches a `/`, and `\` takes the next character as it is.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut position) = (0, 0);
    // Only the last star seen is ever worth going back to, which keeps the time within the product of the lengths.
    let mut star: Option<(usize, usize)> = None;
    while position < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, position));
                at += 1;
                continue;
            }
            Some(_) => match_one(&pattern[at..], name[position]),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                position += 1;
            }
            (None, Some((after_star, start))) if name[start] != '/' => {
                star = Some((after_star, start + 1));
                at = after_star;
                position = start + 1;
            }
            _ => return false,
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

/// Matches one character against the front of a pattern and returns how much of the pattern that took.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match *pattern.first()? {
        '?' => (c != '/').then_some(1),
        '[' => match match_set(pattern, c) {
            Some((matched, length)) => (matched && c != '/').then_some(length),
            // A bracket that is never closed is an ordinary character.
            None => (c == '[').then_some(1),
        },
        '\\' if pattern.len() > 1 => (pattern[1] == c).then_some(2),
        literal => (literal == c).then_some(1),
    }
}

/// Matches a set such as `[a-z]` or `[!x]`; `None` when it isn't closed.
fn match_set(pattern: &[char], c: char) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let first = if negated { 2 } else { 1 };
    let mut at = first;
    let mut matched = false;
    loop {
        let mut low = *pattern.get(at)?;
        if low == ']' && at > first {
            return Some((matched != negated, at + 1));
        }
        if low == '\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        at += 1;
        let mut high = low;
        if pattern.get(at) == Some(&'-') && pattern.get(at + 1).is_some_and(|&end| end != ']') {
            high = *pattern.get(at + 1)?;
            at += 2;
        }
        matched |= (low..=high).contains(&c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*", "abc", true),
            ("*", "a/b", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("*.data-?????-of-?????", "m.ckpt.data-00000-of-00001", true),
            ("*.data-?????-of-?????", "m.ckpt.data-0000-of-00001", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[a", "[a", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} against {name}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in "[a-c*?\\[\\]!\\\\/-]{0,24}", name in "[a-c/]{0,24}") {
            matches(&pattern, &name);
        }

        #[test]
        fn a_plain_name_matches_itself(name in "[a-z0-9./-]{0,24}") {
            prop_assert!(matches(&name, &name));
        }
    }
}
