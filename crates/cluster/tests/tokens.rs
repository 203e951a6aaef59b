//! Tokens: whom a call is taken for, what that one may do, that sessions belong to tokens, and what quotas leave them.

#[path = "common/authority.rs"]
mod authority;
#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use authority::Authority;
use cluster::{ClusterSpec, MasterInterface, RemoteMaster, RunStepCall, Server, ServerConfig, TlsFiles};
use common::{Watchdog, graph_def};
use proto::{ConfigProto, CreateSessionRequest, ExtendSessionRequest, SessionMetadata, config_proto::Experimental};
use std::os::unix::fs::PermissionsExt;
use tensor::{Code, Result, Tensor};
use tokio::runtime::Runtime;

const ANN: &str = "ann-0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef";
const ROOT: &str = "root-0123456789abcde";
const TOKENS: &str = "client ann ann-0123456789abcdef
client bob bob-0123456789abcdef
admin root root-0123456789abcde
";

const GRAPH: &str = "
    one = Const() {dtype=float, value=float[](1)}
    two = Neg(one)
";

struct Setup {
    runtime: Runtime,
    authority: Authority,
    server: Server,
    /// The certificate that all clients share.
    shared: TlsFiles,
}

impl Setup {
    /// Starts a server that takes TLS and knows these tokens.
    fn start(change: impl Fn(ServerConfig) -> ServerConfig) -> Setup {
        let (runtime, authority) = (Runtime::new().unwrap(), Authority::new());
        let file = authority.dir.path().join("tokens");
        std::fs::write(&file, TOKENS).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let [address] = <[String; 1]>::try_from(cluster::unused_addresses(1).unwrap()).unwrap();
        let spec = ClusterSpec::new().with_job("worker", &[address]).unwrap();
        let own = authority.issue("server", "spiffe://c/job/worker/task/0");
        let shared = authority.issue("shared", "spiffe://c/client/everybody");
        let audit = authority.dir.path().join("audit.json");
        let config = ServerConfig::new(spec, "worker", 0).unwrap().tls(own).tokens(file).audit_log(audit);
        let server = Server::start(change(config), ops::registry(), runtime.handle().clone()).unwrap();
        Setup { runtime, authority, server, shared }
    }

    /// Makes a connection of its own.
    fn master(&self) -> RemoteMaster {
        RemoteMaster::with_tls(self.server.address(), self.runtime.handle().clone(), self.shared.clone()).unwrap()
    }

    fn open(&self, master: &RemoteMaster, token: Option<&str>) -> Result<String> {
        let created = master.create_session(CreateSessionRequest {
            graph_def: Some(graph_def(GRAPH)),
            config: token.map(config),
            ..Default::default()
        });
        Ok(self.runtime.block_on(created)?.session_handle)
    }

    fn run(&self, master: &RemoteMaster, session_handle: &str) -> Result<f32> {
        let call = RunStepCall {
            session_handle: session_handle.to_owned(),
            fetches: vec!["two:0".to_owned()],
            ..Default::default()
        };
        self.runtime.block_on(master.run_step(call))?.tensors[0].1.to_scalar::<f32>()
    }

    fn reset(&self, master: &RemoteMaster) -> Result<()> {
        self.runtime.block_on(master.reset(proto::ResetRequest::default()))
    }
}

fn config(token: &str) -> ConfigProto {
    let session_metadata = Some(SessionMetadata { name: format!("ferroflow-token:{token}"), version: 0 });
    ConfigProto { experimental: Some(Experimental { session_metadata, ..Default::default() }), ..Default::default() }
}

#[test]
fn a_token_says_who_calls_and_sessions_belong_to_it() {
    let _watchdog = Watchdog::start();
    let setup = Setup::start(|config| config);
    let (ann, bob, nobody, root) = (setup.master(), setup.master(), setup.master(), setup.master());
    let of_ann = setup.open(&ann, Some(ANN)).unwrap();
    assert_eq!(setup.run(&ann, &of_ann).unwrap(), -1.0);
    // The certificate is the same, and the session is not there for others.
    setup.open(&bob, Some(BOB)).unwrap();
    for other in [&bob, &nobody] {
        assert_eq!(setup.run(other, &of_ann).unwrap_err().code(), Code::Aborted);
    }
    // Over another connection it is there again once the token came over it.
    let again = setup.master();
    assert!(setup.run(&again, &of_ann).is_err());
    setup.open(&again, Some(ANN)).unwrap();
    assert_eq!(setup.run(&again, &of_ann).unwrap(), -1.0);
    let status = setup.open(&setup.master(), Some("a token that nobody has")).unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(!status.message().contains("nobody has"), "{status}");
    // Roles are those of the tokens.
    for other in [&ann, &bob, &nobody] {
        // A refusal may overtake the body of its call, and is told as what it is then, too.
        for _ in 0..200 {
            let status = setup.reset(other).unwrap_err();
            assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        }
    }
    setup.open(&root, Some(ROOT)).unwrap();
    setup.reset(&root).unwrap();
    let audited = std::fs::read_to_string(setup.authority.dir.path().join("audit.json")).unwrap();
    assert!(audited.contains("\"who\":\"token of client ann (a client)\""), "{audited}");
    assert!(audited.contains("\"code\":\"UNAUTHENTICATED\""), "{audited}");
    for token in [ANN, BOB, ROOT, "nobody has"] {
        assert!(!audited.contains(token), "a token is in the audit log");
    }
}

#[test]
fn quotas_are_counted_by_token() {
    let _watchdog = Watchdog::start();
    let setup = Setup::start(|config| config.client_quota("sessions=2,nodes=5,memory=64M".parse().unwrap()));
    let (ann, bob, root) = (setup.master(), setup.master(), setup.master());
    let first = setup.open(&ann, Some(ANN)).unwrap();
    let second = setup.open(&ann, Some(ANN)).unwrap();
    let refused = setup.open(&ann, Some(ANN)).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("token of client ann has 2 sessions"), "{refused}");
    // Four nodes are there, and one more may be.
    let extend = |text: &str, current_graph_version| {
        let graph_def = Some(graph_def(text));
        let request = ExtendSessionRequest { session_handle: first.clone(), graph_def, current_graph_version };
        setup.runtime.block_on(ann.extend_session(request))
    };
    let one_more = "three = Const() {dtype=float, value=float[](3)}";
    assert_eq!(extend(one_more, 0).unwrap().new_graph_version, 1);
    assert_eq!(extend(&one_more.replace("three", "four"), 1).unwrap_err().code(), Code::ResourceExhausted);
    // Others have quotas of their own, and admins none.
    setup.open(&bob, Some(BOB)).unwrap();
    for _ in 0..3 {
        setup.open(&root, Some(ROOT)).unwrap();
    }
    // What is closed is given back.
    setup.runtime.block_on(ann.close_session(second)).unwrap();
    setup.open(&ann, Some(BOB)).unwrap();
    setup.runtime.block_on(ann.close_session(first)).unwrap();
    setup.open(&ann, Some(ANN)).unwrap();
}

#[test]
fn the_memory_of_all_sessions_of_a_client_is_bounded() {
    let _watchdog = Watchdog::start();
    let setup = Setup::start(|config| config.client_quota("memory=28M".parse().unwrap()));
    let (ann, bob) = (setup.master(), setup.master());
    let graph = "
        x = Placeholder() {dtype=float, shape=[2097152]}
        v = VarHandleOp() {dtype=float, shape=[2097152], shared_name=\"NAME\"}
        set = AssignVariableOp(v, x) {dtype=float}
    ";
    // Each session keeps a variable of 8 MB.
    let set = |master: &RemoteMaster, token: &str, name: &str| -> Result<()> {
        let graph_def = Some(graph_def(&graph.replace("NAME", name)));
        let request = CreateSessionRequest { graph_def, config: Some(config(token)), ..Default::default() };
        let session_handle = setup.runtime.block_on(master.create_session(request))?.session_handle;
        let call = RunStepCall {
            session_handle: session_handle.clone(),
            feeds: vec![("x:0".to_owned(), Tensor::vector(&vec![1f32; 2 << 20]))],
            targets: vec!["set".to_owned()],
            ..Default::default()
        };
        let ran = setup.runtime.block_on(master.run_step(call)).map(drop);
        setup.runtime.block_on(master.close_session(session_handle))?;
        ran
    };
    set(&ann, ANN, "a").unwrap();
    set(&ann, ANN, "b").unwrap();
    // The sessions are closed, and their variables are still there.
    let refused = (0..3).find_map(|number| set(&ann, ANN, &format!("c{number}")).err()).expect("a refusal");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("token of client ann in all sessions uses"), "{refused}");
    set(&bob, BOB, "d").unwrap();
}
