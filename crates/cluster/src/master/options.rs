//! Settings of sessions and steps that have no effect here: each is logged once.

use foldhash::{HashSet, HashSetExt};
use parking_lot::Mutex;
use proto::{ConfigProto, RunOptions};
use std::sync::LazyLock;
use tracing::info;

/// Logs which of a session's settings have no effect.
pub(crate) fn note_ignored(config: &ConfigProto) {
    // TensorFlow's Python client always sends some empty ones.
    let gpu_options = config.gpu_options.clone().is_some_and(|mut options| {
        options.experimental = options.experimental.filter(|experimental| *experimental != Default::default());
        options != Default::default()
    });
    let rpc_options = config.rpc_options.as_ref().is_some_and(|options| *options != Default::default());
    for (is_set, option, why) in [
        (gpu_options, "gpu_options", "there are no GPUs here"),
        (rpc_options, "rpc_options", "connections are shared, and answers not compressed"),
        (config.placement_period != 0, "placement_period", "placement doesn't change while a session lives"),
        (config.intra_op_parallelism_threads != 0, "intra_op_parallelism_threads", "the server's threads are shared"),
        (config.inter_op_parallelism_threads != 0, "inter_op_parallelism_threads", "the server's threads are shared"),
        (config.use_per_session_threads, "use_per_session_threads", "the server's threads are shared"),
        (
            !config.session_inter_op_thread_pool.is_empty(),
            "session_inter_op_thread_pool",
            "the server's threads are shared",
        ),
    ] {
        if is_set {
            say_once(option, why);
        }
    }
}

/// Logs which of a step's options have no effect.
pub(crate) fn note_ignored_in_step(options: &RunOptions) {
    if options.debug_options.as_ref().is_some_and(|debug| !debug.debug_tensor_watch_opts.is_empty()) {
        say_once("RunOptions.debug_options", "tensors can't be watched");
    }
    if options.inter_op_thread_pool != 0 {
        say_once("RunOptions.inter_op_thread_pool", "the server's threads are shared");
    }
}

fn say_once(option: &'static str, why: &str) {
    static SAID: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(|| Mutex::new(HashSet::new()));
    if SAID.lock().insert(option) {
        info!("a session asks for {option}, which has no effect: {why}");
    }
}
