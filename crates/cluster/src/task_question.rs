//! The questions that Ferroflow tasks ask each other for monitoring, and the name of the call. TensorFlow's tasks never make it.

/// The call.
pub(crate) const ASK: &str = "/ferroflow.StatusService/Ask";

/// A question to a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskQuestion {
    /// The kind of question.
    #[prost(enumeration = "TaskTopic", tag = "1")]
    pub topic: i32,
    /// The session that it is about, or the number of steps.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

/// The kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum TaskTopic {
    /// A kind that this release doesn't know.
    Unknown = 0,
    /// The task's state.
    State = 1,
    /// The nodes of a session's graph.
    Graph = 2,
    /// The times of the nodes of the next steps.
    Record = 3,
    /// The state of the cluster's tasks, as this one sees it.
    Cluster = 4,
    /// Stops the task in order, which only its own user on its own machine may request.
    Stop = 5,
}

impl TaskQuestion {
    /// Returns a question.
    pub fn new(topic: TaskTopic, number: u64) -> TaskQuestion {
        TaskQuestion { topic: topic as i32, number }
    }
}

/// The answer of a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskAnswer {
    /// The answer as JSON.
    #[prost(string, tag = "1")]
    pub json: String,
}
