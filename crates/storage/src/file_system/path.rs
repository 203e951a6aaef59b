//! Paths as strings: taking them apart and putting them together as TensorFlow and Python's `os.path` do.

/// Returns the scheme of `SCHEME://rest`, and the empty string when there is none.
pub fn scheme(path: &str) -> &str {
    split_scheme(path).0
}

/// Splits `SCHEME://rest` into the scheme and the rest.
///
/// A scheme is a letter followed by letters, digits and dots, so that `a b://c` is an ordinary path.
fn split_scheme(path: &str) -> (&str, &str) {
    match path.split_once("://") {
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') =>
        {
            (scheme, rest)
        }
        _ => ("", path),
    }
}

/// Returns the path on the local disk: `file://` and the host after it are dropped.
pub fn local(path: &str) -> &str {
    match split_scheme(path) {
        ("file", rest) if rest.starts_with('/') => rest,
        ("file", rest) => rest.find('/').map_or("", |slash| &rest[slash..]),
        _ => path,
    }
}

/// Returns whether a path doesn't depend on the working directory; one with a scheme never does.
pub fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || !scheme(path).is_empty()
}

/// Returns everything before the last `/`, and the empty string when there is none.
pub fn dirname(path: &str) -> &str {
    let start = path.len() - split_scheme(path).1.len();
    match path[start..].rfind('/') {
        // The root keeps its slash.
        Some(0) => &path[..start + 1],
        Some(slash) => &path[..start + slash],
        None => &path[..start],
    }
}

/// Returns everything after the last `/`.
pub fn basename(path: &str) -> &str {
    let rest = split_scheme(path).1;
    rest.rfind('/').map_or(rest, |slash| &rest[slash + 1..])
}

/// Puts `name` behind `directory`, unless it is absolute.
pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() || is_absolute(name) {
        name.to_owned()
    } else if directory.ends_with('/') {
        format!("{directory}{name}")
    } else {
        format!("{directory}/{name}")
    }
}

/// Returns how to reach `path` from `directory`; both are relative or both absolute, else `path` comes back.
pub fn relative_to(path: &str, directory: &str) -> String {
    if is_absolute(path) != is_absolute(directory) || scheme(path) != scheme(directory) {
        return path.to_owned();
    }
    let path_parts = normalised_parts(path);
    let directory_parts = normalised_parts(directory);
    // Nobody can climb back out of a directory above the working directory, whose name is unknown.
    if directory_parts.iter().zip(&path_parts).skip_while(|(a, b)| a == b).any(|(a, _)| *a == "..") {
        return path.to_owned();
    }
    let common = path_parts.iter().zip(&directory_parts).take_while(|(a, b)| a == b).count();
    let mut parts = vec![".."; directory_parts.len() - common];
    parts.extend_from_slice(&path_parts[common..]);
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Returns the components without `.`, empty ones, and the pairs of a name and `..`.
fn normalised_parts(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    for part in split_scheme(path).1.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if path.starts_with('/') => {}
            _ => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes() {
        assert_eq!(scheme("/a/b"), "");
        assert_eq!(scheme("file:///a/b"), "file");
        assert_eq!(scheme("s3://bucket/a"), "s3");
        assert_eq!(scheme("3s://bucket/a"), "");
        assert_eq!(local("file:///a/b"), "/a/b");
        assert_eq!(local("file://host/a"), "/a");
        assert_eq!(local("a/b"), "a/b");
        assert!(is_absolute("/a") && is_absolute("s3://a") && !is_absolute("a/b"));
    }

    #[test]
    fn taking_apart_and_putting_together() {
        assert_eq!((dirname("/a/b"), basename("/a/b")), ("/a", "b"));
        assert_eq!((dirname("/a"), basename("/a")), ("/", "a"));
        assert_eq!((dirname("a"), basename("a")), ("", "a"));
        assert_eq!((dirname("s3://bucket/a"), basename("s3://bucket/a")), ("s3://bucket", "a"));
        assert_eq!(join("/a", "b"), "/a/b");
        assert_eq!(join("/a/", "b"), "/a/b");
        assert_eq!(join("", "b"), "b");
        assert_eq!(join("/a", "/b"), "/b");
    }

    #[test]
    fn relative_paths() {
        assert_eq!(relative_to("/a/b/model.ckpt-1", "/a/b"), "model.ckpt-1");
        assert_eq!(relative_to("/a/c/m", "/a/b/"), "../c/m");
        assert_eq!(relative_to("logs/./m", "logs"), "m");
        assert_eq!(relative_to("logs", "logs"), ".");
        assert_eq!(relative_to("/m", "logs"), "/m");
        assert_eq!(relative_to("m", "../x"), "m");
    }
}
