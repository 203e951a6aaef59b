//! Answers to requests to the status port: health, metrics, and a page that shows the cluster live.
//!
//! The page consists of files in this program, and may load nothing else. All data arrives as JSON and is inserted as text.

use super::message::{Answer, Body, Head};
use cluster::TaskStatus;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The headers that say where a browser's request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";

/// The files of the page.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/page.html")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/graph.js", "text/javascript; charset=utf-8", include_str!("page/graph.js")),
];

/// How many steps are recorded, unless a request says.
const TRACED_STEPS: u64 = 10;

/// The state from which all requests are answered.
pub(super) struct Site {
    /// The tasks of this process.
    pub tasks: Vec<TaskStatus>,
    /// The address that it listens on.
    pub bound: SocketAddr,
    /// The open pages, which leave some connections to others.
    pub pages: Arc<Semaphore>,
}

/// Answers a request.
pub(super) async fn answer(site: &Site, head: &Head) -> Answer {
    if let Err(why) = is_for_us(head, site.bound) {
        return Answer::text(403, format!("{why}\n"));
    }
    match head.method.as_str() {
        "GET" => find(site, head).await,
        "HEAD" => Answer { is_for_head: true, ..find(site, head).await },
        _ => {
            let mut refused = Answer::text(405, "this port is read-only\n".to_owned());
            refused.fields.push(("allow", "GET, HEAD".to_owned()));
            refused
        }
    }
}

async fn find(site: &Site, head: &Head) -> Answer {
    let path = head.path.as_str();
    if let Some((_, kind, content)) = FILES.iter().find(|(known, _, _)| *known == path) {
        return Answer::new(200, kind, Body::Text((*content).into()));
    }
    let Some(task) = site.tasks.first() else { return Answer::text(503, "there is no task\n".to_owned()) };
    match path {
        "/healthz" => Answer::text(200, "ok\n".to_owned()),
        "/readyz" => readiness(site).await,
        "/metrics" => metrics(site, "").await,
        "/state" => Answer::new(200, JSON, Body::Text(task.cluster().await)),
        "/events" => match site.pages.clone().try_acquire_owned() {
            Ok(place) => Answer::new(200, "text/event-stream", Body::Events(task.clone(), place)),
            Err(_) => Answer::text(503, "too many pages are open\n".to_owned()),
        },
        "/graph" => graph(task, head).await,
        "/trace" => {
            let steps = parameter(head, "steps").and_then(|steps| steps.parse().ok()).unwrap_or(TRACED_STEPS);
            Answer::new(200, JSON, Body::Text(task.trace(steps).await.into()))
        }
        path => match path.strip_prefix("/metrics/") {
            Some(wanted) => metrics(site, wanted).await,
            None => Answer::text(404, format!("there is no {path}\n")),
        },
    }
}

async fn graph(task: &TaskStatus, head: &Head) -> Answer {
    let session = parameter(head, "session").and_then(|session| session.parse().ok()).unwrap_or(0);
    let wanted = parameter(head, "task").unwrap_or_default();
    match task.graph(&wanted, session).await {
        Ok(nodes) => Answer::new(200, JSON, Body::Text(nodes.into())),
        Err(status) => Answer::text(404, format!("{}\n", status.message())),
    }
}

/// Returns a parameter of a request's query.
fn parameter(head: &Head, name: &str) -> Option<String> {
    let mut pairs = head.query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| unescaped(value))
}

/// Decodes percent encoding; invalid UTF-8 becomes replacement characters.
fn unescaped(value: &str) -> String {
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (*first, code) {
            (b'%', Some(code)) => {
                decoded.push(code);
                rest = &after[2..];
            }
            (other, _) => {
                decoded.push(other);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

async fn readiness(site: &Site) -> Answer {
    let mut told = String::new();
    for task in &site.tasks {
        for (other, why) in task.readiness().await.waits_for {
            let _ = writeln!(told, "{} waits for {other}: {why}", task.task());
        }
    }
    match told.is_empty() {
        true => Answer::text(200, "ready\n".to_owned()),
        false => Answer::text(503, told),
    }
}

/// Returns the metrics of the only task, or of the requested one, such as `ps/0`.
async fn metrics(site: &Site, wanted: &str) -> Answer {
    let (job, index) = wanted.split_once('/').unwrap_or_default();
    let name = format!("/job:{job}/replica:0/task:{index}");
    let task = match site.tasks.as_slice() {
        [task] if wanted.is_empty() => Some(task),
        tasks => tasks.iter().find(|task| task.task() == name),
    };
    match task {
        Some(task) => Answer::new(200, OPENMETRICS, Body::Text(task.metrics().await.into())),
        // A page of metrics covers a single task.
        None => {
            let names: Vec<&str> = site.tasks.iter().map(|task| task.task()).collect();
            let why = format!("request one task, as in /metrics/ps/0; the tasks are {}\n", names.join(", "));
            Answer::text(404, why)
        }
    }
}

/// Refuses requests that another site's page has a browser make: those that name another host, which is what DNS rebinding looks
/// like, and those from another origin.
fn is_for_us(head: &Head, bound: SocketAddr) -> Result<(), String> {
    let host = head.field("host").unwrap_or_default();
    if !names_an_address(host, bound.ip()) {
        return Err(format!("the host '{}' is not served here: use the address of the port", host.escape_debug()));
    }
    if head.field("origin").is_some_and(|origin| origin != format!("http://{host}")) {
        return Err("requests of other sites are not served".to_owned());
    }
    match head.field(FETCH_SITE) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err("requests of other sites are not served".to_owned()),
    }
}

/// Returns whether a host is an address, or a name that nobody else can redefine.
fn names_an_address(host: &str, bound: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    if name.eq_ignore_ascii_case("localhost") {
        return bound.is_loopback() || bound.is_unspecified();
    }
    match name.parse::<IpAddr>() {
        Ok(_) => true,
        // Names in a cluster, such as those of pods, where the port is open to other machines anyway.
        Err(_) => !bound.is_loopback() && !name.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Head {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Head { fields, ..Head::default() }
    }

    #[test]
    fn names_that_others_could_bind_to_loopback_are_refused() {
        let bound: SocketAddr = "127.0.0.1:80".parse().unwrap();
        for host in ["127.0.0.1", "127.0.0.1:80", "localhost:80", "[::1]:80", "LOCALHOST"] {
            assert!(is_for_us(&head(&[("host", host)]), bound).is_ok(), "{host}");
        }
        for host in ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.example:80"] {
            assert!(is_for_us(&head(&[("host", host)]), bound).is_err(), "{host}");
        }
        assert!(is_for_us(&Head::default(), bound).is_err());
        let open: SocketAddr = "0.0.0.0:80".parse().unwrap();
        assert!(is_for_us(&head(&[("host", "worker-0.jobs:80")]), open).is_ok());
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let bound: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let from =
            |field: &'static str, value: &str| is_for_us(&head(&[("host", "127.0.0.1:80"), (field, value)]), bound);
        assert!(from("origin", "http://127.0.0.1:80").is_ok() && from(FETCH_SITE, "none").is_ok());
        assert!(from("origin", "http://127.0.0.1:81").is_err() && from("origin", "null").is_err());
        assert!(from(FETCH_SITE, "cross-site").is_err() && from(FETCH_SITE, "same-site").is_err());
    }
    #[test]
    fn parameters_are_decoded() {
        assert_eq!(unescaped("%2Fjob%3Aps"), "/job:ps");
        assert_eq!(unescaped("%zz%4"), "%zz%4");
        assert_eq!(unescaped("%ff"), "\u{fffd}");
    }

    #[test]
    fn the_page_puts_nothing_into_itself_but_text() {
        for (path, _, content) in FILES {
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=", "style=\""]
            {
                assert!(!content.contains(way), "{path} uses {way}");
            }
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path} names another site");
        }
    }
}
