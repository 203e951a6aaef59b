//! Checks that features that only Linux has are used only in items compiled for Linux, so that the workspace builds for other systems.
//! Where possible, the code that replaces them elsewhere is also compiled for tests (`cfg(any(not(target_os = "linux"), test))`).

use crate::process;
use std::path::Path;

/// Names that don't exist on other systems.
const LINUX_ONLY: [&str; 25] = [
    "memfd_create",
    "MemfdFlags",
    "SealFlags",
    "fcntl_add_seals",
    "fallocate",
    "FallocateFlags",
    "net::netlink",
    "os::linux",
    "from_abstract_name",
    "set_parent_process_death_signal",
    "RecvFlags::CMSG_CLOEXEC",
    "SendFlags::NOSIGNAL",
    "sched_setscheduler",
    "set_tcp_user_timeout",
    "openat2",
    "ResolveFlags",
    "OFlags::PATH",
    "Advice::Linux",
    "epoll",
    "inotify",
    "eventfd",
    "timerfd",
    "signalfd",
    "setns",
    "libc::SYS_",
];

/// The exceptions, with reasons. The list may only become shorter.
const KNOWN: &[&str] = &[
    // `--file_root` needs `openat2`, for which other systems have no replacement.
    "crates/storage/src/file_system/rooted.rs",
];

const ATTRIBUTE: &str = "#[cfg(target_os = \"linux\")]";

#[test]
fn what_only_linux_has_is_compiled_only_there() {
    let mut complaints = Vec::new();
    let mut found_known = Vec::new();
    for path in super::rust_files() {
        let shown = path.strip_prefix(process::root()).unwrap_or(&path).display().to_string();
        if !shown.starts_with("crates/") || !shown.contains("/src/") || shown.ends_with("/tests.rs") || is_gated(&path)
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file is readable");
        for (number, name) in uses(&super::arrows::without_tests(&text)) {
            match KNOWN.contains(&shown.as_str()) {
                true => found_known.push(shown.clone()),
                false => complaints.push(format!(
                    "{shown}:{number}: {name} exists on Linux only: put it behind `{ATTRIBUTE}`, and say what happens elsewhere"
                )),
            }
        }
    }
    for known in KNOWN.iter().filter(|known| !found_known.iter().any(|found| found == *known)) {
        complaints.push(format!("{known} uses nothing that only Linux has: take it out of the list"));
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn items_for_linux_are_told_from_others() {
    let text = format!(
        "// epoll\nfn a() {{\n    epoll();\n}}\n{ATTRIBUTE}\nfn b() {{\n    if x {{ epoll(); }}\n}}\nfn c() {{ eventfd() }}\n\
         {ATTRIBUTE}\nuse x::epoll;\nuse epoll;\n"
    );
    assert_eq!(uses(&text), [(3, "epoll"), (9, "eventfd"), (12, "epoll")]);
}

/// Returns whether the module of a file, or one around it, is compiled on Linux only.
fn is_gated(path: &Path) -> bool {
    let mut module = path.to_path_buf();
    loop {
        let (Some(stem), Some(directory)) = (module.file_stem().and_then(|stem| stem.to_str()), module.parent()) else {
            return false;
        };
        if matches!(stem, "lib" | "main" | "src") {
            return false;
        }
        if stem == "mod" {
            module = directory.to_path_buf();
            continue;
        }
        let declaration = format!("mod {stem};");
        let parents = ["mod.rs", "lib.rs", "main.rs"].map(|name| directory.join(name));
        for parent in parents.iter().chain([&directory.with_extension("rs")]) {
            let Ok(text) = std::fs::read_to_string(parent) else { continue };
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            if lines.windows(2).any(|pair| pair[0] == ATTRIBUTE && pair[1].ends_with(&declaration)) {
                return true;
            }
        }
        module = directory.to_path_buf();
    }
}

/// Returns the lines of a source file with such names, except those of items for Linux.
fn uses(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    // The number of open brackets of the item for Linux, once its attribute has been seen.
    let mut within: Option<i64> = None;
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().trim();
        if code == ATTRIBUTE {
            within = Some(0);
            continue;
        }
        if let Some(depth) = &mut within {
            let count = |brackets: [char; 3]| code.chars().filter(|c| brackets.contains(c)).count() as i64;
            *depth += count(['(', '[', '{']) - count([')', ']', '}']);
            if *depth <= 0 && code.ends_with(['}', ';', ',']) {
                within = None;
            }
            continue;
        }
        found.extend(LINUX_ONLY.iter().filter(|name| code.contains(**name)).map(|name| (index + 1, *name)));
    }
    found
}
