//! The paths of TensorFlow's gRPC calls, and the type URLs of the payloads in its statuses.

/// `tensorflow.MasterService`: the calls of a client to the server that it is connected to.
pub mod master {
    /// The name of the service.
    pub const NAME: &str = "tensorflow.MasterService";
    pub const CREATE_SESSION: &str = "/tensorflow.MasterService/CreateSession";
    pub const EXTEND_SESSION: &str = "/tensorflow.MasterService/ExtendSession";
    pub const PARTIAL_RUN_SETUP: &str = "/tensorflow.MasterService/PartialRunSetup";
    pub const RUN_STEP: &str = "/tensorflow.MasterService/RunStep";
    pub const CLOSE_SESSION: &str = "/tensorflow.MasterService/CloseSession";
    pub const LIST_DEVICES: &str = "/tensorflow.MasterService/ListDevices";
    pub const RESET: &str = "/tensorflow.MasterService/Reset";
    pub const MAKE_CALLABLE: &str = "/tensorflow.MasterService/MakeCallable";
    pub const RUN_CALLABLE: &str = "/tensorflow.MasterService/RunCallable";
    pub const RELEASE_CALLABLE: &str = "/tensorflow.MasterService/ReleaseCallable";

    /// Every call of the service.
    pub const ALL: &[&str] = &[
        CREATE_SESSION,
        EXTEND_SESSION,
        PARTIAL_RUN_SETUP,
        RUN_STEP,
        CLOSE_SESSION,
        LIST_DEVICES,
        RESET,
        MAKE_CALLABLE,
        RUN_CALLABLE,
        RELEASE_CALLABLE,
    ];
}

/// `tensorflow.WorkerService`: the calls of masters to workers, and between workers.
pub mod worker {
    /// The name of the service.
    pub const NAME: &str = "tensorflow.WorkerService";
    pub const GET_STATUS: &str = "/tensorflow.WorkerService/GetStatus";
    pub const CREATE_WORKER_SESSION: &str = "/tensorflow.WorkerService/CreateWorkerSession";
    pub const DELETE_WORKER_SESSION: &str = "/tensorflow.WorkerService/DeleteWorkerSession";
    pub const REGISTER_GRAPH: &str = "/tensorflow.WorkerService/RegisterGraph";
    pub const DEREGISTER_GRAPH: &str = "/tensorflow.WorkerService/DeregisterGraph";
    pub const RUN_GRAPH: &str = "/tensorflow.WorkerService/RunGraph";
    pub const CLEANUP_GRAPH: &str = "/tensorflow.WorkerService/CleanupGraph";
    pub const CLEANUP_ALL: &str = "/tensorflow.WorkerService/CleanupAll";
    pub const RECV_TENSOR: &str = "/tensorflow.WorkerService/RecvTensor";
    pub const MARK_RECV_FINISHED: &str = "/tensorflow.WorkerService/MarkRecvFinished";
    pub const LOGGING: &str = "/tensorflow.WorkerService/Logging";
    pub const TRACING: &str = "/tensorflow.WorkerService/Tracing";
    pub const RECV_BUF: &str = "/tensorflow.WorkerService/RecvBuf";
    pub const COMPLETE_GROUP: &str = "/tensorflow.WorkerService/CompleteGroup";
    pub const COMPLETE_INSTANCE: &str = "/tensorflow.WorkerService/CompleteInstance";
    pub const GET_STEP_SEQUENCE: &str = "/tensorflow.WorkerService/GetStepSequence";

    /// Every call of the service.
    pub const ALL: &[&str] = &[
        GET_STATUS,
        CREATE_WORKER_SESSION,
        DELETE_WORKER_SESSION,
        REGISTER_GRAPH,
        DEREGISTER_GRAPH,
        RUN_GRAPH,
        CLEANUP_GRAPH,
        CLEANUP_ALL,
        RECV_TENSOR,
        MARK_RECV_FINISHED,
        LOGGING,
        TRACING,
        RECV_BUF,
        COMPLETE_GROUP,
        COMPLETE_INSTANCE,
        GET_STEP_SEQUENCE,
    ];
}

/// Type URLs of the payloads of a status.
pub mod payload {
    /// Marks a failure that another failure caused; its value is empty.
    pub const DERIVED_STATUS: &str = "type.googleapis.com/tensorflow.DerivedStatus";
    /// Carries a `core_platform::ErrorSourceProto`.
    pub const ERROR_SOURCE: &str = "type.googleapis.com/tensorflow.core.platform.ErrorSourceProto";
    /// Carries a `distributed_runtime::GrpcPayloadsLost`.
    pub const PAYLOADS_LOST: &str = "type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost";
    /// Carries a `distributed_runtime::WorkerPossiblyRestarted`.
    pub const WORKER_POSSIBLY_RESTARTED: &str =
        "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted";
}
