//! What tasks of ours ask each other for people who look at a cluster, and the name of the call. TensorFlow's tasks never make it.

/// The call.
pub(crate) const ASK: &str = "/ferroflow.StatusService/Ask";

/// A question to a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskQuestion {
    /// What is asked for.
    #[prost(enumeration = "TaskTopic", tag = "1")]
    pub topic: i32,
    /// The session that it is about, or the number of steps.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum TaskTopic {
    /// Nothing that this release knows.
    Unknown = 0,
    /// How the task is.
    State = 1,
    /// The nodes of a session's graph.
    Graph = 2,
    /// When the nodes of the next steps run.
    Record = 3,
    /// How the tasks of the cluster are, as this one is told.
    Cluster = 4,
    /// Asks the task to stop in order, which only its own user on its own machine may.
    Stop = 5,
}

impl TaskQuestion {
    /// Makes a question.
    pub fn new(topic: TaskTopic, number: u64) -> TaskQuestion {
        TaskQuestion { topic: topic as i32, number }
    }
}

/// The answer of a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskAnswer {
    /// It, as JSON.
    #[prost(string, tag = "1")]
    pub json: String,
}
