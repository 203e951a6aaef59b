//! What the tests of mistakes share.

use ferroflow::prelude::*;

/// Checks that what was built keeps a mistake of these words, blamed on a line of a test's source that has `code` in it, and that a
/// session returns it. `file` is the name of the test's file.
#[track_caller]
pub fn check_mistake(file: &str, source: &str, words: &str, code: &str, build: impl FnOnce(&Graph)) -> (Graph, Status) {
    let g = Graph::new();
    build(&g);
    let mistake = g.finish().expect_err("nothing was found to be wrong");
    let message = mistake.message();
    assert!(message.contains(words), "{message}");
    let (_, place) = message.rsplit_once(&format!("{file}:")).unwrap_or_else(|| panic!("blamed on no line: {message}"));
    let line: usize = place.split(':').next().and_then(|line| line.parse().ok()).unwrap_or(0);
    let blamed = source.lines().nth(line.wrapping_sub(1)).unwrap_or_default();
    assert!(blamed.contains(code), "blamed on `{blamed}`: {message}");
    assert_eq!(Session::new(&g).err(), Some(mistake.clone()));
    (g, mistake)
}
